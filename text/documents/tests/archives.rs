//! Documents that are archives: what their segments are, how they are written in runs, and that everything else stays.

use crate::office::{
    Entry, content_types, docx, docx_entries, open_document, part, segments, shout, texts,
    translate, unzip, zip,
};
use crate::random::Random;
use quick_xml::events::Event;
use simdformer_documents::archives::Archive;
use simdformer_documents::archives::ArchiveFormat::{self, Docx, Odt, Xlsx};
use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText};
use simdformer_testing::effort;
use std::fs;
use std::io::Cursor;
use std::ops::Range;
use std::path::Path;

/// A run of Word.
fn run(properties: &str, text: &str) -> String {
    let properties = match properties {
        "" => String::new(),
        some => format!("<w:rPr>{some}</w:rPr>"),
    };
    format!("<w:r>{properties}<w:t xml:space=\"preserve\">{text}</w:t></w:r>")
}

/// The body of a document after its segments were written in capitals.
fn shouted(body: &str) -> String {
    let bytes = translate(&docx(body), Docx, &mut shout).unwrap();
    let document = part(&bytes, "word/document.xml");
    let (_, rest) = document.split_once("<w:body>").unwrap();
    rest.split_once("<w:sectPr/>").unwrap().0.to_owned()
}

/// The texts and marks of the first segment: the words that are wrapped, kept pieces, and the points as empty texts.
fn marks(segment: &MarkedText) -> Vec<(&str, &str)> {
    let kind = |mark: &Mark| match mark.kind {
        MarkKind::Wrap { .. } => "wrap",
        MarkKind::Keep { .. } => "keep",
        MarkKind::Point { .. } => "point",
    };
    segment.marks.iter().map(|mark| (kind(mark), &segment.text[mark.range.clone()])).collect()
}

#[test]
fn runs_that_look_alike_are_one() {
    let body = format!(
        "<w:p w:rsidR=\"00A1\"><w:pPr><w:rPr><w:b/></w:rPr></w:pPr>\
         <w:r w:rsidRPr=\"00A2\"><w:rPr><w:lang w:val=\"en-US\"/></w:rPr><w:t>The bl</w:t></w:r>\
         <w:proofErr w:type=\"spellStart\"/>{}<w:proofErr w:type=\"spellEnd\"/>{}\
         <w:r><w:lastRenderedPageBreak/><w:t xml:space=\"preserve\"> is here.</w:t></w:r></w:p>",
        run("", "ue "),
        run("<w:i/>", "house"),
    );
    let found = segments(&docx(&body), Docx).unwrap();
    assert_eq!(found[0].text, "The blue house is here.");
    assert_eq!(marks(&found[0]), [("wrap", "house")]);
    let expected = format!(
        "<w:p w:rsidR=\"00A1\"><w:pPr><w:rPr><w:b/></w:rPr></w:pPr>{}{}{}</w:p>",
        run("", "THE BLUE "),
        run("<w:i/>", "HOUSE"),
        run("", " IS HERE."),
    );
    assert_eq!(shouted(&body), expected);
}

#[test]
fn tabs_and_breaks_divide_and_stay() {
    let body = "<w:p><w:r><w:tab/><w:t>one</w:t><w:tab/><w:t xml:space=\"preserve\"> two </w:t><w:br/>\
                <w:t>three</w:t></w:r></w:p>";
    assert_eq!(texts(&docx(body), Docx), ["one", "two", "three"]);
    let text = |text: &str| format!("<w:t xml:space=\"preserve\">{text}</w:t>");
    let expected = format!(
        "<w:p><w:r><w:tab/>{}<w:tab/>{}<w:br/>{}</w:r></w:p>",
        text("ONE"),
        text(" TWO "),
        text("THREE")
    );
    assert_eq!(shouted(body), expected);
}

