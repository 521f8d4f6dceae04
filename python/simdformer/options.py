"""Options as data: frozen dataclasses that can be compared, replaced and pickled."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, Literal

from .errors import OptionError, OptionTypeError


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions:
    """How a `Translator` writes. `None` keeps what the checkpoint's ``generation_config.json`` says.

    The names are those of Hugging Face's ``GenerationConfig``, except `beams` and `num_return`.

    >>> from dataclasses import replace
    >>> options = TranslatorOptions(beams=4)
    >>> replace(options, max_new_tokens=64)
    TranslatorOptions(beams=4, max_new_tokens=64)
    """

    beams: int | None = None
    """The number of beams; 1 is greedy search."""
    num_return: int | None = None
    """The number of sequences of each source (1)."""
    max_new_tokens: int | None = None
    """The maximum number of new tokens."""
    min_new_tokens: int | None = None
    """The minimum number of new tokens (0)."""
    length_penalty: float | None = None
    """Beams: the exponent of the length by which a score is divided (1)."""
    early_stopping: bool | Literal["never"] | None = None
    """Beams: when the search stops, as in transformers."""
    no_repeat_ngram_size: int | None = None
    """No n-gram of this size is written twice; 0 is off."""
    repetition_penalty: float | None = None
    """Divides the scores of tokens that were written before; 1 is off."""
    sample: bool | None = None
    """Whether tokens are drawn at random."""
    temperature: float | None = None
    """Samples: divides the logits."""
    top_k: int | None = None
    """Samples: keeps so many of the most probable tokens; 0 keeps all."""
    top_p: float | None = None
    """Samples: keeps the most probable tokens up to this sum of probabilities."""
    min_p: float | None = None
    """Samples: keeps tokens with at least this share of the largest probability."""
    top_h: float | None = None
    """Samples: keeps the most probable tokens while their entropy is at most this share."""
    seed: int | None = None
    """Samples: the seed of the random numbers (0)."""
    source_lang: str | None = None
    """The language of the texts, a code of the model, or ``"auto"`` to detect it."""
    target_lang: str | None = None
    """The language of the translations."""
    slots: int | None = None
    """The number of sentences that are decoded at the same time (32). Results do not depend on it."""
    truncate: bool | None = None
    """Whether a sentence that is too long is cut (False: it is refused)."""
    cache: Literal["f32", "f16"] | None = None
    """The dtype of the KV cache."""

    def to_dict(self) -> dict[str, Any]:
        """The options that are set."""
        items = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in items if value is not None}

    def __repr__(self) -> str:
        items = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())
        return f"{type(self).__name__}({items})"


def thread_count(threads: int | None) -> int:
    """The number of threads: the argument, else ``SIMDFORMER_NUM_THREADS``, else ``OMP_NUM_THREADS``, else 1.

    Ray, Spark and Dask set ``OMP_NUM_THREADS`` to the cores that a worker owns.

    >>> thread_count(3)
    3
    """
    if threads is not None:
        return _count("threads", threads)
    for name in ("SIMDFORMER_NUM_THREADS", "OMP_NUM_THREADS"):
        # OpenMP allows a list for nested regions: its first number counts.
        text = os.environ.get(name, "").split(",")[0].strip()
        if text:
            try:
                number = int(text)
            except ValueError:
                number = 0
            return _checked(name, number, text)
    return 1


def session_count(sessions: int) -> int:
    """The number of sessions, which is checked.

    >>> session_count(2)
    2
    """
    return _count("sessions", sessions)


def _count(name: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise OptionTypeError(
            f"{name}: expected a whole number of at least 1, found {number!r}",
            option=name,
            expected="a whole number of at least 1",
            found=repr(number),
        )
    return _checked(name, number)


def _checked(name: str, number: int, text: str | None = None) -> int:
    most = 4096
    if not 1 <= number <= most:
        found = repr(number) if text is None else repr(text)
        raise OptionError(
            f"{name}: expected a whole number from 1 to {most}, found {found}",
            option=name,
            expected=f"a whole number from 1 to {most}",
            found=found,
        )
    return number
