#!/usr/bin/env python3
"""Translates documents of Office, OpenDocument and books, and lets LibreOffice make PDF files of them: each must open, and its
text must be in it. Needs soffice and pdftotext; says SKIPPED without them.

    libreoffice.py [PROGRAM]  PROGRAM: the command simdformer (target/release/simdformer)

The documents are those of text/documents/tests/archives, those that structured.py makes if the packages of make.py are there,
the same in the other formats that LibreOffice writes, and pages of text/documents/tests/documents as documents of Office. The
model that copies must give the same file; the demo model must give the sentences in English that it knows in French, the same
parts with the same elements but those of runs, and as many pages.
"""

import collections
import html
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom
import zipfile

try:
    import structured
except ImportError as error:
    structured = None
    print(f"SKIPPED office: documents with more structure need the packages of make.py: {error}")

ROOT = pathlib.Path(__file__).resolve().parents[4]
ARCHIVES = ROOT / "text/documents/tests/archives"
PAGES = ROOT / "text/documents/tests/documents"
# The other formats of each kind of document.
KINDS = [("docx", "odt"), ("pptx", "odp"), ("xlsx", "ods")]
HTML = ["attributes.html", "fragment.html", "page.html", "spaces.html", "notranslate.html", "korean.html", "arabic.html"]
# What the demo model makes of sentences in the documents. A cell beside a number is cut at its border.
KNOWN = {
    "quel mois": "what mon",
    "est-ce qu'elle habite": "does she live",
    "il fait froid": "it is cold",
    "je suis étudiant": "i am a student",
    "la maison est belle": "the house is beautiful",
}
# How many of them stay: in a field, in text that was moved, in results of formulas and the header of a printed sheet, in the
# name that LibreOffice gives a series, in the header of a table.
STAY = {"word_fields": 1, "word_revisions": 1, "sheets_structure": 4, "sheets_drawings": 1, "sheets_tables": 1}
# Runs may be joined and divided, and wraps around words, too.
RUNS = re.compile(
    r"(w:(r|rPr|t|proofErr|lastRenderedPageBreak|softHyphen|noBreakHyphen|lang|hyperlink)|[aw]:[a-z]+Pr|a:(r|rPr|t)|r|rPr|t|"
    "text:(span|a|s|soft-page-break)|b|i|em|strong|a|span|code|sub|sup)$"
)


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
    if structured:
        structured.make(folder)
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


def elements(part):
    """How often each element occurs in a part, and what is in runs left out."""
    names, found = collections.Counter(), [xml.dom.minidom.parseString(part).documentElement]
    while found:
        element = found.pop()
        if not RUNS.match(element.tagName):
            names[element.tagName] += 1
        if not element.tagName.endswith("rPr"):
            found += [child for child in element.childNodes if child.nodeType == child.ELEMENT_NODE]
    return names


def compare(name, before, after):
    """What became of the parts of an archive."""
    before, after = zipfile.ZipFile(before), zipfile.ZipFile(after)
    if before.namelist() != after.namelist():
        yield f"{name}: other parts"
        return
    for part in before.namelist():
        old, new = before.read(part), after.read(part)
        if old != new:
            difference = elements(old)
            difference.subtract(elements(new))
            if difference := {one: count for one, count in difference.items() if count}:
                yield f"{name}: {part} lacks {difference}"


def book_text(path):
    """The words of a book, which LibreOffice does not open."""
    archive = zipfile.ZipFile(path)
    pages = [archive.read(name).decode() for name in archive.namelist() if re.search("html$|ncx$", name)]
    text = re.sub("(?s)<(head|svg|pre|code).*?</\\1>|<[^>]*>", "", "\n".join(pages))
    return re.sub(r"\s+", " ", html.unescape(text)), 0


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
        for kind in sum(KINDS, ()):
            of_kind = [file for file in files if file.suffix == f".{kind}"]
            convert(of_kind, "pdf", folder / "before")
            convert([folder / "fr-en" / file.name for file in of_kind], "pdf", folder / "after")
        for file in files:
            new = folder / "fr-en" / file.name
            if file.read_bytes() != (folder / "copy" / file.name).read_bytes():
                faults.append(f"{file.name}: the copy differs")
            faults += compare(file.name, file, new)
            if file.suffix == ".epub":
                (before, pages), (after, pages_after) = book_text(file), book_text(new)
            else:
                pdf = file.with_suffix(".pdf").name
                (before, pages), (after, pages_after) = text_of(folder / "before" / pdf), text_of(folder / "after" / pdf)
            if pages != pages_after:
                faults.append(f"{file.name}: {pages} pages became {pages_after}")
            stay = next((count for name, count in STAY.items() if file.name.startswith(name)), 0)
            for french, english in KNOWN.items():
                expected = before.count(french)
                sentences += expected
                if after.count(english) < expected - stay or after.count(french) > stay:
                    faults.append(
                        f"{file.name}: {french!r} {expected} times, {english!r} {after.count(english)} times, "
                        f"and {after.count(french)} times in French"
                    )
    print(f"office: {len(files)} documents, {sentences} sentences, {len(faults)} faults")
    for fault in faults:
        print(f"office: {fault}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