#[test]
fn fields_stay_and_links_wrap() {
    let mark = |kind: &str| format!("<w:r><w:fldChar w:fldCharType=\"{kind}\"/></w:r>");
    let field = |code: &str, text: &str| {
        let instruction = format!("<w:r><w:instrText>{code}</w:instrText></w:r>");
        [&mark("begin"), &instruction, &mark("separate"), &run("", text), &mark("end")]
            .map(String::as_str)
            .concat()
    };
    let body = format!(
        "<w:p>{}{}{}{}{}<w:hyperlink r:id=\"rId1\">{}</w:hyperlink>{}</w:p>",
        run("", "see "),
        field(" REF figure ", "Figure 3"),
        run("", " and "),
        field(" HYPERLINK \"https://example.org\" ", "this page"),
        run("", " or "),
        run("<w:u/>", "that"),
        run("", " one"),
    );
    let found = segments(&docx(&body), Docx).unwrap();
    assert_eq!(found[0].text, "see Figure 3 and this page or that one");
    let expected =
        [("keep", "Figure 3"), ("wrap", "this page"), ("wrap", "that"), ("wrap", "that")];
    assert_eq!(marks(&found[0]), expected);
    let written = shouted(&body);
    assert!(written.contains(&field(" REF figure ", "Figure 3")), "{written}");
    assert!(written.contains(&run("", "THIS PAGE")), "{written}");
    assert!(
        written.contains(&format!(
            "<w:hyperlink r:id=\"rId1\">{}</w:hyperlink>",
            run("<w:u/>", "THAT")
        )),
        "{written}"
    );
    // A field that ends in another paragraph.
    let toc = format!(
        "<w:p>{}<w:r><w:instrText>TOC</w:instrText></w:r>{}{}</w:p><w:p>{}{}</w:p>",
        mark("begin"),
        mark("separate"),
        run("", "one"),
        run("", "two"),
        mark("end"),
    );
    assert_eq!(texts(&docx(&toc), Docx), ["one", "two"]);
    assert_eq!(shouted(&toc), toc.replace(">one<", ">ONE<").replace(">two<", ">TWO<"));
}

#[test]
fn text_boxes_in_a_paragraph_have_segments_of_their_own() {
    let inner = |text: &str| {
        format!(
            "<w:r><w:drawing><wps:txbx><w:txbxContent><w:p>{}</w:p></w:txbxContent></wps:txbx></w:drawing></w:r>",
            run("", text)
        )
    };
    let body = format!("<w:p>{}{}{}</w:p>", run("", "before "), inner("inside"), run("", "after"));
    assert_eq!(texts(&docx(&body), Docx), ["inside", "before after"]);
    let expected =
        format!("<w:p>{}{}{}</w:p>", run("", "BEFORE "), inner("INSIDE"), run("", "AFTER"));
    assert_eq!(shouted(&body), expected);
    // Of the box alone.
    let bytes = translate(&docx(&body), Docx, &mut |segment| match segment.text.as_str() {
        "inside" => shout(segment),
        _ => segment.clone(),
    });
    let expected = body.replace("inside", "INSIDE");
    assert!(part(&bytes.unwrap(), "word/document.xml").contains(&expected));
    // A field in a box, around another box.
    let mark = |kind: &str| format!("<w:r><w:fldChar w:fldCharType=\"{kind}\"/></w:r>");
    let field = [run("", "a "), mark("begin"), inner("c"), mark("end"), run("", "b")].concat();
    let body = format!(
        "<w:p><w:r><w:drawing><w:txbxContent><w:p>{field}</w:p></w:txbxContent></w:drawing></w:r></w:p>"
    );
    assert_eq!(texts(&docx(&body), Docx), ["a", "c", "b"]);
    // A box in a box divides the text of the box around it.
    let nested = format!(
        "<w:p>{}<w:r><w:drawing><w:txbxContent><w:p>{}{}{}</w:p></w:txbxContent></w:drawing></w:r>{}</w:p>",
        run("", "a "),
        run("", "b"),
        inner("c"),
        run("", "d"),
        run("", "e")
    );
    let mut expected = nested.clone();
    for (small, large) in
        [(">a ", ">A "), (">b<", ">B<"), (">c<", ">C<"), (">d<", ">D<"), (">e<", ">E<")]
    {
        expected = expected.replace(small, large);
    }
    assert_eq!(texts(&docx(&nested), Docx), ["b", "c", "d", "a e"]);
    assert_eq!(shouted(&nested), expected);
}

#[test]
fn what_is_deleted_stays_and_content_controls_wrap() {
    let body = format!(
        "<w:p>{}<w:del w:id=\"1\"><w:r><w:delText>old</w:delText></w:r></w:del>\
         <w:sdt><w:sdtPr><w:alias w:val=\"x\"/></w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>{}</w:p>",
        run("", "a "),
        run("", "new"),
        run("", " word")
    );
    let found = segments(&docx(&body), Docx).unwrap();
    assert_eq!(found[0].text, "a new word");
    assert_eq!(marks(&found[0]), [("point", ""), ("wrap", "new")]);
    let expected = body.replace(">a ", ">A ").replace(">new<", ">NEW<").replace(" word", " WORD");
    assert_eq!(shouted(&body), expected);
}

