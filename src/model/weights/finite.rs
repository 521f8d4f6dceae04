//! Finds numbers in packed weights that no checkpoint may contain: NaN and infinities.

use super::layout::{Parameter, Place};
use super::model_weights::Weights;
use crate::model::weight_dtypes::WeightDtype;
use crate::network::TensorId;
use core::ops::Range;
use simdformer_kernels::{Dtype, Quantization};

/// A number that is not finite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotFinite {
    /// The tensor of the number. If projections share a float matrix, the first of them; for a number between two
    /// tensors, the first of the two.
    pub(crate) role: TensorId,
    pub(crate) found: f32,
}

/// The content of a range of memory: one f32 in a word, or two numbers of 16 bits, or int8 weights.
#[derive(Clone, Copy)]
struct Words {
    dtype: WeightDtype,
    /// Minus infinity is valid: in an output bias it bans a token.
    bans: bool,
}

const F32: Words = Words { dtype: WeightDtype::Float(Dtype::F32), bans: false };

/// Checks the memory of a model in consecutive pieces, starting at the first word.
///
/// Padding between tensors, and zeros for maps without bias in a shared bias vector, are floats that kernels
/// read, so they are checked, too. [`Weights::bad_scale`] checks the scales of int8 matrices. Pruning tables are not
/// checked: they decide which outputs are computed, and contain no output value.
pub(crate) struct FiniteCheck<'p> {
    parameters: &'p [Parameter],
    /// The dtype of the words, by range, in ascending order.
    spans: Vec<(Range<usize>, Words)>,
    /// The span of the next word.
    span: usize,
    /// The next word.
    next: usize,
}

impl<'p> FiniteCheck<'p> {
    /// Creates a check of the `floats` words of a model with these parameters.
    pub(crate) fn new(parameters: &'p [Parameter], floats: usize) -> Self {
        let mut known: Vec<(Range<usize>, Words)> = parameters.iter().filter_map(span).collect();
        known.sort_by_key(|(range, _)| range.start);
        let mut spans = Vec::new();
        let mut end = 0;
        for (range, dtype) in known {
            if range.start > end {
                spans.push((end..range.start, F32));
            }
            end = range.end;
            spans.push((range, dtype));
        }
        spans.push((end..floats.max(end), F32));
        Self { parameters, spans, span: 0, next: 0 }
    }

    /// Checks the next words. Returns the first number that is not finite.
    pub(crate) fn piece(&mut self, mut piece: &[f32]) -> Option<NotFinite> {
        let mut first = None;
        while let Some((range, dtype)) = self.spans.get(self.span) {
            let (now, later) = piece.split_at(piece.len().min(range.end - self.next));
            if first.is_none()
                && let Some((index, found)) = not_finite(*dtype, now)
            {
                let role = role_at(self.parameters, self.next + index);
                first = role.map(|role| NotFinite { role, found });
            }
            self.next += now.len();
            if self.next < range.end {
                break;
            }
            self.span += 1;
            piece = later;
        }
        first
    }
}

/// The words of a parameter that are not plain floats; returned once for the tensors of one matrix.
fn span(parameter: &Parameter) -> Option<(Range<usize>, Words)> {
    match &parameter.place {
        Place::Rows { range, .. } if parameter.role == TensorId::OutputBias => {
            Some((range.clone(), Words { bans: true, ..F32 }))
        }
        Place::Columns { matrix, first: 0 } => {
            Some((matrix.range.clone(), Words { dtype: matrix.dtype, bans: false }))
        }
        Place::PruningTable(table) => {
            Some((table.range.clone(), Words { dtype: Quantization::W8A8.into(), bans: false }))
        }
        Place::Rows { .. } | Place::Columns { .. } | Place::Shared(_) => None,
    }
}

/// The last parameter that begins at or before `word`.
fn role_at(parameters: &[Parameter], word: usize) -> Option<TensorId> {
    let begin = |parameter: &Parameter| match &parameter.place {
        Place::Rows { range, .. } => Some(range.start),
        Place::Columns { matrix, .. } => Some(matrix.range.start),
        Place::PruningTable(table) => Some(table.range.start),
        Place::Shared(_) => None,
    };
    let mut last: Option<(usize, TensorId)> = None;
    for parameter in parameters {
        if let Some(begin) = begin(parameter).filter(|&begin| begin <= word)
            && last.is_none_or(|(latest, _)| begin > latest)
        {
            last = Some((begin, parameter.role));
        }
    }
    last.map(|(_, role)| role)
}

/// The index of the first word that contains a number that is not finite, and that number.
fn not_finite(Words { dtype, bans }: Words, words: &[f32]) -> Option<(usize, f32)> {
    let WeightDtype::Float(dtype) = dtype else { return None };
    match (dtype, bans) {
        (Dtype::F32, false) => first(words, |x| bad(x, EXPONENT)),
        (Dtype::F32, true) => first(words, |x| bad(x, EXPONENT) & (x != 0xff80_0000)),
        (Dtype::F16, _) => first(words, |x| bad(x, EXPONENT_F16) | bad(x << 16, EXPONENT_F16)),
        _ => first(words, |x| bad(x, EXPONENT) | bad(x << 16, EXPONENT)),
    }
    .map(|index| (index, value(dtype, words[index].to_bits())))
}

/// The exponent of an f32, of the upper bf16 of a word, and of the upper f16.
const EXPONENT: u32 = 0x7f80_0000;
const EXPONENT_F16: u32 = 0x7c00_0000;

/// Whether all bits of an exponent are set.
#[inline(always)]
fn bad(bits: u32, exponent: u32) -> bool {
    bits & exponent == exponent
}

#[inline(always)]
fn first(words: &[f32], bad: impl Fn(u32) -> bool) -> Option<usize> {
    // First a test without a branch per word, which the compiler vectorizes.
    let any = words.iter().fold(false, |any, word| any | bad(word.to_bits()));
    if any { words.iter().position(|word| bad(word.to_bits())) } else { None }
}

/// The number that is not finite in a word: infinity or NaN.
fn value(dtype: Dtype, word: u32) -> f32 {
    let exponent = if dtype == Dtype::F16 { EXPONENT_F16 } else { EXPONENT };
    let bits = match dtype {
        Dtype::F32 => word,
        _ if bad(word, exponent) => word & 0xffff_0000,
        _ => word << 16,
    };
    match (bits & !(exponent | 0x8000_0000), bits >> 31) {
        (0, 0) => f32::INFINITY,
        (0, _) => f32::NEG_INFINITY,
        _ => f32::NAN,
    }
}

impl Weights {
    /// The first scale of an int8 matrix that is not finite. [`FiniteCheck`] checks all other numbers.
    pub(crate) fn bad_scale(&self) -> Option<NotFinite> {
        for parameter in &self.parameters {
            let Place::Columns { matrix, first: 0 } = &parameter.place else { continue };
            let Some((column, found)) = matrix.bad_scale(self.memory()) else { continue };
            // The map of this column, among the maps that share the matrix.
            let mut role = parameter.role;
            for other in &self.parameters {
                if let Place::Columns { matrix: same, first } = &other.place
                    && same.range == matrix.range
                    && *first <= column
                {
                    role = other.role;
                }
            }
            return Some(NotFinite { role, found });
        }
        None
    }
}
