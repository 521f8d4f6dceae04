"""Scripts written for faster-whisper, with only the import and the path of the model changed.

With the marker `peers` faster-whisper itself transcribes with the same directory, and the ids are compared.
"""

from __future__ import annotations

import io
import json
import shutil
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from simdformer import Transcriber
from simdformer.compat.faster_whisper import BatchedInferencePipeline, Segment, WhisperModel, Word, available_models

# As in the README of faster-whisper: a first transcription, words, the filter of pauses.
SCRIPTS = {
    "quickstart": """
model = WhisperModel(MODEL, device="cpu", compute_type="int8")
segments, info = model.transcribe(AUDIO, beam_size=5)
print("Detected language '%s' with probability %f" % (info.language, info.language_probability))
for segment in segments:
    print("[%.2fs -> %.2fs] %s" % (segment.start, segment.end, segment.text))
""",
    "words": """
model = WhisperModel(MODEL, device="cpu")
segments, _ = model.transcribe(AUDIO, word_timestamps=True)
for segment in segments:
    for word in segment.words:
        print("[%.2fs -> %.2fs] %s" % (word.start, word.end, word.word))
""",
    "without earlier text": """
model = WhisperModel(MODEL, device="auto", compute_type="float32")
segments, info = model.transcribe(AUDIO, beam_size=5, language="en", condition_on_previous_text=False)
print(info.language, info.language_probability)
for segment in segments:
    print("[%.2fs -> %.2fs] %s" % (segment.start, segment.end, segment.text))
""",
    "pauses": """
model = WhisperModel(MODEL)
segments, _ = model.transcribe(AUDIO, vad_filter=True)
segments = list(segments)  # The transcription will actually run here.
print(len(segments))
""",
    "batched": """
model = WhisperModel(MODEL)
batched_model = BatchedInferencePipeline(model=model)
segments, info = batched_model.transcribe(AUDIO, batch_size=16)
print(info.duration)
for segment in segments:
    print("[%.2fs -> %.2fs] %s" % (segment.start, segment.end, segment.text))
""",
}

RATE = 16_000
# The tiny model writes improbable texts: without a fallback each window has one attempt.
PLAIN: dict[str, Any] = {
    "temperature": 0.0,
    "no_speech_threshold": None,
    "log_prob_threshold": None,
    "compression_ratio_threshold": None,
}


def chirp(seconds: float) -> npt.NDArray[np.float32]:
    time_of = np.arange(int(seconds * RATE)) / RATE
    return (0.25 * np.sin(2 * np.pi * (200 + 300 * time_of) * time_of)).astype(np.float32)


def wav(samples: npt.NDArray[np.float32]) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32768).astype(np.int16).tobytes())
    return out.getvalue()


@pytest.fixture
def audio(tmp_path: Path) -> str:
    file = tmp_path / "audio.wav"
    file.write_bytes(wav(chirp(5)))
    return str(file)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run(
    name: str, whisper: str, audio: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"WhisperModel": WhisperModel, "BatchedInferencePipeline": BatchedInferencePipeline}
    exec(SCRIPTS[name], {**names, "MODEL": whisper, "AUDIO": audio})  # noqa: S102
    assert capsys.readouterr().out.strip()


def test_segments_are_those_of_the_transcriber(whisper: str, audio: str) -> None:
    samples = chirp(5)
    model = WhisperModel(whisper)
    plain = {"temperatures": [0.0], "no_speech_threshold": False, "logprob_threshold": False}
    transcriber = Transcriber(
        whisper, vad=False, beams=5, words=True, compression_ratio_threshold=False, **plain
    )
    expected = transcriber.transcribe_all(samples, RATE)
    found, info = model.transcribe(samples, word_timestamps=True, **PLAIN)
    segments = [*found]
    assert len(segments) == len(expected.segments) > 3
    windows = sorted({segment.window for segment in expected.segments})
    for number, (one, other) in enumerate(zip(segments, expected.segments, strict=True), 1):
        assert isinstance(one, Segment) and one.id == number
        for name in ("start", "end", "text", "tokens", "avg_logprob", "no_speech_prob", "temperature"):
            assert getattr(one, name) == getattr(other, name), name
        assert one.compression_ratio == other.compression_ratio
        assert one.words == [Word(word.start, word.end, word.text, word.probability) for word in other.words]
        # Windows of one second, which end at the last timestamp that was written.
        assert 0 <= one.seek <= one.start * 100 + 1e-6
    assert segments[0].seek == 0 and len({one.seek for one in segments}) == len(windows)
    assert info.language == expected.language and 0 < info.language_probability <= 1
    assert info.duration == info.duration_after_vad == expected.duration == 5.0
    assert info.transcription_options.word_timestamps and info.transcription_options.beam_size == 5
    # A file, an open file and samples are one recording.
    for form in (audio, Path(audio), open(audio, "rb")):  # noqa: SIM115
        again, info = model.transcribe(form, beam_size=1, **PLAIN)
        assert all(segment.words is None for segment in again) and info.duration == 5.0