/// What programs put around words that people read: tags of Word, input fields and content controls of LibreOffice.
#[test]
fn words_in_tags_and_input_fields_are_text() {
    let body = format!(
        "<w:p>{}<w:smartTag w:element=\"City\"><w:smartTagPr/>{}</w:smartTag>{}\
         <w:customXml w:element=\"a\">{}</w:customXml></w:p>",
        run("", "in "),
        run("", "paris"),
        run("", " and "),
        run("", "rome")
    );
    assert_eq!(texts(&docx(&body), Docx), ["in paris and rome"]);
    let mut expected = body.clone();
    for word in ["in ", "paris", " and ", "rome"] {
        expected = expected.replace(&format!(">{word}<"), &format!(">{}<", word.to_uppercase()));
    }
    assert_eq!(shouted(&body), expected);
    let body = "<text:p xmlns:l=\"urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0\">in \
                <text:text-input text:description=\"\">paris</text:text-input> and \
                <l:content-control l:alias=\"a\">rome</l:content-control></text:p>";
    let bytes = open_document("text", "", body);
    assert_eq!(texts(&bytes, Odt), ["in paris and rome"]);
    let content = part(&translate(&bytes, Odt, &mut shout).unwrap(), "content.xml");
    let expected = body.replace(">in ", ">IN ").replace(">paris<", ">PARIS<");
    assert!(
        content.contains(&expected.replace(" and ", " AND ").replace(">rome<", ">ROME<")),
        "{content}"
    );
}

#[test]
fn white_space_in_a_wrap_is_written_once() {
    let body = format!(
        "<w:p>{}<w:sdt><w:sdtPr/><w:sdtContent>{}</w:sdtContent></w:sdt>{}</w:p>",
        run("", "one"),
        run("", "\u{a0}"),
        run("", "two")
    );
    assert_eq!(shouted(&body), body.replace("one", "ONE").replace("two", "TWO"));
}

#[test]
fn bookmarks_stay_in_their_order() {
    let body = format!(
        "<w:p>{}<w:bookmarkStart w:id=\"0\" w:name=\"x\"/>{}<w:bookmarkEnd w:id=\"0\"/>{}</w:p>",
        run("", "one "),
        run("", "two "),
        run("", "three"),
    );
    // A translation that has the end before the begin.
    let bytes = translate(&docx(&body), Docx, &mut |segment| {
        let mut marks = segment.marks.clone();
        marks.reverse();
        for (mark, place) in marks.iter_mut().zip([2, 6]) {
            mark.range = place..place;
        }
        MarkedText { text: "eins zwei drei".to_owned(), marks }
    });
    let document = part(&bytes.unwrap(), "word/document.xml");
    let begin = document.find("<w:bookmarkStart").unwrap();
    assert!(begin < document.find("<w:bookmarkEnd").unwrap(), "{document}");
}

/// A workbook with these strings and tables.
fn workbook(strings: &str, tables: &[(&str, &str, &str)]) -> Vec<u8> {
    let mut types = vec![
        ("xl/workbook.xml", "spreadsheetml.sheet.main+xml"),
        ("xl/sharedStrings.xml", "spreadsheetml.sharedStrings+xml"),
    ];
    types.extend(tables.iter().map(|&(name, content_type, _)| (name, content_type)));
    let uri = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
    let mut entries = vec![
        content_types(&types),
        Entry::new("xl/workbook.xml", "<workbook/>"),
        Entry::new("xl/sharedStrings.xml", format!("<sst xmlns=\"{uri}\">{strings}</sst>")),
    ];
    entries.extend(tables.iter().map(|&(name, _, content)| Entry::new(name, content)));
    zip(&entries, "")
}

/// The space that stands for a line end is not written before it.
#[test]
fn lines_of_a_cell_with_runs_end_without_a_space() {
    let run = "<r><rPr><b/></rPr><t xml:space=\"preserve\">one\ntwo</t></r><r><t>three</t></r>";
    let bytes = workbook(&format!("<si>{run}</si>"), &[]);
    assert_eq!(texts(&bytes, Xlsx), ["one twothree"]);
    let written = translate(&bytes, Xlsx, &mut shout).unwrap();
    let text = part(&written, "xl/sharedStrings.xml");
    assert!([">ONE</t>", ">\n</t>", ">TWO</t>"].iter().all(|one| text.contains(one)), "{text}");
}

/// Office removes a table whose first cells have other names than its columns.
#[test]
fn headers_of_tables_stay() {
    let table = "<table><tableColumns><tableColumn id=\"1\" name=\"a &amp; b\"/>\
                 <tableColumn id=\"2\" name=\"two_x000a_lines\"/></tableColumns></table>";
    let cache = "<pivotCacheDefinition><cacheFields><cacheField name=\"city\"/></cacheFields></pivotCacheDefinition>";
    let string = |text: &str| format!("<si><t>{text}</t></si>");
    let strings = ["a &amp; b", "two\nlines", "city", "a cell"].map(string).concat();
    let tables = [
        ("xl/tables/table1.xml", "spreadsheetml.table+xml", table),
        ("xl/pivotCache/d.xml", "spreadsheetml.pivotCacheDefinition+xml", cache),
    ];
    assert_eq!(texts(&workbook(&strings, &[]), Xlsx), ["a & b", "two", "lines", "city", "a cell"]);
    let bytes = workbook(&strings, &tables);
    assert_eq!(texts(&bytes, Xlsx), ["a cell"]);
    let written = translate(&bytes, Xlsx, &mut shout).unwrap();
    assert!(
        part(&written, "xl/sharedStrings.xml")
            .contains("<si><t>city</t></si><si><t>A CELL</t></si>")
    );
    let broken = [("xl/tables/table1.xml", "spreadsheetml.table+xml", "<table")];
    let error = segments(&workbook(&strings, &broken), Xlsx).unwrap_err().to_string();
    assert!(error.contains("xl/tables/table1.xml: expected well-formed XML"), "{error}");
}

