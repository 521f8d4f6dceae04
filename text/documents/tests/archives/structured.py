"""Documents with the structure that people's documents have, by the programs of make.py. Each place with text has a sentence
that the demo model knows."""

import base64
import io
import re
import subprocess
import zipfile

import docx
import openpyxl
import pptx
import pypandoc
import xlsxwriter
from docx.enum.section import WD_SECTION
from docx.enum.style import WD_STYLE_TYPE
from docx.enum.text import WD_BREAK
from docx.oxml import parse_xml
from docx.oxml.ns import qn
from docx.shared import Pt, RGBColor
from ebooklib import epub
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.table import Table
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

COLD, STUDENT, HOUSE = "il fait froid", "je suis étudiant", "la maison est belle"
ARABIC, HEBREW = "البيت الأبيض جميل.", "הבית הלבן יפה."
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
WORD = (
    f'{W} xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:v="urn:schemas-microsoft-com:vml" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
)


def run(text, properties=""):
    properties = properties and f"<w:rPr>{properties}</w:rPr>"
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def mark(kind):
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def field(code, shown):
    instruction = f'<w:r><w:instrText xml:space="preserve"> {code} </w:instrText></w:r>'
    return mark("begin") + instruction + mark("separate") + shown + mark("end")


def add(document, *elements):
    """Appends elements, paragraphs if they are not, to the body."""
    for element in elements:
        if not re.match("<w:(p|tbl|sdt)[ >]", element):
            element = f"<w:p>{element}</w:p>"
        document.element.body.insert(-1, parse_xml(re.sub("^<([^ >/]+)", rf"<\1 {WORD}", element)))


def word_styles(path):
    document = docx.Document()
    style = document.styles.add_style("Remarque", WD_STYLE_TYPE.PARAGRAPH)
    style.font.size, style.font.italic = Pt(9), True
    words = document.styles.add_style("Important", WD_STYLE_TYPE.CHARACTER)
    words.font.color.rgb = RGBColor(200, 0, 0)
    document.add_heading(COLD, 0)
    for level in (1, 2, 3):
        document.add_heading(HOUSE, level)
    document.add_paragraph(STUDENT, style="Remarque")
    paragraph = document.add_paragraph("il fait ")
    paragraph.add_run("froid", style="Important")
    paragraph = document.add_paragraph()
    for text, change in (("la ", {}), ("maison", {"bold": True, "italic": True}), (" est ", {}), ("belle", {"underline": True})):
        piece = paragraph.add_run(text)
        for name, value in change.items():
            setattr(piece.font, name, value)
    for name in ("List Bullet", "List Number", "List Bullet 2", "Intense Quote", "Caption"):
        document.add_paragraph(COLD, style=name)
    document.add_paragraph().add_run(STUDENT).add_break(WD_BREAK.PAGE)
    document.save(path)


def word_tables(path):
    document = docx.Document()
    table = document.add_table(3, 3, style="Light Grid Accent 1")
    for row in table.rows:
        for cell in row.cells:
            cell.text = COLD
    table.cell(0, 0).merge(table.cell(0, 2)).text = HOUSE
    table.cell(1, 0).merge(table.cell(2, 0)).text = f"{STUDENT}\n{COLD}"
    inner = table.cell(2, 2).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = STUDENT, "3,50"
    table._tbl.tblPr.append(parse_xml(f'<w:tblCaption {W} w:val="{COLD}"/>'))
    document.save(path)


def word_headers(path):
    document = docx.Document()
    document.settings.odd_and_even_pages_header_footer = True
    first = document.sections[0]
    first.different_first_page_header_footer = True
    for part in (first.header, first.footer, first.first_page_header, first.even_page_footer):
        part.paragraphs[0].text = COLD
    first.header.paragraphs[0].add_run("\t").add_picture(io.BytesIO(PIXEL))
    paragraph = first.footer.add_paragraph("la maison est belle ")
    for piece in re.findall("<w:r>.*?</w:r>", field("PAGE", run("1"))):
        paragraph._p.append(parse_xml(piece.replace("<w:r>", f"<w:r {WORD}>", 1)))
    document.add_paragraph(STUDENT)
    document.add_section(WD_SECTION.NEW_PAGE).header.is_linked_to_previous = False
    document.add_paragraph(COLD)
    document.save(path)


