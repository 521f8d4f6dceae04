//! Arbitrary text in the parts of an archive, and arbitrary bytes as an archive. The result must be an `Err`, or an archive that
//! comes back unchanged, and that is read again after its texts were changed.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use simdformer_documents::Error;
use simdformer_documents::archives::{Archive, ArchiveFormat};
use simdformer_documents::marked_text::MarkedText;
use std::io::Cursor;

#[derive(Debug, arbitrary::Arbitrary)]
enum Input<'a> {
    Bytes(&'a [u8]),
    /// What is in the body of each document.
    Body(&'a str),
    /// The whole part.
    Part(&'a str),
}

/// A zip archive of stored entries.
fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in entries {
        let mut fixed = [20u16, 0, 0, 0, 0].map(u16::to_le_bytes).concat();
        let size = content.len() as u32;
        fixed.extend([rawzip::crc32(content), size, size].map(u32::to_le_bytes).concat());
        fixed.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&fixed);
        directory.extend([0; 10]);
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(fixed);
        out.extend(name.as_bytes());
        out.extend(*content);
    }
    let sizes = [directory.len() as u32, out.len() as u32].map(u32::to_le_bytes).concat();
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([entries.len() as u16; 2].map(u16::to_le_bytes).concat());
    out.extend(sizes);
    out.extend([0; 2]);
    out
}

const WORD: &str = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
const TEXT: &str = "urn:oasis:names:tc:opendocument:xmlns:text:1.0";

fn archives(body: &str, whole: bool) -> [(ArchiveFormat, Vec<u8>); 3] {
    let types = "<Types><Override PartName=\"/d.xml\" ContentType=\"application/vnd.openxmlformats-\
                 officedocument.wordprocessingml.document.main+xml\"/></Types>";
    let part = |name: &str, uri: &str, paragraph: &str| match whole {
        true => body.to_owned(),
        false => {
            format!("<{name}:x xmlns:{name}=\"{uri}\"><{paragraph}>{body}</{paragraph}></{name}:x>")
        }
    };
    let word = part("w", WORD, "w:p");
    let text = part("text", TEXT, "text:p");
    [
        (
            ArchiveFormat::Docx,
            zip(&[("[Content_Types].xml", types.as_bytes()), ("d.xml", word.as_bytes())]),
        ),
        (
            ArchiveFormat::Odt,
            zip(&[
                ("mimetype", b"application/vnd.oasis.opendocument.text"),
                ("content.xml", text.as_bytes()),
            ]),
        ),
        (
            ArchiveFormat::Epub,
            zip(&[("mimetype", b"application/epub+zip"), ("a.xhtml", body.as_bytes())]),
        ),
    ]
}

fn translate(
    bytes: &[u8],
    format: ArchiveFormat,
    change: impl Fn(&MarkedText) -> MarkedText,
) -> Result<Vec<u8>, Error> {
    let mut archive = Archive::open(Cursor::new(bytes), format)?;
    let mut out = Vec::new();
    while let Some(document) = archive.next_document()? {
        let segments: Vec<MarkedText> = document.segments().iter().map(&change).collect();
        let text = document.render(&segments).expect("marks in the text");
        archive.write_document(&text, &mut out)?;
    }
    archive.finish(&mut out)?;
    Ok(out)
}

fn check(bytes: &[u8], format: ArchiveFormat, same: bool) {
    let Ok(written) = translate(bytes, format, MarkedText::clone) else { return };
    assert!(!same || written == bytes, "{format}");
    let changed = |segment: &MarkedText| MarkedText {
        text: segment.text.replace('e', "f"),
        marks: segment.marks.clone(),
    };
    let written = translate(bytes, format, changed).expect("the same parts");
    translate(&written, format, MarkedText::clone).expect("parts that were written");
}

fuzz_target!(|input: Input<'_>| {
    let (body, whole) = match input {
        Input::Bytes(bytes) => {
            for format in ArchiveFormat::ALL {
                check(bytes, format, false);
            }
            return;
        }
        Input::Body(body) => (body, false),
        Input::Part(part) => (part, true),
    };
    for (format, bytes) in archives(body, whole) {
        check(&bytes, format, true);
    }
});
