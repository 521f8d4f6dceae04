"""Jobs on Ray Data: an actor pool, and restarts by row number."""

from __future__ import annotations

import os
from typing import Any

import ray.data
from ray.data.checkpoint import CheckpointConfig

from .jobs import Config, Map, metadata


def map_rows(dataset: Any, config: Config, *, workers: int = 1, batch_rows: int = 512, cpus: float = 1) -> Any:
    """The `ray.data.Dataset` with the columns of a job. Each of `workers` actors opens the model and owns `cpus` cores.

    An actor that dies is started again, and its batch is computed again. The cluster needs two cores more than the actors, to
    read rows and to drop those of a restart, or Ray waits for ever (ray-project/ray#44687). The order of the rows is Ray's.
    """
    return dataset.map_batches(
        Map,
        fn_constructor_kwargs={"config": config},
        batch_format="pyarrow",
        batch_size=batch_rows,
        zero_copy_batch=True,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=cpus,
        max_restarts=-1,
        max_task_retries=-1,
    )


def run(
    source: str, destination: str, config: Config, *, workers: int = 1, batch_rows: int = 512, checkpoint: str = ""
) -> None:
    """Computes a directory of Parquet files into another one. After an interruption the same call continues.

    Ray notes the number (`Config.id`) of each written row in the directory `checkpoint`, by default one beside the
    destination. Connects to a running cluster if `RAY_ADDRESS` names one.

    Errors: `OptionError` without `Config.id`; `MixtureError` before the first row; those of Ray.
    """
    config.require_id("Ray continues by row number")
    metadata.begin(destination, config)
    # Ray takes no relative path for a checkpoint.
    checkpoint = checkpoint or f"{destination.rstrip('/')}.checkpoint"
    if "://" not in checkpoint:
        checkpoint = os.path.abspath(checkpoint)
    context = ray.data.DataContext.get_current()
    before = context.checkpoint_config
    context.checkpoint_config = CheckpointConfig(
        id_column=config.id,
        checkpoint_path=checkpoint,
        delete_checkpoint_on_success=False,
    )
    try:
        rows = ray.data.read_parquet(source)
        map_rows(rows, config, workers=workers, batch_rows=batch_rows).write_parquet(destination)
    finally:
        context.checkpoint_config = before
