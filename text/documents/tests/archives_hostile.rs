//! Archives that nobody wrote: each is an error that says what was found, soon and in little memory.

use crate::office::{Entry, docx, docx_entries, open_document, segments, shout, translate, zip};
use crate::random::Random;
use simdformer_documents::archives::ArchiveFormat::{self, Docx, Epub, Odt, Xlsx};
use simdformer_testing::cpu_time::cpu_time;
use simdformer_testing::effort;
use std::time::Duration;

const BODY: &str = "<w:p><w:r><w:t>one</w:t></w:r></w:p>";

/// The result of a function, and the time that this thread took for it.
fn timed<T>(function: impl FnOnce() -> T) -> (Duration, T) {
    let begin = cpu_time();
    let result = function();
    (cpu_time().saturating_sub(begin), result)
}

/// The error of an archive.
fn error(bytes: &[u8], format: ArchiveFormat) -> String {
    let (time, result) = timed(|| translate(bytes, format, &mut shout));
    assert!(time < Duration::from_secs(5), "{time:?}");
    match result {
        Ok(_) => panic!("an archive without an error"),
        Err(error) => error.to_string(),
    }
}

/// The error of a text document of which one entry is changed.
fn error_with(index: usize, change: impl FnOnce(&mut Entry)) -> String {
    let mut entries = docx_entries(BODY);
    change(&mut entries[index]);
    error(&zip(&entries, ""), Docx)
}

#[test]
fn every_hostile_archive_is_an_error() {
    let mut twice = docx_entries(BODY);
    twice.push(twice[2].clone());
    let mut cases: Vec<(String, &str)> = vec![
        (error(&zip(&twice, ""), Docx), "\"word/document.xml\" twice"),
        (error(b"", Docx), "expected a whole zip archive"),
        (error(b"PK\x03\x04 and no end", Docx), "expected a whole zip archive"),
        (
            error(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Docx),
            "an OLE file: the document is encrypted",
        ),
        (error(&zip(&[], ""), Docx), "no [Content_Types].xml"),
        (error(&zip(&docx_entries(BODY)[1..], ""), Docx), "no [Content_Types].xml"),
        (error(&docx(BODY), Xlsx), "expected the parts of a xlsx document"),
        (error(&docx(BODY), Odt), "expected an entry mimetype, found none"),
        (error(&open_document("text", "", ""), Epub), "expected application/epub+zip"),
        (error_with(2, |entry| entry.flags = 1), "\"word/document.xml\" is encrypted"),
        (error_with(2, |entry| entry.method = Some(12)), "expected DEFLATE or no compression"),
        (error_with(2, |entry| entry.size = Some(10)), "expected 10 bytes of DEFLATE, found more"),
        (error_with(2, |entry| entry.size = Some(1 << 20)), "expected 1048576 bytes, found"),
        (error_with(2, |entry| entry.size = Some(1 << 30)), "expected at most 268435456 bytes"),
        (
            error_with(3, |entry| entry.local_name = Some("word/media/image2.png".to_owned())),
            "expected \"word/media/image1.png\" in the header, too",
        ),
        (error_with(2, |entry| entry.content = vec![0xff; 10]), "expected UTF-8, found byte 0 is"),
    ];
    for name in
        ["../../etc/passwd", "/etc/passwd", "word\\..\\..\\x", "C:\\x", "a/../../b", "", "a\0b"]
    {
        let found = error_with(3, |entry| name.clone_into(&mut entry.name));
        cases.push((found, "expected names of entries that are paths in it"));
    }
    // A checksum of other bytes.
    let mut bytes = docx(BODY);
    let at = bytes.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    let record = bytes[..at].windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    bytes[record + 16] ^= 1;
    cases.push((error(&bytes, Docx), "expected the checksum"));
    // An entry that begins in another one.
    let mut bytes = docx(BODY);
    bytes[at + 42..at + 46].copy_from_slice(&1u32.to_le_bytes());
    cases.push((error(&bytes, Docx), "expected"));
    let mut bytes = docx(BODY);
    let first = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let second = 1
        + first
        + bytes[first + 1..].windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let offset: [u8; 4] = bytes[first + 42..first + 46].try_into().unwrap();
    bytes[second + 42..second + 46].copy_from_slice(&offset);
    cases.push((error(&bytes, Docx), "expected"));
    // Passwords.
    let locked = zip(
        &[
            Entry::new("mimetype", "application/vnd.oasis.opendocument.text"),
            Entry::new("META-INF/manifest.xml", "<manifest:encryption-data/>"),
            Entry::new("content.xml", "x"),
        ],
        "",
    );
    cases.push((error(&locked, Odt), "expected a document without a password"));
    let book = zip(
        &[
            Entry::new("mimetype", "application/epub+zip"),
            Entry::new("META-INF/encryption.xml", "<CipherReference URI=\"a.xhtml\"/>"),
            Entry::new("a.xhtml", "x"),
        ],
        "",
    );
    cases.push((error(&book, Epub), "expected a page that is not encrypted"));
    for (number, (found, expected)) in cases.iter().enumerate() {
        assert!(found.contains(expected), "{number}: {found}: not {expected}");
        assert!(found.contains("expected") && found.contains("found"), "{found}");
    }
    assert_eq!(cases.len(), 28);
}

