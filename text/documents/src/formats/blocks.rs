//! Reads a long text in parts.

use super::{Format, inline};
use std::io::{self, BufRead, Read};

/// Text without an empty line is divided at the end of a line after so many bytes.
const LONGEST: usize = 1 << 20;

/// Parts of a text that are documents themselves: translated one after the other and joined, they are the translation
/// of the whole.
///
/// Plain text and subtitles are divided after an empty line, subtitles only where a sentence may end: it may run over several
/// cues. All other formats are one part, because what stands at
/// the end of a text may change how its begin is read; [`DocumentWriter`](super::DocumentWriter) writes them step by
/// step.
///
/// A plain text without empty lines is divided at the end of a line after 1 MiB, which may divide a paragraph. Subtitles in
/// which no sentence ends are divided after the cue that reaches 1 MiB.
///
/// ```
/// use simdformer_documents::{Blocks, Format};
///
/// # fn main() -> std::io::Result<()> {
/// let blocks = Blocks::new(&b"one\n\ntwo\nthree\n"[..], Format::Plain, 0);
/// assert_eq!(blocks.collect::<Result<Vec<_>, _>>()?, ["one\n\n", "two\nthree\n"]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Blocks<R> {
    reader: R,
    format: Format,
    size: usize,
    /// A part has fewer bytes.
    longest: usize,
    /// Bytes before the next part.
    offset: usize,
    ended: bool,
}

impl<R: BufRead> Blocks<R> {
    /// Parts of at least `size` bytes, but for the last one. With 0 each paragraph is a part, and each cue that ends a
    /// sentence ends one.
    pub fn new(reader: R, format: Format, size: usize) -> Self {
        Self { reader, format, size, longest: inline::LONGEST, offset: 0, ended: false }
    }

    fn read_part(&mut self) -> io::Result<Option<String>> {
        let mut part = Vec::new();
        // A document of as many bytes is refused: no more of a file or a stream without an end is read.
        let mut reader = (&mut self.reader).take(self.longest as u64);
        if matches!(self.format, Format::Plain | Format::Srt | Format::WebVtt) {
            let subtitles = self.format != Format::Plain;
            let mut ends_sentence = true;
            loop {
                let begin = part.len();
                if reader.read_until(b'\n', &mut part)? == 0 {
                    break;
                }
                let blank = part[begin..].iter().all(u8::is_ascii_whitespace);
                let enough = part.len() >= self.size && begin > 0;
                let long = part.len() >= LONGEST;
                if blank && enough && (ends_sentence || long) || long && !subtitles {
                    break;
                }
                if !blank && subtitles {
                    let line = String::from_utf8_lossy(&part[begin..]);
                    ends_sentence = crate::lines::ends_sentence(&line);
                }
            }
        } else {
            reader.read_to_end(&mut part)?;
        }
        if part.len() >= self.longest {
            let text = format!("expected less than {} bytes of text, found more", self.longest);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        if part.is_empty() {
            return Ok(None);
        }
        let length = part.len();
        let text = String::from_utf8(part).map_err(|error| {
            let at = self.offset + error.utf8_error().valid_up_to();
            io::Error::new(io::ErrorKind::InvalidData, format!("expected UTF-8, byte {at} is not"))
        })?;
        self.offset += length;
        Ok(Some(text))
    }
}

impl<R: BufRead> Iterator for Blocks<R> {
    type Item = io::Result<String>;

    /// The next part.
    ///
    /// # Errors
    ///
    /// What the reader reports, and [`InvalidData`](io::ErrorKind::InvalidData) if the text is not UTF-8, or the part has
    /// 4 GiB or more, which [`Document`](super::Document) refuses. Nothing follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let part = self.read_part().transpose();
        self.ended = !matches!(part, Some(Ok(_)));
        part
    }
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::{Blocks, Format};
    use std::io::{BufReader, ErrorKind, Read, repeat};

    #[test]
    fn a_text_without_an_end_is_refused() {
        for format in Format::ALL {
            for text in ["", "a\n", "1\n00:00:01,000 --> 00:00:02,000\na\n"] {
                let endless = BufReader::new(text.as_bytes().chain(repeat(b'\0').take(1 << 20)));
                let mut blocks = Blocks { longest: 1000, ..Blocks::new(endless, format, 0) };
                let found = blocks.next().unwrap().unwrap_err();
                assert_eq!(found.kind(), ErrorKind::InvalidData);
                assert!(found.to_string().contains("less than 1000 bytes"), "{format}: {found}");
                assert!(blocks.next().is_none());
            }
            let blocks = Blocks { longest: 4, ..Blocks::new(&b"abc"[..], format, 0) };
            assert_eq!(blocks.collect::<Result<Vec<_>, _>>().unwrap(), ["abc"]);
        }
    }
}