def test_the_probability_of_a_language(whisper: str) -> None:
    model = WhisperModel(whisper)
    _, given = model.transcribe(chirp(1), language="fr", **PLAIN)
    assert (given.language, given.language_probability) == ("fr", 1.0)
    _, found = model.transcribe(chirp(1), **PLAIN)
    # One of three languages.
    assert 1 / 3 <= found.language_probability < 1
    _, silent = model.transcribe(np.zeros(0, np.float32))
    assert silent.duration == 0.0


def test_clips(whisper: str) -> None:
    model = WhisperModel(whisper)

    def found(clips: Any) -> list[Segment]:
        return [*model.transcribe(chirp(5), clip_timestamps=clips, beam_size=1, **PLAIN)[0]]

    whole = found("0")
    assert found([0.0]) == whole
    late = found("3")
    assert late and all(2.9 <= segment.start <= segment.end for segment in late)
    between = found("1,2,4,5")
    assert found([1, 2, 4, 5.0]) == between
    assert all(0.9 <= one.start <= 2.1 or 3.9 <= one.start <= 5.1 for one in between)


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 2},
        {"best_of": 3},
        {"prefix": "a"},
        {"initial_prompt": [1, 2]},
        {"suppress_tokens": [5]},
        {"suppress_tokens": None},
        {"suppress_blank": False},
        {"max_initial_timestamp": 0.5},
        {"prompt_reset_on_temperature": 0.4},
        {"hallucination_silence_threshold": 2.0},
        {"prepend_punctuations": "x"},
        {"append_punctuations": "x"},
        {"vad_parameters": {"min_silence_duration_ms": 500}},
        {"chunk_length": 10},
        {"language_detection_segments": 2},
    ],
)
def test_options_that_are_not_supported_are_named(whisper: str, options: dict[str, Any]) -> None:
    name = next(iter(options))
    model = WhisperModel(whisper)
    with pytest.raises(NotImplementedError, match=name):
        model.transcribe(chirp(1), **options)
    with pytest.raises(NotImplementedError, match=name):
        BatchedInferencePipeline(model).transcribe(chirp(1), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"device": "cuda"},
        {"device_index": 1},
        {"compute_type": "int16"},
        {"download_root": "x"},
        {"local_files_only": True},
        {"revision": "main"},
        {"use_auth_token": "x"},
        {"files": {"a": b""}},
        {"flash_attention": True},
    ],
)
def test_arguments_of_models_that_are_not_supported_are_named(
    whisper: str, options: dict[str, Any]
) -> None:
    with pytest.raises(NotImplementedError, match=next(iter(options))):
        WhisperModel(whisper, **options)


