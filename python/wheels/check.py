"""Checks wheels, and tries them: `check.py WHEEL... [--python INTERPRETER]... [--model DIR]`.

Each wheel: its metadata (twine), the symbols that it takes from the stable ABI (abi3audit) and from libc (auditwheel), its
size, its files. Then each interpreter gets a fresh virtual environment with the wheel that fits it, and computes the digests
of `digest.py` there, which must be the same in all. Needs ``pip install twine abi3audit auditwheel``.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Machine code of the kernels for each instruction set, and of the tokenizers.
MOST_BYTES = 4_500_000
FILES = {"simdformer/__init__.py", "simdformer/py.typed", "simdformer/_simdformer.pyi"}
HERE = Path(__file__).resolve().parent


def run(*command: str | os.PathLike[str]) -> str:
    """The output of a command. If it fails, its output is the error."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"check: {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def audit(wheel: Path) -> None:
    """Everything that can be checked without an interpreter of the wheel's platform."""
    run(sys.executable, "-m", "twine", "check", "--strict", wheel)
    abi, platform = wheel.stem.split("-")[-2:]
    if abi == "abi3":
        run(sys.executable, "-m", "abi3audit", "--strict", wheel)
    notes = [f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB"]
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    missing = sorted(FILES - sizes.keys())
    # What is only for developers.
    extra = sorted(name for name in sizes if name.startswith(("simdformer/tests", "tests", "notebooks", "wheels")))
    if missing or extra:
        sys.exit(f"check: {wheel.name}: missing files {missing}, unexpected files {extra}")
    if not any("/licenses/" in name for name in sizes):
        sys.exit(f"check: {wheel.name}: expected the texts of the licenses, found none")
    library, size = max(sizes.items(), key=lambda item: item[1])
    notes.append(f"{library} {size / 1e6:.2f} MB")
    if "musllinux" in platform:
        # auditwheel looks for the libraries of this machine, which has another libc.
        libraries = needed(wheel, library)
        if libraries != ["libc.so"]:
            sys.exit(f"check: {wheel.name}: expected libc.so and no other library, found {libraries}")
        notes.append("needs no library but libc.so")
    elif "linux" in platform:
        found = run(sys.executable, "-m", "auditwheel", "show", wheel)
        if not any(f'"{tag}"' in found for tag in platform.split(".")):
            sys.exit(f"check: {wheel.name}: expected {platform}, found\n{found}")
        notes.append(f"auditwheel agrees with {platform}")
    print("check: " + ", ".join(notes), flush=True)
    if wheel.stat().st_size > MOST_BYTES:
        sys.exit(f"check: {wheel.name} has more than {MOST_BYTES} bytes")


def needed(wheel: Path, library: str) -> list[str]:
    """The libraries that the loader must find for a library of a wheel."""
    # auditwheel has it, too.
    from elftools.elf.elffile import ELFFile

    with zipfile.ZipFile(wheel) as archive:
        tags = ELFFile(io.BytesIO(archive.read(library))).get_section_by_name(".dynamic").iter_tags()
        return [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]


def attempt(wheels: list[Path], interpreter: str, model: Path) -> str:
    """The digests that `interpreter` computes with the wheel that fits it, in a fresh environment."""
    with tempfile.TemporaryDirectory() as folder:
        run(interpreter, "-m", "venv", folder)
        python = Path(folder) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        version = run(python, "-c", "import sys; print(sys.version.replace(chr(10), ' '))").strip()
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy")
        # pip takes the wheel that fits the interpreter best.
        links = sorted({str(wheel.parent) for wheel in wheels})
        options = [word for link in links for word in ("--find-links", link)]
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", *options, "simdformer")
        found = run(python, HERE / "digest.py", model)
    print(f"check: {version}\n{found}", end="", flush=True)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("wheels", nargs="+", type=Path)
    arguments.add_argument("--python", action="append", default=[], metavar="INTERPRETER")
    arguments.add_argument("--model", type=Path, default=HERE.parents[1] / "models" / "fr-en")
    given = arguments.parse_args()
    wheels = [wheel.resolve() for wheel in given.wheels]
    for wheel in wheels:
        audit(wheel)
    results = {python: attempt(wheels, python, given.model.resolve()) for python in given.python}
    if len(set(results.values())) > 1:
        sys.exit("check: interpreters have different digests: " + ", ".join(results))


main()
