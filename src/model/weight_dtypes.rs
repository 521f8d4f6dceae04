//! The dtypes of the matrices of a model, selected by name and by layer.

use crate::error::Error;
use crate::network::TensorId;
use crate::printable_text::quoted;
use core::fmt;
use core::str::FromStr;
use simdformer_kernels::{Dtype, Error as KernelError, Quantization};

/// The dtype in which the matrix of a linear map is stored and multiplied.
///
/// | name | value | bytes per weight | products |
/// |---|---|---|---|
/// | `f32` | `Float(Dtype::F32)` | 4 | f32 |
/// | `bf16`, `f16` | `Float(Dtype::Bf16)`, `Float(Dtype::F16)` | 2 | f32, of the widened weights: bit-identical if the checkpoint has this dtype |
/// | `int8`, `w8a8` | `Quantized(Quantization::W8A8)` | 1 | int8, activations quantized to 8 bits: exact sums of the quantized numbers |
/// | `int8x16`, `w8a16` | `Quantized(Quantization::W8A16)` | 1 | int8, activations quantized to 16 bits: about twice the work |
///
/// `int8x16` loses precision only in the weights. If all attention matrices of the decoder are `int8`, the KV
/// cache is [stored in f16](crate::Limits::cache).
///
/// `int8` and `int8x16` have one scale per column of weights and one per row of activations. A sentence
/// therefore gets the same bits alone, in any batch and on any number of threads, in every dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightDtype {
    /// Floats; other numbers are rounded to the nearest. In f16 the magnitude of every weight is at most 65,504.
    Float(Dtype),
    /// int8 with a scale for each column.
    Quantized(Quantization),
}

impl WeightDtype {
    /// All dtypes, the largest first.
    pub const ALL: [Self; 5] = [
        Self::Float(Dtype::F32),
        Self::Float(Dtype::Bf16),
        Self::Float(Dtype::F16),
        Self::Quantized(Quantization::W8A16),
        Self::Quantized(Quantization::W8A8),
    ];

    /// The name: `f32`, `bf16`, `f16`, `int8`, `int8x16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float(dtype) => dtype.name(),
            Self::Quantized(Quantization::W8A8) => "int8",
            Self::Quantized(_) => "int8x16",
        }
    }

    /// Whether the weights are stored as int8.
    pub(crate) const fn is_int8(self) -> bool {
        matches!(self, Self::Quantized(_))
    }
}

impl From<Dtype> for WeightDtype {
    fn from(dtype: Dtype) -> Self {
        Self::Float(dtype)
    }
}

impl From<Quantization> for WeightDtype {
    fn from(quantization: Quantization) -> Self {
        Self::Quantized(quantization)
    }
}

impl fmt::Display for WeightDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WeightDtype {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = match name {
            "w8a8" => "int8",
            "w8a16" => "int8x16",
            name => name,
        };
        let dtype = Self::ALL.into_iter().find(|dtype| dtype.name() == known);
        dtype.ok_or_else(|| {
            let names = Self::ALL.map(|dtype| dtype.to_string()).join(", ");
            Error::invalid_option(DTYPE, format!("{STORED}, {names}"), shown(name))
        })
    }
}

