//! FNV-1a with 64 bits: the checksum of journals and inputs, which every release must compute alike.
//!
//! Each step is a bijection of the state, so a change of one byte always changes the result.

/// The checksum of the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checksum(u64);

impl Checksum {
    pub(super) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}

impl From<u64> for Checksum {
    fn from(value: u64) -> Self {
        Self(value)
    }
}