/// The texts of an archive without descriptions of pictures.
fn without_descriptions(bytes: &[u8], format: ArchiveFormat) -> Vec<String> {
    let mut archive = Archive::open_with(Cursor::new(bytes), format, false).unwrap();
    let mut texts = Vec::new();
    while let Some(document) = archive.next_document().unwrap() {
        texts.extend(document.segments().iter().map(|one| one.text.clone()));
    }
    texts
}

#[test]
fn descriptions_of_pictures_are_segments() {
    let picture = "<w:r><w:drawing><wp:docPr id=\"1\" name=\"Bild 1\" descr=\"a &quot;cat&quot; &amp; a\ndog\" title='it'/>\
                   <pic:cNvPr id=\"2\" name=\"x.png\" descr=\"\"/></w:drawing></w:r>";
    let table = "<w:tbl><w:tblPr><w:tblCaption w:val=\"prices\"/></w:tblPr></w:tbl>";
    let body = format!("{table}<w:p>{}{picture}{}</w:p>", run("", "before "), run("", "after"));
    let bytes = docx(&body);
    assert_eq!(texts(&bytes, Docx), ["prices", "a \"cat\" & a dog", "it", "before after"]);
    assert_eq!(without_descriptions(&bytes, Docx), ["before after"]);
    let expected = body
        .replace("\"prices\"", "\"PRICES\"")
        .replace(
            "\"a &quot;cat&quot; &amp; a\ndog\" title='it'",
            "\"A &quot;CAT&quot; &amp; A DOG\" title='IT'",
        )
        .replace(">before ", ">BEFORE ")
        .replace(">after", ">AFTER");
    assert_eq!(shouted(&body), expected);
    // What is deleted has none that is read.
    let deleted = format!("<w:p>{}<w:del>{picture}</w:del></w:p>", run("", "one"));
    assert_eq!(texts(&docx(&deleted), Docx), ["one"]);
    let frame = "<draw:frame><draw:image/><svg:title>a cat</svg:title><svg:desc>it sleeps</svg:desc></draw:frame>";
    let svg = "xmlns:svg=\"urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0\"";
    let bytes = open_document("text", "", &format!("<text:p {svg}>one {frame} two</text:p>"));
    assert_eq!(texts(&bytes, Odt), ["a cat", "it sleeps", "one  two"]);
    assert_eq!(without_descriptions(&bytes, Odt), ["one  two"]);
}

#[test]
fn charts_have_titles_and_names() {
    let cache = |kind: &str, value: &str| {
        format!(
            "<c:{kind}Ref><c:f>a!b</c:f><c:{kind}Cache><c:pt idx=\"0\"><c:v>{value}</c:v></c:pt></c:{kind}Cache></c:{kind}Ref>"
        )
    };
    let chart = format!(
        "<c:chartSpace xmlns:c=\"http://schemas.openxmlformats.org/drawingml/2006/chart\" \
         xmlns:a=\"http://schemas.openxmlformats.org/drawingml/2006/main\"><c:title><a:p><a:r><a:t>sales</a:t></a:r></a:p></c:title>\
         <c:ser><c:tx>{}</c:tx><c:cat>{}</c:cat><c:val>{}</c:val></c:ser></c:chartSpace>",
        cache("str", "north"),
        cache("str", "a quarter"),
        cache("num", "1.5E-3")
    );
    let mut entries = docx_entries("");
    entries[0] = content_types(&[
        ("word/document.xml", "wordprocessingml.document.main+xml"),
        ("word/charts/chart1.xml", "drawingml.chart+xml"),
    ]);
    entries.push(Entry::new("word/charts/chart1.xml", chart.clone()));
    let bytes = zip(&entries, "");
    assert_eq!(texts(&bytes, Docx), ["sales", "north", "a quarter"]);
    let written = translate(&bytes, Docx, &mut shout).unwrap();
    let expected = chart
        .replace(">sales<", ">SALES<")
        .replace(">north<", ">NORTH<")
        .replace(">a quarter<", ">A QUARTER<");
    assert_eq!(part(&written, "word/charts/chart1.xml"), expected);
    // Of OpenDocument a chart is a document in the document.
    let content = part(&open_document("chart", "", "<text:p>sales</text:p>"), "content.xml");
    let mut entries: Vec<Entry> = unzip(&open_document("text", "", "<text:p>one</text:p>"))
        .into_iter()
        .map(|(name, content)| Entry::new(&name, content))
        .collect();
    entries.push(Entry::new("Object 1/content.xml", content));
    assert_eq!(texts(&zip(&entries, ""), Odt), ["one", "sales"]);
}

