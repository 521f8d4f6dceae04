//! Converts the sample rate of one channel by a polyphase filter.
//!
//! Own code, because `rubato` 5.1 selects its loops by the instruction set at run time, so that the last bits of its
//! results depend on the CPU, and its Fourier transform switches on the same selection for the features of Whisper. Here
//! each output is one sum in a fixed order, whatever vectors the CPU has.

use crate::error::Error;
use simdformer::kernels::{AutoVectorize, Isa};

/// The attenuation of what the new rate cannot represent, in dB.
const STOP: f64 = 100.0;
/// Kaiser's parameter for [`STOP`].
const BETA: f64 = 0.1102 * (STOP - 8.7);
/// The end of the pass band, as a part of the lower Nyquist frequency, which is the beginning of the stop band.
const PASS: f64 = 0.9;
/// Accumulators of a sum. Compilers turn them into vectors; the order of the additions does not depend on the vectors.
const LANES: usize = 16;
/// The largest filter table that has a row for each phase, in values.
const EXACT: usize = 1 << 18;
/// Rows for an output sample's period if there are more phases than rows: linear interpolation between rows then has an
/// error below -100 dB.
const ROWS: usize = 512;
/// The supported sample rates, in Hz.
pub(crate) const RATES: std::ops::RangeInclusive<u32> = 4_000..=768_000;

/// Converts samples from one rate to another: a linear-phase low-pass filter (sinc with a Kaiser window), evaluated at the
/// times of the output.
///
/// Output `k` belongs to the time of input `k * from / to`: there is no delay. `n` input samples give
/// `ceil(n * to / from)`. Frequencies up to 0.9 of the lower Nyquist frequency pass within 0.01 dB; those above it, which
/// would alias or be images, are 100 dB lower. The same bits on every CPU and for every partition of the input.
///
/// Source: J. F. Kaiser, Nonrecursive digital filter design using the I0-sinh window function, ISCAS 1974.
///
/// ```
/// use simdformer_speech::Resampler;
///
/// let mut resampler = Resampler::new(48_000, 16_000)?;
/// resampler.push(&[0.5; 4800]);
/// resampler.finish();
/// let mut out = vec![0.0; 2000];
/// assert_eq!(resampler.read(&mut out), 1600);
/// assert!((out[800] - 0.5).abs() < 1e-6);
/// # Ok::<(), simdformer_speech::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Resampler {
    /// Input and output samples of a common period: the ratio of the rates in lowest terms.
    step: u64,
    phases: u64,
    /// `[rows + 1, taps]`: the filter at fractions of an input sample. The last row is that of the next input sample.
    table: Vec<f32>,
    rows: u64,
    taps: usize,
    /// Input that outputs to come need.
    window: Vec<f32>,
    /// The index of `window[0]` in the input, plus `taps / 2`.
    first: u64,
    /// Input and output samples until now.
    received: u64,
    returned: u64,
    finished: bool,
}

impl Resampler {
    /// A converter from `from` to `to` samples a second.
    ///
    /// # Errors
    /// A rate is not from 4000 to 768000 Hz.
    pub fn new(from: u32, to: u32) -> Result<Self, Error> {
        for rate in [from, to] {
            if !RATES.contains(&rate) {
                let expected = format!("{} to {}", RATES.start(), RATES.end());
                return Err(Error::unsupported("samples a second", expected, rate));
            }
        }
        let common = greatest_common_divisor(from, to);
        let (step, phases) = (u64::from(from / common), u64::from(to / common));
        let nyquist = f64::from(from.min(to)) / 2.0 / f64::from(from);
        // In cycles per input sample.
        let cutoff = nyquist * (1.0 + PASS) / 2.0;
        let width = std::f64::consts::TAU * nyquist * (1.0 - PASS);
        let least = ((STOP - 7.95) / (2.285 * width)).ceil() as usize + 1;
        let taps = least.next_multiple_of(2 * LANES);
        let rows = match phases as usize * taps {
            size if size <= EXACT => phases as usize,
            // A filter that is longer than its input's period is smoother.
            _ => (ROWS as f64 * (2.0 * nyquist)).ceil() as usize,
        };
        let mut table = Vec::with_capacity((rows + 1) * taps);
        let mut row = vec![0.0; taps];
        let peak = bessel(BETA);
        for number in 0..=rows {
            let fraction = number as f64 / rows as f64;
            for (tap, weight) in row.iter_mut().enumerate() {
                let time = tap as f64 + 1.0 - (taps / 2) as f64 - fraction;
                *weight = sinc(2.0 * cutoff * time) * (kaiser(time / (taps / 2) as f64) / peak);
            }
            // A constant keeps its value.
            let sum: f64 = row.iter().sum();
            table.extend(row.iter().map(|weight| (weight / sum) as f32));
        }
        Ok(Self {
            step,
            phases,
            table,
            rows: rows as u64,
            taps,
            // Before the first sample is silence.
            window: vec![0.0; taps / 2 - 1],
            first: 1,
            received: 0,
            returned: 0,
            finished: false,
        })
    }

