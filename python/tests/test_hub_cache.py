"""Models of the hub in a cache that is incomplete or damaged. The client is a small one of the test's own."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simdformer import ModelNotFoundError
from simdformer.model_path import model_path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"a": 1}',
    "model.safetensors": bytes(range(256)) * 100,
    "1_Pooling/config.json": b'{"pooling_mode_cls_token": true}',
    "tf_model.h5": b"not needed",
}
NEEDED = [name for name in FILES if name != "tf_model.h5"]


def entry(name: str) -> dict[str, Any]:
    content = FILES[name]
    found: dict[str, Any] = {
        "size": len(content),
        "blob_id": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
    }
    if name.endswith(".safetensors"):
        found |= {"lfs_size": len(content), "lfs_sha256": hashlib.sha256(content).hexdigest()}
    return found


class Hub:
    """A client that, as the real one, takes what is there without a look at it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.online, self.requests = folder, True, 0
        self.path = folder / "snapshots" / COMMIT

    def snapshot_download(self, name: str, *, force_download: bool = False, **options: Any) -> str:
        if not self.online:
            if force_download or not self.path.exists():
                raise OSError("no network")
            return str(self.path)
        for file, content in FILES.items():
            target, allowed = self.path / file, options.get("allow_patterns")
            ignored = any(fnmatch.fnmatch(file, pattern) for pattern in options.get("ignore_patterns", ()))
            if ignored or (allowed is not None and file not in allowed):
                continue
            if force_download or not target.exists():
                self.requests += 1
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                target.write_bytes(content)
        return str(self.path)

    def list_repo_tree(self, name: str, *, recursive: bool, revision: str) -> list[Any]:
        if not self.online:
            raise OSError("no network")
        files = []
        for file in FILES:
            about = entry(file)
            lfs = types.SimpleNamespace(size=about["lfs_size"], sha256=about["lfs_sha256"]) if "lfs_size" in about else None
            files.append(types.SimpleNamespace(path=file, size=about["size"], blob_id=about["blob_id"], lfs=lfs))
        return [*files, types.SimpleNamespace(path="1_Pooling", tree_id="0")]

    def keep_list(self) -> Path:
        path = self.folder / "trees" / f"{COMMIT}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"format_version": 1, "files": {file: entry(file) for file in FILES}}), "utf-8")
        return path


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path / "models--a--b")
    module: Any = types.ModuleType("huggingface_hub")
    module.snapshot_download, module.HfApi = hub.snapshot_download, lambda: hub
    utils: Any = types.ModuleType("huggingface_hub.utils")

    def objects(items: Any, *, ignore_patterns: list[str]) -> list[str]:
        return [item for item in items if not any(fnmatch.fnmatch(item, pattern) for pattern in ignore_patterns)]

    utils.filter_repo_objects = objects
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils", utils)
    monkeypatch.chdir(tmp_path)
    return hub


def whole(hub: Hub) -> bool:
    return all((hub.path / file).read_bytes() == FILES[file] for file in NEEDED)


def test_a_whole_model_is_read_once(hub: Hub) -> None:
    assert model_path("a/b") == str(hub.path) and hub.requests == len(NEEDED)
    hub.keep_list()
    hub.online = False
    assert model_path("a/b") == str(hub.path) and whole(hub)
    notes = {note.name: note.read_text("ascii") for note in (hub.folder / ".simdformer").iterdir()}
    assert len(notes) == len(NEEDED)
    # A note of other times is not believed.
    for note in notes:
        (hub.folder / ".simdformer" / note).write_text("7 (0, 0) 0 0 0 0", "ascii")
    assert model_path("a/b") == str(hub.path)
    assert {note.name: note.read_text("ascii") for note in (hub.folder / ".simdformer").iterdir()} == notes


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "missing": lambda path: path.unlink(),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "one bit": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "link to nowhere": lambda path: (path.unlink(), path.symlink_to("none")),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("file", NEEDED)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_downloaded_again_or_an_error(hub: Hub, damage: str, file: str, listed: bool) -> None:
    model_path("a/b")
    if listed:
        hub.keep_list()
    DAMAGES[damage](hub.path / file)
    hub.online = False
    with pytest.raises(ModelNotFoundError):
        model_path("a/b")
    hub.online = True
    if damage == "folder":
        with pytest.raises(ModelNotFoundError):
            model_path("a/b")
        return
    assert model_path("a/b") == str(hub.path) and whole(hub)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format_version": 2, "files": {}}', '{"format_version": 1}', "\0" * 9])
def test_a_damaged_list_is_requested_again(hub: Hub, text: str) -> None:
    model_path("a/b")
    hub.keep_list().write_text(text, "utf-8")
    assert model_path("a/b") == str(hub.path)
    hub.online = False
    with pytest.raises(ModelNotFoundError):
        model_path("a/b")


def test_a_hub_that_gives_wrong_bytes_is_an_error(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.keep_list_path = hub.folder.mkdir() or hub.keep_list()  # type: ignore[attr-defined]
    monkeypatch.setitem(FILES, "config.json", b'{"a": 2}')
    with pytest.raises(ModelNotFoundError, match=r"config.json: expected 8 bytes of checksum [0-9a-f]{40}, found another"):
        model_path("a/b")
