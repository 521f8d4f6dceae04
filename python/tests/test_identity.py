"""Every byte that decides a result is in the identity of a job: every file of a model's directory x every identity."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from simdformer import SimdformerError, Translator
from simdformer.jobs import Config, metadata


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def flips(file: Path, count: int) -> list[int]:
    """Some places of a file: the first bytes, the last one, and places between them."""
    size = file.stat().st_size
    return sorted({0, min(9, size - 1), size - 1, *(size * part // count for part in range(count))})


def check(directory: Path, tmp_path: Path, identity: Callable[[Path], str], names: set[str]) -> int:
    """Changes bytes of each file in turn. The identity is another one, or the model is refused; if the file is not one of
    `names`, it does not decide. Returns the number of changes."""
    expected, changes = identity(directory), 0
    assert identity(Path(shutil.copytree(directory, tmp_path / "same"))) == expected
    for file in files(directory):
        place = file.relative_to(directory)
        for position in flips(file, 3 if file.stat().st_size < 10_000 else 5):
            # A path of its own, since a process opens each model once.
            copy = Path(shutil.copytree(directory, tmp_path / f"copy{changes}"))
            content = bytearray((copy / place).read_bytes())
            content[position] ^= 1
            (copy / place).write_bytes(content)
            try:
                found = identity(copy)
            except (SimdformerError, ValueError, OSError):
                found = "refused"
            assert (found != expected) == (place.name in names), (place, position)
            changes += 1
            shutil.rmtree(copy)
    return changes


def of_job(task: str) -> Callable[[Path], str]:
    return lambda directory: metadata.texts(Config(str(directory), task=task))["simdformer.fingerprint"]  # type: ignore[arg-type]


def prepared(directory: str, tmp_path: Path) -> tuple[Path, set[str]]:
    """A copy with two files that decide nothing, and the names of the files that do."""
    copy = Path(shutil.copytree(directory, tmp_path / "model"))
    decisive = (".json", ".model", ".safetensors", ".spm", "merges.txt", "vocab.txt")
    names = {file.name for file in files(copy) if file.name.endswith(decisive)}
    for file in files(copy):
        if file.name not in names:
            file.unlink()
    (copy / "README.md").write_text("A model.", "utf-8")
    (copy / ".hidden.json").write_text("{}", "utf-8")
    return copy, names


@pytest.mark.parametrize("kind", ["translate", "generate", "Translator"])
def test_translators(tmp_path: Path, demo_model: str, kind: str) -> None:
    directory, names = prepared(demo_model, tmp_path)
    identity = (lambda path: Translator(path).fingerprint) if kind == "Translator" else of_job(kind)
    assert check(directory, tmp_path, identity, names) > 20


def test_encoders(tmp_path: Path, encoder: str) -> None:
    directory, names = prepared(encoder, tmp_path)
    # The weights may be packed, also for several instruction sets, and settings may be in any folder.
    (directory / "model.avx2.packed").write_bytes(bytes(range(256)) * 300)
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "2_Dense").mkdir(exist_ok=True)
    (directory / "2_Dense" / "pytorch_model.bin").write_bytes(bytes(range(256)))
    names |= {"model.avx2.packed", "pytorch_model.bin"}

    def identity(path: Path) -> str:
        from simdformer.jobs.worker import _files

        return _files(str(path))

    assert check(directory, tmp_path, identity, names) > 20
