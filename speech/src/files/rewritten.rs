//! Passes on the bytes of a container, of which parts are checked, changed or left out before a decoder sees them.

use crate::input::stream::{HEAD, Stream, follows, may_follow};
use std::io::{self, BufReader, ErrorKind, Read};

/// What a container has next.
pub(super) enum Part {
    /// These bytes, and as many bytes of the source after them.
    Bytes(Vec<u8>, u64),
    /// The end, because another recording begins with these bytes.
    Another(Vec<u8>),
    /// The end of the source.
    End,
}

/// Whether another recording, or a tag before one, begins with `head`, which is read on for that up to the end of the source.
pub(super) fn is_another(reader: &mut impl Read, head: &mut Vec<u8>) -> io::Result<bool> {
    if !may_follow(head) {
        return Ok(false);
    }
    let (mut read, mut more) = (head.len(), [0; HEAD]);
    while read < HEAD {
        match reader.read(&mut more[read..]) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            // The container should not end here, says a reader that takes these bytes for a part of it.
            Err(error) if error.kind() == ErrorKind::InvalidData => break,
            Err(error) => return Err(error),
        }
    }
    let before = head.len().min(read);
    head.extend(&more[before..read]);
    Ok(follows(head))
}

/// The text of the error for bytes after a recording that begin as another one, and are none.
pub(super) const NOT_READ: &str = "what follows is of no format that is read";

/// A container that is read part by part.
pub(super) trait Parts {
    /// Reads the next part, but not the bytes of the source after it.
    fn next(&mut self, reader: &mut BufReader<impl Read>) -> io::Result<Part>;
}

/// Passes on the parts of a container.
pub(super) struct Rewritten<'s, R, P> {
    reader: BufReader<R>,
    parts: P,
    /// Where the bytes of another recording are given back.
    stream: Stream<'s>,
    /// What is passed on next, from `from` on, and bytes of the source after that.
    out: Vec<u8>,
    from: usize,
    left: u64,
    ended: bool,
}

impl<'s, R: Read, P> Rewritten<'s, R, P> {
    /// `stream`: what `reader` reads in the end.
    pub(super) fn new(reader: R, parts: P, stream: Stream<'s>) -> Self {
        let (reader, out) = (BufReader::new(reader), Vec::new());
        Self { reader, parts, stream, out, from: 0, left: 0, ended: false }
    }
}

impl<R: Read, P: Parts> Read for Rewritten<'_, R, P> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !out.is_empty() && !self.ended {
            if self.from < self.out.len() {
                let count = out.len().min(self.out.len() - self.from);
                out[..count].copy_from_slice(&self.out[self.from..self.from + count]);
                self.from += count;
                return Ok(count);
            }
            if self.left > 0 {
                let wanted = self.left.min(out.len() as u64) as usize;
                let count = self.reader.read(&mut out[..wanted])?;
                self.left -= count as u64;
                return Ok(count);
            }
            (self.out, self.from) = (Vec::new(), 0);
            match self.parts.next(&mut self.reader)? {
                Part::Bytes(bytes, left) => (self.out, self.left) = (bytes, left),
                Part::Another(head) => {
                    self.stream.give_back(&[&head, self.reader.buffer()].concat());
                    self.stream.set_next();
                    self.ended = true;
                }
                Part::End => return Ok(0),
            }
        }
        Ok(0)
    }
}
