"""The identity of a result: of a model, its tokenizer and its options."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ._simdformer import model_files


def fingerprint(model: str, directory: str | Path, options: dict[str, Any]) -> str:
    """The BLAKE2b hash of a model's fingerprint, the settings and tokenizer files of its directory, and options.

    64 hexadecimal digits. It is an identity, not a proof of who wrote a file.

    >>> a = fingerprint("00", demo_model, {"beams": 4})
    >>> a == fingerprint("00", demo_model, {"beams": 4}), a == fingerprint("00", demo_model, {})
    (True, False)
    """
    digest, directory = blake2b(digest_size=32), Path(directory)

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)

    add(b"simdformer result 2")
    add(model.encode())
    for name in model_files(directory, weights=False):
        # The list of shards says nothing that the weights do not.
        if not name.name.endswith(".index.json"):
            # A model that is one file has an absolute path, of which only the name counts.
            add((name.name if name.is_absolute() else name.as_posix()).encode())
            add((directory / name).read_bytes())
    add(canonical_json(options).encode())
    return digest.hexdigest()


def canonical_json(options: dict[str, Any]) -> str:
    """One text for equal options.

    >>> canonical_json({"b": 1, "a": [0.5]})
    '{"a":[0.5],"b":1}'
    """
    return json.dumps(options, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