/// The [`WeightDtype`] of each matrix of a model; all other tensors are f32.
///
/// The default uses the dtypes of the checkpoint: 16-bit weights stay 16-bit, which changes no bit of any
/// result.
///
/// The text form is a dtype followed by exceptions: `int8,decoder.layers.*.feed_forward.outer=int8x16`. An
/// exception applies to the matrices whose [`TensorId`] begins with its path; `*` stands for any one part of
/// the path. If several exceptions match a matrix, the last one applies. Query, key and value of a
/// self-attention block are one matrix, and so are key and value of cross-attention: they have one dtype.
///
/// `attention=int8` is not an exception for a matrix: the self-attention of the encoder, which multiplies no weights, is
/// computed [with int8 products](simdformer_kernels::AttentionPrecision::Int8). It needs an encoder without relative positions.
///
/// With `int8` and `int8x16` the output matrix, from the model to the vocabulary, keeps the dtype of the
/// checkpoint unless an exception names it. Greedy search finds the largest logit [from an int8
/// table](simdformer_kernels::pruned_argmax) anyway, and exactly. If each step needs all logits, as in beam
/// search, `int8,output=int8` is faster and less exact.
///
/// ```
/// use simdformer::{Quantization, WeightDtypes};
///
/// let dtypes: WeightDtypes = "int8,output=int8,encoder.layers.0=int8x16".parse()?;
/// assert_eq!(dtypes, WeightDtypes::all(Quantization::W8A8)
///     .with("output", Quantization::W8A8)?
///     .with("encoder.layers.0", Quantization::W8A16)?);
/// assert_eq!(dtypes.to_string(), "int8,output=int8,encoder.layers.0=int8x16");
/// assert!("int4".parse::<WeightDtypes>().is_err());
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightDtypes {
    /// The dtype of all matrices; `None` for that of the checkpoint.
    all: Option<WeightDtype>,
    exceptions: Vec<Exception>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Exception {
    path: String,
    dtype: WeightDtype,
}

impl WeightDtypes {
    /// The dtypes of the checkpoint.
    pub fn as_stored() -> Self {
        Self::default()
    }

    /// The same dtype for all matrices, except the output with `int8` and `int8x16`.
    pub fn all(dtype: impl Into<WeightDtype>) -> Self {
        Self { all: Some(dtype.into()), exceptions: Vec::new() }
    }

    /// Adds an exception for the matrices whose role begins with `path`. The path `attention` sets how the self-attention of
    /// the encoder is computed: in f32 or int8.
    ///
    /// # Errors
    /// The path is [empty, or contains a character](Error::InvalidOption) that separates exceptions; the dtype of `attention`
    /// is [neither f32 nor int8](Error::InvalidOption).
    pub fn with(mut self, path: &str, dtype: impl Into<WeightDtype>) -> Result<Self, Error> {
        let separates = |sign: char| matches!(sign, ',' | '=') || sign.is_whitespace();
        if path.split('.').any(str::is_empty) || path.contains(separates) {
            return Err(invalid_exception(path));
        }
        let dtype = dtype.into();
        if path == ATTENTION && ![FLOAT_ATTENTION, INT8_ATTENTION].contains(&dtype) {
            let found = format!("{ATTENTION}={dtype}");
            return Err(Error::invalid_option(DTYPE, "attention=f32 or attention=int8", found));
        }
        self.exceptions.push(Exception { path: path.to_owned(), dtype });
        Ok(self)
    }

    /// Whether the self-attention of the encoder has int8 products.
    pub(crate) fn int8_attention(&self) -> bool {
        let last = self.exceptions.iter().rev().find(|exception| exception.path == ATTENTION);
        last.is_some_and(|exception| exception.dtype == INT8_ATTENTION)
    }

    /// The table of weights that are packed in these dtypes, for a caller who asks for `wanted`: attention is no property of
    /// packed weights, so it is as in `wanted`, unless `wanted` is the default. `None` if `wanted` has other dtypes of
    /// matrices.
    pub(crate) fn with_attention_of(&self, wanted: &Self) -> Option<Self> {
        if *wanted == Self::as_stored() {
            return Some(self.clone());
        }
        let (mut own, asked) = (self.of_matrices(), wanted.of_matrices());
        if asked != Self::as_stored() && asked != own {
            return None;
        }
        if wanted.int8_attention() {
            own.exceptions.push(Exception { path: ATTENTION.to_owned(), dtype: INT8_ATTENTION });
        }
        Some(own)
    }

    /// The table without what it says of attention.
    fn of_matrices(&self) -> Self {
        let exceptions = self.exceptions.iter().filter(|exception| exception.path != ATTENTION);
        Self { all: self.all, exceptions: exceptions.cloned().collect() }
    }

    /// The dtype of a matrix; `None` for that of the checkpoint.
    pub(crate) fn dtype_of(&self, role: TensorId) -> Option<WeightDtype> {
        let name = role.to_string();
        let named = self.exceptions.iter().rev().find(|exception| exception.fits(&name));
        let all = self.all.filter(|dtype| !(dtype.is_int8() && role == TensorId::Output));
        named.map(|exception| exception.dtype).or(all)
    }

    /// The first exception for matrices that matches none of `roles`.
    pub(crate) fn unmatched(&self, roles: &[TensorId]) -> Option<&str> {
        let names: Vec<String> = roles.iter().map(TensorId::to_string).collect();
        let none = |exception: &&Exception| {
            exception.path != ATTENTION && !names.iter().any(|name| exception.fits(name))
        };
        self.exceptions.iter().find(none).map(|exception| exception.path.as_str())
    }
}

impl Exception {
    fn fits(&self, name: &str) -> bool {
        let mut parts = name.split('.');
        self.path.split('.').all(|wanted| {
            let part = parts.next();
            wanted == "*" && part.is_some() || part == Some(wanted)
        })
    }
}

impl fmt::Display for WeightDtypes {
    /// The text form that [`FromStr`] parses; `stored` stands for the dtypes of the checkpoint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.all.map_or(STORED, WeightDtype::name))?;
        self.exceptions
            .iter()
            .try_for_each(|Exception { path, dtype }| write!(f, ",{path}={dtype}"))
    }
}

/// The path that stands for the products of self-attention.
const ATTENTION: &str = "attention";

const FLOAT_ATTENTION: WeightDtype = WeightDtype::Float(Dtype::F32);

const INT8_ATTENTION: WeightDtype = WeightDtype::Quantized(Quantization::W8A8);

/// The text form of the default.
const STORED: &str = "stored";

impl FromStr for WeightDtypes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.split(',').map(str::trim);
        let all = match parts.next().unwrap_or("") {
            STORED => Self::as_stored(),
            dtype => Self::all(dtype.parse::<WeightDtype>()?),
        };
        parts.try_fold(all, |dtypes, part| match part.split_once('=') {
            Some((path, dtype)) => dtypes.with(path.trim(), dtype.trim().parse::<WeightDtype>()?),
            None => Err(invalid_exception(part)),
        })
    }
}

