//! In which form the matrices of a model are stored: the caller's choice, by name and by layer.

use crate::network::TensorId;
use crate::sanitize::quoted;
use core::fmt;
use core::str::FromStr;

/// In which form the matrix of a linear map is kept in memory and multiplied with.
///
/// | form | bytes a weight | products |
/// |---|---|---|
/// | `f32` | 4 | f32 |
/// | `bf16`, `f16` | 2 | of the same numbers widened, in f32: where a checkpoint is stored so, not a bit changes |
/// | `int8` | 1 | of bytes, rows rounded to eight bits: exact sums of what was rounded; where all of a decoder's attention is so, its keys and values [are kept](crate::Limits::cache) in f16 |
/// | `int8x16` | 1 | of bytes, rows rounded to sixteen bits: only the weights are rounded, for about twice the work |
///
/// The scales of `int8` and `int8x16` are one a column of weights and one a row of what is multiplied
/// with them, so a sentence gets the same bits alone, in any batch and on any threads in every form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightDtype {
    /// IEEE single precision.
    F32,
    /// The upper half of an f32; others are rounded to the nearest.
    Bf16,
    /// IEEE half precision; others are rounded to the nearest, and none may be beyond 65,504.
    F16,
    /// Signed bytes, times rows of bytes.
    Int8,
    /// Signed bytes, times rows of sixteen bits.
    Int8x16,
}

impl WeightDtype {
    /// All of them, the largest first.
    pub const ALL: [Self; 5] = [Self::F32, Self::Bf16, Self::F16, Self::Int8x16, Self::Int8];

    /// Its name: `f32`, `bf16`, `f16`, `int8`, `int8x16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Int8x16 => "int8x16",
        }
    }

    /// Whether it is stored in bytes.
    pub(crate) const fn in_bytes(self) -> bool {
        matches!(self, Self::Int8 | Self::Int8x16)
    }
}

impl fmt::Display for WeightDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WeightDtype {
    type Err = WeightDtypesError;

    fn from_str(name: &str) -> Result<Self, WeightDtypesError> {
        let form = Self::ALL.into_iter().find(|form| form.name() == name);
        form.ok_or_else(|| WeightDtypesError::UnknownDtype { found: name.to_owned() })
    }
}

/// Which matrices of a model are stored in which [`WeightDtype`]; everything else is f32.
///
/// The default takes what the checkpoint has: 16-bit weights stay 16-bit, which changes no bit of any result.
///
/// It is written as a form, then exceptions: `int8,decoder.layers.*.feed_forward.outer=int8x16`. An exception names the
/// matrices whose [`TensorId`] begins with its path, `*` standing for any one part of it; the last that fits a matrix counts.
/// Query, key and value of an attention block are one matrix, and so are key and value of cross-attention: they have one form.
///
/// The output, from the model to the vocabulary, stays as in the checkpoint in `int8` and `int8x16`, unless an exception
/// names it: greedy search finds its largest element [from bytes](simdformer_kernels::pruned_argmax) anyway, without
/// an error. Where all logits are wanted in each step, as with beams, `int8,output=int8` is faster, and less exact.
///
/// ```
/// use simdformer::{WeightDtypes, WeightDtype};
///
/// let forms: WeightDtypes = "int8,output=int8,encoder.layers.0=int8x16".parse()?;
/// assert_eq!(forms, WeightDtypes::all(WeightDtype::Int8)
///     .with("output", WeightDtype::Int8)?
///     .with("encoder.layers.0", WeightDtype::Int8x16)?);
/// assert_eq!(forms.to_string(), "int8,output=int8,encoder.layers.0=int8x16");
/// assert!("int4".parse::<WeightDtypes>().is_err());
/// # Ok::<(), simdformer::WeightDtypesError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightDtypes {
    /// Of all matrices; `None` for that of the checkpoint.
    all: Option<WeightDtype>,
    exceptions: Vec<Exception>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Exception {
    path: String,
    form: WeightDtype,
}

impl WeightDtypes {
    /// As the checkpoint has them.
    pub fn as_stored() -> Self {
        Self::default()
    }

    /// All matrices in one form, but for the output in bytes.
    pub fn all(form: WeightDtype) -> Self {
        Self { all: Some(form), exceptions: Vec::new() }
    }

    /// These, with an exception for the matrices whose role begins with `path`.
    ///
    /// # Errors
    /// The path is [empty, or holds a sign](WeightDtypesError::Path) that separates exceptions.
    pub fn with(mut self, path: &str, form: WeightDtype) -> Result<Self, WeightDtypesError> {
        let separates = |sign: char| matches!(sign, ',' | '=') || sign.is_whitespace();
        if path.split('.').any(str::is_empty) || path.contains(separates) {
            return Err(WeightDtypesError::Path { found: path.to_owned() });
        }
        self.exceptions.push(Exception { path: path.to_owned(), form });
        Ok(self)
    }

