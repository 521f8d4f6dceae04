"""Ray, Spark, Dask and Daft, with killed workers and resumed failures: one digest, that of a plain loop.

`SIMDFORMER_ENGINE_ROWS` is the number of rows, 2,000 if it is not set. The test prints the seconds of each engine.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs_digest import digest

from simdformer import InputError
from simdformer.jobs import Config, Map, MixtureError, run, verify
from simdformer.jobs import parts as job_parts

pytestmark = pytest.mark.engines

ROWS = int(os.environ.get("SIMDFORMER_ENGINE_ROWS", "2000"))
FILES = 20
#: Fewer rows than a worker gets at once, so that there are batches after the one that fails.
BATCH = 77 if ROWS <= 2000 else 512


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory, sentences: list[str]) -> str:
    """Rows of different texts in `FILES` files: each number makes its sentence a different one."""
    folder = tmp_path_factory.mktemp("source")
    for number in range(FILES):
        rows = range(number * ROWS // FILES, (number + 1) * ROWS // FILES)
        texts = [f"{sentences[row % len(sentences)]} {sentences[row * 7 % len(sentences)]}" for row in rows]
        pq.write_table(pa.table({"id": rows, "text": texts}), folder / f"{number:02}.parquet", row_group_size=100)
    return str(folder)


@pytest.fixture(scope="session")
def config(demo_model: str) -> Config:
    return Config(demo_model, id="id")


@pytest.fixture(scope="session")
def expected(source: str, config: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int, str]:
    """What a plain loop writes."""
    folder = tmp_path_factory.mktemp("plain")
    with seconds("plain loop"):
        run(source, folder, config)
    found = digest(folder)
    assert found[:2] == (ROWS, ROWS)
    return found


class seconds:
    """Prints how long a block took."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.begin = time.monotonic()

    def __exit__(self, *_: object) -> None:
        print(f"\n{self.name}: {ROWS} rows in {time.monotonic() - self.begin:.1f} s")


def once(mark: Path, what: str) -> type[Map]:
    """A `Map` that dies (`kill`) or raises (`raise`) in its third call, unless another one did. It logs its rows."""
    # Local, so that engines pickle it by value.
    base, log = Map, mark.parent / "calls"

    class Once(base):  # type: ignore[misc,valid-type]
        calls = 0

        def __call__(self, table: Any) -> Any:
            type(self).calls += bool(len(table))
            if type(self).calls >= 3 and not mark.exists():
                mark.touch()
                if what == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError("planted")
            with open(log, "a") as file:
                file.write(f"{len(table)}\n")
            return super().__call__(table)

    return Once


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    # Two actors, one that filters computed rows, the tasks that read and write, and one core for a leak: an actor that was
    # killed and started again in one job keeps its core (seen in Ray 2.60).
    ray.init(num_cpus=5, include_dashboard=False, log_to_driver=False)
    # The reader joins small files to one block, and one actor would get it.
    ray.data.DataContext.get_current().target_max_block_size = max(4_000, ROWS * 2)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


def test_ray_with_a_killed_actor(
    ray_cluster: Any, tmp_path: Path, source: str, config: Config, expected: Any, monkeypatch: Any
) -> None:
    from simdformer import ray as adapter

    monkeypatch.setattr(adapter, "Map", once(tmp_path / "mark", "kill"))
    with seconds("Ray with a kill"):
        adapter.run(source, str(tmp_path / "rows"), config, workers=2, batch_rows=BATCH)
    assert (tmp_path / "mark").exists()
    assert digest(tmp_path / "rows") == expected


def test_ray_resumes_a_failed_job(
    ray_cluster: Any, tmp_path: Path, source: str, config: Config, expected: Any, monkeypatch: Any
) -> None:
    from simdformer import ray as adapter

    monkeypatch.setattr(adapter, "Map", once(tmp_path / "mark", "raise"))
    with seconds("Ray, failure"), pytest.raises(Exception, match="planted"):
        adapter.run(source, str(tmp_path / "rows"), config, workers=1, batch_rows=BATCH)
    with seconds("Ray, resumed"):
        adapter.run(source, str(tmp_path / "rows"), config, workers=1, batch_rows=BATCH)
    assert digest(tmp_path / "rows") == expected
    with pytest.raises(MixtureError):
        adapter.run(source, str(tmp_path / "rows"), Config(config.path, id="id", options={"beams": 2}))
    assert verify(tmp_path / "rows", config, sample=0.01).differences == []


