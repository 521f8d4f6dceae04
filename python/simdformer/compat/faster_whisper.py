"""The names of faster-whisper over its own directories and those of transformers, without another copy of the model::

    from simdformer.compat.faster_whisper import WhisperModel

    model = WhisperModel("faster-whisper-small", compute_type="int8")
    segments, info = model.transcribe("audio.mp3", beam_size=5)
    print(info.language, info.language_probability)
    for segment in segments:
        print(f"[{segment.start:.2f}s -> {segment.end:.2f}s] {segment.text}")

An option that is not supported raises `NotImplementedError`, which names it. What differs:

| faster-whisper | here |
|---|---|
| ``device="auto"`` | the CPU |
| ``cpu_threads=0``: 4 threads | as everywhere here: ``OMP_NUM_THREADS``, else 1 |
| ``num_workers`` | ignored: calls of several threads run at the same time |
| beams end by the rules of CTranslate2 | by those of transformers, ``early_stopping=False``: close hypotheses may differ |
| ``best_of=5`` samples at a temperature above 0 | one sample |
| ``initial_prompt`` precedes the first window, as earlier text | the text of each window |
| ``prompt_reset_on_temperature=0.5``, ``max_initial_timestamp=1.0``, ``suppress_blank``, ``suppress_tokens=[-1]``, punctuation of words | these values, or those of the checkpoint, and no others |
| ``vad_filter=True`` removes pauses of 2 seconds | of ten seconds; `TranscriptionInfo.duration_after_vad` is the duration |
| ``language_detection_segments=1`` | this value, for which ``language_detection_threshold`` has no effect |
| `TranscriptionInfo.all_language_probs`, ``vad_options`` | None |
| times of words | closer to the sound, see the page about speech |
| ``transcribe`` computes while segments are read | begins at once; reading the first segment is part of the call |
| `BatchedInferencePipeline` joins speech to windows of up to 30 seconds | windows are cut at pauses, and pauses of ten seconds are left out |
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ..options import thread_count
from ..transcriber import Segment as _Segment
from ..transcriber import SegmentStream, Transcriber
from .supported import dtype_of, only_supported

__all__ = [
    "BatchedInferencePipeline",
    "Segment",
    "TranscriptionInfo",
    "TranscriptionOptions",
    "WhisperModel",
    "Word",
    "available_models",
]

Audio = str | os.PathLike[str] | BinaryIO | npt.NDArray[Any]

_PREPENDED = "\"'“¿([{-"
_APPENDED = "\"'.。,，!！?？:：”)]}、"
_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

_OWN_SIZES = "tiny tiny.en base base.en small small.en medium medium.en large-v1 large-v2 large-v3"
_DISTILLED = "small.en medium.en large-v2 large-v3"
_MODELS = {
    **{size: f"Systran/faster-whisper-{size}" for size in _OWN_SIZES.split()},
    **{f"distil-{size}": f"Systran/faster-distil-whisper-{size}" for size in _DISTILLED.split()},
    "large": "Systran/faster-whisper-large-v3",
    "distil-large-v3.5": "distil-whisper/distil-large-v3.5-ct2",
    "large-v3-turbo": "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
    "turbo": "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
}
"""The names of sizes, and their models on the Hugging Face hub."""


def available_models() -> list[str]:
    """The names of sizes.

    >>> "tiny.en" in available_models()
    True
    """
    return [*_MODELS]


@dataclass
class Word:
    """A word with the space before it, its times in seconds, and the mean probability of its tokens."""

    start: float
    end: float
    word: str
    probability: float


@dataclass
class Segment:
    """A part of the text with its times in seconds."""

    id: int
    """Counted from 1."""
    seek: int
    """The first frame of its window; a frame is 10 ms."""
    start: float
    end: float
    text: str
    tokens: list[int]
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: list[Word] | None
    """None without ``word_timestamps``."""
    temperature: float | None


@dataclass
class TranscriptionOptions:
    """The arguments of `WhisperModel.transcribe`, and its defaults."""

    beam_size: int = 5
    best_of: int = 5
    patience: float = 1
    length_penalty: float = 1
    repetition_penalty: float = 1
    no_repeat_ngram_size: int = 0
    log_prob_threshold: float | None = -1.0
    no_speech_threshold: float | None = 0.6
    compression_ratio_threshold: float | None = 2.4
    condition_on_previous_text: bool = True
    prompt_reset_on_temperature: float = 0.5
    temperatures: Sequence[float] = _TEMPERATURES
    initial_prompt: str | Iterable[int] | None = None
    prefix: str | None = None
    suppress_blank: bool = True
    suppress_tokens: Sequence[int] | None = (-1,)
    without_timestamps: bool = False
    max_initial_timestamp: float = 1.0
    word_timestamps: bool = False
    prepend_punctuations: str = _PREPENDED
    append_punctuations: str = _APPENDED
    multilingual: bool = False
    max_new_tokens: int | None = None
    clip_timestamps: str | Sequence[float] = "0"
    hallucination_silence_threshold: float | None = None
    hotwords: str | None = None


@dataclass
class TranscriptionInfo:
    """What is known of a whole recording."""

    language: str
    language_probability: float
    """1 for a language that was given."""
    duration: float
    """In seconds."""
    duration_after_vad: float
    all_language_probs: list[tuple[str, float]] | None
    transcription_options: TranscriptionOptions
    vad_options: None


class WhisperModel:
    """faster-whisper's ``WhisperModel`` over a directory of CTranslate2 or of transformers, the name of a size, or the name of
    a model of the hub.

    >>> model = WhisperModel(whisper, device="cpu", compute_type="float32")
    >>> segments, info = model.transcribe(np.sin(np.arange(16_000, dtype=np.float32) / 40), temperature=0.0)
    >>> info.duration, info.language in ("en", "fr", "de"), 0 < info.language_probability <= 1
    (1.0, True, True)
    >>> [segment.id for segment in segments][:1]
    [1]
    """

    def __init__(
        self,
        model_size_or_path: str | os.PathLike[str],
        device: str = "auto",
        device_index: int | list[int] = 0,
        compute_type: str = "default",
        cpu_threads: int = 0,
        num_workers: int = 1,
        download_root: str | None = None,
        local_files_only: bool = False,
        files: dict[str, Any] | None = None,
        revision: str | None = None,
        use_auth_token: str | bool | None = None,
        **model_kwargs: Any,
    ) -> None:
        del num_workers
        only_supported(
            {"device": (device, device in ("cpu", "auto")), "device_index": (device_index, device_index in (0, [0]))}
            | {"download_root": (download_root, download_root is None), "files": (files, not files)}
            | {"local_files_only": (local_files_only, not local_files_only)}
            | {"revision": (revision, revision is None), "use_auth_token": (use_auth_token, not use_auth_token)}
            | {name: (value, False) for name, value in model_kwargs.items()}
        )
        path = model_size_or_path
        if isinstance(path, str) and not os.path.exists(path):
            path = _MODELS.get(path, path)
        self.model = Transcriber(
            path, threads=thread_count(cpu_threads or None), dtype=dtype_of(compute_type)
        )

    def transcribe(
        self,
        audio: Audio,
        language: str | None = None,
        task: str = "transcribe",
        log_progress: bool = False,
        beam_size: int = 5,
        best_of: int = 5,
        patience: float = 1,
        length_penalty: float = 1,
        repetition_penalty: float = 1,
        no_repeat_ngram_size: int = 0,
        temperature: float | Sequence[float] = _TEMPERATURES,
        compression_ratio_threshold: float | None = 2.4,
        log_prob_threshold: float | None = -1.0,
        no_speech_threshold: float | None = 0.6,
        condition_on_previous_text: bool = True,
        prompt_reset_on_temperature: float = 0.5,
        initial_prompt: str | Iterable[int] | None = None,
        prefix: str | None = None,
        suppress_blank: bool = True,
        suppress_tokens: Sequence[int] | None = (-1,),
        without_timestamps: bool = False,
        max_initial_timestamp: float = 1.0,
        word_timestamps: bool = False,
        prepend_punctuations: str = _PREPENDED,
        append_punctuations: str = _APPENDED,
        multilingual: bool = False,
        vad_filter: bool = False,
        vad_parameters: object = None,
        max_new_tokens: int | None = None,
        chunk_length: int | None = None,
        clip_timestamps: str | Sequence[float] = "0",
        hallucination_silence_threshold: float | None = None,
        hotwords: str | None = None,
        language_detection_threshold: float | None = 0.5,
        language_detection_segments: int = 1,
    ) -> tuple[Iterator[Segment], TranscriptionInfo]:
        """The segments of a recording, and what is known of it. `audio` is a path, a file that is open, or float samples of
        16,000 per second. The module names what differs from faster-whisper."""
        del language_detection_threshold
        options = TranscriptionOptions(
            beam_size=beam_size,
            best_of=best_of,
            patience=patience,
            length_penalty=length_penalty,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram_size=no_repeat_ngram_size,
            log_prob_threshold=log_prob_threshold,
            no_speech_threshold=no_speech_threshold,
            compression_ratio_threshold=compression_ratio_threshold,
            condition_on_previous_text=condition_on_previous_text,
            prompt_reset_on_temperature=prompt_reset_on_temperature,
            temperatures=[temperature] if isinstance(temperature, (int, float)) else [*temperature],
            initial_prompt=initial_prompt,
            prefix=prefix,
            suppress_blank=suppress_blank,
            suppress_tokens=suppress_tokens,
            without_timestamps=without_timestamps,
            max_initial_timestamp=max_initial_timestamp,
            word_timestamps=word_timestamps,
            prepend_punctuations=prepend_punctuations,
            append_punctuations=append_punctuations,
            multilingual=multilingual,
            max_new_tokens=max_new_tokens,
            clip_timestamps=clip_timestamps,
            hallucination_silence_threshold=hallucination_silence_threshold,
            hotwords=hotwords,
        )
        only_supported(
            {"vad_parameters": (vad_parameters, vad_parameters is None)}
            | {"chunk_length": (chunk_length, chunk_length is None)}
            | {"language_detection_segments": (language_detection_segments, language_detection_segments == 1)}
        )
        clips = _spans(clip_timestamps)
        # A list of clips is used instead of the detection of speech.
        given: dict[str, Any] = {"vad": vad_filter and clips is None, "speech": clips}
        return self._run(audio, options, language=language, task=task, progress=log_progress, **given)

    def _run(
        self,
        audio: Audio,
        options: TranscriptionOptions,
        *,
        speech: list[tuple[float, float]] | None,
        progress: bool,
        language: str | None,
        **changes: Any,
    ) -> tuple[Iterator[Segment], TranscriptionInfo]:
        changes |= _changes(options)
        rate = self.model.rate if isinstance(audio, np.ndarray) else None
        source: Any = audio.read() if hasattr(audio, "read") else audio
        stream = self.model.transcribe(
            source, rate, speech=speech, progress=progress, language=language, **changes
        )
        # The language is known with the first segment, the length of some files at their end.
        segments = _segments(stream, options.word_timestamps)
        begin = [*islice(segments, 1)]
        if stream.duration is None:
            begin += segments
        duration = stream.duration or 0.0
        probability = stream.language_probability
        info = TranscriptionInfo(
            language=stream.language or language or "en",
            language_probability=1.0 if probability is None else probability,
            duration=duration,
            duration_after_vad=duration,
            all_language_probs=None,
            transcription_options=options,
            vad_options=None,
        )
        return chain(begin, segments), info


class BatchedInferencePipeline:
    """faster-whisper's ``BatchedInferencePipeline``: several windows are decoded at the same time, without the text of earlier
    ones."""

    def __init__(self, model: WhisperModel) -> None:
        self.model = model

    def transcribe(
        self,
        audio: Audio,
        language: str | None = None,
        task: str = "transcribe",
        log_progress: bool = False,
        without_timestamps: bool = True,
        vad_filter: bool = True,
        batch_size: int = 8,
        **options: Any,
    ) -> tuple[Iterator[Segment], TranscriptionInfo]:
        """As `WhisperModel.transcribe`, `batch_size` windows at a time."""
        temperature = options.pop("temperature", _TEMPERATURES)
        if isinstance(temperature, (int, float)):
            temperature = [temperature]
        names = {field.name for field in dataclasses.fields(TranscriptionOptions)}
        only_supported({name: (value, name in names) for name, value in options.items()})
        given = TranscriptionOptions(
            without_timestamps=without_timestamps, temperatures=[*temperature], **options
        )
        given.condition_on_previous_text = False
        only_supported({"clip_timestamps": (given.clip_timestamps, given.clip_timestamps in ("0", None))})
        return self.model._run(
            audio,
            given,
            speech=None,
            progress=log_progress,
            language=language,
            task=task,
            vad=vad_filter,
            batched=True,
            slots=batch_size,
        )


def _changes(options: TranscriptionOptions) -> dict[str, Any]:
    """The options as `TranscriberOptions` calls them. One that is not supported is an error."""
    default = TranscriptionOptions()
    fixed = {
        "patience": 1,
        "prompt_reset_on_temperature": default.prompt_reset_on_temperature,
        "prefix": None,
        "suppress_blank": True,
        "max_initial_timestamp": default.max_initial_timestamp,
        "prepend_punctuations": _PREPENDED,
        "append_punctuations": _APPENDED,
        "hallucination_silence_threshold": None,
    }
    given = {name: getattr(options, name) for name in fixed}
    only_supported({name: (given[name], given[name] == value) for name, value in fixed.items()})
    suppressed, prompt = options.suppress_tokens, options.initial_prompt
    only_supported(
        {
            "best_of": (options.best_of, options.best_of in (1, default.best_of)),
            "suppress_tokens": (suppressed, suppressed is not None and [*suppressed] == [-1]),
            "initial_prompt": (prompt, prompt is None or isinstance(prompt, str)),
        }
    )

    def threshold(value: float | None) -> float | bool:
        return False if value is None else value

    beams = options.beam_size
    return {
        "beams": beams,
        "length_penalty": options.length_penalty if beams > 1 else None,
        "repetition_penalty": options.repetition_penalty,
        "no_repeat_ngram_size": options.no_repeat_ngram_size,
        "logprob_threshold": threshold(options.log_prob_threshold),
        "no_speech_threshold": threshold(options.no_speech_threshold),
        "compression_ratio_threshold": threshold(options.compression_ratio_threshold),
        "condition_on_previous_text": options.condition_on_previous_text,
        "temperatures": [float(one) for one in options.temperatures],
        "initial_prompt": prompt,
        "timestamps": not options.without_timestamps,
        "words": options.word_timestamps,
        "detect_each_window": options.multilingual,
        "max_new_tokens": options.max_new_tokens,
        "hotwords": options.hotwords,
    }


def _spans(clips: str | Sequence[float]) -> list[tuple[float, float]] | None:
    """The clips of ``start,end,start,...`` in seconds; None for the whole recording. The last one may have no end."""
    if isinstance(clips, str):
        numbers = [float(number) for number in clips.split(",") if number.strip()]
    else:
        numbers = [float(number) for number in clips]
    if numbers in ([], [0.0]):
        return None
    if len(numbers) % 2:
        numbers.append(_END)
    return [*zip(numbers[::2], numbers[1::2], strict=True)]


_END = 1e9
"""Seconds that no recording has."""


def _segments(stream: SegmentStream, words: bool) -> Iterator[Segment]:
    for number, segment in enumerate(stream, 1):
        yield _segment(number, round(stream.window_start * 100), segment, words)


def _segment(number: int, seek: int, segment: _Segment, words: bool) -> Segment:
    return Segment(
        id=number,
        seek=seek,
        start=segment.start,
        end=segment.end,
        text=segment.text,
        tokens=segment.tokens,
        avg_logprob=segment.avg_logprob,
        compression_ratio=segment.compression_ratio,
        no_speech_prob=segment.no_speech_prob,
        words=[Word(one.start, one.end, one.text, one.probability) for one in segment.words] if words else None,
        temperature=segment.temperature,
    )