def word_revisions(path):
    document = docx.Document()
    author = 'w:id="{}" w:author="A" w:date="2024-01-01T00:00:00Z"'.format
    add(
        document,
        run("il ") + f"<w:del {author(1)}><w:r><w:delText>ne </w:delText></w:r></w:del><w:ins {author(2)}>{run('fait ')}</w:ins>" + run("froid"),
        f"<w:moveFrom {author(3)}>{run(COLD)}</w:moveFrom>",
        f"<w:moveTo {author(4)}>{run(HOUSE)}</w:moveTo>",
        f'<w:p><w:pPr><w:rPr><w:ins {author(5)}/></w:rPr></w:pPr>{run(STUDENT, f"<w:rPrChange {author(6)}><w:rPr><w:b/></w:rPr></w:rPrChange>")}</w:p>',
    )
    paragraph = document.add_paragraph("la maison ")
    document.add_comment(paragraph.add_run("est belle"), COLD, author="A", initials="A")
    document.add_comment(document.add_paragraph(COLD).runs, f"{STUDENT}\n{HOUSE}", author="B", initials="B")
    document.save(path)


def word_fields(path):
    document = docx.Document()
    link = document.part.relate_to("https://example.org", docx.opc.constants.RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
    bookmark = f'<w:bookmarkStart w:id="9" w:name="ici"/>{run(COLD)}<w:bookmarkEnd w:id="9"/>'
    add(
        document,
        bookmark,
        run("il fait ") + f'<w:hyperlink r:id="{link}">{run("froid", "<w:u w:val=" + chr(34) + "single" + chr(34) + "/>")}</w:hyperlink>',
        run(f"{STUDENT}. Voir ") + field("REF ici \\h", run(COLD)) + run("."),
        field('HYPERLINK "https://example.org"', run(HOUSE)),
        run(f"{COLD}. ") + f'<w:fldSimple w:instr=" DATE ">{run("1 mai 2024")}</w:fldSimple>',
        mark("begin") + '<w:r><w:instrText xml:space="preserve"> TOC \\o </w:instrText></w:r>' + mark("separate") + run(COLD) + "<w:r><w:tab/></w:r>" + run("1"),
        run(HOUSE) + "<w:r><w:tab/></w:r>" + run("2") + mark("end"),
        run(COLD) + '<w:r><w:sym w:font="Wingdings" w:char="F0E0"/></w:r>' + run(f". {STUDENT}."),
        f"<m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath>{run('. ' + COLD)}",
    )
    document.save(path)


def word_objects(path):
    document = docx.Document()
    document.add_picture(io.BytesIO(PIXEL))
    document.inline_shapes[0]._inline.docPr.set("descr", COLD)
    box = f"<w:txbxContent><w:p>{run(STUDENT)}</w:p><w:p>{run(COLD)}</w:p></w:txbxContent>"
    shape = (
        "<mc:AlternateContent><mc:Choice Requires=\"wps\"><w:drawing><wp:inline><wp:extent cx=\"2000000\" cy=\"900000\"/>"
        f'<wp:docPr id="5" name="Zone" descr="{HOUSE}"/><a:graphic>'
        '<a:graphicData uri="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"><wps:wsp><wps:cNvSpPr txBox="1"/><wps:spPr>'
        '<a:xfrm><a:off x="0" y="0"/><a:ext cx="2000000" cy="900000"/></a:xfrm><a:prstGeom prst="rect"><a:avLst/></a:prstGeom></wps:spPr>'
        f"<wps:txbx>{box}</wps:txbx><wps:bodyPr/></wps:wsp></a:graphicData></a:graphic></wp:inline></w:drawing></mc:Choice>"
        f'<mc:Fallback><w:pict><v:shape style="width:150pt;height:70pt"><v:textbox>{box}</v:textbox></v:shape></w:pict></mc:Fallback></mc:AlternateContent>'
    )
    control = f'<w:sdt><w:sdtPr><w:alias w:val="Nom"/><w:text/></w:sdtPr><w:sdtContent>{{}}</w:sdtContent></w:sdt>'
    add(
        document,
        run(HOUSE) + f"<w:r>{shape}</w:r>",
        run(f"{STUDENT}. ") + control.format(run(COLD)),
        control.format(f"<w:p>{run(HOUSE)}</w:p>"),
        f"<w:smartTag w:element=\"x\">{run(COLD)}</w:smartTag>",
    )
    document.save(path)


def word_scripts(path):
    document = docx.Document()
    right = '<w:p><w:pPr><w:bidi/></w:pPr>{}</w:p>'.format
    ruby = (
        '<w:r><w:ruby><w:rubyPr><w:rubyAlign w:val="center"/><w:hps w:val="10"/><w:hpsRaise w:val="18"/><w:hpsBaseText w:val="21"/>'
        f'<w:lid w:val="ja-JP"/></w:rubyPr><w:rt>{run("かん")}</w:rt><w:rubyBase>{run("漢")}</w:rubyBase></w:ruby></w:r>'
    )
    add(
        document,
        right(run(ARABIC, "<w:rtl/>")),
        right(run(HEBREW, "<w:rtl/>") + run(" 2024. ") + run(COLD)),
        run("漢字 ") + ruby + run("です。"),
        run("il") + "<w:r><w:noBreakHyphen/></w:r>" + run("fait") + "<w:r><w:softHyphen/></w:r>" + run(" froid"),
        run(COLD, '<w:lang w:val="fr-FR"/>') + '<w:proofErr w:type="spellStart"/>' + run(". ", "<w:noProof/>") + '<w:proofErr w:type="spellEnd"/>' + run(STUDENT, "<w:vertAlign w:val=\"superscript\"/>"),
        run(COLD) + run(". &amp; &lt;b&gt; 😀"),
        run("\u00a0" + HOUSE),
    )
    document.save(path)


def slides_structure(path):
    presentation = pptx.Presentation()
    for number, layout in enumerate(presentation.slide_layouts):
        slide = presentation.slides.add_slide(layout)
        for shape in slide.placeholders:
            if shape.has_text_frame:
                shape.text_frame.text = COLD
        if number < 3:
            slide.notes_slide.notes_text_frame.text = f"{STUDENT}\n{HOUSE}"
    presentation.save(path)


def slides_shapes(path):
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = slide.shapes.add_table(3, 3, Inches(1), Inches(1), Inches(6), Inches(2)).table
    table.cell(0, 0).merge(table.cell(0, 2))
    for row in range(3):
        table.cell(row, 0).text = COLD
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(Inches(1), Inches(4), Inches(2), Inches(1)).text_frame.text = STUDENT
    box = slide.shapes.add_textbox(Inches(4), Inches(4), Inches(3), Inches(1)).text_frame
    box.text = "il fait "
    link = box.paragraphs[0].add_run()
    link.text, link.hyperlink.address, link.font.bold = "froid", "https://example.org", True
    box.add_paragraph().text = f"{HOUSE}\v{COLD}"
    box.add_paragraph().text = ARABIC
    box.paragraphs[2]._p.get_or_add_pPr().set("rtl", "1")
    picture = slide.shapes.add_picture(io.BytesIO(PIXEL), 0, 0, Inches(1), Inches(1))
    picture._element._nvXxPr.cNvPr.set("descr", HOUSE)
    presentation.save(path)


def slides_charts(path):
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[5])
    slide.shapes.title.text = COLD
    data = CategoryChartData()
    data.categories = [COLD, HOUSE]
    data.add_series(STUDENT, (1.5, 0.00002))
    place = Inches(1), Inches(2), Inches(6), Inches(4)
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = HOUSE
    chart.value_axis.has_title = True
    chart.value_axis.axis_title.text_frame.text = STUDENT
    presentation.save(path)


