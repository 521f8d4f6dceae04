"""`Transcriber`: recordings in, segments of text out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _simdformer
from .errors import InputError, InputTypeError
from .generated import Plan
from .model_path import model_path
from .native_object import Closing, ModelObject, megabytes, warn_of_cut
from .options import TranscriberOptions, thread_count
from .progress import Progress, progress_bar

Audio = str | os.PathLike[str] | bytes | bytearray | memoryview | npt.NDArray[Any]
"""A path of a file, the bytes of a file, or samples: ``[samples]`` or ``[samples, channels]``."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a segment, with the punctuation around it."""

    start: float
    """The start, in seconds of the recording."""
    end: float
    """The end, in seconds of the recording."""
    text: str
    """The text. A space before the word is part of it: the texts of all words are that of the segment."""
    probability: float
    """The mean probability of its tokens."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the text with its times, as the model divides it: usually a sentence or a phrase."""

    start: float
    """The start, in seconds of the recording."""
    end: float
    """The end, in seconds of the recording."""
    text: str
    """The text. A space before the first word is part of it."""
    tokens: list[int]
    """The ids that the model wrote, its timestamps included."""
    words: list[Word]
    """Its words, with the option `words`; else empty."""
    avg_logprob: float
    """The mean log-probability of the tokens of its window; with beams, the score of the hypothesis."""
    no_speech_prob: float
    """The probability that its window has no speech."""
    compression_ratio: float
    """How repetitive the text of its window is: above 2.4, probably a loop."""
    temperature: float
    """The temperature of the attempt that was taken."""
    language: str | None
    """The language, as the checkpoint names it (``en``); None for a model of one language."""
    window: int
    """The index of its window. All windows are counted, also those without text."""


@dataclass(frozen=True, slots=True)
class Transcription:
    """The segments of a whole recording."""

    segments: list[Segment]
    """In order of their starts. Segments without text are left out."""
    duration: float
    """The length of the recording, in seconds."""
    language: str | None
    """The language, as in `Segment.language`; None also if there was nothing to detect it in."""
    incomplete: str | None = None
    """Where sound is missing, because the file is cut or damaged: the first such place. The text is that of what there is."""
    cut: list[float] = field(default_factory=list)
    """Where windows begin whose text did not end, because it reached the maximum length; in seconds."""

    @property
    def text(self) -> str:
        """The text of all segments, without space at its ends."""
        return "".join(segment.text for segment in self.segments).strip()


class SegmentStream(Closing):
    """An iterator over the segments of a recording. Closing it, or leaving it to the garbage collector, ends the work.

    The recording is transcribed while segments are read; a slow reader does not stop it.
    """

    duration: float | None = None
    """The length of the recording, in seconds: at the first segment, if it is known before the end."""
    language: str | None = None
    """The language, once the first segment is there."""
    language_probability: float | None = None
    """The probability of a language that was detected, among those of the model: that of the first window."""
    window_start: float = 0.0
    """Where the window of the last segment begins, in seconds."""
    incomplete: str | None = None
    """At the end: where sound is missing, because the file is cut or damaged. The segments are those of what there is, and a
    `CutWarning` says so."""
    cut: list[float]
    """Where windows begin whose text did not end, because it reached the maximum length; in seconds. At the end a `CutWarning`
    says so."""

    def __init__(
        self, native: _simdformer.SegmentStream, duration: float | None, progress: Progress
    ) -> None:
        self._native = native
        self.duration = duration
        self.cut = []
        self._progress = progress
        self._bar: Any = None
        self._warned = False
        self._exits = ExitStack()

    def __iter__(self) -> Iterator[Segment]:
        return self

    def __next__(self) -> Segment:
        try:
            while (event := self._native.next()) is not None:
                name, fields = event
                if name == "segment":
                    fields["words"] = [Word(*word) for word in fields["words"]]
                    segment = Segment(**fields)
                    self.language = segment.language
                    return segment
                if name == "length":
                    self.duration = fields["seconds"]
                elif name == "reached":
                    self._report(fields["seconds"])
                    self.window_start = fields["start"]
                    if self.language_probability is None:
                        self.language_probability = fields["language_probability"]
                    self.cut += [fields["start"]] if fields["cut"] else []
                else:
                    self.duration, self.language = fields["duration"], fields["language"]
                    self.incomplete = fields["incomplete"]
                    self._report(self.duration or 0.0)
        except BaseException:
            self.close()
            raise
        self._exits.close()
        if not self._warned:
            self._warned = True
            if self.cut:
                first = f"{self.cut[0]:.1f} s"
                warn_of_cut(f"the text from {first} on reached the maximum length; {len(self.cut)} windows did")
            if self.incomplete is not None:
                warn_of_cut(f"sound is missing: {self.incomplete}")
        raise StopIteration

    @property
    def text(self) -> str:
        """The text of the segments that were not read yet, without space at its ends. Reads them."""
        return "".join(segment.text for segment in self).strip()

    def close(self) -> None:
        """Ends the transcription."""
        self._native.close()
        self._exits.close()

    def _report(self, seconds: float) -> None:
        if self._progress is False:
            return
        if self._bar is None:
            total = None if self.duration is None else int(self.duration)
            self._bar = self._exits.enter_context(progress_bar(self._progress, total, "s"))
        self._bar(int(seconds))


