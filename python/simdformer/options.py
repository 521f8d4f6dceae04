"""Options as data: frozen dataclasses that can be compared, replaced and pickled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Literal

from .errors import OptionError, OptionTypeError


class Options:
    """What the dataclasses of options share. `None` is an option that was not given."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def to_dict(self) -> dict[str, Any]:
        """The options that are set."""
        items = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in items if value is not None}

    def __repr__(self) -> str:
        items = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())
        return f"{type(self).__name__}({items})"


@dataclass(frozen=True, kw_only=True, repr=False)
class TranslatorOptions(Options):
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
    forced_eos: bool | None = None
    """Whether the last one of `max_new_tokens` must be an end token (what ``forced_eos_token_id`` says)."""
    num_beam_groups: int | None = None
    """Beams: the number of groups of diverse beam search (1)."""
    diversity_penalty: float | None = None
    """Beams: what each beam of an earlier group that chose a token subtracts from its score (0)."""
    length_penalty: float | None = None
    """Beams: the exponent of the length by which a score is divided (1)."""
    early_stopping: bool | Literal["never"] | None = None
    """Beams: when the search stops, as in transformers."""
    no_repeat_ngram_size: int | None = None
    """No n-gram of this size is written twice; 0 is off."""
    repetition_penalty: float | None = None
    """Divides the scores of tokens that were written before; 1 is off."""
    encoder_repetition_penalty: float | None = None
    """Multiplies the scores of tokens of the source; 1 is off."""
    encoder_no_repeat_ngram_size: int | None = None
    """No n-gram of this size of the source is written; 0 is off."""
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
    typical_p: float | None = None
    """Samples: keeps the tokens whose surprise is closest to the entropy, up to this sum of probabilities; 1 is off."""
    epsilon_cutoff: float | None = None
    """Samples: keeps tokens with at least this probability; 0 is off."""
    eta_cutoff: float | None = None
    """Samples: keeps tokens above a cutoff that depends on this number and on the entropy; 0 is off."""
    seed: int | None = None
    """Samples: the seed of the random numbers (0)."""
    source_lang: str | None = None
    """The language of the texts, a code of the model, or ``"auto"`` to detect it."""
    target_lang: str | None = None
    """The language of the translations."""
    prefix: str | None = None
    """What the model reads before every text, as ``summarize: `` (that of ``task_specific_params`` for the languages). An
    empty one turns that off. Not the `prefix` of `Translator.generate`, which holds target ids."""
    capitals: bool | None = None
    """Whether a text in capitals is read in small letters if the model knows these better, and its translation put into
    capitals (True)."""
    attributes: bool | None = None
    """Documents: whether attributes of HTML that people read, and titles and alternative texts of Markdown, are translated
    (True)."""
    slots: int | None = None
    """The number of sentences that are decoded at the same time (32). Results do not depend on it."""
    truncate: bool | None = None
    """Whether a sentence that is too long is cut (False: it is refused)."""
    cache: Literal["f32", "f16"] | None = None
    """The dtype of the KV cache."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TranscriberOptions(Options):
    """How a `Transcriber` writes. `None` keeps what the checkpoint says, or OpenAI's ``transcribe``.

    >>> TranscriberOptions(language="fr", temperatures=[0.0])
    TranscriberOptions(language='fr', temperatures=(0.0,))
    """

    language: str | None = None
    """The spoken language, as ``fr`` or ``french``. A multilingual model without one detects it in the first window."""
    task: Literal["transcribe", "translate"] | None = None
    """``translate`` writes English."""
    beams: int | None = None
    """The number of beams; 1 is greedy search."""
    timestamps: bool | None = None
    """Whether the model writes timestamps, which divide the text into segments (True, if it can). Without them a segment
    is a window."""
    words: bool | None = None
    """Whether words get times and probabilities: `Segment.words` (False). The text does not depend on it."""
    vad: bool | None = None
    """Whether voice activity detection leaves out pauses of ten seconds and more (True). Not if ``speech`` is given."""
    batched: bool | None = None
    """Whether windows are cut at pauses and decoded `slots` at a time, without the text of earlier ones (False)."""
    slots: int | None = None
    """The number of windows that are decoded at the same time with `batched` (4). The text does not depend on it."""
    initial_prompt: str | None = None
    """A text that precedes that of each window: names and the spelling of the domain."""
    hotwords: str | None = None
    """Words that the recording may have, as names in their spelling: they precede the text of each window."""
    detect_each_window: bool | None = None
    """Whether a language that is not given is detected in each window instead of the first one (False)."""
    condition_on_previous_text: bool | None = None
    """Whether the text of earlier windows is a prompt of the next one (True, if the model can); not with `batched`."""
    temperatures: Sequence[float] | None = None
    """The temperatures of the attempts at a window (0, 0.2, 0.4, 0.6, 0.8, 1); only the first may be 0."""
    no_speech_threshold: float | Literal[False] | None = None
    """The text of a window is dropped above this probability of no speech, if it is improbable, too (0.6). False: never."""
    logprob_threshold: float | Literal[False] | None = None
    """An attempt whose mean log-probability is below this number is improbable and fails (-1). False: never."""
    compression_ratio_threshold: float | Literal[False] | None = None
    """An attempt fails above this ratio: it repeats itself (2.4). False: never."""
    compression: Literal["text", "tokens"] | None = None
    """Of what the ratio is computed: of the text, as OpenAI does, or of the ids, as transformers does (``text``)."""
    max_new_tokens: int | None = None
    """The maximum number of new tokens of a window."""
    length_penalty: float | None = None
    """Beams: the exponent of the length by which a score is divided (1)."""
    no_repeat_ngram_size: int | None = None
    """No n-gram of this size is written twice in a window; 0 is off."""
    repetition_penalty: float | None = None
    """Divides the scores of tokens that were written before; 1 is off."""
    seed: int | None = None
    """The seed of the random numbers at temperatures above 0 (0)."""
    cache: Literal["f32", "f16"] | None = None
    """The dtype of the KV cache."""

    def __post_init__(self) -> None:
        # A list cannot be hashed.
        if isinstance(self.temperatures, list):
            object.__setattr__(self, "temperatures", tuple(self.temperatures))


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


def token_count(tokens: int) -> int:
    """A maximum number of tokens, which is checked.

    >>> token_count(128)
    128
    """
    return _count("max_tokens", tokens, 2**32)


def queue_capacity(capacity: int) -> int:
    """A number of sentences that wait or are decoded, which is checked.

    >>> queue_capacity(1024)
    1024
    """
    return _count("capacity", capacity, 2**32)


def _count(name: str, number: object, most: int = 4096) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise OptionTypeError(
            f"{name}: expected a whole number of at least 1, found {number!r}",
            option=name,
            expected="a whole number of at least 1",
            found=repr(number),
        )
    return _checked(name, number, None, most)


def _checked(name: str, number: int, text: str | None = None, most: int = 4096) -> int:
    if not 1 <= number <= most:
        found = repr(number) if text is None else repr(text)
        raise OptionError(
            f"{name}: expected a whole number from 1 to {most}, found {found}",
            option=name,
            expected=f"a whole number from 1 to {most}",
            found=found,
        )
    return number
