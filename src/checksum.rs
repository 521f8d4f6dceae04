//! A checksum of bytes that is several times as fast as reading a file.

/// Independent states. The CPU multiplies for all of them in parallel; with one state, each product would wait for the
/// product before it.
const LANES: usize = 8;

/// Bytes of one word for each lane.
const BLOCK: usize = LANES * size_of::<u64>();

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// Odd, so that the product modulo 2^64 is invertible.
const FACTOR: u64 = 0xBF58_476D_1CE4_E5B9;

/// A 64-bit checksum against accidental damage: broken disks, truncated transfers, blocks in the wrong order. It does
/// not protect against manipulation.
///
/// The bytes, padded with zeros to a multiple of 64, are read as little-endian 64-bit words. [`step`] mixes word `i`
/// into lane `i % 8`. A step is a bijection of the lane for each word, and of the word for each lane.
/// [`Checksum::value`] has the same property for each lane. Bytes that differ within one word therefore always have
/// different checksums. Other damage leaves the checksum unchanged about once in 2^64 times.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    lanes: [u64; LANES],
    bytes: u64,
    /// The last bytes that do not fill a block.
    pending: Vec<u8>,
}

impl Checksum {
    pub(crate) fn new() -> Self {
        let lanes = core::array::from_fn(|lane| SEED.wrapping_mul(lane as u64 + 1));
        Self { lanes, bytes: 0, pending: Vec::new() }
    }

    /// Adds bytes. The result does not depend on how they are divided into pieces; pieces of a multiple of 64 bytes are
    /// not copied.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
        if !self.pending.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.pending.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
            if let Some(&block) = self.pending.first_chunk() {
                self.blocks(&[block]);
                self.pending.clear();
            }
        }
        let (blocks, rest) = bytes.as_chunks();
        self.blocks(blocks);
        self.pending.extend_from_slice(rest);
    }

    fn blocks(&mut self, blocks: &[[u8; BLOCK]]) {
        // A local copy, so that the lanes stay in registers.
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
        if !self.pending.is_empty() {
            self.update(&[0; BLOCK][self.pending.len()..]);
        }
        step(self.lanes.into_iter().fold(step(SEED, bytes), step), 0)
    }

    /// The checksum of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut checksum = Self::new();
        checksum.update(bytes);
        checksum.value()
    }
}

#[inline(always)]
fn step(state: u64, word: u64) -> u64 {
    let mixed = state ^ word;
    // A multiplication moves bits only upward. The upper half is first mixed into the lower half; the rotation then
    // moves upper bits of the product down.
    (mixed ^ mixed >> 32).wrapping_mul(FACTOR).rotate_left(23)
}

#[cfg(test)]
mod tests {
    use super::Checksum;
    use std::collections::HashSet;

    /// Pseudo-random bytes that depend only on the length.
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

    /// Order and length change the checksum, also for equal or zero bytes.
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
        // The empty input is in both lists.
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

    /// The checksums must not change, because they are stored in files.
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