#[test]
fn every_hostile_part_is_an_error() {
    let part = |xml: &str| {
        let mut entries = docx_entries("");
        entries[2].content = xml.as_bytes().to_vec();
        error(&zip(&entries, ""), Docx)
    };
    let laughs = "<!DOCTYPE a [<!ENTITY b \"ha\"><!ENTITY c \"&b;&b;\">]><a>&c;</a>";
    let deep = "<a>".repeat(300);
    let cases = [
        (laughs, "expected no entities that the file defines, found a DOCTYPE"),
        ("<a>&lol;</a>", "expected references to characters"),
        ("<a>&#0;</a>", "expected references to characters"),
        ("<a><b></a>", "expected well-formed XML"),
        ("<a><b>", "expected the end of each element, found the end of the file"),
        ("<a", "expected well-formed XML"),
        (&deep, "expected at most 256 elements in each other"),
    ];
    for (xml, expected) in cases {
        let found = part(xml);
        assert!(found.starts_with("line 1 of word/document.xml"), "{found}");
        assert!(found.contains(expected), "{found}");
    }
    let element = docx("<w:p><w:r><w:t>a<w:b/>c</w:t></w:r></w:p>");
    assert!(
        error(&element, Docx).contains("expected text alone in the text of a run, found <w:b>")
    );
    // Each piece of the run would have its properties.
    let properties = format!("<w:rPr><w:b w:val=\"{}\"/></w:rPr>", "x".repeat(1 << 16));
    let pieces = "<w:sym/>".repeat(20_000);
    let long = format!("<w:p><w:r>{properties}<w:t>a</w:t>{pieces}<w:t>b</w:t></w:r></w:p>");
    assert!(error(&docx(&long), Docx).contains("expected properties that take at most 8 times"));
    let bindings: String = (0..1000).map(|number| format!(" xmlns:n{number}=\"x\"")).collect();
    assert!(part(&format!("<a{bindings}/>")).contains("expected well-formed XML"));
}

/// Bytes of an archive that are changed, one after the other: an error, or an archive that is read again.
#[test]
fn damaged_archives_are_errors_or_are_read() {
    let mut entries = docx_entries(BODY);
    entries[2].descriptor = true;
    let whole = zip(&entries, "comment");
    let check = |bytes: &[u8]| {
        if let Ok(written) = translate(bytes, Docx, &mut shout) {
            segments(&written, Docx).unwrap();
        }
    };
    for length in 0..whole.len() {
        check(&whole[..length]);
    }
    let mut random = Random(1);
    for _ in 0..effort::cases(3_000, 30_000) {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = [0, 1, 0x7f, 0xff, random.below(256) as u8][random.below(5)];
        }
        check(&bytes);
    }
}

/// Eight times the bytes take about eight times as long; a quadratic step would take 64 times.
fn is_linear(name: &str, format: ArchiveFormat, make: &dyn Fn(usize) -> Vec<u8>) {
    let time = |bytes: usize| {
        let archive = make(bytes);
        let (time, written) = timed(|| translate(&archive, format, &mut shout));
        written.unwrap();
        time.as_secs_f64()
    };
    let (short, long) = (time(1 << 15), time(1 << 18));
    assert!(long < 40.0 * short.max(0.002), "{short} s and {long} s: {name}");
}

/// Time grows as the length, whatever is repeated.
#[test]
fn time_grows_as_the_length() {
    let mark = |kind: &str| format!("<w:r><w:fldChar w:fldCharType=\"{kind}\"/></w:r>");
    let run =
        |style: &str, text: &str| format!("<w:r><w:rPr>{style}</w:rPr><w:t>{text}</w:t></w:r>");
    let pieces = [
        run("<w:b/>", "a"),
        [run("<w:b/>", "a"), run("<w:i/>", "b")].concat(),
        mark("begin"),
        mark("end"),
        [
            mark("begin"),
            "<w:r><w:instrText>HYPERLINK</w:instrText></w:r>".to_owned(),
            mark("separate"),
            run("", "a"),
        ]
        .concat(),
        "<w:bookmarkStart/>".to_owned(),
        "<w:r><w:t>a</w:t><w:tab/></w:r>".to_owned(),
        "<w:hyperlink><w:r><w:t>a</w:t></w:r></w:hyperlink>".to_owned(),
        "<w:r><w:drawing><w:p><w:r><w:t>a</w:t></w:r></w:p></w:drawing></w:r>".to_owned(),
        "<w:r/>".to_owned(),
        "</w:p><w:p>".to_owned(),
    ];
    for piece in &pieces {
        is_linear(piece, Docx, &|bytes: usize| {
            let inside = piece.repeat(bytes / piece.len());
            docx(&format!("<w:p>{}{inside}{}</w:p>", run("", "x"), run("", "y")))
        });
    }
    // Wraps at the edges: one without text after the other, then one around much white space.
    is_linear("wraps without text", Odt, &|bytes: usize| {
        let empty = "<text:span x=\"1\"> </text:span><text:s/>";
        let (empty, space) = (empty.repeat(bytes / empty.len()), "\u{a0}".repeat(bytes));
        open_document("text", "", &format!("<text:p>{empty}<text:a>{space}b</text:a></text:p>"))
    });
    // Styles that are all different.
    let styles: String = (0..20_000).map(|n| run(&format!("<w:sz w:val=\"{n}\"/>"), "a")).collect();
    let archive = docx(&format!("<w:p>{styles}</w:p>"));
    let (time, _) = timed(|| translate(&archive, Docx, &mut shout).unwrap());
    assert!(time < Duration::from_secs(5), "{time:?}");
}
