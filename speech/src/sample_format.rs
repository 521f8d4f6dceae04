//! How samples are encoded: those of a file, and those that a caller describes because they have no header.

/// Which of several channels is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// The mean of all channels.
    #[default]
    Mix,
    /// One channel; the first (the left one) is 0.
    Index(usize),
}

/// The encoding of samples without a header, in the byte order of x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawEncoding {
    /// Unsigned integers of 8 bits; 128 is silence.
    U8,
    /// Signed integers of 16 bits.
    S16Le,
    /// Signed integers of 24 bits, in three bytes.
    S24Le,
    /// Signed integers of 32 bits.
    S32Le,
    /// Floats of 32 bits.
    F32Le,
    /// Floats of 64 bits.
    F64Le,
}

impl RawEncoding {
    /// The encoding with a name of ffmpeg's: u8, s16le, s24le, s32le, f32le or f64le.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "u8" => Self::U8,
            "s16le" => Self::S16Le,
            "s24le" => Self::S24Le,
            "s32le" => Self::S32Le,
            "f32le" => Self::F32Le,
            "f64le" => Self::F64Le,
            _ => return None,
        })
    }
}

/// A stream of samples without a header; samples of the same time are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFormat {
    /// The encoding of a sample.
    pub encoding: RawEncoding,
    /// Samples per second and channel.
    pub rate: u32,
    /// The number of channels.
    pub channels: u16,
}

/// The encoding of a sample; the lowest byte is first, except in those with `Be`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    /// 128 is silence.
    U8,
    I8,
    I16,
    I24,
    I32,
    F32,
    F64,
    I16Be,
    I24Be,
    I32Be,
    F32Be,
    F64Be,
    /// 8 bits of logarithms (ITU-T G.711).
    ALaw,
    MuLaw,
}

impl Sample {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::ALaw | Self::MuLaw => 1,
            Self::I16 | Self::I16Be => 2,
            Self::I24 | Self::I24Be => 3,
            Self::I32 | Self::F32 | Self::I32Be | Self::F32Be => 4,
            Self::F64 | Self::F64Be => 8,
        }
    }

    /// The value of a sample of [`Self::bytes`] bytes; integers are scaled to -1 to 1.
    pub(crate) fn value(self, bytes: &[u8]) -> f64 {
        let whole = |value: i32| f64::from(value) / 2_147_483_648.0;
        match (self, bytes) {
            (Self::U8, &[a]) => (f64::from(a) - 128.0) / 128.0,
            (Self::I8, &[a]) => f64::from(a as i8) / 128.0,
            (Self::ALaw, &[a]) => f64::from(a_law(a)) / 32_768.0,
            (Self::MuLaw, &[a]) => f64::from(mu_law(a)) / 32_768.0,
            (Self::I16, &[a, b]) => f64::from(i16::from_le_bytes([a, b])) / 32_768.0,
            (Self::I16Be, &[a, b]) => f64::from(i16::from_be_bytes([a, b])) / 32_768.0,
            (Self::I24, &[a, b, c]) => whole(i32::from_le_bytes([0, a, b, c])),
            (Self::I24Be, &[a, b, c]) => whole(i32::from_be_bytes([a, b, c, 0])),
            (Self::I32, &[a, b, c, d]) => whole(i32::from_le_bytes([a, b, c, d])),
            (Self::I32Be, &[a, b, c, d]) => whole(i32::from_be_bytes([a, b, c, d])),
            (Self::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
            (Self::F32Be, &[a, b, c, d]) => f64::from(f32::from_be_bytes([a, b, c, d])),
            (Self::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
            (Self::F64Be, &[a, b, c, d, e, f, g, h]) => {
                f64::from_be_bytes([a, b, c, d, e, f, g, h])
            }
            _ => f64::NAN,
        }
    }
}

/// A-law: a sign, three bits of exponent and four of mantissa, with every second bit inverted.
fn a_law(byte: u8) -> i16 {
    let byte = byte ^ 0x55;
    let mantissa = i16::from(byte & 0xf) << 4;
    let size = match (byte >> 4) & 7 {
        0 => mantissa + 8,
        exponent => (mantissa + 0x108) << (exponent - 1),
    };
    if byte & 0x80 != 0 { size } else { -size }
}

/// Mu-law: the same with all bits inverted and a bias of 132.
fn mu_law(byte: u8) -> i16 {
    let byte = !byte;
    let size = (((i16::from(byte & 0xf) << 3) + 132) << ((byte >> 4) & 7)) - 132;
    if byte & 0x80 != 0 { -size } else { size }
}

/// The content of a `fmt ` chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) sample: Sample,
    pub(crate) channels: usize,
    pub(crate) rate: u32,
}

impl Format {
    /// The bytes of one sample of every channel.
    pub(crate) fn block(&self) -> usize {
        self.sample.bytes() * self.channels
    }
}

impl From<RawEncoding> for Sample {
    fn from(encoding: RawEncoding) -> Self {
        match encoding {
            RawEncoding::U8 => Self::U8,
            RawEncoding::S16Le => Self::I16,
            RawEncoding::S24Le => Self::I24,
            RawEncoding::S32Le => Self::I32,
            RawEncoding::F32Le => Self::F32,
            RawEncoding::F64Le => Self::F64,
        }
    }
}