#[test]
fn open_documents_have_spans_notes_and_spaces() {
    let styles = "<style:style style:name=\"T1\" style:family=\"text\"><style:text-properties officeooo:rsid=\"001\"/></style:style>\
                  <style:style style:name=\"T2\" style:family=\"text\"><style:text-properties fo:font-weight=\"bold\"/></style:style>\
                  <style:style style:name=\"T3\" style:family=\"text\"><style:text-properties fo:font-weight=\"bold\" officeooo:rsid=\"002\"/></style:style>";
    let note = |text: &str| {
        format!(
            "<text:note text:id=\"n1\"><text:note-citation>1</text:note-citation>\
             <text:note-body><text:p>{text}</text:p></text:note-body></text:note>"
        )
    };
    let body = format!(
        "<text:p text:style-name=\"P1\">The <text:span text:style-name=\"T1\">small</text:span>\n  \
         <text:span text:style-name=\"T2\">blue</text:span><text:span text:style-name=\"T3\"> house</text:span>{} is here,\
         <text:s/> page <text:page-number>3</text:page-number>.<text:line-break/>Next<text:tab/>cell<text:s text:c=\"4\"/>end</text:p>",
        note("a note &amp; more")
    );
    let bytes = open_document("text", styles, &body);
    let found = segments(&bytes, Odt).unwrap();
    let all: Vec<&str> = found.iter().map(|segment| segment.text.as_str()).collect();
    assert_eq!(
        all,
        ["a note & more", "The small blue house is here, page 3.", "Next", "cell", "end"]
    );
    assert_eq!(marks(&found[1]), [("wrap", "blue house"), ("point", ""), ("keep", "3")]);
    let content = part(&translate(&bytes, Odt, &mut shout).unwrap(), "content.xml");
    let expected = format!(
        "<text:p text:style-name=\"P1\">THE SMALL <text:span text:style-name=\"T2\">BLUE HOUSE</text:span>{} IS HERE, PAGE \
         <text:page-number>3</text:page-number>.<text:line-break/>NEXT<text:tab/>CELL<text:s text:c=\"4\"/>END</text:p>",
        note("A NOTE &amp; MORE")
    );
    assert!(content.contains(&expected), "{content}");
}

#[test]
fn an_unchanged_archive_is_the_same_file() {
    let body = format!("<w:p>{}</w:p>", run("", "one"));
    let mut entries = docx_entries(&body);
    entries[1].descriptor = true;
    entries[3].extra = vec![0xfe, 0xca, 0, 0];
    let bytes = zip(&entries, "a comment");
    assert_eq!(translate(&bytes, Docx, &mut MarkedText::clone).unwrap(), bytes);
    let written = translate(&bytes, Docx, &mut shout).unwrap();
    let names =
        |bytes: &[u8]| -> Vec<String> { unzip(bytes).into_iter().map(|(name, _)| name).collect() };
    assert_eq!(names(&written), names(&bytes));
    assert!(written.ends_with(b"a comment"));
    // The entries before the part are the same bytes.
    let at = bytes.windows(19).position(|window| {
        window == b"word/document.xmlPK" || window.starts_with(b"word/document.xml")
    });
    let at = at.unwrap() - 30;
    assert_eq!(written[..at], bytes[..at]);
}

/// The files that programs made, and their formats.
fn files() -> Vec<(String, ArchiveFormat, Vec<u8>)> {
    files_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/archives"))
}

