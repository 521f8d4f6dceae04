"""What `Translator.generate` returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from .errors import SimdformerError
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
