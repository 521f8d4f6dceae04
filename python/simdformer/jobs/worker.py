"""The model of a worker: opened with the first rows, once per process, and used by all threads of it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .._simdformer import model_files
from ..embedder import Embedder
from ..generated import Finish
from ..errors import (
    ClosedError,
    IsaError,
    LimitError,
    MemoryPlanError,
    NotFiniteError,
    OptionError,
    SimdformerError,
)
from ..translator import Translator
from .config import Config, canonical
from .sources import Ids, Texts

_OPEN: dict[tuple[Config, int], Worker] = {}
_lock = threading.Lock()
# Errors that every row has.
_OF_ALL_ROWS = (ClosedError, IsaError, MemoryPlanError, OptionError)
#: Sentences that are decoded at the same time, unless the options say otherwise.
SLOTS = 32
# The options of `embed` with which the embedder is opened. The others are those of each call.
_OPENING = ("truncate", "slots")


def worker(config: Config) -> Worker:
    """The worker of this configuration in this process. The first call opens the model.

    Errors: those of `Translator`, for example `IsaError` if the machine lacks the instruction set.
    """
    key = (config, os.getpid())
    with _lock:
        found = _OPEN.get(key)
        if found is None:
            found = _OPEN[key] = Worker(config)
        return found


def _after_fork() -> None:
    """Another thread of the parent may have held the lock. The parent's workers stay: they share their weights."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class Results:
    """The results of some sources, one for each."""

    #: An Arrow array, `[sources]`; null where there is an error.
    values: Any
    #: An Arrow array of `float32`, `[sources]`; `None` if the job has no scores.
    scores: Any
    #: Why a source has no result, or `None`.
    errors: list[str | None]
    #: An Arrow array of strings, `[sources]`: why each ended; `None` for vectors.
    finish: Any = None
    #: The sources whose result reached the maximum length, and those that were cut.
    cut: int = 0