def test_ray_without_its_destination(
    ray_cluster: Any, tmp_path: Path, source: str, config: Config, expected: Any
) -> None:
    """Which rows are there the destination says, whatever the checkpoint has."""
    from simdformer import ray as adapter

    rows = tmp_path / "rows"
    adapter.run(source, str(rows), config, batch_rows=BATCH)
    shutil.rmtree(rows)
    adapter.run(source, str(rows), config, batch_rows=BATCH)
    assert digest(rows) == expected
    # A file is lost, and then the checkpoint.
    next(rows.glob("*.parquet")).unlink()
    adapter.run(source, str(rows), config, batch_rows=BATCH)
    assert digest(rows) == expected
    shutil.rmtree(tmp_path / "rows.checkpoint")
    adapter.run(source, str(rows), config, batch_rows=BATCH)
    assert digest(rows) == expected
    # A file that a killed job has begun.
    file = next(rows.glob("*.parquet"))
    shutil.copy(file, tmp_path / "rows.checkpoint" / f"{file.stem}.pending.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    adapter.run(source, str(rows), config, batch_rows=BATCH)
    assert digest(rows) == expected
    changed = shutil.copytree(source, tmp_path / "changed")
    table = pq.read_table(changed / "03.parquet")
    pq.write_table(table.slice(1), changed / "03.parquet")
    with pytest.raises(MixtureError, match="03.parquet: simdformer.sources"):
        adapter.run(str(changed), str(rows), config)
    with pytest.raises(InputError, match="expected a column 'wrong'"):
        adapter.run(source, str(tmp_path / "other"), Config(config.path, id="id", source="wrong"))
    assert not (tmp_path / "other").exists()


def test_spark_with_a_killed_worker(
    tmp_path: Path, source: str, config: Config, expected: Any, monkeypatch: Any
) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    from simdformer import spark as adapter

    with seconds("Spark, start"):
        # Four attempts: a plain `local[2]` tries once.
        builder = pyspark.sql.SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
        session = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH)).getOrCreate()
    try:
        monkeypatch.setattr(adapter, "Map", once(tmp_path / "mark", "kill"))
        with seconds("Spark with a kill"):
            adapter.run(source, str(tmp_path / "rows"), config)
        assert (tmp_path / "mark").exists()
        assert digest(tmp_path / "rows") == expected
        # A restart has nothing to do; one after a loss computes what is lost.
        adapter.run(source, str(tmp_path / "rows"), config)
        next((tmp_path / "rows").glob("part-*.parquet")).unlink()
        adapter.run(source, str(tmp_path / "rows"), config)
        assert digest(tmp_path / "rows") == expected
        with pytest.raises(MixtureError):
            adapter.run(source, str(tmp_path / "rows"), Config(config.path, id="id", options={"beams": 2}))
    finally:
        session.stop()


def test_dask_with_a_killed_worker(
    tmp_path: Path, source: str, config: Config, expected: Any, monkeypatch: Any
) -> None:
    pytest.importorskip("distributed")
    from simdformer import dask as adapter

    mark, write_part = tmp_path / "mark", job_parts.write_part

    def kills_once(*arguments: Any) -> int:
        if arguments[3].output.startswith("05") and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return write_part(*arguments)

    monkeypatch.setattr(adapter, "write_part", kills_once)
    with seconds("Dask with a kill"):
        adapter.run(source, str(tmp_path / "rows"), config, workers=2)
    assert mark.exists()
    assert digest(tmp_path / "rows") == expected


def test_frames_of_dask(config: Config, sentences: list[str]) -> None:
    frames = pytest.importorskip("dask.dataframe")
    from simdformer.dask import map_rows

    table = pa.table({"id": range(60), "text": [*sentences[:59], None]})
    frame = frames.from_pandas(table.to_pandas(), npartitions=4)
    found = map_rows(frame, config).compute(scheduler="synchronous").sort_values("id")
    expected = Map(config)(table).column("translation").to_pylist()
    assert found["translation"].iloc[:59].tolist() == expected[:59]
    assert found["translation"].isna().tolist() == [text is None for text in expected]


def test_daft(tmp_path: Path, source: str, config: Config, expected: Any) -> None:
    pytest.importorskip("daft")
    from simdformer import daft as adapter

    with seconds("Daft"):
        adapter.run(source, str(tmp_path / "rows"), config)
    assert digest(tmp_path / "rows") == expected
    # Computes what is lost, and no row twice.
    file = next((tmp_path / "rows").glob("*.parquet"))
    table = pq.read_table(file)
    pq.write_table(table.slice(len(table) // 3), file)
    adapter.run(source, str(tmp_path / "rows"), config)
    assert digest(tmp_path / "rows") == expected
    with pytest.raises(MixtureError):
        adapter.run(source, str(tmp_path / "rows"), Config(config.path, id="id", options={"beams": 2}))


PAGE = Path(__file__).resolve().parents[2] / "docs" / "jobs.md"


def blocks(word: str) -> list[str]:
    """The programs of `docs/jobs.md` with this word."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    return [block for block in found if word in block]


@pytest.mark.parametrize(
    "engine",
    [
        "jobs import Config, run",
        "Map(Config",
        "simdformer.dask",
        "simdformer.daft",
        "simdformer.spark",
        "simdformer.ray",
    ],
)
def test_the_recipes_of_the_page(tmp_path: Path, source: str, expected: Any, demo_model: str, engine: str) -> None:
    (tmp_path / "model").symlink_to(demo_model)
    (tmp_path / "rows").symlink_to(source)
    (program,) = blocks(engine)
    (tmp_path / "recipe.py").write_text(program, "utf-8")
    with seconds(f"recipe: {engine}"):
        subprocess.run([sys.executable, "-W", "ignore", "recipe.py"], cwd=tmp_path, check=True, timeout=300)
    if "run(" in program:
        column = "english" if "english" in program else "translation"
        found = digest(tmp_path / "translated", ("id", column))
        assert found[:2] == (ROWS, ROWS)
        assert found == expected or column == "english"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(tmp_path: Path, source: str, config: Config, expected: Any, method: str) -> None:
    with seconds(f"two processes, {method}"):
        run(source, tmp_path / "rows", config, workers=2, start_method=method)
    assert digest(tmp_path / "rows") == expected
