"""What a job finds in its destination: nothing, a failed job, rows of another source or model, damaged files."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs_digest import digest

from simdformer import InputError, OptionError
from simdformer.jobs import Config, Map, MixtureError, RowError, metadata, run
from simdformer.jobs.cli import main
from simdformer.jobs.parts import remove_temporary

TEXTS = ["quel mois", "il fait froid", "je suis étudiant", "la vieille maison blanche est belle"]


def write(folder: Path, name: str, rows: range, **columns: Any) -> None:
    """A Parquet file of two row groups."""
    texts = [TEXTS[row % 4] for row in rows]
    table = pa.table({"id": list(rows), "text": texts, **columns})
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name, row_group_size=len(rows) // 2 or 1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(tmp_path / "source", "a.parquet", range(8))
    write(tmp_path / "source", "b.parquet", range(8, 16))
    return tmp_path / "source"


#: How a first job fails, and the job that succeeds after it.
FAILED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "no source column": ({"source": "wrong"}, InputError),
    "a column of another type": ({"source": "id"}, InputError),
    "ids instead of texts": ({"task": "generate", "source": "text"}, InputError),
    "the result exists": ({"target": "text2", "source": "text"}, InputError),
    "no column of row numbers": ({"id": "number"}, InputError),
    "an option without a model of it": ({"options": {"beams": 2, "target_lang": "xx"}}, Exception),
    "a row fails": ({"source": "long"}, RowError),
}


@pytest.mark.parametrize("case", FAILED)
def test_a_failed_first_job_leaves_its_destination_free(tmp_path: Path, demo_model: str, case: str) -> None:
    source, folder = tmp_path / "source", tmp_path / "rows"
    write(source, "a.parquet", range(8), text2=["x"] * 8, long=["maison " * 600 + "?"] * 8)
    fields, kind = FAILED[case]
    if case == "a row fails":
        fields = {**fields, "options": {"truncate": False}, "task": "translate"}
    try:
        run(source, folder, Config(demo_model, **fields))
        assert case == "a row fails", "this model divides long texts"
    except kind as error:
        if kind is InputError:
            assert "a.parquet: " in str(error) and not folder.exists()
        config = Config(demo_model, id="id")
        assert run(source, folder, config) == 8
        assert digest(folder)[:2] == (8, 8)
        with pytest.raises(MixtureError):
            run(source, folder, Config(demo_model, id="id", options={"beams": 2}))


def test_a_job_that_was_killed_before_its_first_part_leaves_its_destination_free(
    tmp_path: Path, source: Path, demo_model: str
) -> None:
    folder = tmp_path / "rows"
    metadata.begin(folder, Config(demo_model, options={"beams": 3}), source, {"part_rows": "7"})
    (folder / "_temporary-0-a.parquet").write_bytes(b"PAR1")
    assert run(source, folder, Config(demo_model, id="id")) == 16
    assert digest(folder)[:2] == (16, 16)


def test_a_worker_with_another_model_is_an_error(demo_model: str) -> None:
    config, table = Config(demo_model), pa.table({"text": ["quel mois"]})
    known = metadata.texts(config)["simdformer.fingerprint"]
    same = pickle.loads(pickle.dumps(Map(config, known)))
    assert same(table).column("translation").to_pylist() == ["what month"]
    other = Config(demo_model, dtype="int8")
    for wrong in (Map(other, known), Map(config, "0" * 64)):
        with pytest.raises(MixtureError, match=f"{demo_model}: simdformer.fingerprint: expected"):
            wrong(table)


def test_two_jobs_that_begin_at_once_do_not_mix(tmp_path: Path, source: Path, demo_model: str) -> None:
    folder, first = tmp_path / "rows", Config(demo_model, id="id")

    def other_begins(missing: int) -> None:
        metadata.begin(folder, Config(demo_model, id="id", options={"beams": 2}), source)

    with pytest.raises(MixtureError, match="simdformer.fingerprint"):
        run(source, folder, first, on_plan=other_begins)
    assert metadata.parquet_files(folder) == []


def rewrite_text(source: Path) -> None:
    """The same size, rows and time."""
    file = source / "b.parquet"
    times = file.stat()
    table = pq.read_table(file)
    texts = ["quel moiz" if text == "quel mois" else text for text in table.column("text").to_pylist()]
    pq.write_table(table.set_column(1, "text", pa.array(texts)), file, row_group_size=4)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


#: Changes of a source, and what the second run says.
CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "one text, same size and time": (rewrite_text, "b.parquet: simdformer.sources: expected [0-9a-f]{64}, found [0-9a-f]"),
    "one bit": (
        lambda source: (source / "a.parquet").write_bytes(
            b"PAR1" + bytes([(source / "a.parquet").read_bytes()[4] ^ 1]) + (source / "a.parquet").read_bytes()[5:]
        ),
        "a.parquet: simdformer.sources",
    ),
    "fewer rows": (lambda source: write(source, "a.parquet", range(4)), "a.parquet: simdformer.sources"),
    "more rows": (lambda source: write(source, "b.parquet", range(8, 40)), "b.parquet: simdformer.sources"),
    "other row groups": (
        lambda source: pq.write_table(pq.read_table(source / "a.parquet"), source / "a.parquet"),
        "a.parquet: simdformer.sources",
    ),
    "a file is gone": (lambda source: (source / "a.parquet").unlink(), "a.parquet: simdformer.sources: .* no such entry"),
    "all files have other names": (
        lambda source: [file.rename(source / f"new-{file.name}") for file in list(source.iterdir())],
        "simdformer.sources: .* no such entry",
    ),
    "another file has the name": (
        lambda source: ((source / "a.parquet").unlink(), (source / "b.parquet").rename(source / "a.parquet")),
        "a.parquet: simdformer.sources",
    ),
    "a folder more": (
        lambda source: ((source / "in").mkdir(), (source / "b.parquet").rename(source / "in" / "b.parquet")),
        "b.parquet: simdformer.sources: .* no such entry",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_rewritten_source_is_an_error(tmp_path: Path, source: Path, demo_model: str, change: str) -> None:
    folder, config = tmp_path / "rows", Config(demo_model, id="id")
    # Rows of a job that has ended, or of one that was interrupted.
    run(source, folder, config, part_rows=4)
    (folder / "b-00000-00001.parquet").unlink()
    before = digest(folder)
    how, message = CHANGES[change]
    how(source)
    with pytest.raises(MixtureError, match=message):
        run(source, folder, config, part_rows=4)
    assert digest(folder) == before


def test_files_may_be_added_to_a_source(tmp_path: Path, source: Path, demo_model: str) -> None:
    folder, config = tmp_path / "rows", Config(demo_model, id="id")
    assert run(source, folder, config) == 16
    write(source, "c.parquet", range(16, 20))
    assert run(source, folder, config) == 4
    assert digest(folder)[:2] == (20, 20)
    # From now on it belongs to the source.
    (source / "c.parquet").unlink()
    with pytest.raises(MixtureError, match="c.parquet: simdformer.sources"):
        run(source, folder, config)
    # It is unknown of which source the rows are.
    (folder / metadata.MANIFEST).unlink()
    with pytest.raises(MixtureError, match=r"_simdformer.json: simdformer.sources: expected .* found no such entry"):
        run(source, folder, config)


def test_a_source_that_changes_while_the_job_runs_is_an_error(tmp_path: Path, source: Path, demo_model: str) -> None:
    folder = tmp_path / "rows"

    def changes(missing: int) -> None:
        write(source, "a.parquet", range(100, 108))

    with pytest.raises(OSError, match="a.parquet: expected a file that stays"):
        run(source, folder, Config(demo_model, id="id"), on_plan=changes)
    assert not list(folder.glob("a*")) and not list(folder.rglob("_temporary*"))


@pytest.mark.parametrize("damage", ["half", "empty", "no footer", "text"])
@pytest.mark.parametrize("file", ["a-00000-00002.parquet", metadata.MANIFEST])
def test_damaged_files_of_a_destination_are_named(
    tmp_path: Path, source: Path, demo_model: str, capsys: Any, damage: str, file: str
) -> None:
    folder, config = tmp_path / "rows", Config(demo_model, id="id")
    run(source, folder, config)
    path = folder / file
    content = path.read_bytes()
    changed = {"half": content[: len(content) // 2], "empty": b"", "no footer": content[:-8], "text": b"[1, 2]"}
    path.write_bytes(changed[damage])
    assert main(["job", str(source), str(folder), "--model", demo_model, "--id", "id"]) == 2
    found = capsys.readouterr().err
    assert found.startswith("simdformer: ") and file in found and found.count("\n") == 1
    if file != metadata.MANIFEST:
        path.unlink()
        assert run(source, folder, config) == 8


def test_a_part_that_cannot_be_written_leaves_nothing(tmp_path: Path, source: Path, demo_model: str) -> None:
    """A quota that ends in the middle of a file."""
    folder = tmp_path / "rows"
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from simdformer.jobs.cli import main; from simdformer.jobs import Map;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])));"
        "sys.exit(main(sys.argv[2:]))"
    )
    job = ["job", str(source), str(folder), "--model", demo_model, "--id", "id"]
    for limit in (0, 100, 700):
        done = subprocess.run([sys.executable, "-c", program, str(limit), *job], capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("simdformer: ") and done.stderr.count("\n") == 1, done.stderr
        assert metadata.parquet_files(folder) == []
        assert not list(folder.rglob("_temporary*")) and not (folder / metadata.MANIFEST).is_symlink()
    assert main(job) == 0
    assert digest(folder)[:2] == (16, 16)


def test_ctrl_c_ends_a_job_with_one_line(tmp_path: Path, demo_model: str) -> None:
    source, folder = tmp_path / "source", tmp_path / "rows"
    texts = [f"{TEXTS[row % 4]} {TEXTS[row // 4 % 4]}" for row in range(4000)]
    for number in range(8):
        rows = range(number * 500, number * 500 + 500)
        write(source, f"{number}.parquet", rows, words=[f"{texts[row]} {row}" for row in rows])
    job = ["job", str(source), str(folder), "--model", demo_model, "--id", "id", "--source", "words"]
    for workers in ("1", "2"):
        shutil.rmtree(folder, ignore_errors=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "simdformer", *job, "--workers", workers],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        end = time.monotonic() + 60
        while not list(folder.rglob("_temporary*")) and time.monotonic() < end:
            time.sleep(0.01)
        # All processes of a terminal get it.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (130, "simdformer: interrupted; the same command continues\n")
        assert not list(folder.rglob("_temporary*"))


def test_a_worker_more_than_parts_is_said(tmp_path: Path, source: Path, demo_model: str, capsys: Any) -> None:
    job = ["job", str(source), str(tmp_path / "rows"), "--model", demo_model, "--workers", "3", "--part-rows", "8"]
    assert main(job) == 0
    said = "simdformer: 2 of 3 workers have rows: a part is at least a row group and about 8 rows (--part-rows)\n"
    assert capsys.readouterr().err.startswith(said)


def test_errors_of_the_command_are_one_line(
    tmp_path: Path, source: Path, demo_model: str, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    job = ["job", str(source), str(tmp_path / "rows"), "--model", demo_model]
    for arguments, message in [
        ([*job, "--option", "beam=2"], "beam: expected an option of translate, found 'beam'; is it beams?"),
        ([*job, "--option", "beams=x"], "beams: "),
        ([*job, "--option", "beams=0"], "beams: "),
        ([*job, "--source", "wrong"], "a.parquet: table: expected a column 'wrong', found "),
        ([*job[:1], str(tmp_path / "none"), *job[2:]], "expected Parquet files, found none"),
        ([*job[:4], str(tmp_path / "none")], "none"),
        ([*job, "--isa", "mmx"], "mmx"),
        ([*job, "--dtype", "int3"], "int3"),
        ([*job, "--engine", "spark"], "pyspark"),
        (["verify", str(tmp_path / "rows"), "--model", demo_model], "simdformer.options: expected"),
    ]:
        assert main(arguments) == 2, arguments
        found = capsys.readouterr().err
        assert found.startswith("simdformer: ") and found.count("\n") == 1, found
        assert message in found, (arguments, found)
    with pytest.raises(OptionError, match="normalise: expected an option of embed, found 'normalise'; is it normalize"):
        Config(demo_model, task="embed", options={"normalise": False})


def test_a_damaged_source_is_named(tmp_path: Path, source: Path, demo_model: str, capsys: Any) -> None:
    for content in (b"", b"PAR1", (source / "b.parquet").read_bytes()[:-9], b"x" * 1000):
        (source / "b.parquet").write_bytes(content)
        assert main(["job", str(source), str(tmp_path / "rows"), "--model", demo_model]) == 2
        found = capsys.readouterr().err
        assert "b.parquet: expected a whole Parquet file" in found and found.count("\n") == 1, found
        assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_a_missing_package_is_one_line(package: str) -> None:
    program = f"import sys, runpy; sys.modules[{package!r}] = None; runpy.run_module('simdformer', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("simdformer: ") and done.stderr.count("\n") == 1, done.stderr
    assert package in done.stderr


def test_temporary_files_and_the_manifest_are_no_rows(tmp_path: Path, source: Path, demo_model: str) -> None:
    folder = tmp_path / "rows"
    run(source, folder, Config(demo_model))
    manifest = json.loads((folder / metadata.MANIFEST).read_text("utf-8"))
    assert set(json.loads(manifest[metadata.SOURCES])) == {"a.parquet", "b.parquet"}
    (folder / "_temporary-1-a.parquet").write_bytes(b"")
    remove_temporary(folder)
    assert sorted(os.listdir(folder)) == [metadata.MANIFEST, "a-00000-00002.parquet", "b-00000-00002.parquet"]
