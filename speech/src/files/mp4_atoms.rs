//! The atoms of an MP4 file that can be read at any place, and the entries of tables.
//!
//! Source: ISO/IEC 14496-12:2022, 4.2.

use super::bytes::{fill, invalid};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

/// Atoms of a file up to the sound, or of an atom.
pub(super) const ATOMS: usize = 10_000;
/// Entries that are read at a time.
const ENTRIES: usize = 1 << 10;

/// An atom: its type, and the places of its head, its content and its end.
#[derive(Clone, Copy)]
pub(super) struct Atom {
    pub(super) kind: [u8; 4],
    pub(super) start: u64,
    pub(super) content: u64,
    pub(super) end: u64,
}

impl Atom {
    pub(super) fn range(self) -> Range<u64> {
        self.content..self.end
    }

    pub(super) fn length(self) -> u64 {
        self.end - self.content
    }
}

/// Whether an atom may end after its parent.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Cut {
    Allowed,
    Refused,
}

/// The atom whose head, of at most 16 bytes, is at a place of a parent that ends at `end`.
pub(super) fn atom(head: &[u8], start: u64, end: u64, cut: Cut) -> io::Result<Atom> {
    let [a, b, c, d, kind @ ..] = head else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    let kind: [u8; 4] = core::array::from_fn(|i| kind.get(i).copied().unwrap_or(0));
    let (size, bytes) = match u32::from_be_bytes([*a, *b, *c, *d]) {
        0 => (end - start, 8),
        1 => match head.get(8..16).and_then(|size| size.try_into().ok()) {
            Some(size) => (u64::from_be_bytes(size), 16),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        },
        size => (u64::from(size), 8),
    };
    let last = start
        .checked_add(size)
        .filter(|&last| size >= bytes && (last <= end || cut == Cut::Allowed));
    let Some(last) = last else {
        let message = format!("expected {bytes} to {} bytes, found {size}", end - start);
        return Err(invalid(format!("an atom `{}`: {message}", kind.escape_ascii())));
    };
    Ok(Atom { kind, start, content: start + bytes, end: last })
}

/// Calls `each` with the atoms of a range, until it returns false.
pub(super) fn each_atom(
    source: &mut (impl Read + Seek),
    range: Range<u64>,
    cut: Cut,
    each: &mut dyn FnMut(Atom) -> io::Result<bool>,
) -> io::Result<()> {
    let mut at = range.start;
    for _ in 0..ATOMS {
        // Some bytes at an end are no atom.
        if range.end.saturating_sub(at) < 8 {
            return Ok(());
        }
        source.seek(SeekFrom::Start(at))?;
        let mut head = [0; 16];
        let wanted = (range.end - at).min(16) as usize;
        let length = fill(source, &mut head[..wanted])?;
        let atom = atom(&head[..length], at, range.end, cut)?;
        if !each(atom)? {
            return Ok(());
        }
        at = atom.end;
    }
    Err(invalid(format!("expected at most {ATOMS} atoms in one, found more")))
}

/// The atoms of a range that have these types, each at most once.
pub(super) fn find<const N: usize>(
    source: &mut (impl Read + Seek),
    range: Range<u64>,
    kinds: [&[u8; 4]; N],
) -> io::Result<[Option<Atom>; N]> {
    let mut found = [None; N];
    each_atom(source, range, Cut::Refused, &mut |atom| {
        if let Some(i) = kinds.iter().position(|&kind| *kind == atom.kind)
            && found[i].replace(atom).is_some()
        {
            return Err(invalid(format!("expected one `{}`, found two", kinds[i].escape_ascii())));
        }
        Ok(true)
    })?;
    Ok(found)
}

/// The first bytes of an atom's content; zeros after its end.
pub(super) fn content<const N: usize>(
    source: &mut (impl Read + Seek),
    atom: Atom,
) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let wanted = atom.length().min(N as u64) as usize;
    source.seek(SeekFrom::Start(atom.content))?;
    source.read_exact(&mut bytes[..wanted])?;
    Ok(bytes)
}

pub(super) fn number(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Reads the entries of a table, of `N` bytes each, after its first `skipped` bytes. Calls `each` with each.
pub(super) fn each_entry<const N: usize>(
    source: &mut (impl Read + Seek),
    table: Atom,
    (skipped, count): (u64, u32),
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let wanted = u64::from(count) * N as u64;
    if table.length().checked_sub(skipped).is_none_or(|bytes| bytes < wanted) {
        let (kind, found) = (table.kind.escape_ascii(), table.length());
        let expected = format!("expected {} bytes of {count} entries", wanted + skipped);
        return Err(invalid(format!("an atom `{kind}`: {expected}, found {found}")));
    }
    source.seek(SeekFrom::Start(table.content + skipped))?;
    let mut block = vec![0; N * ENTRIES];
    let mut left = count as usize;
    while left > 0 {
        let now = left.min(ENTRIES);
        source.read_exact(&mut block[..N * now])?;
        block[..N * now].chunks_exact(N).try_for_each(&mut *each)?;
        left -= now;
    }
    Ok(())
}