def sheets_structure(path):
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    sheet.title = "Été"
    sheet.merge_cells("A1:C1")
    sheet["A1"] = COLD
    sheet["A2"] = CellRichText("il ", TextBlock(InlineFont(b=True), "fait"), " ", TextBlock(InlineFont(i=True), "froid"))
    sheet["A3"] = f"{STUDENT}\n{HOUSE}"
    sheet["A3"].alignment = openpyxl.styles.Alignment(wrap_text=True)
    sheet["A4"], sheet["B4"] = COLD, "=A4"
    sheet["A5"], sheet["A5"].hyperlink = HOUSE, "https://example.org"
    sheet["A6"].comment = Comment(f"{COLD}\n{STUDENT}", "A")
    sheet["A7"], sheet["A8"] = "=\"il fait\"&\" froid\"", True
    sheet.oddHeader.center.text = COLD
    check = DataValidation(type="list", formula1='"oui,non"', prompt=COLD)
    sheet.add_data_validation(check)
    check.add("B6")
    other = workbook.create_sheet("Feuille 2")
    other["A1"] = f"='Été'!A1"
    other["A2"] = COLD
    other.add_image(openpyxl.drawing.image.Image(io.BytesIO(PIXEL)), "C3")
    workbook.save(path)


def sheets_tables(path):
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    for row in (("quel mois", "la maison"), (COLD, 1), (STUDENT, 2)):
        sheet.append(row)
    sheet.add_table(Table(displayName="Table1", ref="A1:B3"))
    sheet["D1"] = "=SUM(Table1[la maison])"
    chart = BarChart()
    chart.title = HOUSE
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    chart.set_categories(Reference(sheet, min_col=1, min_row=2, max_row=3))
    sheet.add_chart(chart, "D5")
    workbook.save(path)


