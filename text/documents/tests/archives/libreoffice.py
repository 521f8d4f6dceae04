#!/usr/bin/env python3
"""Translates documents of Office and OpenDocument, and lets LibreOffice make PDF files of them: each must open, and its text
must be in it. Needs soffice and pdftotext; says SKIPPED without them.

    libreoffice.py [PROGRAM]  PROGRAM: the command simdformer (target/release/simdformer)

The documents are those of text/documents/tests/archives, the same in the other formats that LibreOffice writes, and pages of
text/documents/tests/documents as documents of Office. The model that copies must give the same file; the demo model must give
the sentences in English that it knows in French, and as many pages.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[4]
ARCHIVES = ROOT / "text/documents/tests/archives"
PAGES = ROOT / "text/documents/tests/documents"
# The other formats of each kind of document.
KINDS = [("docx", "odt"), ("pptx", "odp"), ("xlsx", "ods")]
HTML = ["attributes.html", "fragment.html", "page.html", "spaces.html", "notranslate.html", "korean.html", "arabic.html"]
# What the demo model makes of sentences in the documents. A cell beside a number is cut at its border.
KNOWN = {"quel mois": "what mon", "est-ce qu'elle habite": "does she live"}


def convert(files, extension, folder):
    """Several files at once: LibreOffice takes a second to start."""
    # Else a page is a document of a program for pages.
    reader = ["--infilter=HTML (StarWriter)"] if files[0].suffix == ".html" else []
    command = ["soffice", "--headless", f"-env:UserInstallation=file://{folder}/profile", *reader,
               "--convert-to", extension, "--outdir", folder, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    missing = [file.name for file in files if not (folder / file.with_suffix(f".{extension}").name).exists()]
    if missing:
        sys.exit(f"office: LibreOffice made no {extension} of {missing}: {done.stderr[-500:]}")


def documents(folder):
    """The documents, under names of their own."""
    originals = [file for file in sorted(ARCHIVES.iterdir()) if file.suffix[1:] in sum(KINDS, ())]
    for file in originals:
        shutil.copyfile(file, folder / f"{file.stem}_{file.suffix[1:]}{file.suffix}")
    made = sorted(folder.iterdir())
    for kind in KINDS:
        for extension in kind:
            of_kind = [file for file in made if file.suffix[1:] in kind]
            other = folder / extension
            other.mkdir()
            convert(of_kind, extension, other)
    pages = [PAGES / name for name in HTML]
    (folder / "pages").mkdir()
    convert(pages, "odt", folder / "pages")
    found = list(made)
    for extension in [*sum(KINDS, ()), "pages"]:
        for file in sorted((folder / extension).glob("*.*")):
            name = folder / f"{file.stem}_{extension}_again{file.suffix}"
            shutil.move(file, name)
            found.append(name)
    return found


def text_of(pdf):
    """The words of a PDF file, and its pages."""
    text = subprocess.run(["pdftotext", "-layout", pdf, "-"], capture_output=True, text=True, check=True).stdout
    return re.sub(r"\s+", " ", text.replace("’", "'")), text.count("\f")


def main():
    if not shutil.which("soffice") or not shutil.which("pdftotext"):
        print("SKIPPED office: it needs soffice and pdftotext")
        return
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/simdformer"
    faults, sentences = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        files = documents(folder)
        for name in ("copy", "fr-en", "before", "after"):
            (folder / name).mkdir()
        for model in ("copy", "fr-en"):
            arguments = [argument for file in files for argument in ("--file", file)]
            command = [program, "translate", "--model", ROOT / "models" / model, "--quiet",
                       "--output", folder / model, *arguments]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode > 1:
                sys.exit(f"office: {model}: {done.stderr}")
        for kind in ("docx", "odt", "pptx", "odp", "xlsx", "ods"):
            of_kind = [file for file in files if file.suffix == f".{kind}"]
            convert(of_kind, "pdf", folder / "before")
            convert([folder / "fr-en" / file.name for file in of_kind], "pdf", folder / "after")
        for file in files:
            if file.read_bytes() != (folder / "copy" / file.name).read_bytes():
                faults.append(f"{file.name}: the copy differs")
            pdf = file.with_suffix(".pdf").name
            (before, pages), (after, pages_after) = text_of(folder / "before" / pdf), text_of(folder / "after" / pdf)
            if pages != pages_after:
                faults.append(f"{file.name}: {pages} pages became {pages_after}")
            for french, english in KNOWN.items():
                expected = before.count(french)
                sentences += expected
                if after.count(english) < expected or french in after:
                    faults.append(f"{file.name}: {french!r} {expected} times, {english!r} {after.count(english)} times")
    print(f"office: {len(files)} documents, {sentences} sentences, {len(faults)} faults")
    for fault in faults:
        print(f"office: {fault}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
