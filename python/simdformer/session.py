"""`Session`: a model step by step, with its logits and intermediate tensors as arrays."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _simdformer
from ._simdformer import Hypothesis, Source
from .errors import OptionError
from .generated import Plan
from .model import Model, native
from .native_object import NativeObject
from .options import thread_count
from .ragged import rows_of

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest requests that a session must serve. Its memory is planned from them."""

    sentences: int = 1
    """Sources at a time."""
    source_tokens: int = 128
    """Tokens of one source."""
    target_tokens: int = 128
    """Tokens that can be fed to one hypothesis, with the decoder start."""
    beams: int = 1
    """Hypotheses of one source at a time."""
    batch_tokens: int | None = None
    """Source tokens that are encoded in one call (``sentences * source_tokens``)."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """An intermediate tensor of one source or hypothesis, ``[rows, columns]``; rows are consecutive tokens."""

    stage: str
    """Its name: one of `stages`."""
    stack: str
    """``encoder`` or ``decoder``."""
    layer: int | None
    """The layer, from 0; None before the first and after the last."""
    block: str | None
    """``self-attention``, ``cross-attention`` or ``feed-forward``; None outside all layers."""
    head: int | None
    """The head, from 0; None if the tensor has all heads."""
    source: int
    """The slot of the source; in `Session.encoder_output` its index."""
    hypothesis: int | None
    """The slot of the hypothesis; None for a tensor of the source."""
    position: int
    """The position of the first row in its sequence."""
    data: Floats
    """The numbers, ``[rows, columns]``."""


@dataclass(slots=True)
class Trace:
    """The intermediate tensors of the calls inside ``with session.trace(...)``."""

    views: list[View] = field(default_factory=list[View])
    """Every tensor, in the order of computation."""

    def select(self, stage: str, **place: Any) -> list[View]:
        """The views of a stage whose fields have the values of `place`, for example ``layer=1, head=0``."""
        return [
            view
            for view in self.views
            if view.stage == stage
            and all(getattr(view, name) == value for name, value in place.items())
        ]

    def array(self, stage: str, **place: Any) -> Floats:
        """The views of `select` as one array: ``[rows, columns]``, or ``[heads, rows, columns]`` if heads are separate.

        Rows of several steps are joined; their keys, of which each step has one more, are filled with 0.
        """
        views = self.select(stage, **place)
        if not views:
            raise OptionError(
                f"{stage}: expected a traced tensor at {place}, found none", option="stage", found=stage
            )
        heads: dict[int | None, list[Floats]] = {}
        for view in views:
            heads.setdefault(view.head, []).append(view.data)
        width = max(data.shape[1] for rows in heads.values() for data in rows)
        stacked = [
            np.concatenate([np.pad(data, ((0, 0), (0, width - data.shape[1]))) for data in rows])
            for rows in heads.values()
        ]
        return stacked[0] if None in heads else np.stack(stacked)


class Session(NativeObject[_simdformer.Session]):
    """A model and its planned memory, for programs that choose tokens themselves.

    Sources are encoded once, hypotheses about them are started, fed token by token, forked and released, in any order.
    The logits of a hypothesis depend on its source and its tokens alone. One thread at a time may use a session: a
    second one gets a `BusyError`. Pickled, it is an empty session of the same model and limits.

    >>> model = simdformer.Model(demo_model)
    >>> session = simdformer.Session(model, simdformer.Limits(sentences=1, source_tokens=16, target_tokens=16))
    >>> [source] = session.encode([model.encode("je suis étudiant")])
    >>> hypothesis, token, target = session.start(source), model.decoder_start, []
    >>> while token not in model.end_tokens:
    ...     token = int(session.step([hypothesis], [token])[0].argmax())
    ...     target.append(token)
    >>> model.decode(target)
    'i am a student'

    The attention of the last layer, ``[heads, target tokens, source tokens]``:

    >>> with session.trace("weights") as trace:
    ...     session.rewind(hypothesis, 0)
    ...     _ = session.prefill(hypothesis, [model.decoder_start, *target[:-1]])
    >>> last = model.decoder_layers - 1
    >>> trace.array("weights", layer=last, block="cross-attention").shape == (model.decoder_heads, 5, 4)
    True
    """

    def __init__(
        self,
        model: Model,
        limits: Limits | None = None,
        *,
        threads: int | None = None,
        cache: Literal["f32", "f16"] | None = None,
    ) -> None:
        self._model, self._limits = model, Limits() if limits is None else limits
        self._threads, self._cache = thread_count(threads), cache
        sizes = self._limits
        # A target has no more tokens than the model has positions.
        most = model.target_positions
        target = sizes.target_tokens if most is None else min(sizes.target_tokens, most)
        self._native = _simdformer.Session(
            native(model),
            (sizes.sentences, sizes.source_tokens, target, sizes.beams, sizes.batch_tokens),
            cache,
            self._threads,
        )

    def encode(self, sources: Any) -> list[Source]:
        """Encodes rows of source ids, in any form of `Translator.generate`, into free slots."""
        return self._open().encode(rows_of(sources, None, "sources"))

    def encoder_output(self, sources: Any) -> tuple[Floats, npt.NDArray[np.int64]]:
        """The last hidden states of the encoder, ``[tokens, d_model]``, and where each source begins. Uses no slot."""
        ids, offsets = rows_of(sources, None, "sources")
        found = self._open().encoder_output((ids, offsets))
        return found.reshape(-1, self._model.d_model), offsets

    def start(self, source: Source) -> Hypothesis:
        """A hypothesis about a source, without tokens."""
        return self._open().start(source)

    def step(self, hypotheses: Sequence[Hypothesis], tokens: Sequence[int]) -> Floats:
        """Feeds one token to each hypothesis: the logits after it, ``[hypotheses, vocabulary]``."""
        rows = [int(token) for token in tokens]
        found = self._open().step(list(hypotheses), rows)
        return found.reshape(-1, self._model.target_vocabulary)

    def step_argmax(
        self, hypotheses: Sequence[Hypothesis], tokens: Sequence[int]
    ) -> npt.NDArray[np.uint32]:
        """Feeds one token to each hypothesis: the best next token, ``[hypotheses]``, without computing all logits."""
        return self._open().step_argmax(list(hypotheses), [int(token) for token in tokens])

    def prefill(self, hypothesis: Hypothesis, tokens: Sequence[int], *, logits: bool = True) -> Floats:
        """Feeds many tokens in one pass: the logits after each, ``[tokens, vocabulary]``; no rows without `logits`."""
        found = self._open().prefill(hypothesis, [int(token) for token in tokens], logits)
        return found.reshape(-1, self._model.target_vocabulary)

    def fork(self, hypothesis: Hypothesis) -> Hypothesis:
        """A hypothesis with the same tokens. Keys and values are not copied."""
        return self._open().fork(hypothesis)

    def rewind(self, hypothesis: Hypothesis, length: int) -> None:
        """Shortens a hypothesis to its first `length` tokens."""
        self._open().rewind(hypothesis, length)

    def length(self, hypothesis: Hypothesis) -> int:
        """The number of tokens that were fed to a hypothesis."""
        return self._open().length(hypothesis)

    def release(self, hypothesis: Hypothesis) -> None:
        """Ends a hypothesis."""
        self._open().release(hypothesis)

    def release_source(self, source: Source) -> None:
        """Ends a source and its hypotheses."""
        self._open().release_source(source)

    def clear(self) -> None:
        """Ends all sources and hypotheses."""
        self._open().clear()

    @contextmanager
    def trace(self, *stages: str) -> Generator[Trace]:
        """Copies the intermediate tensors of these stages (all without any) of the calls inside the block. Results have the
        same bits. The trace is filled when the block ends."""
        session, trace = self._open(), Trace()
        session.begin_trace(list(stages))
        try:
            yield trace
        finally:
            for place, (source, hypothesis, position), (rows, columns, data) in session.take_trace(True):
                array = data.reshape(rows, columns)
                trace.views.append(View(*place, source, hypothesis, position, array))

    @property
    def model(self) -> Model:
        """The model."""
        return self._model

    @property
    def limits(self) -> Limits:
        """The limits that were given."""
        return self._limits

    @property
    def free_sources(self) -> int:
        """The number of free slots for sources."""
        return self._open().free_sources

    @property
    def plan(self) -> Plan:
        """The memory of the session."""
        return Plan(*self._open().plan())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._model, self._limits, self._threads, self._cache)

    def __repr__(self) -> str:
        head = f"Session({self._model.path!r}, {self._limits}, threads={self._threads})"
        return f"{head}, closed" if self._native is None else f"{head}\n{self.plan}"


def _restore(
    model: Model, limits: Limits, threads: int, cache: Literal["f32", "f16"] | None
) -> Session:
    return Session(model, limits, threads=threads, cache=cache)


def stages() -> list[str]:
    """The names of the intermediate tensors, in the order of computation.

    >>> stages()[:3]
    ['embedding', 'position', 'input']
    """
    return _simdformer.stages()


__all__ = ["Hypothesis", "Limits", "Session", "Source", "Trace", "View", "stages"]
