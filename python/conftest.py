"""Fixtures: the demo model of the repository, and the names of doctests."""

from __future__ import annotations

import json
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


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any], demo_model: str) -> None:
    doctest_namespace["demo_model"] = demo_model
    doctest_namespace["simdformer"] = simdformer
    doctest_namespace["translator"] = simdformer.Translator(demo_model)
    doctest_namespace["Translator"] = simdformer.Translator
