//! Small archives, made here, and what they become. Helpers of the tests of archives.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec;
use simdformer_documents::Error;
use simdformer_documents::archives::{Archive, ArchiveFormat};
use simdformer_documents::marked_text::{MarkKind, MarkedText};
use std::io::Cursor;

/// An entry as it is written, with what may be wrong with it.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub name: String,
    pub content: Vec<u8>,
    pub stored: bool,
    /// The sizes follow the data, as in files that are written as a stream.
    pub descriptor: bool,
    pub flags: u16,
    /// In place of the method.
    pub method: Option<u16>,
    /// In place of the size without compression.
    pub size: Option<u32>,
    /// In place of the name in the header before the data.
    pub local_name: Option<String>,
    pub extra: Vec<u8>,
}

impl Entry {
    pub fn new(name: &str, content: impl Into<Vec<u8>>) -> Self {
        let stored = name == "mimetype";
        Self { name: name.to_owned(), content: content.into(), stored, ..Self::default() }
    }
}

/// A zip archive with a comment.
pub fn zip(entries: &[Entry], comment: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = out.len() as u32;
        let data =
            if entry.stored { entry.content.clone() } else { compress_to_vec(&entry.content, 9) };
        let method = entry.method.unwrap_or(if entry.stored { 0 } else { 8 });
        let flags = entry.flags | if entry.descriptor { 8 } else { 0 };
        let crc = rawzip::crc32(&entry.content);
        let size = entry.size.unwrap_or(entry.content.len() as u32);
        let sizes = [crc, data.len() as u32, size].map(u32::to_le_bytes).concat();
        let local_name = entry.local_name.as_ref().unwrap_or(&entry.name).as_bytes();
        let fixed = |name: &[u8], sizes: &[u8]| {
            let mut fixed = [20u16, flags, method, 0x6a2b, 0x5b3c].map(u16::to_le_bytes).concat();
            fixed.extend(sizes);
            fixed.extend((name.len() as u16).to_le_bytes());
            fixed.extend((entry.extra.len() as u16).to_le_bytes());
            fixed
        };
        out.extend(b"PK\x03\x04");
        out.extend(fixed(local_name, if entry.descriptor { &[0; 12] } else { &sizes }));
        out.extend(local_name);
        out.extend(&entry.extra);
        out.extend(data);
        if entry.descriptor {
            out.extend(b"PK\x07\x08");
            out.extend(&sizes);
        }
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(fixed(entry.name.as_bytes(), &sizes));
        directory.extend([0; 2 + 2 + 2]);
        directory.extend(0x81a4_0000u32.to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(entry.name.as_bytes());
        directory.extend(&entry.extra);
    }
    let begin = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([entries.len() as u16; 2].map(u16::to_le_bytes).concat());
    out.extend([directory.len() as u32, begin].map(u32::to_le_bytes).concat());
    out.extend((comment.len() as u16).to_le_bytes());
    out.extend(comment.as_bytes());
    out
}

/// The names and contents of an archive, in the order of the file.
pub fn unzip(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let archive = rawzip::ZipArchive::from_slice(bytes).unwrap();
    let mut entries = Vec::new();
    for record in archive.entries() {
        let record = record.unwrap();
        let name = String::from_utf8(record.file_path().as_bytes().to_vec()).unwrap();
        let entry = archive.get_entry(record.wayfinder()).unwrap();
        let content = match record.compression_method() {
            rawzip::CompressionMethod::STORE => entry.data().to_vec(),
            _ => decompress_to_vec(entry.data()).unwrap(),
        };
        assert_eq!(rawzip::crc32(&content), record.crc32(), "{name}");
        assert_eq!(content.len() as u64, record.uncompressed_size_hint(), "{name}");
        entries.push((record.local_header_offset(), name, content));
    }
    entries.sort();
    entries.into_iter().map(|(_, name, content)| (name, content)).collect()
}

/// The text of a part.
pub fn part(bytes: &[u8], name: &str) -> String {
    let found = unzip(bytes).into_iter().find(|(one, _)| one == name);
    String::from_utf8(found.unwrap_or_else(|| panic!("no {name}")).1).unwrap()
}

