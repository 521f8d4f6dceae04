"""Jobs on Dask: one task for each part of a Parquet file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import distributed

from .jobs import Config, Map
from .jobs.local import ATTEMPTS, plan
from .jobs.parts import PART_ROWS, remove_temporary, write_part

cluster: Any = distributed


def map_rows(frame: Any, config: Config) -> Any:
    """The `dask.dataframe.DataFrame` with the columns of a job; a partition is computed at once."""
    job = Map(config)
    return frame.map_partitions(job.pandas, meta=job.pandas(frame._meta))


def run(
    source: str,
    destination: str,
    config: Config,
    *,
    client: Any = None,
    workers: int = 1,
    part_rows: int = PART_ROWS,
    on_plan: Callable[[int], None] | None = None,
) -> int:
    """Computes a directory of Parquet files into another one. Returns the number of computed rows.

    `client` is the cluster; if `None`, `workers` processes of this machine. A part whose worker dies is computed again,
    at most three times. After an interruption the same call continues with the parts that are missing. `on_plan` is called
    with their number.

    Errors: `MixtureError` before the first row; those of `Map`; `distributed.KilledWorker`.
    """
    source, destination = os.fspath(source), os.fspath(destination)
    if client is None:
        with cluster.Client(n_workers=workers, threads_per_worker=1, dashboard_address=None) as started:
            return run(source, destination, config, client=started, part_rows=part_rows, on_plan=on_plan)
    missing = plan(source, destination, config, part_rows)
    if on_plan is not None:
        on_plan(len(missing))
    # A part is a side effect: without `pure=False` Dask would take the result of an earlier run.
    futures = [
        client.submit(write_part, config, source, destination, part, retries=ATTEMPTS, pure=False) for part in missing
    ]
    rows: int = sum(future.result() for future in cluster.as_completed(futures))
    remove_temporary(destination)
    return rows
