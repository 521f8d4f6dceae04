//! Mel filters: the frequencies of a spectrum that each feature bin sums, and their weights.
//!
//! Slaney's scale: linear to 1000 Hz, with 15 mels in this range, then logarithmic, with 27 mels for a factor of 6.4.
//! A filter is a triangle between the center frequencies of its neighbors; its area does not depend on its width.

/// The filter of each bin: its first frequency index, and the weights from there.
#[derive(Clone, Debug)]
pub(crate) struct Filters {
    bins: Vec<(usize, Vec<f64>)>,
}

/// The end of the linear part of the scale, in Hz and in mels.
const CORNER: (f64, f64) = (1000.0, 15.0);

fn to_mels(hertz: f64) -> f64 {
    if hertz < CORNER.0 {
        return 3.0 * hertz / 200.0;
    }
    CORNER.1 + (hertz / CORNER.0).ln() * (27.0 / 6.4f64.ln())
}

fn to_hertz(mels: f64) -> f64 {
    if mels < CORNER.1 {
        return 200.0 * mels / 3.0;
    }
    CORNER.0 * ((mels - CORNER.1) * (6.4f64.ln() / 27.0)).exp()
}

impl Filters {
    /// `bins` filters from 0 Hz to `highest`, for spectra of `frequencies` values over the same range.
    pub(crate) fn slaney(bins: usize, frequencies: usize, highest: f64) -> Self {
        let step = to_mels(highest) / (bins + 1) as f64;
        let edge = |i: usize| to_hertz(i as f64 * step);
        let distance = highest / (frequencies - 1) as f64;
        let filter = |bin: usize| {
            let (low, center, high) = (edge(bin), edge(bin + 1), edge(bin + 2));
            let weight = |frequency: usize| {
                let hertz = frequency as f64 * distance;
                let up = (hertz - low) / (center - low);
                let down = (high - hertz) / (high - center);
                up.min(down).max(0.0) * (2.0 / (high - low))
            };
            let weights: Vec<f64> = (0..frequencies).map(weight).collect();
            let some = |&weight: &f64| weight > 0.0;
            // With many bins, a filter may fall between two frequencies.
            let first = weights.iter().position(some).unwrap_or(0);
            let end = weights.iter().rposition(some).map_or(first, |last| last + 1);
            (first, weights[first..end].to_vec())
        };
        Self { bins: (0..bins).map(filter).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.bins.len()
    }

    /// The filtered power of `bin` in a power spectrum.
    pub(crate) fn power(&self, bin: usize, spectrum: &[f64]) -> f64 {
        let (first, weights) = &self.bins[bin];
        weights.iter().zip(&spectrum[*first..]).map(|(weight, power)| weight * power).sum()
    }
}