def test_every_option_has_an_effect(whisper: str) -> None:
    """What is not an error reaches the transcriber."""
    model = WhisperModel(whisper)
    seen: dict[str, Any] = {}
    transcribe: Callable[..., Any] = model.model.transcribe

    def watched(*arguments: Any, **changes: Any) -> Any:
        seen.clear()
        seen.update(changes)
        return transcribe(*arguments, **changes)

    model.model.transcribe = watched  # type: ignore[method-assign]
    for name, value, theirs, expected in [
        ("beam_size", 3, "beams", 3),
        ("length_penalty", 0.5, "length_penalty", 0.5),
        ("repetition_penalty", 1.5, "repetition_penalty", 1.5),
        ("no_repeat_ngram_size", 2, "no_repeat_ngram_size", 2),
        ("temperature", [0.0, 0.4], "temperatures", [0.0, 0.4]),
        ("compression_ratio_threshold", None, "compression_ratio_threshold", False),
        ("log_prob_threshold", -2.0, "logprob_threshold", -2.0),
        ("no_speech_threshold", 0.5, "no_speech_threshold", 0.5),
        ("condition_on_previous_text", False, "condition_on_previous_text", False),
        ("initial_prompt", "hello", "initial_prompt", "hello"),
        ("without_timestamps", True, "timestamps", False),
        ("word_timestamps", True, "words", True),
        ("multilingual", True, "detect_each_window", True),
        ("vad_filter", True, "vad", True),
        ("max_new_tokens", 3, "max_new_tokens", 3),
        ("hotwords", "world", "hotwords", "world"),
        ("task", "translate", "task", "translate"),
        ("language", "de", "language", "de"),
    ]:
        segments, _ = model.transcribe(chirp(1), **{"temperature": 0.0, name: value})
        assert seen[theirs] == expected, name
        assert all(isinstance(segment, Segment) for segment in segments)


def test_sizes_have_names() -> None:
    assert {"tiny", "base.en", "small", "medium", "large-v3", "turbo", "distil-large-v3"} <= {*available_models()}


