//! Which entries of an archive have text, and what they are.

use super::format::ArchiveFormat;
use super::zip::Zip;
use crate::error::Error;
use crate::formats::{
    BOOK_CONTENTS, OPEN_DOCUMENT, PRESENTATION, PartFormat, SPREADSHEET, Vocabulary,
    WORD_PROCESSING,
};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek};

const OFFICE: &str = "application/vnd.openxmlformats-officedocument.";
const TYPES: &str = "[Content_Types].xml";

/// A part of a format by the end of its content type, after [`OFFICE`].
type PartTypes = [(&'static str, &'static Vocabulary)];

/// The content types of the part that makes an archive a document of this format.
const DOCX_MAIN: &[&str] =
    &["wordprocessingml.document.main+xml", "wordprocessingml.template.main+xml"];
const PPTX_MAIN: &[&str] = &[
    "presentationml.presentation.main+xml",
    "presentationml.slideshow.main+xml",
    "presentationml.template.main+xml",
];
const XLSX_MAIN: &[&str] = &["spreadsheetml.sheet.main+xml", "spreadsheetml.template.main+xml"];

const DOCX: &PartTypes = &[
    ("wordprocessingml.document.main+xml", &WORD_PROCESSING),
    ("wordprocessingml.template.main+xml", &WORD_PROCESSING),
    ("wordprocessingml.header+xml", &WORD_PROCESSING),
    ("wordprocessingml.footer+xml", &WORD_PROCESSING),
    ("wordprocessingml.footnotes+xml", &WORD_PROCESSING),
    ("wordprocessingml.endnotes+xml", &WORD_PROCESSING),
    ("wordprocessingml.comments+xml", &WORD_PROCESSING),
    ("drawingml.chart+xml", &PRESENTATION),
    ("drawingml.diagramData+xml", &PRESENTATION),
    ("application/vnd.ms-office.drawingml.diagramDrawing+xml", &PRESENTATION),
];

const PPTX: &PartTypes = &[
    ("presentationml.slide+xml", &PRESENTATION),
    ("presentationml.notesSlide+xml", &PRESENTATION),
    ("presentationml.comments+xml", &PRESENTATION),
    ("application/vnd.ms-powerpoint.comments+xml", &PRESENTATION),
    ("drawingml.chart+xml", &PRESENTATION),
    ("drawingml.diagramData+xml", &PRESENTATION),
    ("application/vnd.ms-office.drawingml.diagramDrawing+xml", &PRESENTATION),
];

const XLSX: &PartTypes = &[
    ("spreadsheetml.sharedStrings+xml", &SPREADSHEET),
    ("spreadsheetml.worksheet+xml", &SPREADSHEET),
    ("spreadsheetml.comments+xml", &SPREADSHEET),
    ("application/vnd.ms-excel.threadedcomments+xml", &SPREADSHEET),
    ("drawing+xml", &PRESENTATION),
    ("drawingml.chart+xml", &PRESENTATION),
    ("drawingml.diagramData+xml", &PRESENTATION),
    ("application/vnd.ms-office.drawingml.diagramDrawing+xml", &PRESENTATION),
];

/// The parts with names that cells must have, and their elements.
const XLSX_NAMES: [(&str, &str); 2] = [
    ("spreadsheetml.table+xml", "tableColumn"),
    ("spreadsheetml.pivotCacheDefinition+xml", "cacheField"),
];
/// The most bytes of these names.
const MOST_NAMES: usize = 64 << 20;

/// The entries with text.
#[derive(Debug)]
pub(super) struct Parts {
    /// What each entry is that has text, in the order of the entries.
    pub(super) formats: Vec<Option<PartFormat>>,
    /// Texts of cells that stay: the names of the columns of tables. Office removes a table whose cells have other names.
    pub(super) names: HashSet<String>,
}

/// The entries with text.
///
/// # Errors
/// The archive is of another format, or its parts are encrypted.
pub(super) fn text_parts<R: Read + Seek>(
    zip: &mut Zip<R>,
    format: ArchiveFormat,
) -> Result<Parts, Error> {
    let mut names = HashSet::new();
    let formats = match format {
        ArchiveFormat::Docx => office_parts(zip, format, DOCX_MAIN, DOCX),
        ArchiveFormat::Pptx => office_parts(zip, format, PPTX_MAIN, PPTX),
        ArchiveFormat::Xlsx => {
            names = column_names(zip)?;
            office_parts(zip, format, XLSX_MAIN, XLSX)
        }
        ArchiveFormat::Odt => open_parts(zip, "text"),
        ArchiveFormat::Odp => open_parts(zip, "presentation"),
        ArchiveFormat::Ods => open_parts(zip, "spreadsheet"),
        ArchiveFormat::Epub => book_parts(zip),
    }?;
    Ok(Parts { formats, names })
}

