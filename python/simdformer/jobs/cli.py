"""`python -m simdformer job` and `python -m simdformer verify`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, get_args

from ..errors import SimdformerError
from . import metadata
from .config import Config, Errors, Task
from .local import run
from .parts import PART_ROWS
from .verification import verify


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Returns 0; 1 if rows differ; 2 for an error, which is one line on the standard error output; 130 after
    Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        return _failed("interrupted; the same command continues", 130)
    except (SimdformerError, OSError) as error:
        return _failed(str(error), 2)
    except ImportError as error:
        return _failed(f"{error}: install it with the extra of the engine, for example pip install 'simdformer[ray]'", 2)
    except Exception as error:
        # Of an engine, of a worker that died, of Arrow: the kind says which.
        return _failed(f"{type(error).__name__}: {error}", 2)


def _failed(text: str, code: int) -> int:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    print(f"\nsimdformer: {lines[0] if lines else 'no reason is given'}".lstrip("\n"), file=sys.stderr)
    return code


def _job(options: argparse.Namespace) -> int:
    config = Config(
        options.model,
        task=options.task,
        source=options.source,
        target=options.target,
        score=options.score,
        finish=options.finish,
        id=options.id,
        options=dict(options.option),
        isa=options.isa,
        threads=options.threads,
        sessions=options.sessions,
        dtype=options.dtype,
        errors=options.errors,
    )
    begin = time.monotonic()
    computed = _engine(options, config)
    seconds = time.monotonic() - begin
    known = "" if computed is None else f"{computed} rows, "
    print(f"{options.destination}: {known}{seconds:.1f} s", file=sys.stderr)
    return 0


def _engine(options: argparse.Namespace, config: Config) -> int | None:
    """Runs the job on its engine. Returns the number of rows, if the engine says it."""
    source, destination, workers = options.rows, options.destination, options.workers

    def on_plan(missing: int) -> None:
        if 0 < missing < workers:
            print(
                f"simdformer: {missing} of {workers} workers have rows: a part is at least a row group and about "
                f"{options.part_rows} rows (--part-rows)",
                file=sys.stderr,
            )

    if options.engine == "ray":
        from .. import ray

        ray.run(source, destination, config, workers=workers)
        return None
    if options.engine == "spark":
        from .. import spark

        spark.run(source, destination, config)
        return None
    if options.engine == "dask":
        from .. import dask

        part_rows = options.part_rows
        return dask.run(source, destination, config, workers=workers, part_rows=part_rows, on_plan=on_plan)
    done = 0

    def on_part(rows: int) -> None:
        nonlocal done
        done += rows
        if sys.stderr.isatty():
            print(f"\r{done} rows", end="", file=sys.stderr, flush=True)

    part_rows = options.part_rows
    return run(source, destination, config, workers=workers, part_rows=part_rows, on_part=on_part, on_plan=on_plan)


def _verify(options: argparse.Namespace) -> int:
    config = metadata.config_of(options.destination, options.model, threads=options.threads)
    found = verify(options.destination, config, sample=options.sample, seed=options.seed)
    for each in found.differences:
        print(f"{each.file}: row {each.row}: {each.column}: expected {each.expected!r}, found {each.found!r}")
    for row in found.failed:
        print(f"{row.file}: row {row.row}: {row.reason}")
    counts = f"{found.checked} computed again, {len(found.differences)} differ, {len(found.failed)} have no result"
    print(f"{found.rows} rows, {counts}", file=sys.stderr)
    return 1 if found.differences else 0


def _option(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`; the value is JSON, or else a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simdformer", description="Jobs over Parquet files.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    job = commands.add_parser(
        "job", help="compute rows of Parquet files; the same command continues after an interruption"
    )
    job.set_defaults(command=_job)
    job.add_argument("rows", metavar="SRC", help="a directory of Parquet files, or one file")
    job.add_argument("destination", metavar="DST", help="the directory of the results")
    job.add_argument("--model", required=True, help="the directory of the model, on every worker")
    job.add_argument("--engine", choices=("local", "ray", "spark", "dask"), default="local")
    job.add_argument("--workers", type=int, default=1, help="processes or actors; Spark has its own setting (1)")
    job.add_argument("--task", choices=get_args(Task), default="translate")
    job.add_argument("--source", default="", metavar="COLUMN", help="the column with the sources")
    job.add_argument("--target", default="", metavar="COLUMN", help="the new column")
    job.add_argument("--score", default="", metavar="COLUMN", help="a new column with scores; not of embed")
    job.add_argument("--finish", default="", metavar="COLUMN", help="a new column with why each row ended; not of embed")
    job.add_argument("--id", default="", metavar="COLUMN", help="row numbers; needed by Ray, Spark and sampling")
    job.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for example beams=4",
    )
    job.add_argument("--isa", help="the instruction set that each worker must have")
    job.add_argument("--dtype", help="the dtype of the weights, for example int8")
    job.add_argument("--threads", type=int, help="threads of a worker")
    job.add_argument("--sessions", type=int, help="sessions of a worker (one for each thread)")
    job.add_argument(
        "--errors",
        choices=get_args(Errors),
        default="raise",
        help="end at a wrong row, or note it in a column",
    )
    job.add_argument("--part-rows", type=int, default=PART_ROWS, help="local, dask: the rows of a file (%(default)s)")
    check = commands.add_parser("verify", help="compute rows of a finished job again, and compare every byte")
    check.set_defaults(command=_verify)
    check.add_argument("destination", metavar="DST")
    check.add_argument("--model", required=True, help="the directory of the model")
    check.add_argument("--sample", type=float, default=1.0, help="the share of the rows (1.0)")
    check.add_argument("--seed", type=int, default=0, help="chooses the rows")
    check.add_argument("--threads", type=int)
    return parser
