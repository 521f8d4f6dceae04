//! The memory of archives: that of the largest part, not of the archive. This is a part of the program that counts bytes.

use crate::office::{Entry, content_types, docx_entries, open_document, shout, zip};
use crate::random::Random;
use simdformer_documents::Error;
use simdformer_documents::archives::Archive;
use simdformer_documents::archives::ArchiveFormat::{self, Docx, Odt};
use simdformer_documents::marked_text::MarkedText;
use simdformer_testing::counting::most_bytes;
use simdformer_testing::cpu_time::cpu_time;
use std::fs;
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Counts what is written.
struct Sink(u64);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn translate(bytes: &[u8], format: ArchiveFormat, out: &mut Sink) -> Result<(), Error> {
    let mut archive = Archive::open(Cursor::new(bytes), format)?;
    while let Some(document) = archive.next_document()? {
        let segments: Vec<MarkedText> = document.segments().iter().map(shout).collect();
        archive.write_document(&document.render(&segments)?, out)?;
    }
    archive.finish(out)
}

/// The most bytes that are live while an archive is translated part by part, beside the archive, and the bytes written.
fn translated(bytes: &[u8], format: ArchiveFormat) -> (usize, u64) {
    let mut out = Sink(0);
    let (result, most) = most_bytes(|| translate(bytes, format, &mut out));
    result.unwrap();
    (most, out.0)
}

/// An archive of `parts` headers of some `length` bytes each.
fn headers(parts: usize, length: usize) -> Vec<Entry> {
    let paragraph = "<w:p><w:r><w:t>Il fait froid.</w:t></w:r></w:p>";
    let mut entries = docx_entries(paragraph);
    let header = format!(
        "<w:hdr xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\">{}</w:hdr>",
        paragraph.repeat(length / paragraph.len())
    );
    let names: Vec<String> = (0..parts).map(|one| format!("word/header{one}.xml")).collect();
    let mut types = vec![("word/document.xml", "wordprocessingml.document.main+xml")];
    types.extend(names.iter().map(|name| (&**name, "wordprocessingml.header+xml")));
    entries[0] = content_types(&types);
    entries.extend(names.iter().map(|name| Entry::new(name, header.clone())));
    entries
}

#[test]
fn memory_is_that_of_the_largest_part() {
    const PART: usize = 64 << 10;
    let (one, _) = translated(&zip(&headers(1, PART), ""), Docx);
    let many = zip(&headers(100, PART), "");
    let (most, written) = translated(&many, Docx);
    assert!(written > many.len() as u64 / 2, "{written}");
    // The directory, and the content types, which name every part.
    assert!(most < one + (256 << 10), "{most} bytes for 100 parts, {one} for one");
    // A picture that is copied.
    for stored in [true, false] {
        let mut entries = headers(1, PART);
        let content: Vec<u8> = (0..8u32 << 20).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        entries.push(Entry { stored, ..Entry::new("word/media/film.avi", content) });
        let archive = zip(&entries, "");
        let (most, written) = translated(&archive, Docx);
        assert!(written > archive.len() as u64 / 2, "{written}");
        assert!(most < one + (256 << 10), "{most} bytes with a film, {one} without");
    }
}

/// A style with long properties takes its bytes once, however many spans have it, in each other or one after the other.
#[test]
fn a_style_takes_its_bytes_once() {
    let memory = |length: usize| {
        let style = format!(
            "<style:style style:name=\"A\" style:family=\"text\"><x y=\"{}\"/></style:style>",
            "x".repeat(length)
        );
        let begin = "<text:span text:style-name=\"A\">a";
        let body = format!("<text:p>{}{}</text:p>", begin.repeat(200), "</text:span>".repeat(200));
        translated(&open_document("text", &style, &body), Odt).0
    };
    let (short, long) = (memory(1 << 10), memory(1 << 18));
    assert!(long < short + 16 * (1 << 18), "{short} and {long} bytes");
}

/// Files of programs that are cut or have other bytes: each error comes in 100 ms and 10 MB beside the file.
#[test]
fn damaged_files_are_errors_soon() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/archives");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut random = Random(54);
    let mut errors = 0;
    for path in files {
        let Some(format) = ArchiveFormat::from_path(&path) else { continue };
        let whole = fs::read(&path).unwrap();
        for number in 0..60 {
            let mut bytes = whole.clone();
            if number % 3 == 0 {
                bytes.truncate(random.below(whole.len()));
            }
            for _ in 0..number {
                let at = random.below(bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = [0, 1, 0x7f, 0xff, random.below(256) as u8][random.below(5)];
                }
            }
            let begin = cpu_time();
            let (result, most) = most_bytes(|| translate(&bytes, format, &mut Sink(0)));
            let spent = cpu_time() - begin;
            if result.is_err() {
                errors += 1;
                assert!(spent < Duration::from_millis(100), "{path:?} {number}: {spent:?}");
                assert!(most < 10 << 20, "{path:?} {number}: {most} bytes");
            }
        }
    }
    assert!(errors >= 400, "{errors}");
}
