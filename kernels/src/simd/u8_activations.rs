//! How int8 activations are stored, and the offset of those that are stored as u8.
//!
//! The dot products of x86-64 multiply u8 by i8. There an activation is stored as itself plus [`U8_OFFSET`], and the sums of
//! a column of weights start at `-U8_OFFSET` times the sum of its values, which subtracts what the offset adds.

/// What is added to an 8-bit activation that is stored as u8.
pub(crate) const U8_OFFSET: i32 = 128;

/// How activations are stored, in words of four consecutive elements.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each architecture has some of them")]
pub(crate) enum ActivationEncoding {
    /// 8-bit elements plus [`U8_OFFSET`]. 16-bit elements plus 256 times that, as a high and a low byte.
    Unsigned,
    /// 8-bit elements, signed. 16-bit elements as `256 * high + low`.
    Signed,
    /// 16-bit elements: a word with the first and the third, then a word with the second and the fourth.
    Pairs,
}
