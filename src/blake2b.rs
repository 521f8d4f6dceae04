//! BLAKE2b with 32 bytes of output, the hash of fingerprints.

/// The first 64 bits of the fractional parts of the square roots of the first eight primes.
const IV: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// The order of the message words in each round; rounds 10 and 11 are rounds 0 and 1.
const SIGMA: [[usize; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

const ROUNDS: usize = 12;

/// Bytes of a block.
const BLOCK: usize = 128;

/// Bytes of the result.
pub(crate) const BYTES: usize = 32;

/// BLAKE2b-256 without a key (RFC 7693): a cryptographic hash that needs no SIMD instructions to hash about a gigabyte
/// in a second.
#[derive(Clone, Debug)]
pub(crate) struct Blake2b {
    state: [u64; 8],
    /// Bytes that were compressed.
    compressed: u128,
    /// The last bytes. The last block is compressed in another way, so a full block stays here until more bytes come.
    pending: [u8; BLOCK],
    filled: usize,
}

impl Blake2b {
    pub(crate) fn new() -> Self {
        let mut state = IV;
        // The parameter block: the length of the result, no key, sequential mode.
        state[0] ^= 0x0101_0000 ^ BYTES as u64;
        Self { state, compressed: 0, pending: [0; BLOCK], filled: 0 }
    }

    /// Adds bytes. The result does not depend on how they are divided into pieces.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        if self.filled > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.pending[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if bytes.is_empty() {
                return;
            }
            let block = self.pending;
            self.compress(&block, BLOCK, false);
            self.filled = 0;
        }
        let (blocks, rest) = bytes.as_chunks();
        // The last block is kept, even if it is full.
        let whole = blocks.len() - usize::from(rest.is_empty() && !blocks.is_empty());
        for block in &blocks[..whole] {
            self.compress(block, BLOCK, false);
        }
        let kept = &bytes[whole * BLOCK..];
        self.pending[..kept.len()].copy_from_slice(kept);
        self.filled = kept.len();
    }

    /// The hash of all bytes.
    pub(crate) fn finish(mut self) -> [u8; BYTES] {
        let mut block = self.pending;
        block[self.filled..].fill(0);
        self.compress(&block, self.filled, true);
        let mut hash = [0; BYTES];
        for (bytes, word) in hash.chunks_exact_mut(size_of::<u64>()).zip(self.state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hash
    }

    /// Mixes a block, of which `filled` bytes belong to the message, into the state.
    fn compress(&mut self, block: &[u8; BLOCK], filled: usize, last: bool) {
        self.compressed += filled as u128;
        let (words, _) = block.as_chunks();
        let message: [u64; 16] = core::array::from_fn(|index| u64::from_le_bytes(words[index]));
        let mut v = [0; 16];
        v[..8].copy_from_slice(&self.state);
        v[8..].copy_from_slice(&IV);
        v[12] ^= self.compressed as u64;
        v[13] ^= (self.compressed >> 64) as u64;
        if last {
            v[14] = !v[14];
        }
        for round in 0..ROUNDS {
            let order = &SIGMA[round % SIGMA.len()];
            let m = |index: usize| message[order[index]];
            mix(&mut v, [0, 4, 8, 12], m(0), m(1));
            mix(&mut v, [1, 5, 9, 13], m(2), m(3));
            mix(&mut v, [2, 6, 10, 14], m(4), m(5));
            mix(&mut v, [3, 7, 11, 15], m(6), m(7));
            mix(&mut v, [0, 5, 10, 15], m(8), m(9));
            mix(&mut v, [1, 6, 11, 12], m(10), m(11));
            mix(&mut v, [2, 7, 8, 13], m(12), m(13));
            mix(&mut v, [3, 4, 9, 14], m(14), m(15));
        }
        for (index, word) in self.state.iter_mut().enumerate() {
            *word ^= v[index] ^ v[index + 8];
        }
    }
}

/// The function G of the RFC.
#[inline(always)]
fn mix(v: &mut [u64; 16], [a, b, c, d]: [usize; 4], x: u64, y: u64) {
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(x);
    v[d] = (v[d] ^ v[a]).rotate_right(32);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(24);
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(y);
    v[d] = (v[d] ^ v[a]).rotate_right(16);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(63);
}

#[cfg(test)]
mod tests {
    use super::Blake2b;

    fn hash(bytes: &[u8], piece: usize) -> String {
        let mut hash = Blake2b::new();
        bytes.chunks(piece).for_each(|piece| hash.update(piece));
        hash.finish().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Computed with `hashlib.blake2b(data, digest_size=32)` of Python; `data` is bytes 0, 1, 2, ... modulo 251.
    #[test]
    fn the_reference_gives_the_same_hashes() {
        for (len, expected) in [
            (0, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"),
            (1, "03170a2e7597b7b7e3d84c05391d139a62b157e78786d8c082f29dcf4c111314"),
            (127, "f2fe67ff342e21b8f45e8f2e0bcd1d9243245d50ee6c78042e9c491388791c72"),
            (128, "c3582f71ebb2be66fa5dd750f80baae97554f3b015663c8be377cfcb2488c1d1"),
            (129, "f7f3c46ba2564ff4c4c162da1f5b605f9f1c4aa6a20652a9f9a337c1a2f5b9c9"),
            (256, "582f782226018ec33076bd8d1c42413530ac7e1126260ffc0f306ba3befc3f24"),
            (1000, "b372d0608f720c8c3dd41e9c8eecb10143b41abe520b616607e754bf79c08331"),
        ] {
            let data: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
            for piece in [1, 7, 64, 127, 128, 129, 1000] {
                assert_eq!(hash(&data, piece), expected, "{len} bytes in pieces of {piece}");
            }
        }
        let expected = "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319";
        assert_eq!(hash(b"abc", 3), expected);
    }
}
