//! Vectors in fewer bits, as `quantize_embeddings` of sentence-transformers 5.7 makes them.

use crate::error::Error;

/// The form of the numbers of a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32, as computed.
    #[default]
    F32,
    /// One of 256 steps from the least to the greatest value of the dimension, minus 128.
    Int8,
    /// The same from 0 to 255.
    Uint8,
    /// A bit for each dimension, 1 if its number is above 0. Eight of them are a byte, the first in the highest bit, the
    /// last byte filled up with zeros; minus 128.
    Binary,
    /// The same bytes as they are.
    Ubinary,
}

/// A vector in some [`Precision`].
#[derive(Clone, Debug, PartialEq)]
pub enum Quantized {
    /// [`Precision::F32`].
    F32(Vec<f32>),
    /// [`Precision::Int8`], [`Precision::Binary`].
    I8(Vec<i8>),
    /// [`Precision::Uint8`], [`Precision::Ubinary`].
    U8(Vec<u8>),
}

impl Precision {
    /// Every precision.
    pub const ALL: [Self; 5] = [Self::F32, Self::Int8, Self::Uint8, Self::Binary, Self::Ubinary];

    /// The name: `f32`, `int8`, `uint8`, `binary` or `ubinary`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Binary => "binary",
            Self::Ubinary => "ubinary",
        }
    }

    /// The precision of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.name() == name)
    }

    /// Whether the codes depend on the range of each dimension.
    #[must_use]
    pub const fn needs_ranges(self) -> bool {
        matches!(self, Self::Int8 | Self::Uint8)
    }

    /// The length of the code of a vector of `dims` dimensions.
    #[must_use]
    pub const fn width(self, dims: usize) -> usize {
        match self {
            Self::Binary | Self::Ubinary => dims.div_ceil(8),
            _ => dims,
        }
    }

    /// The code of a vector, of length [`Precision::width`].
    ///
    /// ```
    /// use simdformer_text::embedder::{Precision, Quantized, Ranges};
    ///
    /// let vectors = [[0.0, -1.0], [0.5, 0.25], [1.0, 3.0]];
    /// let ranges = Ranges::from_vectors(vectors.iter().map(|vector| &vector[..]))?;
    /// let int8 = Precision::Int8.apply(vectors[1].to_vec(), ranges.as_ref())?;
    /// assert_eq!(int8, Quantized::I8(vec![-1, -49]));
    /// let bits = Precision::Ubinary.apply(vectors[1].to_vec(), None)?;
    /// assert_eq!(bits, Quantized::U8(vec![0b1100_0000]));
    /// # Ok::<(), simdformer_text::Error>(())
    /// ```
    ///
    /// # Errors
    /// The precision needs ranges and there are none; the ranges have another width.
    pub fn apply(self, vector: Vec<f32>, ranges: Option<&Ranges>) -> Result<Quantized, Error> {
        let steps = || ranges.ok_or_else(no_ranges)?.steps(&vector);
        Ok(match self {
            Self::F32 => Quantized::F32(vector),
            Self::Int8 => Quantized::I8(steps()?.map(below_128).collect()),
            Self::Uint8 => Quantized::U8(steps()?.collect()),
            Self::Binary => Quantized::I8(bits(&vector).map(below_128).collect()),
            Self::Ubinary => Quantized::U8(bits(&vector).collect()),
        })
    }
}

/// `byte - 128`, as a signed byte.
fn below_128(byte: u8) -> i8 {
    byte.wrapping_sub(128).cast_signed()
}

/// A bit for each number that is above 0, eight in a byte.
fn bits(vector: &[f32]) -> impl Iterator<Item = u8> + '_ {
    let byte = |eight: &[f32]| {
        let bit = |(i, &x): (usize, &f32)| u8::from(x > 0.0) << (7 - i);
        eight.iter().enumerate().map(bit).sum::<u8>()
    };
    vector.chunks(8).map(byte)
}

/// The least and the greatest value of each dimension, which codes of 8 bits divide into 256 steps. Texts and queries
/// that are compared need the same ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranges {
    least: Vec<f32>,
    most: Vec<f32>,
}

impl Ranges {
    /// The ranges from `least` to `most`, each of the width of the vectors.
    ///
    /// # Errors
    /// The widths differ; a number is not finite; a least value is above the greatest.
    pub fn new(least: Vec<f32>, most: Vec<f32>) -> Result<Self, Error> {
        let (expected, found) = (least.len(), most.len());
        if expected != found {
            return Err(other_width(expected, found));
        }
        for (dimension, (&least, &most)) in least.iter().zip(&most).enumerate() {
            if !(least.is_finite() && most.is_finite() && least <= most) {
                return Err(no_range(dimension, [least, most]));
            }
        }
        Ok(Self { least, most })
    }

    /// The ranges of these vectors; `None` if there are none.
    ///
    /// # Errors
    /// As [`Ranges::include`].
    pub fn from_vectors<'v>(
        vectors: impl IntoIterator<Item = &'v [f32]>,
    ) -> Result<Option<Self>, Error> {
        let mut ranges: Option<Self> = None;
        for vector in vectors {
            match &mut ranges {
                Some(ranges) => ranges.include(vector)?,
                None => ranges = Some(Self::new(vector.to_vec(), vector.to_vec())?),
            }
        }
        Ok(ranges)
    }

    /// Extends the ranges to one more vector.
    ///
    /// # Errors
    /// The vector has another width, or a number that is not finite.
    pub fn include(&mut self, vector: &[f32]) -> Result<(), Error> {
        self.same_width(vector)?;
        for (dimension, &x) in vector.iter().enumerate() {
            if !x.is_finite() {
                return Err(no_range(dimension, [x, x]));
            }
            self.least[dimension] = self.least[dimension].min(x);
            self.most[dimension] = self.most[dimension].max(x);
        }
        Ok(())
    }

    /// The least value of each dimension.
    #[must_use]
    pub fn least(&self) -> &[f32] {
        &self.least
    }

    /// The greatest value of each dimension.
    #[must_use]
    pub fn most(&self) -> &[f32] {
        &self.most
    }

    fn same_width(&self, vector: &[f32]) -> Result<(), Error> {
        let (expected, found) = (self.least.len(), vector.len());
        if expected == found { Ok(()) } else { Err(other_width(expected, found)) }
    }

    /// The step of each number in its range, from 0 to 255. In f32, in the order of operations of NumPy.
    fn steps<'s>(&'s self, vector: &'s [f32]) -> Result<impl Iterator<Item = u8> + 's, Error> {
        self.same_width(vector)?;
        let step = |(&x, (&least, &most)): (&f32, (&f32, &f32))| {
            let size = (most - least) / 255.0;
            let size = if size == 0.0 { 1.0 } else { size };
            ((x - least) / size).floor().clamp(0.0, 255.0) as u8
        };
        Ok(vector.iter().zip(self.least.iter().zip(&self.most)).map(step))
    }
}

/// Why a vector has no code, or ranges are none.
fn no_ranges() -> Error {
    let expected = "the range of each dimension, which int8 and uint8 need";
    Error::invalid_input("ranges", expected, "none")
}

fn other_width(expected: usize, found: usize) -> Error {
    Error::invalid_input("ranges", format!("{expected} dimensions"), found)
}

fn no_range(dimension: usize, [least, most]: [f32; 2]) -> Error {
    let expected = format!("a range in dimension {dimension}");
    Error::invalid_input("ranges", expected, format_args!("{least} to {most}"))
}