    /// Takes the next input samples. Samples after [`Self::finish`] are ignored.
    pub fn push(&mut self, samples: &[f32]) {
        if self.finished {
            return;
        }
        self.discard();
        self.received += samples.len() as u64;
        self.window.extend_from_slice(samples);
    }

    /// Ends the input: after it is silence.
    pub fn finish(&mut self) {
        if !self.finished {
            self.discard();
            self.finished = true;
            self.window.resize(self.window.len() + self.taps / 2 + 1, 0.0);
        }
    }

    /// Writes the next output samples. Returns their number: less than `out.len()` if more input is needed, or at the end.
    pub fn read(&mut self, out: &mut [f32]) -> usize {
        let read = ReadLoop(self, out);
        // The loop is compiled for each instruction set, which changes its speed and no bit.
        Isa::best().run_vectorized(read)
    }

    /// Drops input that no output needs any more.
    fn discard(&mut self) {
        let sample = self.returned * self.step / self.phases;
        let unused = ((sample + 1 - self.first) as usize).min(self.window.len());
        self.window.drain(..unused);
        self.first += unused as u64;
    }
}

/// [`Resampler::read`].
struct ReadLoop<'r>(&'r mut Resampler, &'r mut [f32]);

impl AutoVectorize for ReadLoop<'_> {
    type Output = usize;

    #[inline(always)]
    fn do_work(self) -> usize {
        self.write_samples()
    }
}

impl ReadLoop<'_> {
    #[inline(always)]
    fn write_samples(self) -> usize {
        let Self(resampler, out) = self;
        let Resampler { step, phases, rows, taps, .. } = *resampler;
        for (written, out) in out.iter_mut().enumerate() {
            let position = resampler.returned * step;
            let (sample, phase) = (position / phases, position % phases);
            let start = (sample + 1 - resampler.first) as usize;
            let Some(window) = resampler.window.get(start..start + taps) else { return written };
            if resampler.finished && sample >= resampler.received {
                return written;
            }
            let at = (phase * rows / phases) as usize * taps;
            let rest = phase * rows % phases;
            let value = dot(&resampler.table[at..at + taps], window);
            *out = match rest {
                0 => value,
                _ => {
                    let next = dot(&resampler.table[at + taps..at + 2 * taps], window);
                    value + (next - value) * (rest as f32 / phases as f32)
                }
            };
            resampler.returned += 1;
        }
        out.len()
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

fn sinc(x: f64) -> f64 {
    let angle = std::f64::consts::PI * x;
    if angle == 0.0 { 1.0 } else { angle.sin() / angle }
}

/// Kaiser's window with side lobes below [`STOP`], times `bessel(BETA)`, for `x` in -1 to 1.
fn kaiser(x: f64) -> f64 {
    bessel(BETA * (1.0 - x * x).max(0.0).sqrt())
}

/// The modified Bessel function of the first kind and order 0, by its power series.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..40 {
        let factor = x / 2.0 / f64::from(k);
        term *= factor * factor;
        // The terms rise to their maximum and then fall, and none before the maximum is this small.
        if sum + term == sum {
            break;
        }
        sum += term;
    }
    sum
}

/// The sum of products, in a fixed order. The lengths are equal, a multiple of [`LANES`].
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = Accumulators([0.0; LANES]);
    let Accumulators(sums) = &mut lanes;
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        // Not `for`, which calls functions in a build without optimization.
        let mut lane = 0;
        while lane < LANES {
            sums[lane] += a[lane] * b[lane];
            lane += 1;
        }
    }
    add_lanes(&lanes)
}

/// The accumulators of a sum, in one cache line.
#[repr(align(64))]
struct Accumulators([f32; LANES]);

/// The sum of the lanes, in halves. Not inlined: the compiler would choose the vectors of the loop above for these few
/// additions, and they would have two lanes.
#[inline(never)]
fn add_lanes(Accumulators(sums): &Accumulators) -> f32 {
    let mut sums = *sums;
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}