/// The weights of a model in errors of memory.
pub(super) const WEIGHTS: &str = "the weights";

/// The name of this option in errors.
pub(super) const DTYPE: &str = "dtype";

/// An exception is not of the form `path=dtype`, or its path is invalid.
fn invalid_exception(found: &str) -> Error {
    let expected = "exceptions that are a path of a matrix, an equals sign and a dtype, as \
                    decoder.layers.*.feed_forward.outer=int8x16";
    Error::invalid_option(DTYPE, expected, shown(found))
}

/// The matrix of a linear map cannot be stored in `dtype`.
pub(super) fn unfit(dtype: WeightDtype, error: KernelError) -> Error {
    let found = format!("{dtype}: {error}");
    Error::invalid_option(DTYPE, "a dtype that can store each weight", found)
}

/// A wrong name, for an error.
pub(super) fn shown(found: &str) -> String {
    quoted(found, SHOWN)
}

/// Number of characters of a wrong name that an error shows.
const SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Side;
    use crate::network::{FeedForward, LayerPart, ParamKind};

    fn outer(layer: usize) -> TensorId {
        let part = LayerPart::FeedForward(FeedForward::Outer, ParamKind::Weight);
        TensorId::Layer(Side::Decoder, layer, part)
    }

    #[test]
    fn last_matching_exception_applies() {
        let dtypes: WeightDtypes =
            "int8, decoder.layers.*.feed_forward=int8x16, decoder.layers.1=f32"
                .parse()
                .expect("good");
        assert_eq!(dtypes.dtype_of(outer(0)), Some(Quantization::W8A16.into()));
        assert_eq!(dtypes.dtype_of(outer(1)), Some(Dtype::F32.into()));
        // `*` and names match whole parts: layer 1 is not layer 10.
        assert_eq!(dtypes.dtype_of(outer(10)), Some(Quantization::W8A16.into()));
        assert_eq!(
            dtypes.dtype_of(TensorId::Convolution(0, ParamKind::Weight)),
            Some(Quantization::W8A8.into())
        );
        assert_eq!(dtypes.dtype_of(TensorId::Output), None);
        assert_eq!(
            WeightDtypes::all(Dtype::Bf16).dtype_of(TensorId::Output),
            Some(Dtype::Bf16.into())
        );
        assert_eq!(WeightDtypes::as_stored().dtype_of(outer(0)), None);
    }

    #[test]
    fn unmatched_exceptions_are_reported() {
        let dtypes: WeightDtypes = "stored,decoder.layers.7=int8".parse().expect("good");
        assert_eq!(dtypes.unmatched(&[outer(0), outer(7)]), None);
        assert_eq!(dtypes.unmatched(&[outer(0)]), Some("decoder.layers.7"));
    }

    #[test]
    fn the_last_word_on_attention_applies() {
        for (text, int8) in [
            ("stored", false),
            ("int8", false),
            ("f32,attention=int8", true),
            ("int8,attention=int8,attention=f32", false),
            ("int8,attention=f32,output=int8,attention=int8", true),
        ] {
            let dtypes: WeightDtypes = text.parse().expect("good");
            assert_eq!(dtypes.int8_attention(), int8, "{text}");
            assert_eq!(dtypes.to_string(), text);
            assert_eq!(dtypes.unmatched(&[TensorId::Output]), None);
        }
    }

    #[test]
    fn packed_weights_have_the_attention_that_is_asked_for() {
        for (packed, wanted, expected) in [
            ("int8", "stored", Some("int8")),
            ("int8,attention=int8", "stored", Some("int8,attention=int8")),
            ("int8,attention=int8", "int8", Some("int8")),
            ("int8", "int8,attention=f32", Some("int8")),
            ("int8", "int8,attention=int8", Some("int8,attention=int8")),
            ("int8,output=f32", "stored,attention=int8", Some("int8,output=f32,attention=int8")),
            ("int8,output=f32", "int8,attention=int8", None),
            ("stored", "int8", None),
        ] {
            let [packed, wanted] = [packed, wanted].map(|text| text.parse().expect("good"));
            let found = WeightDtypes::with_attention_of(&packed, &wanted);
            assert_eq!(found.map(|dtypes| dtypes.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn error_messages_name_the_cause() {
        for (text, words) in [
            ("", "expected stored, f32"),
            ("int9", "found \"int9\""),
            ("int8,decoder", "found \"decoder\""),
            ("int8,=f32", "path of a matrix"),
            ("int8,a..b=f32", "path of a matrix"),
            ("int8,output=int4", "found \"int4\""),
            ("int8,attention=bf16", "found attention=bf16"),
            ("int8,attention=int8x16", "expected attention=f32 or attention=int8"),
        ] {
            let error = text.parse::<WeightDtypes>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
