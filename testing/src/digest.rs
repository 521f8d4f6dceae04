//! One number for many values. Equal values, bit for bit, have equal digests.

/// FNV-1a over words (Fowler, Noll and Vo 1991).
#[derive(Clone, Copy)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub fn word(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub fn floats(&mut self, floats: &[f32]) {
        for x in floats {
            // The payload of a NaN is not guaranteed.
            self.word(if x.is_nan() { 0x7fc0_0000 } else { x.to_bits().into() });
        }
    }
}