def convert(whisper: str, folder: Path, seconds: int) -> str:
    """The tiny Whisper as a directory of CTranslate2: its tensors under their names there, query, key and value as one. Windows
    of more than a second repeat the positions of the first."""
    data = (Path(whisper) / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors: dict[str, npt.NDArray[np.float32]] = {}
    for name, about in json.loads(data[8:begin]).items():
        first, last = about["data_offsets"]
        numbers = np.frombuffer(data[begin + first : begin + last], np.float32)
        tensors[name.removeprefix("model.")] = numbers.reshape(about["shape"])
    variables: dict[str, npt.NDArray[Any]] = {}
    for index in (1, 2):
        for kind in ("weight", "bias"):
            variables[f"encoder/conv{index}/{kind}"] = tensors[f"encoder.conv{index}.{kind}"]
    variables["decoder/embeddings/weight"] = tensors["decoder.embed_tokens.weight"]
    width = tensors["decoder.embed_tokens.weight"].shape[1]

    def linear(to: str, *names: str) -> None:
        weights = [tensors[f"{name}.weight"] for name in names]
        # Keys have no bias.
        biases = [tensors.get(f"{name}.bias", np.zeros(width, np.float32)) for name in names]
        variables[f"{to}/weight"], variables[f"{to}/bias"] = np.concatenate(weights), np.concatenate(biases)

    def norm(to: str, name: str) -> None:
        variables[f"{to}/gamma"], variables[f"{to}/beta"] = tensors[f"{name}.weight"], tensors[f"{name}.bias"]

    for stack in ("encoder", "decoder"):
        to, layer = f"{stack}/layer_0", f"{stack}.layers.0"
        positions = tensors[f"{stack}.embed_positions.weight"]
        repeated = np.tile(positions, (seconds if stack == "encoder" else 1, 1))
        variables[f"{stack}/position_encodings/encodings"] = repeated
        variables[f"{stack}/num_heads"] = np.int16([2]).reshape(())
        linear(f"{to}/self_attention/linear_0", *(f"{layer}.self_attn.{part}_proj" for part in "qkv"))
        linear(f"{to}/self_attention/linear_1", f"{layer}.self_attn.out_proj")
        norm(f"{to}/self_attention/layer_norm", f"{layer}.self_attn_layer_norm")
        if stack == "decoder":
            linear(f"{to}/attention/linear_0", f"{layer}.encoder_attn.q_proj")
            linear(f"{to}/attention/linear_1", f"{layer}.encoder_attn.k_proj", f"{layer}.encoder_attn.v_proj")
            linear(f"{to}/attention/linear_2", f"{layer}.encoder_attn.out_proj")
            norm(f"{to}/attention/layer_norm", f"{layer}.encoder_attn_layer_norm")
        linear(f"{to}/ffn/linear_0", f"{layer}.fc1")
        linear(f"{to}/ffn/linear_1", f"{layer}.fc2")
        norm(f"{to}/ffn/layer_norm", f"{layer}.final_layer_norm")
        norm(f"{stack}/layer_norm", f"{stack}.layer_norm")
    flags = {"pre_norm": 1, "activation": 3, "alibi": 0, "start_from_zero_embedding": 0, "scale_embeddings": 0}
    for name, value in flags.items():
        variables[f"decoder/{name}"] = np.int8([value]).reshape(())
    kinds = {"float32": 0, "int8": 1, "int16": 2}
    # What the file has before the numbers of each variable.
    out = bytearray((6).to_bytes(4, "little"))

    def text(content: str) -> None:
        out.extend((len(content) + 1).to_bytes(2, "little") + content.encode() + b"\0")

    text("WhisperSpec")
    out.extend((3).to_bytes(4, "little") + len(variables).to_bytes(4, "little"))
    for name, numbers in variables.items():
        text(name)
        out.append(numbers.ndim)
        for size in numbers.shape:
            out.extend(size.to_bytes(4, "little"))
        content = np.ascontiguousarray(numbers).tobytes()
        out.extend(bytes([kinds[numbers.dtype.name]]) + len(content).to_bytes(4, "little") + content)
    out.extend((1).to_bytes(4, "little"))
    text("decoder/projection/weight")
    text("decoder/embeddings/weight")
    (folder / "model.bin").write_bytes(out)
    tokenizer = json.loads((Path(whisper) / "tokenizer.json").read_text("utf-8"))
    tokens = {index: token for token, index in tokenizer["model"]["vocab"].items()}
    tokens |= {one["id"]: one["content"] for one in tokenizer["added_tokens"]}
    # A vocabulary of several languages has an empty token before the special ones.
    tokens[1294] = ""
    names = [tokens[index] for index in range(len(tokens))]
    (folder / "vocabulary.json").write_text(json.dumps(names), "utf-8")
    config = {"suppress_ids": [], "suppress_ids_begin": [], "lang_ids": [1297, 1298, 1299], "alignment_heads": [[0, 0]]}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    shutil.copy(Path(whisper) / "tokenizer.json", folder / "tokenizer.json")
    features = {"chunk_length": seconds, "feature_size": 80}
    (folder / "preprocessor_config.json").write_text(json.dumps(features), "utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def converted(whisper: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert(whisper, tmp_path_factory.mktemp("converted"), 1)


def test_directories_of_ctranslate2_open(whisper: str, converted: str) -> None:
    options: dict[str, Any] = {**PLAIN, "max_new_tokens": 12, "word_timestamps": False}
    for beams in (1, 5):
        found, expected = (
            WhisperModel(path, compute_type="float32").transcribe(chirp(5), beam_size=beams, **options)
            for path in (converted, whisper)
        )
        segments = [*found[0]]
        assert segments == [*expected[0]] and len(segments) > 3
        assert found[1] == expected[1]


@pytest.mark.peers
@pytest.mark.parametrize("language", ["en", "de"])
def test_greedy_text_is_that_of_faster_whisper(whisper: str, tmp_path: Path, language: str) -> None:
    """The ids of a model with random weights and windows of 30 seconds, which faster-whisper needs."""
    theirs = pytest.importorskip("faster_whisper")
    converted, samples = convert(whisper, tmp_path, 30), chirp(40)
    options: dict[str, Any] = {**PLAIN, "beam_size": 1, "language": language}
    options["condition_on_previous_text"] = False
    # CTranslate2 writes at most half of the 3 tokens of the prompt and 12 more.
    expected, about = theirs.WhisperModel(converted, device="cpu", compute_type="float32").transcribe(
        samples, max_new_tokens=12, **options
    )
    model = WhisperModel(converted, compute_type="float32")
    found, info = model.transcribe(samples, max_new_tokens=7, **options)
    assert [segment.tokens for segment in found] == [segment.tokens for segment in expected]
    assert (info.language, info.duration) == (about.language, about.duration)
