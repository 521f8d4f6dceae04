"""The Python on the pages of the repository runs: docs/python.md, and the lines of README.md and python/README.md."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["docs/python.md", "README.md", "python/README.md"])
def test_blocks_run(
    page: str, encoder: str, cross_encoder: str, whisper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / page).read_text("utf-8")
    blocks = BLOCK.findall(text)
    assert blocks or page == "python/README.md", "a page without Python"
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"directories": (encoder, cross_encoder, whisper)}
    for block in blocks:
        line = text[: text.index(block)].count("\n")
        exec(compile("\n" * line + block, os.fspath(ROOT / page), "exec"), names)  # noqa: S102
