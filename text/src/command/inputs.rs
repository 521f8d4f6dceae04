//! Reads input texts: arguments, lines or whole files, in blocks.

use crate::Failure;
use crate::arguments::TextArguments;
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
    let reader: Box<dyn BufRead + Send> = Box::new(open(path)?);
    let (texts, readers) = (Vec::new().into_iter(), Vec::new().into_iter());
    Inputs { texts, readers, now: Some(reader), whole: false }.take(usize::MAX)
}

/// Input texts, in output order.
pub(crate) struct Inputs<'i> {
    texts: vec::IntoIter<String>,
    readers: vec::IntoIter<Box<dyn BufRead + Send + 'i>>,
    now: Option<Box<dyn BufRead + Send + 'i>>,
    whole: bool,
}

impl<'i> Inputs<'i> {
    pub(crate) fn new(
        arguments: &TextArguments,
        whole: bool,
        input: &'i mut (dyn Read + Send),
    ) -> Result<Self, Failure> {
        let mut readers: Vec<Box<dyn BufRead + Send + 'i>> = Vec::new();
        for path in &arguments.files {
            readers.push(Box::new(open(path)?));
        }
        if readers.is_empty() && arguments.texts.is_empty() {
            readers.push(Box::new(BufReader::new(input)));
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
            let Some(reader) = &mut self.now else {
                match self.readers.next() {
                    Some(reader) => self.now = Some(reader),
                    None => break,
                }
                continue;
            };
            let mut bytes = Vec::new();
            let read = if self.whole {
                let read = reader.read_to_end(&mut bytes);
                self.now = None;
                read?;
                true
            } else {
                reader.read_until(b'\n', &mut bytes)? > 0
            };
            if !read {
                self.now = None;
                continue;
            }
            if bytes.last() == Some(&b'\n') {
                bytes.pop();
            }
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(texts)
    }
}
