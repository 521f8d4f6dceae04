//! Checks the setup header of a Vorbis stream: its codebooks decide how much memory a decoder takes, and a table that is not a
//! code, or two equal points of a floor, make `symphonia` 0.6 panic.
//!
//! Source: Vorbis I specification of 2020-07-04, sections 3.2.1, 4.2.4, 6.2.1 and 7.2.2.

use std::collections::HashSet;

/// The memory of all codebooks, in bytes. Those of `libvorbis` take up to 2 MB.
const MOST_BYTES: u64 = 6 << 20;
/// The bytes of a code in the tables of a decoder, at most: eight bits of a code are the index of a table of 256 entries, which
/// as few as nine codes may fill; shorter codes share one table.
const LONG_CODE: u64 = 300;
const SHORT_CODE: u64 = 32;
const SHORT: u32 = 8;
/// What a codebook begins with, and its longest code in bits.
const SYNC: u32 = 0x56_4342;
const LONGEST: u32 = 32;
/// Most books of a floor of type 0: an index of one bit more is read for 16.
const BOOKS: u32 = 15;

/// Bits from the least significant one of each byte on.
struct Bits<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Bits<'_> {
    fn read_bits(&mut self, count: u32) -> Result<u32, String> {
        let end = self.at + count as usize;
        if end > 8 * self.bytes.len() {
            return Err("the setup header ends too early".to_owned());
        }
        let mut value = 0;
        for i in 0..count {
            let (byte, bit) = (self.at / 8, self.at % 8);
            value |= u32::from(self.bytes[byte] >> bit & 1) << i;
            self.at += 1;
        }
        Ok(value)
    }

    fn skip(&mut self, count: u64) -> Result<(), String> {
        let at = self.at as u64 + count;
        if at > 8 * self.bytes.len() as u64 {
            return Err("the setup header ends too early".to_owned());
        }
        self.at = at as usize;
        Ok(())
    }
}

