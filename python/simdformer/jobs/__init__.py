"""Jobs: tables of any number of rows, on Ray, Spark, Dask, Daft or plain processes.

An engine distributes rows. This module is the function that it runs: :class:`Map` turns an Arrow table into the same
table with the results as further columns. The result of a row depends on the row, the model and the options only, so
batches, workers, retries and restarts change no byte.

>>> import pyarrow
>>> from simdformer.jobs import Config, Map
>>> rows = pyarrow.table({"id": [7, 8, 9], "text": ["je suis étudiant", None, "je suis étudiant"]})
>>> Map(Config(demo_model))(rows).column("translation").to_pylist()
['i am a student', None, 'i am a student']

Parts: :mod:`~simdformer.jobs.config` what is computed, :mod:`~simdformer.jobs.worker` the model of a process,
:mod:`~simdformer.jobs.map` one table, :mod:`~simdformer.jobs.parts` Parquet files in and out,
:mod:`~simdformer.jobs.metadata` what identifies a result, :mod:`~simdformer.jobs.verification` a check of results,
:mod:`~simdformer.jobs.local` processes of one machine, :mod:`~simdformer.jobs.cli` the command line.
"""

from .config import Config
from .local import run
from .map import Map, RowError
from .metadata import DamagedFileError, MixtureError
from .verification import Difference, FailedRow, Verification, verify

__all__ = [
    "Config",
    "DamagedFileError",
    "Difference",
    "FailedRow",
    "Map",
    "MixtureError",
    "RowError",
    "Verification",
    "run",
    "verify",
]
