//! Normalizes text before segmentation: replacement rules, spaces, and symbols that no rule changes.
//!
//! The rules are a Darts double array of `u32` units, followed by the replacements, each terminated by a zero byte.
//! At each position the longest rule applies. The result is not normalized again.

use super::normalized::{SPACE, Sink, character_len};
use crate::error::Error;
use crate::limits;
use crate::trie::{ROOT, Trie};

/// The maximum length of a replacement in bytes. Those of NFKC have up to 33 bytes; a file with a longer one could
/// produce a megabyte from every character.
const LONGEST_REPLACEMENT: usize = 1024;

/// Bytes per unit.
const UNITS: usize = 4;

#[derive(Debug)]
pub(super) struct Normalizer {
    units: Vec<u32>,
    replacements: Vec<u8>,
    symbols: Trie,
    /// ASCII bytes with which no rule and no symbol begins.
    plain: Box<[bool; 256]>,
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
    whitespace_as_suffix: bool,
}

impl Normalizer {
    pub(super) fn new(file: &super::file::File, symbols: Trie) -> Result<Self, Error> {
        let (units, replacements) = rules(&file.rules)?;
        let mut normalizer = Self {
            units,
            replacements,
            symbols,
            plain: Box::new([false; 256]),
            add_dummy_prefix: file.add_dummy_prefix,
            remove_extra_whitespaces: file.remove_extra_whitespaces,
            escape_whitespaces: file.escape_whitespaces,
            whitespace_as_suffix: file.whitespace_as_suffix,
        };
        for byte in 0..0x80 {
            let begins_rule =
                normalizer.root().is_some_and(|at| normalizer.next(at, byte).is_some());
            let begins_symbol = normalizer.symbols.child(ROOT, byte).is_some();
            normalizer.plain[usize::from(byte)] = byte != b' ' && !begins_rule && !begins_symbol;
        }
        Ok(normalizer)
    }