class Transcriber(ModelObject[_simdformer.Transcriber]):
    """Transcribes recordings of any length with a Whisper model.

    `model` is a directory with a checkpoint, or the name of a model of the Hugging Face hub. `threads`, `isa` and `dtype`
    are those of `Translator`. Further keywords are those of `TranscriberOptions`.

    A transcriber can be shared by threads, pickled, used after a fork, and closed by ``with``. The text depends on the
    samples, the model and the options: not on `threads`, nor on what was transcribed before.

    >>> transcriber = Transcriber(whisper)
    >>> samples = np.sin(np.arange(16_000, dtype=np.float32) / 40)
    >>> for segment in transcriber.transcribe(samples, rate=16_000):
    ...     assert 0 <= segment.start <= segment.end and segment.text
    >>> transcriber.transcribe_all(samples, rate=16_000).duration
    1.0
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int | None = None,
        isa: str | None = None,
        dtype: str | None = None,
        options: TranscriberOptions | None = None,
        **changes: Any,
    ) -> None:
        values = {} if options is None else options.to_dict()
        self._options = TranscriberOptions(**{**values, **changes})
        self._path = model_path(model)
        self._threads = thread_count(threads)
        self._isa, self._dtype = isa, dtype
        self._native = _simdformer.Transcriber(
            self._path,
            isa=isa,
            dtype=dtype,
            threads=self._threads,
            options=self._options.to_dict(),
        )

    def transcribe(
        self,
        audio: Audio,
        rate: int | None = None,
        *,
        channel: int | None = None,
        speech: Sequence[tuple[float, float]] | None = None,
        progress: Progress = False,
        **changes: Any,
    ) -> SegmentStream:
        """The segments of a recording, each as soon as it is final.

        `audio` is the path of a file, the bytes of a file (WAV, AIFF, FLAC, MP3, AAC, M4A, Ogg, WebM), or an array of
        samples, ``[samples]`` or ``[samples, channels]``: float32 or float64 from -1 to 1, int16, int32 or uint8. An
        array needs `rate`, its samples per second; any rate works. Channels are averaged, or `channel` is read alone.

        `speech` are the only spans that are transcribed, in seconds, ascending. `progress` counts seconds. `changes` are
        options for this recording, for example ``language="fr"``: they need memory of their own, which is freed at the
        end.
        """
        native = self._open()
        options = replace(self._options, **changes).to_dict() if changes else None
        spans = None if speech is None else [(float(start), float(end)) for start, end in speech]
        source = _source(audio, rate)
        duration = len(audio) / rate if isinstance(audio, np.ndarray) and rate else None
        return SegmentStream(native.begin(source, channel, spans, options), duration, progress)

    def transcribe_all(
        self,
        audio: Audio,
        rate: int | None = None,
        *,
        channel: int | None = None,
        speech: Sequence[tuple[float, float]] | None = None,
        progress: Progress = False,
        **changes: Any,
    ) -> Transcription:
        """As `transcribe`, all segments at the end, with the text, the language and the length."""
        arguments: dict[str, Any] = {"channel": channel, "speech": speech, "progress": progress}
        with self.transcribe(audio, rate, **arguments, **changes) as stream:
            segments = list(stream)
        return Transcription(segments, stream.duration or 0.0, stream.language, stream.incomplete, stream.cut)

    @property
    def plan(self) -> Plan:
        """The memory of the session that a recording needs; recordings at the same time have one each."""
        return Plan(*self._open().plan())

    @property
    def rate(self) -> int:
        """Samples per second that the model reads; other rates are converted."""
        return self._open().rate

    @property
    def options(self) -> TranscriberOptions:
        """The options that were given."""
        return self._options

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._threads, self._isa, self._dtype, self._options.to_dict())
        return _opened, (type(self), self._path, *arguments)

    def __repr__(self) -> str:
        head = f"Transcriber({self._path!r}, threads={self._threads}, {self._options!r})"
        if self._native is None:
            return f"{head}, closed"
        weights, session = self._native.model_bytes, self.plan.bytes
        return f"{head}: weights of {megabytes(weights)}, session of {megabytes(session)}"


def _opened(
    kind: type[Transcriber],
    path: str,
    threads: int,
    isa: str | None,
    dtype: str | None,
    options: dict[str, Any],
) -> Transcriber:
    return kind(path, threads=threads, isa=isa, dtype=dtype, **options)


# How the native module names the encoding of a dtype.
_ENCODINGS = {"float32": "f32le", "float64": "f64le", "int16": "s16le", "int32": "s32le", "uint8": "u8"}


def _source(audio: Any, rate: int | None) -> Any:
    """What the native module reads: a path, bytes, or bytes with their encoding, rate and channels."""
    file: Any = audio
    if isinstance(audio, (str, bytes, bytearray, memoryview, os.PathLike)):
        if rate is not None:
            raise InputError(
                f"rate: expected none for a file, which has its own, found {rate}",
                argument="rate",
                expected=None,
                found=rate,
            )
        return os.fsdecode(file) if isinstance(audio, (str, os.PathLike)) else bytes(file)
    if not isinstance(audio, np.ndarray):
        raise InputTypeError(
            f"audio: expected a path, bytes or an array, found {type(audio).__name__}",
            argument="audio",
            expected="a path, bytes or an array",
            found=type(audio).__name__,
        )
    samples: npt.NDArray[Any] = file
    encoding = _ENCODINGS.get(samples.dtype.name)
    if encoding is None:
        expected = ", ".join(_ENCODINGS)
        raise InputTypeError(
            f"audio: expected one of {expected}, found {samples.dtype}",
            argument="audio",
            expected=expected,
            found=str(samples.dtype),
        )
    channels = samples.shape[1] if samples.ndim == 2 else 1
    if samples.ndim not in (1, 2) or not 1 <= channels <= _MOST_CHANNELS:
        expected = f"the shape [samples] or [samples, channels], at most {_MOST_CHANNELS} channels"
        raise InputError(
            f"audio: expected {expected}, found {list(samples.shape)}",
            argument="audio",
            expected=expected,
            found=samples.shape,
        )
    if not isinstance(rate, int) or isinstance(rate, bool) or not 1 <= rate < 2**32:
        raise InputError(
            f"rate: expected the samples per second of the array, found {rate!r}",
            argument="rate",
            expected="the samples per second of the array",
            found=rate,
        )
    return np.ascontiguousarray(samples.astype(samples.dtype.newbyteorder("<"))).tobytes(), encoding, rate, channels


# With more, the axes are probably in the other order.
_MOST_CHANNELS = 64
