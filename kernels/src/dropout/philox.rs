//! Philox4x32-10, for single blocks and for many blocks at once.

/// The factors of the two products in a round.
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// The increments of the key words in each round: the golden ratio, and the square root of 3 minus 1.
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// Blocks that [`Philox::blocks`] computes in parallel; the number of blocks is a multiple of it.
pub(super) const GROUP: usize = 16;

/// Philox4x32-10: a function from a 64-bit key and a 128-bit counter to 128 pseudorandom bits.
///
/// ```
/// use simdformer_kernels::train::Philox;
///
/// // A known answer of Random123, the reference implementation.
/// let block = Philox::new(0).block([0; 4]);
/// assert_eq!(block, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
}

impl Philox {
    /// Makes the key from `seed`, its low half first.
    pub const fn new(seed: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32] }
    }

    /// Uses the first two words of the block at `counter` as the key: an independent function for each purpose.
    pub const fn branch(self, counter: [u32; 4]) -> Self {
        let [low, high, ..] = self.block(counter);
        Self { key: [low, high] }
    }

    /// The block at `counter`.
    pub const fn block(self, counter: [u32; 4]) -> [u32; 4] {
        let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, self.key);
        let mut round = 0;
        while round < ROUNDS {
            let p0 = MULTIPLIERS[0] as u64 * c0 as u64;
            let p1 = MULTIPLIERS[1] as u64 * c2 as u64;
            (c0, c1, c2, c3) =
                ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
            k0 = k0.wrapping_add(WEYL[0]);
            k1 = k1.wrapping_add(WEYL[1]);
            round += 1;
        }
        [c0, c1, c2, c3]
    }

    /// Computes `out.len()` blocks, starting with the one at `[first, first >> 32, word, 0]`, each as two halves of
    /// two words; the lower word of each half is first in memory.
    ///
    /// A word is stored in 64 bits, whose upper half may contain anything: only products use the word, and they read
    /// only the lower half. Every instruction set can multiply vectors of 32-bit words that are 64 bits apart.
    #[inline(always)]
    pub(super) fn blocks(self, first: u64, word: u32, out: &mut [[u64; 2]]) {
        // Whole groups; the blocks of a group go through the rounds in parallel.
        let (groups, _) = out.as_chunks_mut::<GROUP>();
        for (group, out) in groups.iter_mut().enumerate() {
            let (mut low, mut high) = ([0u64; GROUP], [0u64; GROUP]);
            for i in 0..GROUP {
                let at = first.wrapping_add((group * GROUP + i) as u64);
                (low[i], high[i]) = (at, at >> 32);
            }
            self.group(low, high, [word, 0], out);
        }
    }

    /// Computes the blocks at `[c0[i], c1[i], rest[0], rest[1]]`, in the format of [`Philox::blocks`].
    #[inline(always)]
    pub(super) fn group(
        self,
        mut c0: [u64; GROUP],
        mut c1: [u64; GROUP],
        rest: [u32; 2],
        out: &mut [[u64; 2]; GROUP],
    ) {
        const LOW: u64 = 0xffff_ffff;
        let [m0, m1] = MULTIPLIERS.map(u64::from);
        let (mut c2, mut c3) = ([u64::from(rest[0]); GROUP], [u64::from(rest[1]); GROUP]);
        let [mut k0, mut k1] = self.key;
        for _ in 0..ROUNDS {
            let (key0, key1) = (u64::from(k0), u64::from(k1));
            for i in 0..GROUP {
                let (p0, p1) = ((c0[i] & LOW) * m0, (c2[i] & LOW) * m1);
                (c0[i], c1[i]) = ((p1 >> 32) ^ c1[i] ^ key0, p1);
                (c2[i], c3[i]) = ((p0 >> 32) ^ c3[i] ^ key1, p0);
            }
            k0 = k0.wrapping_add(WEYL[0]);
            k1 = k1.wrapping_add(WEYL[1]);
        }
        for i in 0..GROUP {
            let low = (c0[i] & LOW) | (c1[i] << 32);
            let high = (c2[i] & LOW) | (c3[i] << 32);
            out[i] = [low.to_le(), high.to_le()];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_blocks_are_those_of_one_at_a_time() {
        let philox = Philox::new(0x0123_4567_89ab_cdef);
        for first in [0u64, 5, 0xffff_ffe0, 0xffff_ffff_ffff_fff0] {
            let mut blocks = [[0; 2]; 4 * GROUP];
            philox.blocks(first, 77, &mut blocks);
            for (i, found) in blocks.iter().enumerate() {
                let at = first.wrapping_add(i as u64);
                let [a, b, c, d] = philox.block([at as u32, (at >> 32) as u32, 77, 0]);
                let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
                assert_eq!(found.map(u64::from_le), [pair(a, b), pair(c, d)]);
            }
        }
    }
}