def sheets_drawings(path):
    workbook = xlsxwriter.Workbook(path)
    sheet = workbook.add_worksheet()
    bold, red = workbook.add_format({"bold": True}), workbook.add_format({"color": "red"})
    sheet.write_rich_string("A1", "il ", bold, "fait", " ", red, "froid")
    sheet.write_string("A2", f"  {COLD}  ")
    sheet.write_url("A3", "https://example.org", string=STUDENT)
    sheet.merge_range("A4:C4", HOUSE)
    sheet.write_comment("A5", COLD)
    sheet.insert_textbox("E2", f"{STUDENT}\n{COLD}", {"description": HOUSE})
    sheet.write_row("A6", [COLD, 3, "TRUE", "12 kg"])
    chart = workbook.add_chart({"type": "line"})
    chart.add_series({"values": "=Sheet1!$B$6:$B$6", "name": COLD})
    chart.set_title({"name": HOUSE})
    sheet.insert_chart("E8", chart)
    workbook.close()


MARKDOWN = f"""---
title: {HOUSE}
author: Paul
lang: fr
---

# {COLD}

*la maison* **est** [belle](https://example.org "{COLD}").[^1]

{COLD}.[^2]

le chat `code`

1. {COLD}
2. {STUDENT}

   {HOUSE}

- {COLD}
    - {HOUSE}

{COLD}
:   {STUDENT}

> {HOUSE}

| {COLD} | {STUDENT} |
|--------|:---------:|
| {HOUSE} | 12 |

: {HOUSE}

![{COLD}](pixel.png "{HOUSE}")

$x = 1$ le chien

~~il fait~~ froid

------

```
{COLD}
```

## {STUDENT} {{.unnumbered}}

::: {{custom-style="Intense Quote"}}
{COLD}
:::

{ARABIC}

[^1]: {COLD}
[^2]: {STUDENT}

    {HOUSE}
"""
SLIDES = f"""% {HOUSE}
% Paul

# {COLD}

- {STUDENT}
- {HOUSE}

::: notes
{COLD}
:::

# {HOUSE}

:::::: columns
::: column
{COLD}
:::
::: column
{STUDENT}
:::
::::::
"""