/// The names of the columns of tables and of pivot tables; of one with several lines each line.
fn column_names<R: Read + Seek>(zip: &mut Zip<R>) -> Result<HashSet<String>, Error> {
    let mut names = HashSet::new();
    let Some(index) = zip.find(TYPES) else { return Ok(names) };
    let content_types = ContentTypes::from_xml(&text_of(zip, index)?)?;
    let mut bytes = 0usize;
    for index in 0..zip.entries.len() {
        let found = content_types.type_of(&zip.entries[index].name).unwrap_or_default();
        let short = found.strip_prefix(OFFICE).unwrap_or(found);
        let Some((_, element)) = XLSX_NAMES.iter().find(|(one, _)| *one == short) else { continue };
        let text = text_of(zip, index)?;
        let mut reader = Reader::from_str(&text);
        loop {
            match reader.read_event() {
                Ok(Event::Start(tag) | Event::Empty(tag))
                    if tag.local_name().as_ref() == *element =>
                {
                    let name = attribute(&tag, "name").unwrap_or_default();
                    bytes = bytes.saturating_add(name.len());
                    if bytes > MOST_NAMES {
                        let expected = format!("at most {MOST_NAMES} bytes of names of columns");
                        return Err(Error::unsupported("the archive", expected, "more"));
                    }
                    let lines = name.split("_x000a_").flat_map(str::lines);
                    names.extend(lines.map(|line| line.trim().to_owned()));
                }
                Ok(Event::Eof) => break,
                Ok(_) => {}
                Err(error) => {
                    let name = &*zip.entries[index].name;
                    return Err(Error::corrupt(name, "well-formed XML", error.to_string()));
                }
            }
        }
    }
    Ok(names)
}

/// The parts of an Office document, by their content types.
fn office_parts<R: Read + Seek>(
    zip: &mut Zip<R>,
    format: ArchiveFormat,
    main: &[&str],
    types: &PartTypes,
) -> Result<Vec<Option<PartFormat>>, Error> {
    let no_document = |found: &str| {
        Err(Error::corrupt("the archive", format!("the parts of a {format} document"), found))
    };
    let Some(index) = zip.find(TYPES) else {
        return no_document(&format!("no {TYPES}"));
    };
    let content_types = ContentTypes::from_xml(&text_of(zip, index)?)?;
    let mut parts = Vec::with_capacity(zip.entries.len());
    let mut is_document = false;
    for entry in &zip.entries {
        let found = content_types.type_of(&entry.name).unwrap_or_default();
        let short = found.strip_prefix(OFFICE).unwrap_or(found);
        is_document |= main.contains(&short);
        let part = types.iter().find(|(one, _)| *one == short);
        parts.push(part.map(|&(_, vocabulary)| PartFormat::Xml(vocabulary)));
    }
    if !is_document {
        return no_document("other parts alone");
    }
    Ok(parts)
}

/// The content types of an Office document.
struct ContentTypes {
    /// By the name of the part, in small letters, with a slash before it.
    parts: HashMap<String, String>,
    extensions: HashMap<String, String>,
}

impl ContentTypes {
    fn from_xml(source: &str) -> Result<Self, Error> {
        let mut types = Self { parts: HashMap::new(), extensions: HashMap::new() };
        each_tag(TYPES, source, |tag| {
            let value = |name| attribute(tag, name);
            let local = tag.local_name();
            let (key, map) = match local.as_ref() {
                "Override" => (value("PartName"), &mut types.parts),
                "Default" => (value("Extension"), &mut types.extensions),
                _ => return,
            };
            if let (Some(key), Some(content)) = (key, value("ContentType")) {
                map.insert(key.to_ascii_lowercase(), content);
            }
        })?;
        Ok(types)
    }

    fn type_of(&self, name: &str) -> Option<&str> {
        let name = format!("/{}", name.to_ascii_lowercase());
        let by_extension = || self.extensions.get(name.rsplit_once('.')?.1);
        self.parts.get(&name).or_else(by_extension).map(String::as_str)
    }
}

/// Calls `on_tag` with the begin of each element of the entry `name`.
fn each_tag(
    name: &str,
    source: &str,
    mut on_tag: impl FnMut(&BytesStart<'_>),
) -> Result<(), Error> {
    let mut reader = Reader::from_str(source);
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag) | Event::Empty(tag)) => on_tag(&tag),
            Ok(Event::Eof) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(Error::corrupt(name, "well-formed XML", error.to_string())),
        }
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut attributes = tag.attributes();
    let found = attributes.with_checks(false).flatten().find(|one| one.key.0 == name)?;
    Some(quick_xml::escape::unescape(&found.value).ok()?.into_owned())
}