    /// The form of a matrix; `None` for that of the checkpoint.
    pub(crate) fn of(&self, role: TensorId) -> Option<WeightDtype> {
        let name = role.to_string();
        let named = self.exceptions.iter().rev().find(|exception| exception.fits(&name));
        let all = self.all.filter(|form| !(form.in_bytes() && role == TensorId::Output));
        named.map(|exception| exception.form).or(all)
    }

    /// The first exception that fits none of `roles`.
    pub(crate) fn useless(&self, roles: &[TensorId]) -> Option<&str> {
        let names: Vec<String> = roles.iter().map(TensorId::to_string).collect();
        let none = |exception: &&Exception| !names.iter().any(|name| exception.fits(name));
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
    /// As it is parsed, `stored` for what the checkpoint has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.all.map_or(STORED, WeightDtype::name))?;
        self.exceptions.iter().try_for_each(|Exception { path, form }| write!(f, ",{path}={form}"))
    }
}

/// How the default is written.
const STORED: &str = "stored";

impl FromStr for WeightDtypes {
    type Err = WeightDtypesError;

    fn from_str(text: &str) -> Result<Self, WeightDtypesError> {
        let mut parts = text.split(',').map(str::trim);
        let all = match parts.next().unwrap_or("") {
            STORED => Self::as_stored(),
            form => Self::all(form.parse()?),
        };
        parts.try_fold(all, |forms, part| match part.split_once('=') {
            Some((path, form)) => forms.with(path.trim(), form.trim().parse()?),
            None => Err(WeightDtypesError::Path { found: part.to_owned() }),
        })
    }
}

/// What is wrong with a choice of forms.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightDtypesError {
    /// No form has this name.
    UnknownDtype {
        /// The name.
        found: String,
    },
    /// What should be an exception, `path=form`, or a path of it, is none.
    Path {
        /// What was found.
        found: String,
    },
    /// An exception names no matrix of the model.
    Useless {
        /// Its path.
        found: String,
    },
    /// Two projections that share a matrix were given two forms.
    Shared {
        /// The first of them, and its form.
        first: (TensorId, WeightDtype),
        /// The other, and its form.
        second: (TensorId, WeightDtype),
    },
}

impl fmt::Display for WeightDtypesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownDtype { found } => {
                write!(f, "a form of weights must be {STORED}")?;
                WeightDtype::ALL.iter().try_for_each(|form| write!(f, ", {form}"))?;
                write!(f, ", found {}", quoted(found, SHOWN))
            }
            Self::Path { found } => write!(
                f,
                "an exception must be a path of a matrix, an equals sign and a form, as \
                 decoder.layers.*.feed_forward.outer=int8x16, found {}",
                quoted(found, SHOWN)
            ),
            Self::Useless { found } => {
                write!(
                    f,
                    "the exception for {} names no matrix of this model",
                    quoted(found, SHOWN)
                )
            }
            Self::Shared { first, second } => write!(
                f,
                "{} and {} are one matrix and must have one form, found {} and {}",
                first.0, second.0, first.1, second.1
            ),
        }
    }
}

/// Characters of a wrong name that are shown.
const SHOWN: usize = 60;

impl core::error::Error for WeightDtypesError {}

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
    fn the_last_exception_that_fits_counts() {
        let forms: WeightDtypes =
            "int8, decoder.layers.*.feed_forward=int8x16, decoder.layers.1=f32"
                .parse()
                .expect("good");
        assert_eq!(forms.of(outer(0)), Some(WeightDtype::Int8x16));
        assert_eq!(forms.of(outer(1)), Some(WeightDtype::F32));
        // A part is a whole part: layer 1 is not layer 10.
        assert_eq!(forms.of(outer(10)), Some(WeightDtype::Int8x16));
        assert_eq!(forms.of(TensorId::Convolution(0, ParamKind::Weight)), Some(WeightDtype::Int8));
        assert_eq!(forms.of(TensorId::Output), None);
        assert_eq!(
            WeightDtypes::all(WeightDtype::Bf16).of(TensorId::Output),
            Some(WeightDtype::Bf16)
        );
        assert_eq!(WeightDtypes::as_stored().of(outer(0)), None);
    }

    #[test]
    fn exceptions_for_nothing_are_named() {
        let forms: WeightDtypes = "stored,decoder.layers.7=int8".parse().expect("good");
        assert_eq!(forms.useless(&[outer(0), outer(7)]), None);
        assert_eq!(forms.useless(&[outer(0)]), Some("decoder.layers.7"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, words) in [
            ("", "must be stored, f32"),
            ("int9", "found \"int9\""),
            ("int8,decoder", "found \"decoder\""),
            ("int8,=f32", "path of a matrix"),
            ("int8,a..b=f32", "path of a matrix"),
            ("int8,output=int4", "found \"int4\""),
        ] {
            let error = text.parse::<WeightDtypes>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