def pandoc(text, path, *options):
    (path.parent / "pixel.png").write_bytes(PIXEL)
    command = [pypandoc.get_pandoc_path(), "-f", "markdown", "-o", path.name, *options]
    subprocess.run(command, input=text.encode(), check=True, cwd=path.parent)


def book(path):
    new = epub.EpubBook()
    new.set_identifier("id")
    new.set_title(HOUSE)
    new.set_language("fr")
    style = epub.EpubItem(uid="css", file_name="style/a.css", media_type="text/css", content="p { color: red } /* il fait froid */")
    new.add_item(style)
    new.add_item(epub.EpubImage(uid="img", file_name="a.png", media_type="image/png", content=PIXEL))
    pages = []
    for number in range(3):
        page = epub.EpubHtml(title=COLD, file_name=f"page{number}.xhtml", lang="fr")
        page.content = (
            f"<h1 id='a'>{COLD}</h1><p class='x'>la <b>maison</b> est <i>belle</i>.<br/>{STUDENT}. "
            f"<a href='#a'>{COLD}</a>. <img src='a.png' alt='{HOUSE}'/></p><p dir='rtl'>{ARABIC}</p>"
            f"<table><tr><th>{COLD}</th> <td colspan='2'>{HOUSE}</td></tr></table><p><ruby>漢<rt>かん</rt></ruby>字</p>"
            f"<aside><p>{STUDENT}.&#160; {COLD}</p></aside><svg xmlns='http://www.w3.org/2000/svg'><text>{COLD}</text></svg>"
        )
        page.add_item(style)
        new.add_item(page)
        pages.append(page)
    new.toc = (epub.Section(HOUSE), tuple(pages)), epub.Link("page0.xhtml#a", STUDENT, "link")
    new.add_item(epub.EpubNcx())
    new.add_item(epub.EpubNav())
    new.spine = ["nav", *pages]
    epub.write_epub(str(path), new)


def flat(path):
    """The parts stored, in another order, with the sizes after the data, as programs write that stream."""
    word_styles(path)
    entries = [(one, zipfile.ZipFile(path).read(one)) for one in zipfile.ZipFile(path).infolist()]

    class Stream(io.RawIOBase):
        def __init__(self):
            self.bytes = bytearray()

        def writable(self):
            return True

        def write(self, data):
            self.bytes += bytes(data)
            return len(data)

    stream = Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for entry, content in [entries[0], *reversed(entries[1:])]:
            archive.writestr(entry.filename, content)
    path.write_bytes(stream.bytes)


def make(folder):
    """The documents of programs in Python and of pandoc; those of LibreOffice are made of them."""
    for maker in (word_styles, word_tables, word_headers, word_revisions, word_fields, word_objects, word_scripts, flat):
        maker(folder / f"{maker.__name__}.docx")
    for maker in (slides_structure, slides_shapes, slides_charts):
        maker(folder / f"{maker.__name__}.pptx")
    for maker in (sheets_structure, sheets_tables, sheets_drawings):
        maker(folder / f"{maker.__name__}.xlsx")
    book(folder / "book.epub")
    for extension in ("docx", "odt", "epub"):
        pandoc(MARKDOWN, folder / f"pandoc_text.{extension}", "--toc")
    pandoc(MARKDOWN, folder / "pandoc_text2.epub", "--to", "epub2")
    pandoc(SLIDES, folder / "pandoc_slides.pptx")
    (folder / "pixel.png").unlink()
