//! The elements of a Matroska or WebM file, whose segment and clusters may have no length: then the recorder could not seek back.
//!
//! Source: RFC 8794, sections 4 to 6, and RFC 9559.

use super::followed::{CUT, Layout};

/// The elements whose children are followed; the others are skipped.
const SEGMENT: u64 = 0x1853_8067;
const CLUSTER: u64 = 0x1f43_b675;
/// The longest name and length of an element, in bytes.
const HEAD: usize = 12;

/// Where in an element a Matroska file is.
#[derive(Default)]
pub(super) struct EbmlElements {
    head: [u8; HEAD],
    length: usize,
    /// Bytes of a skipped element that are still to come.
    content: u64,
    /// Bytes until now, and where the segment and the cluster end that have a length.
    at: u64,
    segment_end: Option<u64>,
    cluster_end: Option<u64>,
    /// The number of segments; `symphonia` reads the first one.
    segments: usize,
    /// Whether what follows are no elements.
    lost: bool,
}

/// The bytes of a name or a length that begins with `first`; `None` if there is no such one.
fn width(first: u8, most: u32) -> Option<usize> {
    let width = first.leading_zeros() + 1;
    (width <= most).then_some(width as usize)
}

impl EbmlElements {
    /// Bytes that the head has, as far as it is known.
    fn expected(&self) -> Option<usize> {
        let Some(&first) = self.head[..self.length].first() else { return Some(1) };
        let name = width(first, 4)?;
        match self.head[..self.length].get(name) {
            None => Some(name + 1),
            Some(&first) => Some(name + width(first, 8)?),
        }
    }

    /// Takes a head that is complete.
    fn begin(&mut self) {
        let name = width(self.head[0], 4).unwrap_or(1);
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
        let size = &self.head[name..self.length];
        let mask = u64::MAX >> (64 - 7 * size.len());
        let size = Some(number(size) & mask).filter(|&size| size != mask);
        let end = size.map(|size| self.at.saturating_add(size));
        match (number(&self.head[..name]), size) {
            (SEGMENT, _) => {
                (self.segment_end, self.cluster_end) = (end, None);
                self.segments += 1;
            }
            (CLUSTER, _) => self.cluster_end = end,
            // The children follow.
            (_, None) => (),
            (_, Some(size)) => self.content = size,
        }
        self.length = 0;
    }
}

impl Layout for EbmlElements {
    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.lost {
            let skipped = (bytes.len() as u64).min(self.content);
            self.content -= skipped;
            self.at += skipped;
            bytes = &bytes[skipped as usize..];
            let Some(&byte) = bytes.first() else { break };
            (self.head[self.length], self.length) = (byte, self.length + 1);
            self.at += 1;
            bytes = &bytes[1..];
            match self.expected() {
                None => self.lost = true,
                Some(expected) if self.length == expected && expected > 1 => self.begin(),
                Some(_) => (),
            }
        }
    }

    fn end(&self) -> Result<(), &'static str> {
        let inside = |end: Option<u64>| end.is_some_and(|end| self.at < end);
        let between = self.length == 0 && self.content == 0;
        match !inside(self.segment_end) && !inside(self.cluster_end) && (self.lost || between) {
            _ if self.segments > 1 => Err("another recording follows, which is not read"),
            true => Ok(()),
            false => Err(CUT),
        }
    }
}
