//! Checks that a container is complete: `symphonia` takes a file that was cut for one that ended.

use std::io::{self, ErrorKind, Read};

/// The text of the error for a file that was cut.
pub(super) const CUT: &str = "the file ends too early";

/// The layout of a container, which is followed byte by byte.
pub(super) trait Layout {
    /// Takes the next bytes.
    fn follow(&mut self, bytes: &[u8]);

    /// Whether the container may end here.
    ///
    /// # Errors
    /// What is missing.
    fn end(&self) -> Result<(), &'static str>;
}

/// Passes on the bytes of a container, and fails at its end if it is cut.
pub(super) struct Followed<R, L> {
    reader: R,
    layout: L,
}

impl<R, L> Followed<R, L> {
    pub(super) fn new(reader: R, layout: L) -> Self {
        Self { reader, layout }
    }
}

impl<R: Read, L: Layout> Read for Followed<R, L> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(out)?;
        self.layout.follow(&out[..read]);
        if read == 0 && !out.is_empty() {
            self.layout.end().map_err(|what| io::Error::new(ErrorKind::InvalidData, what))?;
        }
        Ok(read)
    }
}
