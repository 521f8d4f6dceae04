"""What the methods of `Translator` return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from . import _simdformer
from .errors import SimdformerError
from .native_object import Closing, warn_of_cut
from .ragged import Ragged


class Finish(IntEnum):
    """Why a source ended."""

    END = 0
    """An end token came, or beam search could not improve its hypotheses."""
    LENGTH = 1
    """A sequence reached the maximum length."""
    STOPPED = 2
    """The caller stopped it."""
    EXHAUSTED = 3
    """No token was allowed to come next."""
    NOT_FINITE = 4
    """A score was NaN or infinite."""
    REFUSED = 5
    """The source was refused: `Generated.errors` says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """The sequences of a call, in the order of its sources."""

    tokens: Ragged
    """``num_return`` rows for each source, best first: row ``i * num_return + k`` is sequence ``k`` of source ``i``. Each
    with its end token, without decoder start and prefix."""
    scores: npt.NDArray[np.float32] | None
    """Natural logarithms, ``[sources]``, or ``[sources, num_return]`` if several are returned; NaN where there is no
    sequence. None in greedy search without ``scores=True``."""
    finish: npt.NDArray[np.uint8]
    """Why each source ended, ``[sources]``: a `Finish`."""
    errors: list[SimdformerError | None]
    """For each source, why it was refused; empty with ``errors="raise"``."""
    num_return: int = 1
    """The number of sequences of a source."""

    def __len__(self) -> int:
        return len(self.finish)

    def __repr__(self) -> str:
        refused = sum(error is not None for error in self.errors)
        return f"Generated({len(self)} sources, {len(self.tokens.ids)} ids, {refused} refused)"


@dataclass(frozen=True, slots=True, eq=False)
class Translated:
    """The translations of the texts of a call, in their order."""

    texts: list[str | None]
    """The translation of each text; None if there is an error."""
    errors: list[SimdformerError | None]
    """For each text, why it has no translation: the error of its first sentence that failed. It has `index`, `reason`, and
    for a text of several sentences `sentence` and `source`."""
    finish: npt.NDArray[np.uint8]
    """Why each text ended, ``[texts]``: a `Finish`. What one sentence lacks the text lacks. ``END`` for a text that the model
    did not read, because it has no letters, or no word that the model knows."""
    truncated: npt.NDArray[np.bool_]
    """Whether only the first tokens of a sentence were translated, ``[texts]``; never without the option ``truncate``."""
    scores: npt.NDArray[np.float32] | None
    """The score of each text, ``[texts]``: the sum of those of its sentences, natural logarithms; NaN if there is an error.
    None without ``scores=True``."""
    notes: list[list[str]]
    """What is to be known about each text: the words that the model does not know, that a sentence without any known word
    was copied, or that a placeholder is missing."""

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        failed = sum(error is not None for error in self.errors)
        return f"Translated({len(self)} texts, {failed} failed)"


@dataclass(frozen=True, slots=True, eq=False)
class TranslatedDocument:
    """The translation of a document."""

    text: str | bytes
    """The document, in which sentences that failed are copied: a string if it was one."""
    errors: list[SimdformerError]
    """Why sentences have no translation. Each has `index` (of the paragraph), `sentence`, `source` and `reason`."""
    finish: Finish
    """What one sentence lacks the document lacks."""
    notes: list[str]
    """What is to be known about its sentences, in order, as in `Translated`."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The log-probabilities of given targets."""

    tokens: npt.NDArray[np.float32]
    """The natural logarithm of the probability of each target token, ``[tokens]``."""
    offsets: npt.NDArray[np.int64]
    """Where each target begins in `tokens`, ``[targets + 1]``."""

    @property
    def totals(self) -> npt.NDArray[np.float64]:
        """The sum of each target, ``[targets]``."""
        sums = np.concatenate(([0.0], np.cumsum(self.tokens, dtype=np.float64)))
        totals: npt.NDArray[np.float64] = sums[self.offsets[1:]] - sums[self.offsets[:-1]]
        return totals

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Which source tokens each target token attends to."""

    weights: npt.NDArray[np.float32]
    """``[target tokens, source tokens]``; the sum of each row is 1."""
    source: list[str]
    """The source tokens. Of a text, the parts of it; special tokens are empty."""
    target: list[str]
    """The target tokens, as the vocabulary writes them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The memory of a session, computed before it is allocated."""

    bytes: int
    """Bytes of all its buffers."""
    table: str
    """The bytes of each buffer."""

    def __str__(self) -> str:
        return self.table


class TextStream(Closing):
    """An iterator over the parts of a translation. Closing it ends the translation."""

    def __init__(self, native: _simdformer.TokenStream) -> None:
        self._native = native
        self._warned = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            return next(self._native)
        except StopIteration:
            if not self._warned and self.finish in (Finish.LENGTH, Finish.EXHAUSTED):
                self._warned = True
                warn_of_cut("the translation reached the maximum length; max_new_tokens changes it")
            raise

    @property
    def finish(self) -> Finish | None:
        """Why the translation ended; None before the end, and if it was closed."""
        found = self._native.finish
        return None if found is None else Finish(found)

    @property
    def truncated(self) -> bool:
        """Whether only the first tokens of the sentence are translated."""
        return self._native.truncated

    @property
    def notes(self) -> list[str]:
        """The words that the model does not know, and what was done beside the translation; empty before its end."""
        return self._native.notes

    def close(self) -> None:
        """Ends the translation."""
        self._native.close()

