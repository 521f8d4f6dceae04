"""A job on the processes of one machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from . import metadata
from .config import Config
from .parts import PART_ROWS, Part, check_rows, exists, parts, remove_temporary, write_part

#: How often a part is given to another worker after the worker that computed it has died.
ATTEMPTS = 3


def plan(source: str, destination: str, config: Config, part_rows: int) -> list[Part]:
    """Compares the destination with the job, writes its manifest, and lists the parts that are missing there.

    Errors: `MixtureError` if it has rows of another computation, or of other files; `FileNotFoundError` if the source has no
    rows; `InputError` if its columns are not those of the job.
    """
    every = parts(source, part_rows)
    check_rows(source, config)
    metadata.begin(destination, config, source, {"part_rows": str(part_rows)})
    return [part for part in every if not exists(part, destination)]


def run(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    config: Config,
    *,
    workers: int = 1,
    part_rows: int = PART_ROWS,
    on_part: Callable[[int], None] | None = None,
    on_plan: Callable[[int], None] | None = None,
    start_method: str = "spawn",
) -> int:
    """Computes the Parquet files of a directory, or one file, into a directory. Returns the number of computed rows.

    With one worker the calling process computes, otherwise `workers` processes that are started with `start_method`
    (`spawn`, `forkserver` or `fork`). A part whose worker died is given to another worker, at most three times. After
    an interruption of any kind the same call continues with the parts that are missing. `on_part` is called with the
    rows of each part that is finished, and before the first part `on_plan` with the number of parts: of more workers the
    others have nothing to do.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> from simdformer.jobs import Config, run, verify
    >>> source, destination = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> pyarrow.parquet.write_table(pyarrow.table({"text": ["qui coupe le beurre ?"]}), source + "/rows.parquet")
    >>> run(source, destination, Config(demo_model))
    1
    >>> run(source, destination, Config(demo_model))
    0
    >>> verify(destination, Config(demo_model)).differences
    []

    Errors: `MixtureError` before the first row if the destination has rows of another computation;
    `FileNotFoundError` if the source has no Parquet files; `BrokenProcessPool` if a part ended three workers; those of
    `Map`.
    """
    source, destination = os.fspath(source), os.fspath(destination)
    missing = plan(source, destination, config, part_rows)
    if on_plan is not None:
        on_plan(len(missing))
    rows = 0
    results = (
        (write_part(config, source, destination, part) for part in missing)
        if workers <= 1
        else _processes(source, destination, config, missing, workers, start_method)
    )
    try:
        for done in results:
            rows += done
            if on_part is not None:
                on_part(done)
    finally:
        # No worker runs any more.
        remove_temporary(destination)
    return rows


def _processes(
    source: str, destination: str, config: Config, missing: list[Part], workers: int, start_method: str
) -> Iterator[int]:
    """The rows of each part, as worker processes finish them."""
    context = multiprocessing.get_context(start_method)
    attempts = 0
    while missing:
        undone = set(missing)
        try:
            with ProcessPoolExecutor(min(workers, len(missing)), context, initializer=_end_at_interrupt) as pool:
                with _interrupts_wait():
                    futures = {pool.submit(write_part, config, source, destination, part): part for part in missing}
                try:
                    waiting = set(futures)
                    while waiting:
                        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                        for future in done:
                            rows = future.result()
                            undone.discard(futures[future])
                            attempts = 0
                            yield rows
                except BrokenProcessPool:
                    raise
                except BaseException as error:
                    processes = list((pool._processes or {}).values())
                    pool.shutdown(wait=False, cancel_futures=True)
                    # Ctrl-C does not wait for the rows of a part.
                    for process in processes if not isinstance(error, Exception) else ():
                        process.terminate()
                    raise
        except BrokenProcessPool:
            attempts += 1
            if attempts >= ATTEMPTS:
                raise
        missing = [part for part in missing if part in undone]


def _end_at_interrupt() -> None:
    """Ctrl-C, which all processes of a terminal get, ends a worker without a word: the caller says it once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Processes that are started in the block do not get Ctrl-C before `_end_at_interrupt`; the caller gets it after."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
