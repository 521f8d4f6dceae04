#!/usr/bin/env python3
"""Makes the archives of this folder, with the programs that people have.

    pip install python-docx openpyxl XlsxWriter python-pptx ebooklib pypandoc_binary
    apt-get install --no-install-recommends pandoc libreoffice-writer libreoffice-calc libreoffice-impress
    ./make.py [FOLDER]

Times and identifiers differ from run to run, so the tests compare no bytes with those of another run.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import docx
import openpyxl
import pptx
import xlsxwriter
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from ebooklib import epub
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.comments import Comment

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)


def python_docx(path):
    document = docx.Document()
    document.add_heading("quel mois", 1)
    paragraph = document.add_paragraph("La vieille ")
    paragraph.add_run("maison").bold = True
    paragraph.add_run(" blanche")
    paragraph.add_run(" est belle.").font.name = None
    document.add_paragraph("Où est-ce qu'elle habite ?", style="List Bullet")
    table = document.add_table(1, 2)
    table.cell(0, 0).text = "la maison"
    table.cell(0, 1).text = "12"
    section = document.sections[0]
    section.header.paragraphs[0].text = "le chat\tla page"
    section.footer.paragraphs[0].text = "le chien"
    run = document.add_paragraph("Voir ").add_run()
    for kind in ("begin", None, "separate", "text", "end"):
        if kind is None:
            mark = OxmlElement("w:instrText")
            mark.text = "PAGE"
        elif kind == "text":
            mark = OxmlElement("w:t")
            mark.text = "3"
        else:
            mark = OxmlElement("w:fldChar")
            mark.set(qn("w:fldCharType"), kind)
        run._r.append(mark)
    document.add_comment(run, "quel mois", author="A", initials="A")
    document.save(path)


def python_pptx(path):
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "La maison blanche"
    body = slide.placeholders[1].text_frame
    body.text = "quel mois"
    paragraph = body.add_paragraph()
    for text, bold in (("la ", None), ("vieille", True), (" maison", None)):
        run = paragraph.add_run()
        run.text, run.font.bold = text, bold
    slide.notes_slide.notes_text_frame.text = "Où est-ce qu'elle habite ?"
    table = slide.shapes.add_table(1, 2, 0, 0, 1000000, 500000).table
    table.cell(0, 0).text = "le chat"
    presentation.save(path)


def python_openpyxl(path):
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    sheet["A1"] = "quel mois"
    sheet["A2"] = "la maison\nle chat"
    sheet["B1"] = 12
    sheet["B2"] = "=B1*2"
    sheet["B3"] = "quel mois"
    bold = InlineFont(b=True)
    sheet["A3"] = CellRichText("la ", TextBlock(bold, "vieille"), " maison")
    sheet["A1"].comment = Comment("le chien", "A")
    workbook.save(path)


def python_xlsxwriter(path):
    workbook = xlsxwriter.Workbook(path, {"constant_memory": True})
    sheet = workbook.add_worksheet("feuille")
    bold = workbook.add_format({"bold": True})
    sheet.write(0, 0, "quel mois")
    sheet.write_rich_string(1, 0, "la ", bold, "vieille", " maison")
    sheet.write(2, 0, " avec  espaces ")
    sheet.write(3, 0, 4)
    workbook.close()


def python_ebooklib(path):
    book = epub.EpubBook()
    book.set_identifier("id")
    book.set_title("La maison")
    book.set_language("fr")
    pages = []
    for number, text in enumerate(["quel mois", "La vieille <b>maison</b> blanche est belle.&#160;Oui"]):
        page = epub.EpubHtml(title=f"le chat {number}", file_name=f"page{number}.xhtml", lang="fr")
        page.content = f"<h1>le chat</h1><p>{text}<br/><img src='a.png' alt='la maison'/></p>"
        book.add_item(page)
        pages.append(page)
    book.toc = pages
    book.add_item(epub.EpubNcx())
    book.add_item(epub.EpubNav())
    book.spine = ["nav", *pages]
    epub.write_epub(str(path), book)


MARKDOWN = """---
title: quel mois
---

# La maison

La vieille **maison** blanche est *belle*.[^1] Voir [le chat](https://example.org).

- le chien
- `code`

| la page | le chat |
|---------|---------|
| oui     | non     |

[^1]: Où est-ce qu'elle habite ?
"""


def pandoc(path):
    subprocess.run(["pandoc", "-f", "markdown", "-o", path], input=MARKDOWN.encode(), check=True)


def libreoffice(source, path):
    with tempfile.TemporaryDirectory() as folder:
        command = ["soffice", "--headless", "--convert-to", path.suffix[1:], "--outdir", folder, source]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.copyfile(pathlib.Path(folder, source.name).with_suffix(path.suffix), path)


def main():
    FOLDER.mkdir(exist_ok=True)
    python_docx(FOLDER / "python_docx.docx")
    python_pptx(FOLDER / "python_pptx.pptx")
    python_openpyxl(FOLDER / "openpyxl.xlsx")
    python_xlsxwriter(FOLDER / "xlsxwriter.xlsx")
    python_ebooklib(FOLDER / "ebooklib.epub")
    for extension in ("docx", "odt", "epub"):
        pandoc(FOLDER / f"pandoc.{extension}")
    for source, name in (
        ("python_docx.docx", "libreoffice.odt"),
        ("pandoc.odt", "libreoffice.docx"),
        ("python_pptx.pptx", "libreoffice.odp"),
        ("libreoffice.odp", "libreoffice.pptx"),
        ("openpyxl.xlsx", "libreoffice.ods"),
        ("libreoffice.ods", "libreoffice.xlsx"),
    ):
        libreoffice(FOLDER / source, FOLDER / name)


if __name__ == "__main__":
    main()
