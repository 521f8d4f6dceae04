"""`Transcriber`: one result for each form of a recording, any threads and slots; iterators that end; wrong recordings."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import threading
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_fork import in_child
from test_signals import interrupted_after

import simdformer
from simdformer import Segment, Transcriber, TranscriberOptions

# The tiny model writes improbable texts: without a fallback each window has one attempt. A chirp is not speech.
PLAIN: dict[str, Any] = {
    "vad": False,
    "temperatures": [0.0],
    "no_speech_threshold": False,
    "logprob_threshold": False,
    "compression_ratio_threshold": False,
}
RATE = 16_000


def chirp(seconds: float, rate: int = RATE) -> npt.NDArray[np.int16]:
    time_of = np.arange(int(seconds * rate)) / rate
    return (8000 * np.sin(2 * np.pi * (200 + 300 * time_of) * time_of)).astype(np.int16)


def wav(samples: npt.NDArray[np.int16], rate: int = RATE) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(samples.shape[1] if samples.ndim == 2 else 1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()


@pytest.fixture(scope="module")
def transcriber(whisper: str) -> Transcriber:
    return Transcriber(whisper, **PLAIN)


@pytest.fixture(scope="module")
def expected(transcriber: Transcriber) -> list[Segment]:
    found = transcriber.transcribe_all(chirp(5), RATE)
    assert len(found.segments) > 3 and found.duration == 5.0 and found.language in ("en", "fr", "de")
    assert found.text == "".join(segment.text for segment in found.segments).strip() != ""
    return found.segments


def test_each_form_of_a_recording_gives_the_same_segments(
    transcriber: Transcriber, expected: list[Segment], tmp_path: Path
) -> None:
    samples = chirp(5)
    file = tmp_path / "chirp.wav"
    file.write_bytes(wav(samples))
    floats = samples.astype(np.float32) / 32768
    forms: list[tuple[Any, int | None]] = [
        (file, None),
        (str(file), None),
        (wav(samples), None),
        (memoryview(wav(samples)), None),
        (floats, RATE),
        (floats.astype(np.float64), RATE),
        (samples.astype(np.int32) * 65536, RATE),
        (np.stack([samples, samples], axis=1), RATE),
        (np.repeat(samples, 2)[::2], RATE),
        (samples.astype(">i2"), RATE),
    ]
    for audio, rate in forms:
        assert list(transcriber.transcribe(audio, rate)) == expected, (audio, rate)
    both = np.stack([samples, np.zeros_like(samples)], axis=1)
    assert list(transcriber.transcribe(both, RATE, channel=0)) == expected
    # Another rate is converted, by the same filter for a file and an array.
    at_8000 = chirp(5, 8000)
    assert list(transcriber.transcribe(at_8000, 8000)) == list(transcriber.transcribe(wav(at_8000, 8000)))
    # A compressed file.
    golden = Path(__file__).resolve().parents[2] / "text" / "tests" / "golden" / "audio"
    flac = transcriber.transcribe_all(golden / "flac.flac")
    assert flac.duration > 0 and flac.segments == transcriber.transcribe_all((golden / "flac.flac").read_bytes()).segments


def test_a_file_that_is_cut_gives_what_there_is_and_says_where(transcriber: Transcriber) -> None:
    whole = wav(chirp(5))
    with pytest.warns(simdformer.CutWarning, match="sound is missing: WAV, after 2.50 s: the file ends too early"):
        half = transcriber.transcribe_all(whole[: 44 + 5 * RATE])
    assert half.incomplete == "WAV, after 2.50 s: the file ends too early: expected 80000 samples, found 40000"
    expected = transcriber.transcribe_all(chirp(5)[:40_000], RATE)
    assert (half.segments, half.duration) == (expected.segments, 2.5) and expected.incomplete is None
    # A recorder that was killed wrote no length.
    open_end = whole[:40] + bytes(4) + whole[44:]
    found = transcriber.transcribe_all(open_end[:4] + (36).to_bytes(4, "little") + open_end[8:])
    assert found.segments == transcriber.transcribe_all(whole).segments and found.incomplete is None
    golden = Path(__file__).resolve().parents[2] / "text" / "tests" / "golden" / "audio"
    for name in ("opus.ogg", "opus.webm", "aac-recorder.mp4"):
        bytes_ = (golden / name).read_bytes()
        assert transcriber.transcribe_all(bytes_).incomplete is None
        bytes_ *= 2 if name.endswith(".ogg") else 1  # Its first page has all sound.
        with transcriber.transcribe(bytes_[: len(bytes_) * 3 // 4]) as stream, pytest.warns(simdformer.CutWarning):
            list(stream)
        assert stream.incomplete is not None and "s: the file ends too early" in stream.incomplete


def test_results_depend_on_nothing_else(whisper: str, expected: list[Segment]) -> None:
    samples = chirp(5)
    batched = Transcriber(whisper, batched=True, slots=1, **PLAIN).transcribe_all(samples, RATE)
    for threads in (1, 2):
        own = Transcriber(whisper, threads=threads, **PLAIN)
        assert list(own.transcribe(samples, RATE)) == expected
        again = list(own.transcribe(samples, RATE, batched=True, slots=3))
        assert again == batched.segments
        # Changes of one recording do not stay.
        assert list(own.transcribe(samples, RATE)) == expected
        found: list[list[Segment]] = []
        workers = [
            threading.Thread(target=lambda: found.append(list(own.transcribe(samples, RATE))))  # noqa: B023
            for _ in range(3)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert found == [expected] * 3
    spans = Transcriber(whisper, **PLAIN).transcribe_all(samples, RATE, speech=[(1.0, 2.0), (3.0, 3.5)])
    assert spans.segments and all(1.0 <= segment.start <= 3.5 for segment in spans.segments)
    # Samples at a temperature depend on the seed.
    drawn = [
        Transcriber(whisper, **PLAIN | {"temperatures": [0.8]}, seed=seed).transcribe_all(samples, RATE)
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def threads_of_recordings() -> int | None:
    """How many threads transcribe; None if the system does not say."""
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return None
    count = 0
    for task in tasks.iterdir():
        # A thread may end after it was listed.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            count += (task / "comm").read_text() == "simdformer-audi\n"
    return count


def test_segments_come_one_by_one_and_closing_ends_the_work(transcriber: Transcriber) -> None:
    with transcriber.transcribe(np.tile(chirp(60), 2), RATE) as stream:
        first = next(stream)
        assert stream.duration == 120.0 and stream.language == first.language
        assert threads_of_recordings() in (None, 1)
    assert list(stream) == [] and stream.text == ""
    ended = time.perf_counter() + 5
    while threads_of_recordings() and time.perf_counter() < ended:
        time.sleep(0.01)
    assert not threads_of_recordings()
    assert transcriber.transcribe(chirp(2), RATE).text == transcriber.transcribe_all(chirp(2), RATE).text


def test_words_have_times_and_do_not_change_the_text(transcriber: Transcriber, expected: list[Segment]) -> None:
    found = list(transcriber.transcribe(chirp(5), RATE, words=True))
    assert [segment.text for segment in found] == [segment.text for segment in expected]
    for segment in found:
        assert "".join(word.text for word in segment.words) == segment.text
        assert all(word.start <= word.end and 0 <= word.probability <= 1 for word in segment.words)
        assert (segment.words[0].start, segment.words[-1].end) == (segment.start, segment.end)
        assert pickle.loads(pickle.dumps(segment)) == segment
    assert not any(segment.words for segment in expected)


def test_only_speech_is_transcribed_unless_that_is_off(whisper: str) -> None:
    with Transcriber(whisper, **{**PLAIN, "vad": True}) as other:
        assert other.transcribe_all(chirp(5), RATE).segments == []


def test_progress_counts_seconds(transcriber: Transcriber) -> None:
    counts: list[int] = []
    transcriber.transcribe_all(chirp(5), RATE, progress=counts.append)
    assert counts == sorted(counts) and counts[-1] == 5 and len(counts) >= 5
    pytest.importorskip("tqdm")
    assert transcriber.transcribe_all(chirp(1), RATE, progress=True).duration == 1.0


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_transcription(whisper: str, threads: int, expected: list[Segment]) -> None:
    transcriber = Transcriber(whisper, threads=threads, **PLAIN)
    # While it is read for the scale, and while windows are decoded.
    long = np.tile(chirp(60), 5)
    delays = [
        interrupted_after(seconds, lambda: transcriber.transcribe_all(long, RATE))
        for seconds in (0.1, 0.3, 0.5)
    ]
    print(f"{threads} threads: {[round(1e3 * delay) for delay in delays]} ms")
    assert sorted(delays)[1] <= 0.1, delays
    assert list(transcriber.transcribe(chirp(5), RATE)) == expected


def test_fork_pickle_plan_and_close(whisper: str, expected: list[Segment]) -> None:
    samples = chirp(5)
    transcriber = Transcriber(whisper, threads=2, language="fr", **PLAIN)
    french = list(transcriber.transcribe(samples, RATE))
    assert {segment.language for segment in french} == {"fr"}
    assert in_child(lambda: list(transcriber.transcribe(samples, RATE))) == french
    stream = transcriber.transcribe(samples, RATE)
    with pytest.raises(simdformer.ForkError):
        in_child(lambda: list(stream))
    assert list(stream) == french
    data = pickle.dumps(transcriber)
    again = pickle.loads(data)
    assert len(data) <= 500 and again.options == transcriber.options and again.threads == 2
    assert list(again.transcribe(samples, RATE)) == french
    found = transcriber.transcribe_all(samples, RATE)
    assert pickle.loads(pickle.dumps(found)) == found and hash(transcriber.options)
    assert transcriber.plan.bytes > 0 and "bytes" in transcriber.plan.table
    assert "session of" in repr(transcriber) and transcriber.rate == RATE
    with again:
        pass
    with pytest.raises(simdformer.ClosedError):
        again.transcribe(samples, RATE)
    assert "closed" in repr(again)


E = simdformer
SAMPLES = np.zeros(100, np.float32)
CALLS: list[tuple[str, type[BaseException], str, Callable[[Transcriber], object]]] = [
    ("no rate", E.InputError, "samples per second", lambda t: t.transcribe(SAMPLES)),
    ("a rate of 0", E.InputError, "found 0", lambda t: t.transcribe(SAMPLES, 0)),
    ("a rate of a file", E.InputError, "found 16000", lambda t: t.transcribe("a.wav", RATE)),
    ("halves", E.InputTypeError, "float16", lambda t: t.transcribe(SAMPLES.astype(np.float16), RATE)),
    ("three axes", E.InputError, "[1, 2, 3]", lambda t: t.transcribe(np.zeros((1, 2, 3), np.float32), RATE)),
    ("axes in the other order", E.InputError, "64", lambda t: t.transcribe(np.zeros((2, 900), np.int16), RATE)),
    ("a list", E.InputTypeError, "list", lambda t: t.transcribe([0.0], RATE)),  # type: ignore[arg-type]
    ("no file", E.AudioNotFoundError, "/nothing", lambda t: list(t.transcribe("/nothing.wav"))),
    ("a directory", E.AudioError, "directory", lambda t: list(t.transcribe(os.path.dirname(__file__)))),
    ("a text", E.AudioError, "found", lambda t: list(t.transcribe(__file__))),
    ("no bytes", E.AudioError, "", lambda t: list(t.transcribe(b""))),
    ("NaN", E.AudioError, "sample 1", lambda t: list(t.transcribe(np.array([0, np.nan], np.float32), RATE))),
    ("a channel", E.AudioError, "channel", lambda t: list(t.transcribe(SAMPLES, RATE, channel=1))),
    ("spans downwards", E.InputError, "ascend", lambda t: list(t.transcribe(SAMPLES, RATE, speech=[(2, 1)]))),
    ("an option", TypeError, "beam_size", lambda t: t.transcribe(SAMPLES, RATE, beam_size=5)),
    ("a language", E.LanguageError, "klingon", lambda t: t.transcribe(SAMPLES, RATE, language="klingon")),
    ("a task", E.OptionError, "sing", lambda t: t.transcribe(SAMPLES, RATE, task="sing")),
    ("a temperature", E.OptionError, "11", lambda t: Transcriber(t.path, temperatures=[11.0])),
    ("one temperature", E.OptionTypeError, "0.5", lambda t: Transcriber(t.path, temperatures=0.5)),
    ("a threshold of True", E.OptionTypeError, "True", lambda t: Transcriber(t.path, logprob_threshold=True)),
    ("a threshold of text", E.OptionTypeError, "'x'", lambda t: Transcriber(t.path, logprob_threshold="x")),
    ("0 slots", E.OptionError, "0", lambda t: Transcriber(t.path, slots=0)),
    ("compression", E.OptionError, "zip", lambda t: Transcriber(t.path, compression="zip")),
    ("a long prompt", TypeError, "", lambda t: Transcriber(t.path, initial_prompt=7)),
]


@pytest.mark.parametrize(("kind", "part", "call"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS])
def test_a_wrong_recording(
    transcriber: Transcriber,
    kind: type[BaseException],
    part: str,
    call: Callable[[Transcriber], object],
) -> None:
    with pytest.raises(kind) as raised:
        call(transcriber)
    assert part in str(raised.value), str(raised.value)
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is type(raised.value) and repr(again.__dict__) == repr(raised.value.__dict__)


def test_other_models_do_not_transcribe(demo_model: str) -> None:
    with pytest.raises(simdformer.CheckpointError, match="preprocessor_config.json"):
        Transcriber(demo_model)


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"batched": True, "condition_on_previous_text": True}, "batched=False"),
        ({"language": "fr", "detect_each_window": True}, "language=None"),
    ],
)
def test_options_without_an_effect_are_errors(whisper: str, options: dict[str, Any], needed: str) -> None:
    with pytest.raises(simdformer.OptionError, match=f"has no effect without {needed}") as caught:
        Transcriber(whisper, **options)
    assert caught.value.option in options


def test_options_are_merged() -> None:
    options = TranscriberOptions(beams=2, no_speech_threshold=False)
    assert options.to_dict() == {"beams": 2, "no_speech_threshold": False}
    assert repr(options) == "TranscriberOptions(beams=2, no_speech_threshold=False)"


def test_a_text_that_reached_the_maximum_length_is_said(whisper: str) -> None:
    short = Transcriber(whisper, max_new_tokens=3, **PLAIN)
    with pytest.warns(simdformer.CutWarning, match="from 0.0 s on reached the maximum length"):
        found = short.transcribe_all(chirp(5), RATE)
    assert found.cut[0] == 0.0 and found.cut == sorted(set(found.cut))
    stream = short.transcribe(chirp(5), RATE)
    with pytest.warns(simdformer.CutWarning):
        assert len(list(stream)) == len(found.segments) and stream.cut == found.cut
