"""Fixtures: the demo model of the repository, and the names of doctests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import simdformer

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def demo_model() -> str:
    """The directory of the model that translates French of 500 words into English."""
    return str(ROOT / "models" / "fr-en")


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


@pytest.fixture(autouse=True)
def _doctest_names(
    doctest_namespace: dict[str, Any], demo_model: str, encoder: str, cross_encoder: str
) -> None:
    doctest_namespace["encoder"] = encoder
    doctest_namespace["cross_encoder"] = cross_encoder
    for name in ("Batcher", "Embedder", "Reranker"):
        doctest_namespace[name] = getattr(simdformer, name)
    doctest_namespace["demo_model"] = demo_model
    doctest_namespace["simdformer"] = simdformer
    doctest_namespace["translator"] = simdformer.Translator(demo_model)
    doctest_namespace["Translator"] = simdformer.Translator