/// The segments of an archive, in order.
pub fn segments(bytes: &[u8], format: ArchiveFormat) -> Result<Vec<MarkedText>, Error> {
    let mut archive = Archive::open(Cursor::new(bytes), format)?;
    let mut segments = Vec::new();
    while let Some(document) = archive.next_document()? {
        segments.extend(document.segments().iter().cloned());
    }
    Ok(segments)
}

/// The texts of the segments.
pub fn texts(bytes: &[u8], format: ArchiveFormat) -> Vec<String> {
    segments(bytes, format).unwrap().into_iter().map(|segment| segment.text).collect()
}

/// The archive with other segments.
pub fn translate(
    bytes: &[u8],
    format: ArchiveFormat,
    change: &mut dyn FnMut(&MarkedText) -> MarkedText,
) -> Result<Vec<u8>, Error> {
    let mut archive = Archive::open(Cursor::new(bytes), format)?;
    let mut out = Vec::new();
    while let Some(document) = archive.next_document()? {
        let segments: Vec<MarkedText> = document.segments().iter().map(&mut *change).collect();
        archive.write_document(&document.render(&segments)?, &mut out)?;
    }
    archive.finish(&mut out)?;
    Ok(out)
}

/// The same text in capitals, which moves no mark. Kept pieces stay.
pub fn shout(segment: &MarkedText) -> MarkedText {
    let mut text = segment.text.to_ascii_uppercase();
    for mark in &segment.marks {
        if matches!(mark.kind, MarkKind::Keep { .. }) {
            text.replace_range(mark.range.clone(), &segment.text[mark.range.clone()]);
        }
    }
    MarkedText { text, marks: segment.marks.clone() }
}

const XML: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";

/// The content types of parts of Office.
pub fn content_types(parts: &[(&str, &str)]) -> Entry {
    let mut xml = format!(
        "{XML}<Types xmlns=\"http://schemas.openxmlformats.org/package/2006/content-types\">\
         <Default Extension=\"rels\" ContentType=\"application/vnd.openxmlformats-package.relationships+xml\"/>\
         <Default Extension=\"xml\" ContentType=\"application/xml\"/>"
    );
    for (name, content_type) in parts {
        xml.push_str(&format!(
            "<Override PartName=\"/{name}\" \
             ContentType=\"application/vnd.openxmlformats-officedocument.{content_type}\"/>"
        ));
    }
    xml.push_str("</Types>");
    Entry::new("[Content_Types].xml", xml)
}

/// A text document of Office, whose body is `body`.
pub fn docx(body: &str) -> Vec<u8> {
    zip(&docx_entries(body), "")
}

pub fn docx_entries(body: &str) -> Vec<Entry> {
    let document = format!(
        "{XML}<w:document xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\" \
         xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships\" \
         xmlns:wps=\"http://schemas.microsoft.com/office/word/2010/wordprocessingShape\">\
         <w:body>{body}<w:sectPr/></w:body></w:document>"
    );
    vec![
        content_types(&[("word/document.xml", "wordprocessingml.document.main+xml")]),
        Entry::new("_rels/.rels", "<Relationships/>"),
        Entry::new("word/document.xml", document),
        Entry::new("word/media/image1.png", vec![7; 2000]),
    ]
}

/// A document of OpenDocument, whose body and styles are these.
pub fn open_document(kind: &str, styles: &str, body: &str) -> Vec<u8> {
    let content = format!(
        "{XML}<office:document-content xmlns:office=\"urn:oasis:names:tc:opendocument:xmlns:office:1.0\" \
         xmlns:text=\"urn:oasis:names:tc:opendocument:xmlns:text:1.0\" \
         xmlns:style=\"urn:oasis:names:tc:opendocument:xmlns:style:1.0\" \
         xmlns:fo=\"urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0\" \
         xmlns:xlink=\"http://www.w3.org/1999/xlink\" xmlns:dc=\"http://purl.org/dc/elements/1.1/\" \
         xmlns:draw=\"urn:oasis:names:tc:opendocument:xmlns:drawing:1.0\" \
         xmlns:officeooo=\"http://openoffice.org/2009/office\">\
         <office:automatic-styles>{styles}</office:automatic-styles>\
         <office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    );
    let media_type = format!("application/vnd.oasis.opendocument.{kind}");
    let entries = [
        Entry::new("mimetype", media_type),
        Entry::new("content.xml", content),
        Entry::new("META-INF/manifest.xml", "<manifest/>"),
    ];
    zip(&entries, "")
}