fn files_of(folder: &Path) -> Vec<(String, ArchiveFormat, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if let Some(format) = ArchiveFormat::from_path(&path) {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            files.push((name, format, fs::read(&path).unwrap()));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

/// What a segment is, without the sources of its marks, in which there may be segments, and without its points and wraps of
/// white space: at the end of a wrap they are written after it.
type Shape = (String, Vec<(usize, Range<usize>)>);

fn shape(segment: &MarkedText) -> Shape {
    let kind = |mark: &Mark| match mark.kind {
        MarkKind::Wrap { .. } => 0,
        MarkKind::Keep { .. } => 1,
        MarkKind::Point { .. } => 2,
    };
    let marks = segment.marks.iter().map(|mark| (kind(mark), mark.range.clone()));
    (segment.text.clone(), marks.filter(|(kind, range)| *kind < 2 && !range.is_empty()).collect())
}

/// An unchanged archive is the same file; one in capitals has the same segments in capitals, and the same other entries.
fn check(name: &str, format: ArchiveFormat, bytes: &[u8]) -> usize {
    assert!(translate(bytes, format, &mut MarkedText::clone).unwrap() == bytes, "{name}");
    let found = segments(bytes, format).unwrap();
    let written = translate(bytes, format, &mut shout).unwrap();
    let expected: Vec<_> = found.iter().map(|segment| shape(&shout(segment))).collect();
    let again: Vec<_> = segments(&written, format).unwrap().iter().map(shape).collect();
    // A note that is written after a wrap comes after it.
    let sorted = |mut shapes: Vec<Shape>| {
        shapes.sort_by(|a, b| a.0.cmp(&b.0));
        shapes
    };
    assert_eq!(sorted(again), sorted(expected), "{name}");
    let (old, new) = (unzip(bytes), unzip(&written));
    assert_eq!(old.len(), new.len(), "{name}");
    for ((part, old), (same, new)) in old.iter().zip(&new) {
        assert_eq!(part, same, "{name}");
        if old != new {
            let found =
                [old, new].map(|xml| structure(&std::str::from_utf8(xml).unwrap().to_lowercase()));
            assert_eq!(found[0], found[1], "{name}: {part}");
        }
    }
    found.len()
}

/// The same of the files of a folder, such as those that `structured.py` makes.
#[test]
#[ignore = "reads the folder that SIMDFORMER_ARCHIVES names"]
fn files_of_a_folder_come_back() {
    let folder = std::env::var_os("SIMDFORMER_ARCHIVES").unwrap();
    let files = files_of(Path::new(&folder));
    assert!(!files.is_empty());
    let mut faults = 0;
    for (name, format, bytes) in files {
        // Every fault is printed.
        faults += usize::from(std::panic::catch_unwind(|| check(&name, format, &bytes)).is_err());
    }
    assert_eq!(faults, 0);
}

/// The tags of XML but those of runs and spans, which may be joined and divided, and the ends of wraps.
fn structure(xml: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut names = Vec::new();
    const RUNS: [&str; 17] = [
        "w:r",
        "w:rpr",
        "w:t",
        "w:prooferr",
        "w:lastrenderedpagebreak",
        "a:r",
        "a:rpr",
        "a:t",
        "r",
        "rpr",
        "t",
        "text:span",
        "w:lang",
        "text:soft-page-break",
        "w:nobreakhyphen",
        "w:softhyphen",
        "text:s",
    ];
    const WRAPS: [&str; 4] = ["w:hyperlink", "w:sdt", "w:sdtcontent", "text:a"];
    let mut skipped = 0;
    loop {
        match reader.read_event().unwrap() {
            Event::Eof => return names,
            Event::Start(tag) => {
                let name = tag.name().0;
                if skipped > 0 || name.ends_with("rpr") {
                    skipped += 1;
                } else if !RUNS.contains(&name) {
                    names.push(String::from(&*tag));
                }
            }
            Event::Empty(tag) if skipped == 0 && !RUNS.contains(&tag.name().0) => {
                names.push(String::from(&*tag));
            }
            Event::End(_) if skipped > 0 => skipped -= 1,
            Event::End(tag) if !RUNS.contains(&tag.name().0) && !WRAPS.contains(&tag.name().0) => {
                names.push(format!("/{}", tag.name().0));
            }
            _ => {}
        }
    }
}

#[test]
fn files_of_programs_come_back() {
    let files = files();
    for (name, format, bytes) in &files {
        let count = check(name, *format, bytes);
        assert!(count >= 3, "{name}: {count}");
    }
    assert_eq!(files.len(), 14);
}

/// A paragraph of Word of random pieces.
fn random_word(random: &mut Random, depth: usize) -> String {
    const TEXTS: [&str; 12] = [
        "one",
        " two ",
        "a &amp; b",
        "&lt;c",
        "Größe",
        "日本",
        " ",
        "12",
        ". Next",
        "x",
        "\u{a0}",
        "(d)",
    ];
    const STYLES: [&str; 5] =
        ["", "<w:b/>", "<w:i/>", "<w:b/><w:lang w:val=\"fr\"/>", "<w:rStyle w:val=\"A\"/>"];
    let mut out = String::new();
    for _ in 0..random.below(8) {
        let style = random.pick(&STYLES);
        let text = |random: &mut Random| {
            let mut inside = String::new();
            for _ in 0..=random.below(2) {
                let space = random.pick(&[" xml:space=\"preserve\"", ""]);
                inside.push_str(&format!("<w:t{space}>{}</w:t>", random.pick(&TEXTS)));
                let more = [
                    "",
                    "",
                    "<w:tab/>",
                    "<w:br/>",
                    "<w:noBreakHyphen/>",
                    "<w:footnoteReference w:id=\"1\"/>",
                ];
                inside.push_str(random.pick(&more));
            }
            format!("<w:r w:rsidR=\"0\"><w:rPr>{style}</w:rPr>{inside}</w:r>")
        };
        let piece = match random.below(10) {
            0 => "<w:proofErr w:type=\"spellStart\"/>".to_owned(),
            1 => "<w:bookmarkStart w:id=\"1\"/>".to_owned(),
            2 => "<w:bookmarkEnd w:id=\"1\"/>".to_owned(),
            3 => {
                let target = random.below(1 << 30);
                let (one, two) = (text(random), text(random));
                format!("<w:hyperlink r:id=\"r{target}\">{one}{two}</w:hyperlink>")
            }
            4 => format!("<w:sdt><w:sdtPr/><w:sdtContent>{}</w:sdtContent></w:sdt>", text(random)),
            5 if depth < 3 => format!(
                "<w:r><w:drawing><w:txbxContent><w:p>{}</w:p></w:txbxContent></w:drawing></w:r>",
                random_word(random, depth + 1)
            ),
            6 => {
                let kind = random.pick(&["begin", "separate", "end"]);
                format!("<w:r><w:fldChar w:fldCharType=\"{kind}\"/></w:r>")
            }
            7 => format!("<w:fldSimple w:instr=\"PAGE\">{}</w:fldSimple>", text(random)),
            _ => text(random),
        };
        out.push_str(&piece);
    }
    out
}

/// A paragraph of OpenDocument of random pieces.
fn random_open(random: &mut Random, depth: usize) -> String {
    const TEXTS: [&str; 10] =
        ["one", " two\n ", "a &amp; b", "&lt;c", "Größe", "日本", " ", "12", ". Next", "&#xe9;"];
    let mut out = String::new();
    for _ in 0..random.below(8) {
        let piece = match random.below(12) {
            0 => format!(
                "<text:span text:style-name=\"T{}\">{}</text:span>",
                random.below(4),
                random_open(random, depth + 1)
            ),
            1 => {
                let target = random.below(1 << 30);
                format!("<text:a xlink:href=\"{target}\">{}</text:a>", random.pick(&TEXTS))
            }
            2 => random
                .pick(&["<text:tab/>", "<text:line-break/>", "<text:s/>", "<text:s text:c=\"3\"/>"])
                .to_owned(),
            3 => random
                .pick(&[
                    "<text:bookmark-start text:name=\"a\"/>",
                    "<text:bookmark-end text:name=\"a\"/>",
                ])
                .to_owned(),
            4 => "<text:page-number>3</text:page-number>".to_owned(),
            5 => "<draw:frame><draw:image/></draw:frame>".to_owned(),
            6 if depth < 3 => format!(
                "<text:note><text:note-body><text:p>{}</text:p></text:note-body></text:note>",
                random_open(random, depth + 1)
            ),
            7 => "<text:soft-page-break/>".to_owned(),
            _ => random.pick(&TEXTS).to_owned(),
        };
        // Two texts in each other would be deeper than the elements that may be open.
        if depth < 6 {
            out.push_str(&piece);
        }
    }
    out
}

#[test]
fn random_paragraphs_come_back() {
    let mut random = Random(7);
    let styles = "<style:style style:name=\"T1\" style:family=\"text\"><style:text-properties officeooo:rsid=\"001\"/></style:style>";
    let mut count = 0;
    for number in 0..effort::cases(400, 10_000) {
        let body = format!("<w:p><w:pPr/>{}</w:p>", random_word(&mut random, 0));
        count += check(&format!("docx {number}: {body}"), Docx, &docx(&body));
        let body = format!("<text:p>{}</text:p>", random_open(&mut random, 0));
        count +=
            check(&format!("odt {number}: {body}"), Odt, &open_document("text", styles, &body));
    }
    assert!(count > 1000, "{count}");
}

/// Whatever a translation is, the part is well-formed, and has what stays.
#[test]
fn any_translation_is_written_as_xml() {
    let mut random = Random(9);
    for number in 0..effort::cases(300, 10_000) {
        let word = number % 2 == 0;
        let (bytes, format, name) = if word {
            let body = format!("<w:p>{}</w:p>", random_word(&mut random, 0));
            (docx(&body), Docx, "word/document.xml")
        } else {
            let body = format!("<text:p>{}</text:p>", random_open(&mut random, 0));
            (open_document("text", "", &body), Odt, "content.xml")
        };
        let written = translate(&bytes, format, &mut |segment| {
            // Words in the inverse order, with marks at other places: points in any order, wraps disjoint or lost.
            let words: Vec<&str> = segment.text.split(' ').rev().collect();
            let text = words.join(" ") + ["", "\u{0}<&>", "\n"][random.below(3)];
            let mut marks = segment.marks.clone();
            marks.retain(|mark| !matches!(mark.kind, MarkKind::Wrap { .. }) || random.below(3) > 0);
            let mut at: Vec<usize> = (0..2 * marks.len())
                .map(|_| random.below(text.len() + 1))
                .map(|at| text.floor_char_boundary(at))
                .collect();
            at.sort_unstable();
            for (mark, place) in marks.iter_mut().zip(at.chunks(2)) {
                mark.range = match mark.kind {
                    MarkKind::Point { .. } => place[0]..place[0],
                    _ => place[0]..place[1],
                };
            }
            for one in (1..marks.len()).rev() {
                let other = random.below(one + 1);
                let ids = (marks[one].id, marks[other].id);
                let kinds = (marks[one].kind.clone(), marks[other].kind.clone());
                let both_points = |kind: &MarkKind| matches!(kind, MarkKind::Point { .. });
                if both_points(&kinds.0) && both_points(&kinds.1) {
                    (marks[one].kind, marks[other].kind) = (kinds.1, kinds.0);
                    (marks[other].id, marks[one].id) = ids;
                }
            }
            MarkedText { text, marks }
        });
        let xml = part(&written.unwrap(), name);
        let before = part(&bytes, name);
        structure(&xml);
        for kept in [
            "<w:tab/>",
            "<w:br/>",
            "footnoteReference",
            "bookmarkStart",
            "bookmarkEnd",
            "w:fldChar ",
            "draw:image",
            "text:note-body",
            "text:tab",
            "text:bookmark-start",
        ] {
            let counts = [&before, &xml].map(|xml| xml.matches(kept).count());
            assert_eq!(counts[0], counts[1], "{number}: {kept}\n{before}\n{xml}");
        }
    }
}

#[test]
fn workbooks_slides_and_books() {
    let found = |name: &str| -> Vec<String> {
        let (_, format, bytes) = files().into_iter().find(|(one, ..)| one == name).unwrap();
        texts(&bytes, format)
    };
    for (name, expected) in [
        (
            "openpyxl.xlsx",
            &["quel mois", "la maison", "le chat", "la vieille maison", "le chien"][..],
        ),
        ("xlsxwriter.xlsx", &["quel mois", "la vieille maison", "avec espaces"]),
        (
            "python_pptx.pptx",
            &["La maison blanche", "la vieille maison", "le chat", "Où est-ce qu'elle habite ?"],
        ),
        ("libreoffice.odp", &["La maison blanche", "la vieille maison"]),
        ("libreoffice.ods", &["quel mois", "la vieille maison"]),
        ("ebooklib.epub", &["La vieille maison blanche est belle.\u{a0}Oui", "la maison"]),
    ] {
        let all: Vec<String> = found(name).iter().map(|text| text.replace("  ", " ")).collect();
        for one in expected {
            assert!(all.iter().any(|text| text == one), "{name}: {one}: {all:?}");
        }
    }
}

/// The manifest of a book names its pages, whose own names may be any.
#[test]
fn pages_of_books_are_those_of_the_manifest() {
    let container =
        "<container><rootfiles><rootfile full-path=\"OEBPS/book.opf\"/></rootfiles></container>";
    let item =
        |address: &str, kind: &str| format!("<item href=\"{address}\" media-type=\"{kind}\"/>");
    let page = |text: &str| format!("<html><body><p>{text}</p></body></html>");
    let xhtml = "application/xhtml+xml";
    let items = [
        item("text/one.xml", xhtml),
        item("./text/two%20pages#begin", xhtml),
        item("../three", xhtml),
        item("../../four.xml", xhtml),
        item("none.xml", xhtml),
        item("data.xml", "application/xml"),
    ];
    let package = format!("<package><manifest>{}</manifest></package>", items.concat());
    let book = |package: &str| {
        zip(
            &[
                Entry::new("mimetype", "application/epub+zip"),
                Entry::new("META-INF/container.xml", container),
                Entry::new("OEBPS/book.opf", package),
                Entry::new("OEBPS/text/one.xml", page("un")),
                Entry::new("OEBPS/text/two pages", page("deux")),
                Entry::new("three", page("trois")),
                Entry::new("OEBPS/data.xml", page("quatre")),
                Entry::new("unlisted.xhtml", page("cinq")),
            ],
            "",
        )
    };
    assert_eq!(texts(&book(&package), ArchiveFormat::Epub), ["un", "deux", "trois", "cinq"]);
    let error = Archive::open(Cursor::new(book("<package><a></b>")), ArchiveFormat::Epub);
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("OEBPS/book.opf: expected well-formed XML"), "{error}");
}
