"""Fixtures: the demo model of the repository, and the names of doctests."""

from __future__ import annotations

import json
import shutil
import signal
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdformer

ROOT = Path(__file__).resolve().parents[1]

# A shell that starts the tests in the background makes them ignore SIGINT, and Python then installs no handler. The tests
# of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def demo_model() -> str:
    """The directory of the model that translates French of 500 words into English."""
    return str(ROOT / "models" / "fr-en")


def _copied(demo_model: str, folder: Path) -> Path:
    for name in ("config.json", "generation_config.json", "model.safetensors", "source.spm", "target.spm"):
        shutil.copy(Path(demo_model) / name, folder / name)
    for name in ("vocab.json", "tokenizer_config.json"):
        shutil.copy(Path(demo_model) / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def refusing_model(demo_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The demo model, whose vocabulary gives ``▁froid`` an id that the weights do not have."""
    folder = _copied(demo_model, tmp_path_factory.mktemp("refusing"))
    vocabulary: dict[str, int] = json.loads((folder / "vocab.json").read_text("utf-8"))
    vocabulary["▁froid"] = 5000
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    return str(folder)


@pytest.fixture(scope="session")
def overflowing_model(demo_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The demo model with embeddings so large that all its scores are NaN."""
    folder = _copied(demo_model, tmp_path_factory.mktemp("overflowing"))
    data = bytearray((folder / "model.safetensors").read_bytes())
    (size,) = struct.unpack_from("<Q", data)
    first, last = json.loads(data[8 : 8 + size])["model.shared.weight"]["data_offsets"]
    data[8 + size + first : 8 + size + last] = np.full((last - first) // 4, 3e38, np.float32).tobytes()
    (folder / "model.safetensors").write_bytes(data)
    return str(folder)


@pytest.fixture(scope="session")
def translator(demo_model: str) -> simdformer.Translator:
    return simdformer.Translator(demo_model)


@pytest.fixture(scope="session")
def sentences(demo_model: str) -> list[str]:
    """French sentences that the model was not trained with."""
    lines = (Path(demo_model) / "held_out.jsonl").read_text("utf-8").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [row["source"] if "source" in row else row["fr"] for row in rows]


def _published(name: str, folder: Path) -> str:
    """An encoder of the tests of ``text``, as it would be published: with the files of its tokenizer."""
    golden = ROOT / "text" / "tests" / "golden"
    files = golden / "encoders" / name
    tokenizer = golden / "dirs" / (files / "from").read_text("utf-8").strip()
    shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
    shutil.copytree(files, folder, dirs_exist_ok=True)
    return str(folder)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny BERT with random weights and mean pooling: vectors of 6 dimensions."""
    return _published("bert", tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny cross-encoder with random weights."""
    return _published("bert_cross", tmp_path_factory.mktemp("cross_encoder"))


# One layer of 8 numbers, and windows of one second.
WHISPER = {
    "model_type": "whisper", "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": 1458, "num_mel_bins": 80,
    "max_source_positions": 50, "max_target_positions": 24, "pad_token_id": 1295, "bos_token_id": 1295,
    "eos_token_id": 1295, "decoder_start_token_id": 1296,
}  # fmt: skip
WHISPER_GENERATION = {
    "decoder_start_token_id": 1296, "eos_token_id": 1295, "max_length": 14, "is_multilingual": True,
    "no_timestamps_token_id": 1306, "max_initial_timestamp_index": 50, "prev_sot_token_id": 1304,
    "lang_to_id": {"<|en|>": 1297, "<|fr|>": 1298, "<|de|>": 1299},
    "task_to_id": {"translate": 1301, "transcribe": 1302},
}  # fmt: skip


def _whisper_shapes(config: dict[str, Any]) -> dict[str, list[int]]:
    """The tensors of a checkpoint of Whisper with one layer in each stack."""
    d = config["d_model"]
    shapes = {
        "encoder.conv1.weight": [d, config["num_mel_bins"], 3],
        "encoder.conv1.bias": [d],
        "encoder.conv2.weight": [d, d, 3],
        "encoder.conv2.bias": [d],
        "encoder.embed_positions.weight": [config["max_source_positions"], d],
        "decoder.embed_positions.weight": [config["max_target_positions"], d],
        "decoder.embed_tokens.weight": [config["vocab_size"], d],
    }
    for stack, blocks in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        layer, wide = f"{stack}.layers.0", config[f"{stack}_ffn_dim"]
        for block in blocks:
            for matrix in ("q_proj", "k_proj", "v_proj", "out_proj"):
                shapes[f"{layer}.{block}.{matrix}.weight"] = [d, d]
                if matrix != "k_proj":
                    shapes[f"{layer}.{block}.{matrix}.bias"] = [d]
        shapes |= {f"{layer}.fc1.weight": [wide, d], f"{layer}.fc1.bias": [wide]}
        shapes |= {f"{layer}.fc2.weight": [d, wide], f"{layer}.fc2.bias": [d]}
        norms = [f"{layer}.{block}_layer_norm" for block in [*blocks, "final"]]
        for norm in [*norms, f"{stack}.layer_norm"]:
            shapes |= {f"{norm}.weight": [d], f"{norm}.bias": [d]}
    return shapes


@pytest.fixture(scope="session")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Whisper with random weights, several languages, and windows of one second."""
    folder = tmp_path_factory.mktemp("whisper")
    shutil.copytree(ROOT / "text" / "tests" / "golden" / "dirs" / "whisper", folder, dirs_exist_ok=True)
    for name, content in (
        ("config.json", WHISPER),
        ("generation_config.json", WHISPER_GENERATION),
        ("preprocessor_config.json", {"chunk_length": 1, "feature_size": 80}),
    ):
        (folder / name).write_text(json.dumps(content), "utf-8")
    draw, header, data = np.random.default_rng(7), dict[str, Any](), b""
    for name, shape in _whisper_shapes(WHISPER).items():
        tensor = draw.standard_normal(shape, np.float32).tobytes()
        offsets = [len(data), len(data) + len(tensor)]
        header[f"model.{name}"] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        data += tensor
    names = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(names)) + names + data)
    return str(folder)


@pytest.fixture(autouse=True)
def _doctest_names(
    doctest_namespace: dict[str, Any],
    demo_model: str,
    encoder: str,
    cross_encoder: str,
    whisper: str,
) -> None:
    doctest_namespace["np"] = np
    doctest_namespace["whisper"] = whisper
    doctest_namespace["encoder"] = encoder
    doctest_namespace["cross_encoder"] = cross_encoder
    for name in ("Batcher", "Embedder", "Reranker", "Transcriber", "TranscriberOptions"):
        doctest_namespace[name] = getattr(simdformer, name)
    doctest_namespace["demo_model"] = demo_model
    doctest_namespace["simdformer"] = simdformer
    doctest_namespace["translator"] = simdformer.Translator(demo_model)
    doctest_namespace["Translator"] = simdformer.Translator
