//! Reads input texts: arguments, lines or whole files, in blocks.

use crate::arguments::TextArguments;
use crate::streams::Failure;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::vec;

fn open(path: &Path) -> Result<BufReader<File>, Failure> {
    let file = File::open(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    Ok(BufReader::new(file))
}

/// All lines of a file.
pub(crate) fn lines(path: &Path) -> Result<Vec<String>, Failure> {
    let (texts, readers) = (Vec::new().into_iter(), Vec::new().into_iter());
    let now = Some(Source::new(path.display().to_string(), open(path)?));
    Inputs { texts, readers, now, whole: false }.take(usize::MAX)
}

/// What texts are read from.
struct Source<'i> {
    name: String,
    reader: Box<dyn BufRead + Send + 'i>,
    /// The texts that were read.
    count: usize,
}

impl<'i> Source<'i> {
    fn new(name: String, reader: impl BufRead + Send + 'i) -> Self {
        Self { name, reader: Box::new(reader), count: 0 }
    }

    /// Bytes as text. What is not UTF-8 is an error: which characters were meant is not known.
    fn text(&self, bytes: Vec<u8>, whole: bool) -> Result<String, Failure> {
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let found = error.as_bytes().get(at).copied().unwrap_or_default();
            let (name, count) = (&self.name, self.count);
            let line = if whole { String::new() } else { format!("line {count}, ") };
            format!("{name}: {line}byte {}: expected UTF-8, found 0x{found:02x}", at + 1).into()
        })
    }
}

/// Input texts, in output order.
pub(crate) struct Inputs<'i> {
    texts: vec::IntoIter<String>,
    readers: vec::IntoIter<Source<'i>>,
    now: Option<Source<'i>>,
    whole: bool,
}

impl<'i> Inputs<'i> {
    pub(crate) fn new(
        arguments: &TextArguments,
        whole: bool,
        input: &'i mut (dyn Read + Send),
    ) -> Result<Self, Failure> {
        let mut readers = Vec::new();
        for path in &arguments.files {
            readers.push(Source::new(path.display().to_string(), open(path)?));
        }
        if readers.is_empty() && arguments.texts.is_empty() {
            readers.push(Source::new("standard input".to_owned(), BufReader::new(input)));
        }
        Ok(Self {
            texts: arguments.texts.clone().into_iter(),
            readers: readers.into_iter(),
            now: None,
            whole,
        })
    }

    /// The next texts, at most `most`; empty at the end.
    pub(crate) fn take(&mut self, most: usize) -> Result<Vec<String>, Failure> {
        let mut texts: Vec<String> = self.texts.by_ref().take(most).collect();
        while texts.len() < most {
            let Some(mut source) = self.now.take().or_else(|| self.readers.next()) else { break };
            let mut bytes = Vec::new();
            let read = match self.whole {
                true => source.reader.read_to_end(&mut bytes).map(|_| true),
                false => source.reader.read_until(b'\n', &mut bytes).map(|read| read > 0),
            };
            if !read.map_err(|error| format!("cannot read {}: {error}", source.name))? {
                continue;
            }
            source.count += 1;
            if bytes.last() == Some(&b'\n') {
                bytes.pop();
            }
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
            texts.push(source.text(bytes, self.whole)?);
            if !self.whole {
                self.now = Some(source);
            }
        }
        Ok(texts)
    }
}