class Worker:
    """A model that computes the task of a configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        forced = os.environ.get("SIMDFORMER_ISA", "")
        if config.isa is not None and forced not in ("", config.isa):
            message = f"isa: expected {config.isa}, found a worker with SIMDFORMER_ISA={forced}"
            raise IsaError(message, expected=config.isa, found=forced)
        shared: dict[str, Any] = {"threads": config.threads, "isa": config.isa, "dtype": config.dtype}
        if config.task == "embed":
            opening = {name: value for name, value in config.options.items() if name in _OPENING}
            self._engine: Any = Embedder(config.path, **shared, **opening)
            # Now, because other files may come later.
            self._files = _files(self._engine.path)
        else:
            self._engine = Translator(config.path, sessions=config.sessions, **shared, **config.options)

    def isa(self) -> str:
        """The instruction set that computes."""
        return str(self._engine.isa)

    def fingerprint(self) -> str:
        """What identifies the weights, the tokenizer and the options, in hexadecimal."""
        if isinstance(self._engine, Translator):
            return self._engine.fingerprint
        return self._files

    def bytes(self, source_tokens: int) -> int:
        """The bytes of the weights, and of the plans of all sessions for sources of at most `source_tokens` tokens, or
        of as many as the model reads."""
        if self._config.task == "embed":
            message = (
                "task: expected translate or generate, since an embedder has no plan before its first call, found embed"
            )
            raise OptionError(message, option="task", expected="translate or generate", found="embed")
        slots = self._engine.options.slots or SLOTS
        try:
            plan = self._engine.plan_for(slots, source_tokens)
        except LimitError as error:
            plan = self._engine.plan_for(slots, int(error.expected))
        return int(self._engine.model_bytes + self._engine.sessions * plan.bytes)

    def compute(self, sources: Texts | Ids, streams: NDArray[np.uint64] | None) -> Results:
        """The results of all sources. `streams` are the random streams, `[sources]`, if tokens are drawn.

        A source that is an error has none; the others have the result that they have without it.
        """
        if isinstance(sources, Ids):
            return self._generate(sources, streams)
        if self._config.task == "embed":
            return self._embed(sources)
        return self._translate(sources, streams)

    def _translate(self, sources: Texts, streams: NDArray[np.uint64] | None) -> Results:
        scored = bool(self._config.score)
        if streams is None:
            found = [self._engine.translate(sources.values, errors="column", scores=scored)]
        else:
            found = [
                # A text has fewer than 65,536 sentences, each with a stream of its own.
                self._engine.translate(
                    [text], errors="column", scores=scored, stream=(stream << 16) % (1 << 64)
                )
                for text, stream in zip(sources.values, streams.tolist(), strict=True)
            ]
        texts = [text for one in found for text in one.texts]
        errors = [None if error is None else _reason(error) for one in found for error in one.errors]
        finish = np.concatenate([one.finish for one in found]) if found else np.zeros(0, np.uint8)
        scores = None
        if scored:
            values = np.concatenate([one.scores for one in found]) if found else np.zeros(0, np.float32)
            scores = pa.array(values, pa.float32(), mask=np.array([error is not None for error in errors], bool))
        cut = np.concatenate([one.truncated for one in found]) if found else np.zeros(0, np.bool_)
        cut |= _reached_maximum(finish)
        return Results(pa.array(texts, pa.string()), scores, errors, _finish(finish), int(cut.sum()))

    def _embed(self, sources: Texts) -> Results:
        errors: list[str | None] = [None] * len(sources)
        options = {name: value for name, value in self._config.options.items() if name not in _OPENING}
        # Of one text, so that a table without rows has the type of others.
        try:
            width = len(self._engine.embed("", **options))
        except NotFiniteError:
            # Each row says so.
            width = options.get("dim") or self._engine.dim
        vectors = np.zeros((len(sources), width), np.float32)

        def embed(first: int, last: int) -> None:
            vectors[first:last] = self._engine.embed(sources.values[first:last], **options)

        _attempt(embed, 0, len(sources), errors)
        mask = pa.array([error is not None for error in errors], pa.bool_())
        flat = pa.array(vectors.reshape(-1), pa.float32())
        return Results(pa.FixedSizeListArray.from_arrays(flat, width, mask=mask), None, errors)

    def _generate(self, sources: Ids, streams: NDArray[np.uint64] | None) -> Results:
        scored = bool(self._config.score)
        made = self._engine.generate(sources.ids, sources.offsets, scores=scored, streams=streams, errors="column")
        errors: list[str | None] = [None if error is None else _reason(error) for error in made.errors]
        for source, reason in sources.wrong.items():
            errors[source] = reason
        valid = np.array([error is None for error in errors], bool)
        lists = _lists(made.tokens.ids, made.tokens.offsets, valid)
        scores = pa.array(made.scores, pa.float32(), mask=~valid) if scored else None
        return Results(lists, scores, errors, _finish(made.finish), int(_reached_maximum(made.finish).sum()))


def _reason(error: SimdformerError) -> str:
    """Why a text has no translation. Its place in a call says nothing, but that of the sentence in the text does."""
    if error.reason is None:
        return str(error)
    if error.source is None:
        return error.reason
    return f"sentence {error.sentence}, {error.source[:60]!r}: {error.reason}"


def _reached_maximum(codes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which sources may lack the end of their result."""
    return np.isin(codes, (Finish.LENGTH, Finish.EXHAUSTED))


def _finish(codes: NDArray[np.uint8]) -> Any:
    """The names of `Finish` in lower case."""
    return pa.array([Finish(code).name.lower() for code in codes.tolist()], pa.string())


def _lists(ids: NDArray[np.uint32], offsets: NDArray[np.int64], valid: NDArray[np.bool_]) -> Any:
    """Lists of token ids; null where not `valid`."""
    mask = None if valid.all() else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids, pa.uint32()), mask=mask)


def _attempt(compute: Callable[[int, int], None], first: int, last: int, errors: list[str | None]) -> None:
    """Computes the sources from `first` to `last`. If that is an error, each half for itself, down to the source that
    is the reason. The bits of a source do not depend on the others, so these have the results of one call."""
    if first == last:
        return
    try:
        compute(first, last)
    except _OF_ALL_ROWS:
        raise
    except SimdformerError as error:
        if last - first == 1:
            errors[first] = _reason(error)
            return
        middle = (first + last) // 2
        _attempt(compute, first, middle, errors)
        _attempt(compute, middle, last, errors)


def _files(directory: str) -> str:
    """SHA-256 of the files of a model with their names: weights, tokenizer, pooling, prompts."""
    digest = hashlib.sha256()
    for name in model_files(directory, weights=True):
        with open(os.path.join(directory, name), "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        # A model that is one file has an absolute path, of which only the name counts.
        place = name.name if name.is_absolute() else name.as_posix()
        digest.update(canonical([place, content]).encode())
    return digest.hexdigest()


def version() -> str:
    """The version of this package."""
    return importlib.metadata.version("simdformer")
