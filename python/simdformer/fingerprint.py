"""The identity of a result: of a model, its tokenizer and its options."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

# What decides how a text becomes ids, and ids become a text.
_TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "source.spm",
    "source_vocab.json",
    "special_tokens_map.json",
    "spiece.model",
    "target.spm",
    "target_vocab.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


def fingerprint(model: str, directory: str, options: dict[str, Any]) -> str:
    """The BLAKE2b hash of a model's fingerprint, the tokenizer files of its directory, and options.

    64 hexadecimal digits. It is an identity, not a proof of who wrote a file.

    >>> a = fingerprint("00", demo_model, {"beams": 4})
    >>> a == fingerprint("00", demo_model, {"beams": 4}), a == fingerprint("00", demo_model, {})
    (True, False)
    """
    digest = blake2b(digest_size=32)

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)

    add(b"simdformer result 1")
    add(model.encode())
    for name in _TOKENIZER_FILES:
        path = Path(directory) / name
        if path.is_file():
            add(name.encode())
            add(path.read_bytes())
    add(canonical_json(options).encode())
    return digest.hexdigest()


def canonical_json(options: dict[str, Any]) -> str:
    """One text for equal options.

    >>> canonical_json({"b": 1, "a": [0.5]})
    '{"a":[0.5],"b":1}'
    """
    return json.dumps(options, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
