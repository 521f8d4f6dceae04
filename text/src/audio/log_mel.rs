//! Mel filters: which frequencies of a spectrum a bin of features adds up, and by how much.
//!
//! Slaney's scale: linear to 1000 Hz, 15 mels there, then logarithmic, 27 mels for a factor of 6.4. A filter is
//! a triangle between the frequencies of its neighbors, with an area that does not depend on its width.

/// The filter of each bin, as the first frequency that it takes and the weights from there.
#[derive(Debug)]
pub(super) struct Filters {
    bins: Vec<(usize, Vec<f64>)>,
}

/// Where the scale stops being linear, in Hz and in mels.
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
    /// `bins` filters from 0 Hz to `highest`, for spectra of `frequencies` values from 0 Hz to the same.
    pub(super) fn slaney(bins: usize, frequencies: usize, highest: f64) -> Self {
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
            // Filters of many bins may fall between two frequencies.
            let first = weights.iter().position(some).unwrap_or(0);
            let end = weights.iter().rposition(some).map_or(first, |last| last + 1);
            (first, weights[first..end].to_vec())
        };
        Self { bins: (0..bins).map(filter).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.bins.len()
    }

    /// What `bin` takes of a spectrum of powers.
    pub(super) fn power(&self, bin: usize, spectrum: &[f64]) -> f64 {
        let (first, weights) = &self.bins[bin];
        weights.iter().zip(&spectrum[*first..]).map(|(weight, power)| weight * power).sum()
    }
}
