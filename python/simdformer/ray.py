"""Jobs on Ray Data: an actor pool, and restarts by row number."""

from __future__ import annotations

import os
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import ray.data
from ray.data.checkpoint import CheckpointConfig

from .jobs import Config, Map, metadata
from .jobs.parts import check_rows


def map_rows(
    dataset: Any,
    config: Config,
    *,
    workers: int = 1,
    batch_rows: int = 512,
    cpus: float = 1,
    fingerprint: str | None = None,
) -> Any:
    """The `ray.data.Dataset` with the columns of a job. Each of `workers` actors opens the model and owns `cpus` cores.

    An actor that dies is started again, and its batch is computed again. The cluster needs two cores more than the actors, to
    read rows and to drop those of a restart, or Ray waits for ever (ray-project/ray#44687). The order of the rows is Ray's.
    With `fingerprint` an actor with another model raises `MixtureError`, as `Map` does.
    """
    return dataset.map_batches(
        Map,
        fn_constructor_kwargs={"config": config, "fingerprint": fingerprint},
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
    destination. Which rows are there the destination decides: the notes are made from it again, so rows whose file was
    deleted are computed. Connects to a running cluster if `RAY_ADDRESS` names one.

    Errors: `OptionError` without `Config.id`; `MixtureError` before the first row; those of Ray.
    """
    config.require_id("Ray continues by row number")
    # Ray takes no relative path for a checkpoint.
    checkpoint = checkpoint or f"{destination.rstrip('/')}.checkpoint"
    if "://" not in checkpoint:
        checkpoint = os.path.abspath(checkpoint)
    check_rows(source, config)
    _delete_begun(destination, checkpoint)
    metadata.begin(destination, config, source)
    _restore(destination, checkpoint, config.id)
    context = ray.data.DataContext.get_current()
    before = context.checkpoint_config
    context.checkpoint_config = CheckpointConfig(
        id_column=config.id,
        checkpoint_path=checkpoint,
        delete_checkpoint_on_success=False,
    )
    try:
        rows = ray.data.read_parquet(source)
        known = metadata.texts(config)["simdformer.fingerprint"]
        made = map_rows(rows, config, workers=workers, batch_rows=batch_rows, fingerprint=known)
        made.write_parquet(destination)
    finally:
        context.checkpoint_config = before


#: How the note of a file ends whose rows are not all written.
_PENDING = ".pending.parquet"


def _notes(checkpoint: str) -> list[Any]:
    """The files of a checkpoint."""
    system, root = metadata.filesystem(checkpoint)
    found = system.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    return [each for each in found if each.is_file and each.base_name.endswith(".parquet")]


def _delete_begun(destination: str, checkpoint: str) -> None:
    """Deletes the files that a killed job has begun."""
    system, _ = metadata.filesystem(destination)
    begun = tuple(
        each.base_name.removesuffix(_PENDING) for each in _notes(checkpoint) if each.base_name.endswith(_PENDING)
    )
    for file in metadata.parquet_files(destination) if begun else ():
        if file.rsplit("/", 1)[-1].startswith(begun):
            system.delete_file(file)


def _restore(destination: str, checkpoint: str, column: str) -> None:
    """Makes the notes of a checkpoint those of the rows in the destination."""
    notes, _ = metadata.filesystem(checkpoint)
    for each in _notes(checkpoint):
        notes.delete_file(each.path)
    system, _ = metadata.filesystem(destination)
    for number, file in enumerate(metadata.parquet_files(destination)):
        numbers = pq.read_table(file, columns=[column], filesystem=system, partitioning=None)
        with metadata.writing(checkpoint, f"restored-{number:06}.parquet") as (target, temporary):
            pq.write_table(numbers.replace_schema_metadata(), temporary, filesystem=target)
