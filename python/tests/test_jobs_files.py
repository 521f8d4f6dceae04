"""Jobs over Parquet files: restarts, mixtures, killed workers, metadata, verification, the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs_digest import digest

from simdformer.jobs import Config, Map, MixtureError, RowError, metadata, run, verify
from simdformer.jobs.cli import main
from simdformer.jobs.parts import parts

ROWS, FILES = 240, 3


@pytest.fixture
def source(tmp_path: Path, sentences: list[str]) -> Path:
    """Three files of 80 rows in row groups of 20, one of them in a folder, and names that are no data."""
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    for number in range(FILES):
        rows = range(number * 80, number * 80 + 80)
        table = pa.table({"id": rows, "text": [sentences[row] for row in rows]})
        pq.write_table(table, folder / ("deep" if number == 2 else "") / f"rows{number}.parquet", row_group_size=20)
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.parquet").write_bytes(b"no data")
    return folder


def test_parts_depend_on_the_files_alone(source: Path) -> None:
    found = parts(source, part_rows=40)
    assert [part.output for part in found[:2]] == [
        "deep/rows2-00000-00002.parquet",
        "deep/rows2-00002-00004.parquet",
    ]
    assert len(found) == 6 and len({part.output for part in found}) == 6
    assert len(parts(source, part_rows=1000)) == FILES
    assert [part.output for part in parts(source / "rows0.parquet", 1000)] == ["rows0-00000-00004.parquet"]
    with pytest.raises(FileNotFoundError, match="expected Parquet files, found none"):
        parts(source / "nothing")


def test_every_way_has_one_digest_and_an_interrupted_job_continues(
    tmp_path: Path, source: Path, demo_model: str, monkeypatch: Any
) -> None:
    config = Config(demo_model, id="id")
    assert run(source, tmp_path / "plain", config) == ROWS
    expected = digest(tmp_path / "plain")
    assert expected[:2] == (ROWS, ROWS)
    assert run(source, tmp_path / "two", config, workers=2, part_rows=40) == ROWS
    assert digest(tmp_path / "two") == expected

    calls = []

    def fails(self: Map, table: Any, call: Any = Map.__call__) -> Any:
        calls.append(table.num_rows)
        if sum(calls) > 100:
            raise KeyboardInterrupt
        return call(self, table)

    with monkeypatch.context() as patch:
        patch.setattr(Map, "__call__", fails)
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "again", config, part_rows=40)
    written = digest(tmp_path / "again")[0]
    assert 0 < written < ROWS and not list((tmp_path / "again").rglob("_temporary*"))
    assert run(source, tmp_path / "again", config, part_rows=40) == ROWS - written
    assert digest(tmp_path / "again") == expected
    assert run(source, tmp_path / "again", config, part_rows=40) == 0


def _kill_once(config: Config, source: str, destination: str, part: Any) -> int:
    from simdformer.jobs import parts as module

    mark = Path(destination) / "_killed"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return module.write_part(config, source, destination, part)


def test_a_killed_worker_changes_nothing(tmp_path: Path, source: Path, demo_model: str, monkeypatch: Any) -> None:
    config = Config(demo_model, id="id")
    run(source, tmp_path / "plain", config)
    monkeypatch.setattr("simdformer.jobs.local.write_part", _kill_once)
    run(source, tmp_path / "killed", config, workers=2, part_rows=40, start_method="fork")
    assert (tmp_path / "killed" / "_killed").exists()
    assert digest(tmp_path / "killed") == digest(tmp_path / "plain")


def test_a_mixture_is_an_error_before_the_first_row(tmp_path: Path, source: Path, demo_model: str) -> None:
    folder = tmp_path / "rows"
    run(source, folder, Config(demo_model))
    with pytest.raises(MixtureError, match="simdformer.options: expected .*beams") as caught:
        run(source, folder, Config(demo_model, options={"beams": 2}))
    assert caught.value.key == "simdformer.options" and caught.value.found is not None
    with pytest.raises(MixtureError, match="simdformer.part_rows: expected 40, found 100000"):
        run(source, folder, Config(demo_model), part_rows=40)
    # Paths, threads and instruction sets that are not required change no bit.
    assert run(source, folder, Config(demo_model + "/.", threads=3)) == 0
    found = next(iter(dict(metadata.stored(folder)).values()))["simdformer.isa"]
    if found != "scalar":
        with pytest.raises(MixtureError, match="simdformer.isa: expected scalar"):
            run(source, folder, Config(demo_model, isa="scalar"))
    # A file of another origin.
    pq.write_table(pa.table({"id": [1]}), folder / "foreign.parquet")
    (folder / metadata.MANIFEST).unlink()
    with pytest.raises(
        MixtureError, match=r"foreign.parquet: simdformer.fingerprint: expected [0-9a-f]{64}, found no such"
    ):
        run(source, folder, Config(demo_model))


def test_the_footer_says_what_computed_the_rows(tmp_path: Path, source: Path, demo_model: str) -> None:
    config = Config(demo_model, options={"beams": 2})
    run(source, tmp_path / "rows", config)
    for file in metadata.parquet_files(tmp_path / "rows"):
        found = {key.decode(): value.decode() for key, value in pq.read_schema(file).metadata.items()}
        assert found == metadata.texts(config)
        assert json.loads(found["simdformer.options"])["options"] == {"beams": 2}
    assert metadata.config_of(tmp_path / "rows", demo_model) == config


def test_verify_finds_ten_planted_rows(tmp_path: Path, source: Path, demo_model: str) -> None:
    config, folder = Config(demo_model), tmp_path / "rows"
    run(source, folder, config)
    assert verify(folder, config).differences == []
    planted = set()
    for number, file in enumerate(metadata.parquet_files(folder)):
        table = pq.read_table(file)
        column = table.column("translation").to_pylist()
        for row in range(number, 80, 20 if number == 0 else 27)[:4]:
            column[row] = column[row] + " " if row % 2 else None
            planted.add((file, row))
        index = table.schema.get_field_index("translation")
        pq.write_table(table.set_column(index, "translation", pa.array(column, pa.string())), file)
    found = verify(folder, config)
    assert len(planted) == 10
    assert {(each.file, each.row) for each in found.differences} == planted
    assert (found.rows, found.checked) == (ROWS, ROWS)
    some = verify(folder, config, sample=0.25, seed=3)
    assert 30 <= some.checked <= 90
    assert {(each.file, each.row) for each in some.differences} <= planted
    with pytest.raises(MixtureError):
        verify(folder, Config(demo_model, options={"beams": 2}))


def test_a_row_that_cannot_be_computed_leaves_no_file(tmp_path: Path, refusing_model: str) -> None:
    config = Config(refusing_model, id="id")
    (tmp_path / "source").mkdir()
    pq.write_table(pa.table({"id": [3, 4], "text": ["je", "il fait froid"]}), tmp_path / "source" / "rows.parquet")
    with pytest.raises(RowError, match="row 1 with id = 4: .* token 5000 is outside") as caught:
        run(tmp_path / "source", tmp_path / "rows", config)
    assert (caught.value.row, caught.value.id) == (1, 4)
    assert metadata.parquet_files(tmp_path / "rows") == []


def test_vectors_are_verified_and_not_mixed(tmp_path: Path, source: Path, encoder: str) -> None:
    config, folder = Config(encoder, task="embed", id="id"), tmp_path / "rows"
    assert run(source, folder, config) == ROWS
    assert verify(folder, config).differences == []
    file = metadata.parquet_files(folder)[0]
    table = pq.read_table(file)
    vectors = table.column("embedding").to_pylist()
    vectors[7][2] = -vectors[7][2]
    index, kind = table.schema.get_field_index("embedding"), table.schema.field("embedding").type
    pq.write_table(table.set_column(index, "embedding", pa.array(vectors, kind)), file)
    assert [(each.file, each.row) for each in verify(folder, config).differences] == [(file, 7)]
    copy = shutil.copytree(encoder, tmp_path / "copy")
    assert run(source, folder, Config(str(copy), task="embed", id="id")) == 0
    # Another path, since a process opens each model once.
    other = shutil.copytree(encoder, tmp_path / "other")
    (other / "tokenizer_config.json").write_text("{}", "utf-8")
    with pytest.raises(MixtureError, match="simdformer.fingerprint: expected"):
        run(source, folder, Config(str(other), task="embed", id="id"))


def test_the_command_line(tmp_path: Path, source: Path, demo_model: str, capsys: Any) -> None:
    folder = str(tmp_path / "rows")
    assert main(["job", str(source), folder, "--model", demo_model, "--option", "beams=2", "--id", "id"]) == 0
    assert f"{ROWS} rows" in capsys.readouterr().err
    assert main(["verify", folder, "--model", demo_model, "--sample", "0.5"]) == 0
    assert "0 differ" in capsys.readouterr().err
    assert main(["job", str(source), folder, "--model", demo_model]) == 2
    assert "simdformer.options: expected" in capsys.readouterr().err
    file = metadata.parquet_files(folder)[0]
    table = pq.read_table(file)
    pq.write_table(table.set_column(2, "translation", pa.array(["x"] * len(table))), file)
    assert main(["verify", folder, "--model", demo_model]) == 1
    assert "expected '" in capsys.readouterr().out
