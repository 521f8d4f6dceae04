//! Tables that vectors look up in one register, and that of the exponential.

/// Eight floats for [`SimdF32::lookup`](super::SimdF32::lookup). The widest vectors permute sixteen, so the eight are stored twice.
#[repr(align(64))]
pub(crate) struct Table([f32; 16]);

impl Table {
    pub(crate) const fn new(eight: [f32; 8]) -> Self {
        let mut twice = [0.0; 16];
        let mut i = 0;
        while i < 16 {
            twice[i] = eight[i % 8];
            i += 1;
        }
        Self(twice)
    }

    /// Where the sixteen floats begin.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *const f32 {
        self.0.as_ptr()
    }
}

/// The largest number whose exponential is 0: at the next float it is 2^-125.9375, a little above the smallest normal
/// f32.
pub(crate) const EXP_ZERO: f32 = f32::from_bits(0xc2ae_9622);

/// `2^(j / 8)` in the bits of f32, minus 1008 eighths of an exponent.
pub(crate) static POWERS: Table = {
    let eighths: [u32; 8] = [
        0x3f80_0000,
        0x3f8b_95c2,
        0x3f98_37f0,
        0x3fa5_fed7,
        0x3fb5_04f3,
        0x3fc5_672a,
        0x3fd7_44fd,
        0x3fea_c0c7,
    ];
    let mut powers = [0.0; 8];
    let mut j = 0;
    while j < 8 {
        // `t` has `j` in its lowest bits, which are added again at the place of the exponent's fraction.
        powers[j] = f32::from_bits(eighths[j].wrapping_sub((1008 + j as u32) << 20));
        j += 1;
    }
    Table::new(powers)
};
