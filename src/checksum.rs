//! A checksum of bytes that is several times as fast as reading a file.

/// Independent states. A CPU multiplies for all of them at the same time; one alone would wait for each product.
const LANES: usize = 8;

/// Bytes that go through all lanes once.
const BLOCK: usize = LANES * size_of::<u64>();

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// Odd, so that a product modulo 2^64 can be undone.
const FACTOR: u64 = 0xBF58_476D_1CE4_E5B9;

/// A checksum of 64 bits against accidents: damaged disks, transfers that were cut, blocks in the wrong order. Anybody can
/// write a file with the right checksum.
///
/// The bytes, with zeros after the last up to a multiple of 64, are little-endian words of 64 bits, and [`step`] takes word
/// `i` into lane `i % 8`. A step is a bijection of the lane for each word and of the word for each lane, and so is what
/// [`Checksum::value`] does with each lane. Thus bytes that differ within one word always have different checksums.
/// Other damage leaves the checksum as it was once in about 2^64 times.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    lanes: [u64; LANES],
    bytes: u64,
    /// Bytes at the end that do not fill a block.
    waiting: Vec<u8>,
}

impl Checksum {
    pub(crate) fn new() -> Self {
        let lanes = core::array::from_fn(|lane| SEED.wrapping_mul(lane as u64 + 1));
        Self { lanes, bytes: 0, waiting: Vec::new() }
    }

    /// Adds bytes. Where they are cut into pieces does not matter; pieces of a multiple of 64 bytes are not copied.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
        if !self.waiting.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            bytes = later;
            if let Some(&block) = self.waiting.first_chunk() {
                self.blocks(&[block]);
                self.waiting.clear();
            }
        }
        let (blocks, rest) = bytes.as_chunks();
        self.blocks(blocks);
        self.waiting.extend_from_slice(rest);
    }

    fn blocks(&mut self, blocks: &[[u8; BLOCK]]) {
        // In registers.
        let mut lanes = self.lanes;
        for block in blocks {
            let (words, _) = block.as_chunks();
            for (lane, &word) in lanes.iter_mut().zip(words) {
                *lane = step(*lane, u64::from_le_bytes(word));
            }
        }
        self.lanes = lanes;
    }

    /// The checksum of all bytes.
    pub(crate) fn value(mut self) -> u64 {
        let bytes = self.bytes;
        if !self.waiting.is_empty() {
            self.update(&[0; BLOCK][self.waiting.len()..]);
        }
        step(self.lanes.into_iter().fold(step(SEED, bytes), step), 0)
    }

    /// The checksum of some bytes.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut checksum = Self::new();
        checksum.update(bytes);
        checksum.value()
    }
}

#[inline(always)]
fn step(state: u64, word: u64) -> u64 {
    let mixed = state ^ word;
    // A product carries upward only: the upper half goes into the lower one first, and comes back below.
    (mixed ^ mixed >> 32).wrapping_mul(FACTOR).rotate_left(23)
}

#[cfg(test)]
mod tests {
    use super::Checksum;
    use std::collections::HashSet;

    /// Bytes that look random, the same for the same length.
    fn bytes(len: usize) -> Vec<u8> {
        let mut state = len as u64 | 1;
        let mut next = || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn every_bit_counts() {
        for len in [1, 7, 8, 63, 64, 65, 200, 640] {
            let mut data = bytes(len);
            let mut seen = HashSet::from([Checksum::of(&data)]);
            for bit in 0..8 * len {
                data[bit / 8] ^= 1 << (bit % 8);
                assert!(seen.insert(Checksum::of(&data)), "bit {bit} of {len} bytes");
                data[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// Also where bytes are the same, or zero: order and length count.
    #[test]
    fn order_and_length_count() {
        let data = bytes(4096);
        for size in [1, 4, 8, 64, 512] {
            let right = Checksum::of(&data);
            for (a, b) in [(0, 1), (1, 2), (0, 3), (2, 7)] {
                let mut swapped = data.clone();
                swapped[a * size..(a + 1) * size].copy_from_slice(&data[b * size..(b + 1) * size]);
                swapped[b * size..(b + 1) * size].copy_from_slice(&data[a * size..(a + 1) * size]);
                let same = swapped == data;
                assert_eq!(Checksum::of(&swapped) == right, same, "{size} bytes at {a} and {b}");
            }
        }
        let lengths =
            (0..600).flat_map(|len| [Checksum::of(&data[..len]), Checksum::of(&vec![0; len])]);
        let different: HashSet<u64> = lengths.collect();
        // Nothing at all is in both lists.
        assert_eq!(different.len(), 1199);
    }

    #[test]
    fn pieces_do_not_matter() {
        let data = bytes(1000);
        for piece in [1, 3, 8, 63, 64, 65, 128, 999] {
            let mut checksum = Checksum::new();
            data.chunks(piece).for_each(|piece| checksum.update(piece));
            assert_eq!(checksum.value(), Checksum::of(&data), "pieces of {piece}");
        }
    }

    /// A file that was written yesterday is read tomorrow.
    #[test]
    fn the_values_are_part_of_the_format() {
        for (data, expected) in [
            (&b""[..], 0x26bf_eeff_eba4_ea09),
            (b"simdformer", 0x3e3e_494b_df46_8710),
            (&[0; 64], 0x46ed_d7b0_dbd8_9106),
        ] {
            assert_eq!(Checksum::of(data), expected, "{data:?}: {:#018x}", Checksum::of(data));
        }
    }
}