/// The number of bits of a number.
fn ilog(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

/// Checks a setup header, from its type on.
pub(super) fn check(header: &[u8]) -> Result<(), String> {
    let mut bits = Bits { bytes: header.strip_prefix(b"\x05vorbis").unwrap_or(header), at: 0 };
    let mut most = MOST_BYTES;
    for _ in 0..bits.read_bits(8)? + 1 {
        let bytes = check_codebook(&mut bits)?;
        most = most.checked_sub(bytes).ok_or_else(|| {
            format!("the codebooks: expected at most {MOST_BYTES} bytes of memory, found more")
        })?;
    }
    for _ in 0..bits.read_bits(6)? + 1 {
        bits.read_bits(16)?;
    }
    for _ in 0..bits.read_bits(6)? + 1 {
        match bits.read_bits(16)? {
            0 => check_floor_of_type_0(&mut bits)?,
            1 => check_floor_of_type_1(&mut bits)?,
            other => return Err(format!("a floor: expected type 0 or 1, found {other}")),
        }
    }
    Ok(())
}

/// Checks that the codes are a complete code, and returns the bytes that a decoder takes for them.
fn check_codebook(bits: &mut Bits<'_>) -> Result<u64, String> {
    let sync = bits.read_bits(24)?;
    if sync != SYNC {
        return Err(format!("a codebook: expected {SYNC:#x} at its beginning, found {sync:#x}"));
    }
    let (dimensions, entries) = (bits.read_bits(16)?, bits.read_bits(24)?);
    // Of 2^32: how many codes of the longest length the codes take up.
    let (mut space, mut used, mut longest) = (0_u64, 0_u64, 0);
    let mut take = |length: u32, count: u32| -> Result<(), String> {
        if length > LONGEST {
            return Err(format!("a code: expected at most {LONGEST} bits, found {length}"));
        }
        space = space.saturating_add(u64::from(count) << (LONGEST - length));
        used += u64::from(count);
        longest = longest.max(length);
        Ok(())
    };
    let mut single = false;
    if bits.read_bits(1)? == 0 {
        let sparse = bits.read_bits(1)? == 1;
        for _ in 0..entries {
            if !sparse || bits.read_bits(1)? == 1 {
                let length = bits.read_bits(5)? + 1;
                single = length == 1;
                take(length, 1)?;
            }
        }
    } else {
        let (mut at, mut length) = (0, bits.read_bits(5)? + 1);
        single = length == 1;
        while at < entries {
            let count = bits.read_bits(ilog(entries - at))?;
            if count > entries - at {
                return Err(format!("a codebook: expected {entries} codes, found more"));
            }
            if count > 0 {
                take(length, count)?;
            }
            at += count;
            length += 1;
        }
    }
    // One code of one bit is allowed, and so is none.
    if space != 1 << LONGEST && used != 0 && !(used == 1 && single) {
        return Err("a codebook: expected a complete code, found another one".to_owned());
    }
    let code = if longest > SHORT { LONG_CODE } else { SHORT_CODE };
    let mut bytes = code * used + 8 * u64::from(entries);
    let values = u64::from(dimensions) * u64::from(entries);
    match bits.read_bits(4)? {
        0 => (),
        kind @ (1 | 2) => {
            bits.skip(64)?;
            let width = bits.read_bits(4)? + 1;
            bits.read_bits(1)?;
            let count = if kind == 2 { values } else { root(entries, dimensions) };
            bits.skip(u64::from(width) * count)?;
            bytes += 4 * values + 4 * count;
        }
        other => return Err(format!("a codebook: expected values of type 0 to 2, found {other}")),
    }
    Ok(bytes)
}

/// The largest number whose power with this exponent is at most `entries`.
fn root(entries: u32, dimensions: u32) -> u64 {
    let entries = u64::from(entries);
    let fits = |root: u64| {
        let mut power = 1_u64;
        (0..dimensions).all(|_| {
            power = power.saturating_mul(root);
            power <= entries
        })
    };
    if dimensions == 0 || entries == 0 {
        return 0;
    }
    let (mut low, mut high) = (1, entries + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

fn check_floor_of_type_0(bits: &mut Bits<'_>) -> Result<(), String> {
    bits.skip(8 + 16)?;
    if bits.read_bits(16)? == 0 {
        return Err("a floor of type 0: expected a map, found one of no size".to_owned());
    }
    bits.skip(6 + 8)?;
    let books = bits.read_bits(4)? + 1;
    if books > BOOKS {
        return Err(format!("a floor of type 0: expected at most {BOOKS} books, found {books}"));
    }
    bits.skip(8 * u64::from(books))
}

/// Checks that the points of the curve differ: `symphonia` 0.6.1 divides by their distance, and does not compare them with the
/// first point, 0.
fn check_floor_of_type_1(bits: &mut Bits<'_>) -> Result<(), String> {
    let mut partitions = Vec::new();
    for _ in 0..bits.read_bits(5)? {
        partitions.push(bits.read_bits(4)? as usize);
    }
    let classes = partitions.iter().max().map_or(0, |&most| most + 1);
    let mut dimensions = Vec::new();
    for _ in 0..classes {
        dimensions.push(bits.read_bits(3)? + 1);
        let subclasses = bits.read_bits(2)?;
        bits.skip(if subclasses > 0 { 8 } else { 0 })?;
        bits.skip(8 << subclasses)?;
    }
    bits.skip(2)?;
    let range = bits.read_bits(4)?;
    let mut points = HashSet::from([0, 1 << range]);
    for _ in 0..partitions.iter().map(|&class| dimensions[class]).sum() {
        let point = bits.read_bits(range)?;
        if !points.insert(point) {
            return Err(format!(
                "a floor of type 1: expected points that differ, found {point} twice"
            ));
        }
    }
    Ok(())
}