/// The parts of OpenDocument.
fn open_parts<R: Read + Seek>(
    zip: &mut Zip<R>,
    kind: &str,
) -> Result<Vec<Option<PartFormat>>, Error> {
    let expected = format!("application/vnd.oasis.opendocument.{kind}");
    let found = media_type(zip)?;
    let is_template = |rest: &str| rest.is_empty() || rest == "-template";
    if !found.strip_prefix(expected.as_str()).is_some_and(is_template) {
        return Err(Error::corrupt("the entry mimetype", expected, format_args!("{found:?}")));
    }
    if let Some(index) = zip.find("META-INF/manifest.xml")
        && text_of(zip, index)?.contains("encryption-data")
    {
        let found = "one that needs a password";
        return Err(Error::unsupported("the archive", "a document without a password", found));
    }
    // Charts and other documents in this one have a content in a folder of their own.
    let is_text =
        |name: &str| name == "styles.xml" || name.rsplit('/').next() == Some("content.xml");
    let part = |name: &str| is_text(name).then_some(PartFormat::Xml(&OPEN_DOCUMENT));
    Ok(zip.entries.iter().map(|entry| part(&entry.name)).collect())
}

/// The pages of a book.
fn book_parts<R: Read + Seek>(zip: &mut Zip<R>) -> Result<Vec<Option<PartFormat>>, Error> {
    const BOOK: &str = "application/epub+zip";
    let found = media_type(zip)?;
    if found.trim() != BOOK {
        return Err(Error::corrupt("the entry mimetype", BOOK, format_args!("{found:?}")));
    }
    let encrypted = match zip.find("META-INF/encryption.xml") {
        Some(index) => text_of(zip, index)?,
        None => String::new(),
    };
    // Every quoted value: a page that one of them names must not be taken for text.
    let encrypted: HashSet<&str> = encrypted.split(['"', '\'']).skip(1).step_by(2).collect();
    let pages = listed_pages(zip)?;
    let mut parts = Vec::with_capacity(zip.entries.len());
    for entry in &zip.entries {
        let extension = entry.name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let part = match extension.to_ascii_lowercase().as_str() {
            _ if pages.contains(&entry.name) => Some(PartFormat::Xhtml),
            "xhtml" | "html" | "htm" | "xht" => Some(PartFormat::Xhtml),
            "ncx" => Some(PartFormat::Xml(&BOOK_CONTENTS)),
            _ => None,
        };
        if part.is_some() && encrypted.contains(entry.name.as_str()) {
            let found = "one that META-INF/encryption.xml names";
            return Err(Error::unsupported(&*entry.name, "a page that is not encrypted", found));
        }
        parts.push(part);
    }
    Ok(parts)
}

/// The pages that a book lists, whatever their names are.
fn listed_pages<R: Read + Seek>(zip: &mut Zip<R>) -> Result<HashSet<String>, Error> {
    const CONTAINER: &str = "META-INF/container.xml";
    let mut packages = Vec::new();
    if let Some(index) = zip.find(CONTAINER) {
        each_tag(CONTAINER, &text_of(zip, index)?, |tag| {
            if tag.local_name().as_ref() == "rootfile" {
                packages.extend(attribute(tag, "full-path"));
            }
        })?;
    }
    let mut pages = HashSet::new();
    for package in packages {
        let Some(index) = zip.find(&package) else { continue };
        let source = text_of(zip, index)?;
        let entries: HashSet<&str> = zip.entries.iter().map(|entry| &*entry.name).collect();
        each_tag(&package, &source, |tag| {
            let is_page = tag.local_name().as_ref() == "item"
                && attribute(tag, "media-type").as_deref() == Some("application/xhtml+xml");
            let page = attribute(tag, "href").filter(|_| is_page);
            let page = page.and_then(|address| entry_name(&package, &address));
            pages.extend(page.filter(|page| entries.contains(&**page)));
        })?;
    }
    Ok(pages)
}

/// The name of the entry at an address in the entry `from`; `None` if it leads out of the archive.
fn entry_name(from: &str, address: &str) -> Option<String> {
    let address = address.split('#').next().unwrap_or_default();
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut path: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in address.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                path.pop()?;
            }
            part => path.push(part),
        }
    }
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let joined = path.join("/").into_bytes();
    let (mut name, mut at) = (Vec::with_capacity(joined.len()), 0);
    while let Some(&byte) = joined.get(at) {
        let escaped = digit(joined.get(at + 1)).zip(digit(joined.get(at + 2)));
        match escaped.filter(|_| byte == b'%') {
            Some((high, low)) => name.push((16 * high + low) as u8),
            None => name.push(byte),
        }
        at += if byte == b'%' && escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8(name).ok()
}

/// What an archive says that it is.
fn media_type<R: Read + Seek>(zip: &mut Zip<R>) -> Result<String, Error> {
    match zip.find("mimetype") {
        Some(index) => text_of(zip, index),
        None => Err(Error::corrupt("the archive", "an entry mimetype", "none")),
    }
}

/// An entry as text.
///
/// # Errors
/// As [`Zip::read_entry`]; it is not UTF-8.
pub(super) fn text_of<R: Read + Seek>(zip: &mut Zip<R>, index: usize) -> Result<String, Error> {
    let bytes = zip.read_entry(index)?;
    String::from_utf8(bytes).map_err(|error| {
        let name = zip.entries.get(index).map_or("", |entry| &entry.name);
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        Error::corrupt(name, "UTF-8", format_args!("byte {at} is 0x{byte:02x}"))
    })
}
