//! Teacher-forced scoring: the log-probability of a given target.

use super::limits::wrong_length;
use super::score_rows::log_sum_exp;
use crate::error::Error;

/// Log-probabilities of given targets, natural logarithms.
///
/// `logits` is `[targets.len(), vocabulary]`, row-major: row `i` scores the token that follows target tokens
/// `..i`. The function writes the log-softmax of each row at its target to `log_probabilities`,
/// `[targets.len()]`, and returns their sum, added in f64. The error of each is at most
/// `(36 + ln vocabulary + |log p|) u` with `u = 2^-24`: `e^x` within two units in the last place, of a rounded
/// `x`; 32 terms are added in f32 before they are added to an f64 sum; and one rounding of the result.
///
/// # Errors
/// [`Error::InvalidInput`] for slices whose lengths do not match, [`Error::Token`] for a target outside
/// the vocabulary, [`Error::OutOfMemory`] if the logits cannot be addressed: these errors write nothing.
/// [`Error::NotFinite`] for a row with NaN or `+inf`; `log_probabilities` may be partly
/// written.
///
/// ```
/// use simdformer::search::score_targets;
///
/// // Two tokens of a vocabulary of two: one with probability 1, one with probability 1/2.
/// let logits = [100.0, 0.0, 3.0, 3.0];
/// let mut log_probabilities = [0.0; 2];
/// let sum = score_targets(&logits, 2, &[0, 1], &mut log_probabilities)?;
/// assert_eq!(log_probabilities[0], 0.0);
/// assert!((sum - 0.5f64.ln()).abs() < 3e-6);
/// # Ok::<(), simdformer::Error>(())
/// ```
pub fn score_targets(
    logits: &[f32],
    vocabulary: usize,
    targets: &[u32],
    log_probabilities: &mut [f32],
) -> Result<f64, Error> {
    let length = |slice, expected, found| {
        if expected == found { Ok(()) } else { Err(wrong_length(slice, expected, found)) }
    };
    let expected =
        targets.len().checked_mul(vocabulary).ok_or_else(|| Error::too_large("logits"))?;
    length("logits", expected, logits.len())?;
    length("log_probabilities", targets.len(), log_probabilities.len())?;
    super::limits::tokens("targets", vocabulary, targets)?;
    let mut sum = 0.0;
    // Without targets the vocabulary may be 0, which is not a valid chunk size.
    let rows = logits.chunks_exact(vocabulary.max(1));
    for (position, ((row, &target), out)) in rows.zip(targets).zip(log_probabilities).enumerate() {
        let log_sum = log_sum_exp(row);
        if log_sum.is_nan() || log_sum == f64::INFINITY {
            return Err(Error::not_finite_scores(position));
        }
        let score = f64::from(row[target as usize]);
        // A row of only -inf has no distribution; every token gets -inf.
        let log_p = if score == f64::NEG_INFINITY { score } else { score - log_sum };
        *out = log_p as f32;
        sum += log_p;
    }
    Ok(sum)
}
