"""Models of the Hugging Face hub: `huggingface_hub` downloads them, and what is on the disk is used only if it is whole.

Another program may have brought a part of a model, and a crash may have left a file of the right size without its bytes.
So every file is compared with the list of files that the hub gave: its size, and once its checksum. A note in the cache,
the one of `simdformer get`, says which files were compared, until they change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .errors import ModelNotFoundError

#: Weights in formats that are not read.
IGNORED = ["*.h5", "*.msgpack", "*.onnx", "*.ot", "onnx/*", "openvino/*", "flax_model*", "tf_model*"]
#: Bytes that are read at a time.
_BLOCK = 1 << 20


class Entry(NamedTuple):
    """A file of a model."""

    size: int
    #: The SHA-256 of the content, or the SHA-1 of git.
    checksum: str


def snapshot(name: str) -> str:
    """The directory of a model of the hub, with all files, each whole.

    Errors: those of `huggingface_hub`; `ModelNotFoundError` for a file that is not whole.
    """
    from huggingface_hub import snapshot_download

    path = Path(snapshot_download(name, ignore_patterns=IGNORED))
    listed = _listed(name, path)
    damaged = _damaged(path, listed)
    if damaged:
        # What is there is wrong, so all of it is requested again.
        snapshot_download(name, revision=path.name, allow_patterns=damaged, force_download=True)
        damaged = _damaged(path, listed)
    if damaged:
        expected = f"{listed[damaged[0]].size} bytes of checksum {listed[damaged[0]].checksum}"
        message = f"{path / damaged[0]}: expected {expected}, found another file: delete {path.parent.parent}"
        raise ModelNotFoundError(message, path=str(path / damaged[0]))
    return str(path)


def _listed(name: str, path: Path) -> Mapping[str, Entry]:
    """The files that are needed: from the list that the client keeps, or from the hub."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined, unused-ignore]

    try:
        kept = json.loads((path.parent.parent / "trees" / f"{path.name}.json").read_bytes())
        if kept["format_version"] != 1:
            raise ValueError(kept["format_version"])
        entries = {
            file: Entry(about.get("lfs_size") or about["size"], about.get("lfs_sha256") or about["blob_id"])
            for file, about in kept["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Older clients keep none.
        tree: Any = HfApi().list_repo_tree(name, recursive=True, revision=path.name)
        entries = {
            file.path: Entry(file.lfs.size if file.lfs else file.size, file.lfs.sha256 if file.lfs else file.blob_id)
            for file in tree
            if hasattr(file, "blob_id")
        }
    needed = set(filter_repo_objects(entries, ignore_patterns=IGNORED))
    return {file: entry for file, entry in entries.items() if file in needed}


def _damaged(path: Path, listed: Mapping[str, Entry]) -> list[str]:
    """The files that are missing or not whole."""
    notes = path.parent.parent / ".simdformer"
    return [file for file, entry in listed.items() if not is_whole(path / file, entry, notes)]


def is_whole(file: Path, entry: Entry, notes: Path) -> bool:
    """Whether a file has the size and the checksum of an entry. It is read once, until it changes."""
    try:
        about = file.stat()
        if not file.is_file() or about.st_size != entry.size:
            return False
        times = (divmod(about.st_mtime_ns, 10**9), divmod(about.st_ctime_ns, 10**9))
        stamp = f"{entry.size} ({about.st_dev}, {about.st_ino}) " + " ".join(f"{s} {n}" for s, n in times)
        note = notes / entry.checksum
        if note.is_file() and note.read_text("ascii", "replace") == stamp:
            return True
        if _checksum(file, entry) != entry.checksum:
            return False
    except OSError:
        return False
    try:
        notes.mkdir(exist_ok=True)
        temporary = notes / f".{entry.checksum}.{os.getpid()}"
        temporary.write_text(stamp, "ascii")
        temporary.replace(note)
    except OSError:
        # In a cache that is read-only the file is read again the next time.
        pass
    return True


def _checksum(file: Path, entry: Entry) -> str:
    """The checksum of a file, of the kind of the entry."""
    digest = hashlib.sha256() if len(entry.checksum) == 64 else hashlib.sha1(b"blob %d\0" % entry.size)
    with open(file, "rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
