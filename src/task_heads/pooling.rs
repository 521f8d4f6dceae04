//! Pooling: one vector for a text from one vector per token.

/// How the token vectors of a text become one vector. The results of several poolings are concatenated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The vector of the first token, `[CLS]`.
    Cls,
    /// The maximum of each column.
    Max,
    /// The mean.
    Mean,
    /// The sum divided by the square root of the number of tokens.
    MeanSqrtLen,
    /// The mean with weight `i + 1` for token `i` of the text.
    WeightedMean,
    /// The vector of the last token.
    LastToken,
}

impl Pooling {
    /// Every kind, in the order of concatenation.
    pub const ALL: [Self; 6] =
        [Self::Cls, Self::Max, Self::Mean, Self::MeanSqrtLen, Self::WeightedMean, Self::LastToken];

    /// The name in the configuration of a pooling module: `cls`, `max`, `mean`, `mean_sqrt_len_tokens`, `weightedmean`,
    /// `lasttoken`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cls => "cls",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::MeanSqrtLen => "mean_sqrt_len_tokens",
            Self::WeightedMean => "weightedmean",
            Self::LastToken => "lasttoken",
        }
    }

    /// Writes the pooled vector of `hidden`, `[tokens, out.len()]`, without its first `skipped` tokens, to `out`. At
    /// least one token is left. Sums are in f64, token by token.
    pub(super) fn pool(self, hidden: &[f32], skipped: usize, out: &mut [f32]) {
        let width = out.len().max(1);
        let all = hidden.len() / width;
        let hidden = &hidden[skipped * width..];
        let tokens = all - skipped;
        match self {
            Self::Cls => out.copy_from_slice(&hidden[..width]),
            Self::LastToken => out.copy_from_slice(&hidden[(tokens - 1) * width..]),
            Self::Max => {
                out.copy_from_slice(&hidden[..width]);
                for row in hidden.chunks(width) {
                    out.iter_mut().zip(row).for_each(|(out, &x)| *out = out.max(x));
                }
            }
            Self::Mean => sums(hidden, out, |_| 1.0, tokens as f64),
            Self::MeanSqrtLen => sums(hidden, out, |_| 1.0, (tokens as f64).sqrt()),
            Self::WeightedMean => {
                // The weights count from the start of the text, skipped tokens included.
                let below = |count: usize| count as f64 * (count as f64 + 1.0) / 2.0;
                let weight = |token: usize| (token + skipped) as f64 + 1.0;
                sums(hidden, out, weight, below(all) - below(skipped));
            }
        }
    }
}

/// `out = sum of weight(token) * hidden[token] / divisor`.
fn sums(hidden: &[f32], out: &mut [f32], weight: impl Fn(usize) -> f64, divisor: f64) {
    let width = out.len().max(1);
    for (column, out) in out.iter_mut().enumerate() {
        let tokens = hidden[column..].iter().step_by(width).enumerate();
        let sum: f64 = tokens.map(|(token, &x)| weight(token) * f64::from(x)).sum();
        *out = (sum / divisor) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::Pooling;

    /// Compares each kind, without the first `skipped` tokens of three.
    fn check(skipped: usize, expected: [(Pooling, [f32; 2]); 6]) {
        let hidden = [1.0, -4.0, 3.0, 2.0, 2.0, 8.0];
        for (pooling, expected) in expected {
            let mut out = [f32::NAN; 2];
            pooling.pool(&hidden, skipped, &mut out);
            for (found, expected) in out.iter().zip(expected) {
                assert!((found - expected).abs() <= 1e-6, "{pooling:?}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn each_kind_matches_its_definition() {
        let all = [
            (Pooling::Cls, [1.0, -4.0]),
            (Pooling::Max, [3.0, 8.0]),
            (Pooling::Mean, [2.0, 2.0]),
            (Pooling::MeanSqrtLen, [6.0 / 3f32.sqrt(), 6.0 / 3f32.sqrt()]),
            (Pooling::WeightedMean, [(1.0 + 6.0 + 6.0) / 6.0, (-4.0 + 4.0 + 24.0) / 6.0]),
            (Pooling::LastToken, [2.0, 8.0]),
        ];
        check(0, all);
        let without_the_first = [
            (Pooling::Cls, [3.0, 2.0]),
            (Pooling::Max, [3.0, 8.0]),
            (Pooling::Mean, [2.5, 5.0]),
            (Pooling::MeanSqrtLen, [5.0 / 2f32.sqrt(), 10.0 / 2f32.sqrt()]),
            (Pooling::WeightedMean, [(6.0 + 6.0) / 5.0, (4.0 + 24.0) / 5.0]),
            (Pooling::LastToken, [2.0, 8.0]),
        ];
        check(1, without_the_first);
    }
}