    /// Writes the normalized text to `out`. It is valid UTF-8 unless the rules are not.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the result is longer than the limit.
    pub(super) fn normalize(&self, text: &str, out: &mut impl Sink) -> Result<(), Error> {
        out.truncate(0);
        let limit = limits::normalized(text.len());
        let mut rest = text.as_bytes();
        if self.remove_extra_whitespaces {
            while !rest.is_empty()
                && let (b" ", taken) = self.prefix(rest)
            {
                rest = &rest[taken..];
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        let space = if self.escape_whitespaces { SPACE.as_bytes() } else { b" " };
        if self.add_dummy_prefix && !self.whitespace_as_suffix {
            out.extend(space, text.len() - rest.len());
        }
        let mut after_space = self.remove_extra_whitespaces;
        while let Some(&first) = rest.first() {
            if self.plain[usize::from(first)] {
                out.push(first, text.len() - rest.len());
                rest = &rest[1..];
                after_space = false;
                continue;
            }
            let origin = text.len() - rest.len();
            let (mut written, taken) = self.prefix(rest);
            while after_space && let Some(after) = written.strip_prefix(b" ") {
                written = after;
            }
            for &byte in written {
                match byte {
                    b' ' => out.extend(space, origin),
                    byte => out.push(byte, origin),
                }
            }
            // One replacement exceeds the limit by at most `LONGEST_REPLACEMENT` bytes.
            if out.bytes().len() > limit {
                let found = format_args!("at least {}", out.bytes().len());
                return Err(Error::too_long(limit, found));
            }
            if let Some(last) = written.last() {
                after_space = self.remove_extra_whitespaces && *last == b' ';
            }
            rest = &rest[taken..];
        }
        if self.remove_extra_whitespaces {
            while out.bytes().ends_with(space) {
                out.truncate(out.bytes().len() - space.len());
            }
        }
        if self.add_dummy_prefix && self.whitespace_as_suffix {
            out.extend(space, text.len() - rest.len());
        }
        Ok(())
    }

    /// The length of the user-defined symbol with which `text` begins.
    pub(super) fn symbol(&self, text: &[u8]) -> Option<usize> {
        self.symbols.longest(text)
    }

    /// The replacement of the start of `text`, which is not empty, and the number of bytes that it replaces.
    fn prefix<'t>(&'t self, text: &'t [u8]) -> (&'t [u8], usize) {
        if let Some(len) = self.symbol(text) {
            return (&text[..len], len);
        }
        if let Some((replacement, len)) = self.rule(text) {
            return (replacement, len);
        }
        match character(text) {
            Some(len) => (&text[..len], len),
            None => ("\u{fffd}".as_bytes(), 1),
        }
    }

    /// The replacement and the length of the longest matching rule.
    fn rule(&self, text: &[u8]) -> Option<(&[u8], usize)> {
        let mut at = self.root()?;
        let mut found = None;
        for (before, &byte) in text.iter().enumerate() {
            let Some((next, value)) = self.next(at, byte) else { break };
            at = next;
            if let Some(value) = value {
                found = Some((value, before + 1));
            }
        }
        let (value, len) = found?;
        let from = self.replacements.get(value as usize..)?;
        let end = from.iter().position(|&byte| byte == 0).unwrap_or(from.len());
        Some((&from[..end], len))
    }

    /// The offset of the root's children.
    fn root(&self) -> Option<u32> {
        self.units.first().map(|&unit| offset(unit))
    }

    /// From the offset of a node's children, computes the offset of the children of the child under `byte`, and the
    /// value that is stored there.
    fn next(&self, children: u32, byte: u8) -> Option<(u32, Option<u32>)> {
        let at = children ^ u32::from(byte);
        let unit = *self.units.get(at as usize)?;
        // The highest bit is set in units that contain a value.
        if unit & (1 << 31 | 0xff) != u32::from(byte) {
            return None;
        }
        let children = at ^ offset(unit);
        let value = if unit >> 8 & 1 == 1 {
            self.units.get(children as usize).map(|unit| unit & !(1 << 31))
        } else {
            None
        };
        Some((children, value))
    }
}

fn offset(unit: u32) -> u32 {
    unit >> 10 << ((unit & 1 << 9) >> 6)
}

/// The length of the first character, if it is valid.
fn character(text: &[u8]) -> Option<usize> {
    let len = character_len(text);
    str::from_utf8(&text[..len]).is_ok().then_some(len)
}

/// The units and the replacements of precompiled rules.
fn rules(bytes: &[u8]) -> Result<(Vec<u32>, Vec<u8>), Error> {
    if bytes.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let broken = || {
        let found = format_args!("{} bytes that are not", bytes.len());
        Error::corrupt("normalization rules", "units and replacements", found)
    };
    let Some((size, rest)) = bytes.split_first_chunk() else { return Err(broken()) };
    let size = u32::from_le_bytes(*size) as usize;
    let Some((units, replacements)) = rest.split_at_checked(size) else { return Err(broken()) };
    if !size.is_multiple_of(UNITS) || replacements.is_empty() {
        return Err(broken());
    }
    let longest = replacements.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(0);
    if longest > LONGEST_REPLACEMENT {
        let expected = format!("replacements of at most {LONGEST_REPLACEMENT} bytes");
        return Err(Error::corrupt("", expected, format_args!("one of {longest}")));
    }
    let units = units.as_chunks::<UNITS>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
    Ok((units, replacements.to_vec()))
}

/// The largest number of output bytes per input byte of precompiled rules, rounded up. `None` unless every path
/// through them stays inside the rules and every replacement is UTF-8: the reader of the crate `tokenizers` does not
/// check this.
#[cfg(feature = "json")]
pub(crate) fn growth(bytes: &[u8]) -> Option<usize> {
    let (units, replacements) = rules(bytes).ok()?;
    let replacements = str::from_utf8(&replacements).ok()?;
    let mut growth = 1;
    let Some(&root) = units.first() else { return bytes.is_empty().then_some(growth) };
    let mut seen = vec![false; units.len()];
    // Breadth first: if several keys lead to the same node, the shortest one counts.
    let mut open = std::collections::VecDeque::from([(offset(root) as usize, 1)]);
    while let Some((children, depth)) = open.pop_front() {
        // All children of a node are in one block of 256 units.
        if children | 0xff >= units.len() {
            return None;
        }
        if std::mem::replace(&mut seen[children], true) {
            continue;
        }
        for byte in 1..256 {
            let unit = units[children ^ byte];
            if unit & (1 << 31 | 0xff) != byte as u32 {
                continue;
            }
            let next = children ^ byte ^ offset(unit) as usize;
            if unit >> 8 & 1 == 1 {
                let value = units.get(next).map(|unit| (unit & !(1 << 31)) as usize);
                let len = value.and_then(|value| replacements.get(value..)?.find('\0'))?;
                growth = growth.max(len.div_ceil(depth));
            }
            open.push_back((next, depth + 1));
        }
    }
    Some(growth)
}
