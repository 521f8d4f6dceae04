//! Computes the features of Whisper from samples: logarithms of the power in mel bins, every ten milliseconds.
//!
//! The Fourier transform is in f64, by `realfft`. In f32, a tone that is four orders of magnitude louder than a
//! neighboring one removes all information about the latter, but both are within the range of a feature. For the same
//! reason the transform is not a matrix product of the core's kernels, which use f32.

use super::log_mel::Filters;
use super::wav::Wav;
use crate::error::Error;
use crate::file_kind::CONVERT;
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use serde_json::Value;
use simdformer_tokenize::{FileLimit, Settings};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Samples per second, per frame, and between two frames, for every Whisper model.
const RATE: usize = 16_000;
const WINDOW: usize = 400;
pub(crate) const HOP: usize = 160;
/// Samples before and after the middle of a frame that the frame depends on.
pub(crate) const REACH: usize = WINDOW / 2;
/// The maximum numbers of bins and of seconds; published models have 80 or 128, and 30.
const BINS: usize = 256;
const SECONDS: usize = 60;
/// The largest settings file; published files that list their filters have 185 kB.
const LONGEST: FileLimit = FileLimit { bytes: 256 << 10, values: 1 << 17 };

/// Converts samples to the input of Whisper's encoder, as its checkpoint directory defines it.
///
/// Immutable: any number of threads may share it. Features equal those of transformers' numpy extractor within 1e-5.
/// Sample rate 16 kHz; a window of 25 ms (periodic Hann) every 10 ms, mirrored at the ends; power in mel bins
/// (Slaney's scale, 0 to 8000 Hz); `log10` of at least 1e-10; at least the maximum minus 8; then `(x + 4) / 4`.
#[derive(Clone)]
pub struct FeatureExtractor {
    seconds: usize,
    filters: Filters,
    window: Vec<f64>,
    transform: Arc<dyn RealToComplex<f64>>,
}

impl fmt::Debug for FeatureExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeatureExtractor")
            .field("bins", &self.bins())
            .field("seconds", &self.seconds)
            .finish_non_exhaustive()
    }
}

impl FeatureExtractor {
    /// Reads the extractor settings from `preprocessor_config.json` of a directory, or, if that is missing, from
    /// `feature_extractor` in `processor_config.json`, which transformers 5 writes.
    ///
    /// # Errors
    /// Neither file exists; a file is not JSON; or a setting has an unsupported value, which the error names.
    pub fn from_dir(path: impl AsRef<Path>) -> Result<Self, Error> {
        const FILES: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];
        let path = path.as_ref();
        if let Some(settings) = Settings::from_file(path, FILES[0], LONGEST)? {
            return Ok(Self::from_settings(&settings)?);
        }
        if let Some(settings) = Settings::from_file(path, FILES[1], LONGEST)? {
            return Ok(Self::from_settings(&settings.inside("feature_extractor")?)?);
        }
        Err(Error::not_found(path, FILES.join(" or "), "none"))
    }

    fn from_settings(settings: &Settings) -> Result<Self, simdformer_tokenize::Error> {
        const CLASS: &str = "WhisperFeatureExtractor";
        let kind = settings.text("feature_extractor_type")?;
        if let Some(found) = kind.filter(|&kind| kind != CLASS) {
            let expected = format!("{CLASS:?}");
            return Err(settings.wrong("feature_extractor_type", &expected, &found.into()));
        }
        let number = |key, least: usize, most: usize| -> Result<Option<usize>, _> {
            let Some(found) = settings.get(key) else { return Ok(None) };
            let number = found.as_u64().filter(|&n| (least as u64..=most as u64).contains(&n));
            let expected = match least == most {
                true => least.to_string(),
                false => format!("a number from {least} to {most}"),
            };
            let wrong = || settings.wrong(key, &expected, found);
            number.map(|number| Some(number as usize)).ok_or_else(wrong)
        };
        let bins = number("feature_size", 1, BINS)?.unwrap_or(80);
        let seconds = number("chunk_length", 1, SECONDS)?.unwrap_or(30);
        for (key, value) in [
            ("sampling_rate", RATE),
            ("n_fft", WINDOW),
            ("hop_length", HOP),
            ("n_samples", seconds * RATE),
            ("nb_max_frames", seconds * RATE / HOP),
        ] {
            number(key, value, value)?;
        }
        for key in ["padding_value", "dither"] {
            let found = settings.get(key);
            if let Some(found) = found.filter(|found| found.as_f64() != Some(0.0)) {
                return Err(settings.wrong(key, "0", found));
            }
        }
        match settings.text("padding_side")? {
            None | Some("right") => (),
            Some(side) => return Err(settings.wrong("padding_side", "\"right\"", &side.into())),
        }
        if let Some(found) = settings.get("do_normalize").filter(|&f| f != &Value::Bool(false)) {
            return Err(settings.wrong("do_normalize", "false", found));
        }
        Ok(Self::build(bins, seconds))
    }

    /// Whisper's extractor with `bins` mel bins and windows of `seconds`: 80 (128 for `large-v3`) and 30.
    ///
    /// # Errors
    /// `bins` is not from 1 to 256, or `seconds` is not from 1 to 60.
    pub fn whisper(bins: usize, seconds: usize) -> Result<Self, Error> {
        for (what, found, most) in [("mel bins", bins, BINS), ("seconds", seconds, SECONDS)] {
            if !(1..=most).contains(&found) {
                let expected = format!("1 to {most}");
                return Err(Error::invalid_input(what, expected, found));
            }
        }
        Ok(Self::build(bins, seconds))
    }

    fn build(bins: usize, seconds: usize) -> Self {
        let angle = core::f64::consts::TAU / WINDOW as f64;
        Self {
            seconds,
            filters: Filters::slaney(bins, WINDOW / 2 + 1, RATE as f64 / 2.0),
            window: (0..WINDOW).map(|i| 0.5 - 0.5 * (angle * i as f64).cos()).collect(),
            transform: RealFftPlanner::new().plan_fft_forward(WINDOW),
        }
    }

    /// Mel bins per frame.
    #[must_use]
    pub fn bins(&self) -> usize {
        self.filters.len()
    }

    /// Output frames, for any number of input samples.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.seconds * RATE / HOP
    }

    /// Input samples per second.
    #[must_use]
    pub fn rate(&self) -> u32 {
        RATE as u32
    }

    /// The maximum number of input samples.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.seconds * RATE
    }

    /// Output values: [`Self::bins`] times [`Self::frames`].
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there are always some")]
    pub fn len(&self) -> usize {
        self.bins() * self.frames()
    }

    /// Checks that the sample rate of a file is that of this extractor.
    ///
    /// # Errors
    /// It is another rate; the error has the ffmpeg command that converts the file.
    pub fn takes<R: std::io::Read>(&self, wav: &Wav<R>) -> Result<(), Error> {
        match wav.rate() {
            rate if rate == self.rate() => Ok(()),
            found => {
                let rate = self.rate();
                let expected = format!("{rate} samples a second");
                let found = format_args!("{found}; `{CONVERT} -ar {rate} OUT.wav` converts it");
                Err(Error::invalid_input("the sample rate", expected, found))
            }
        }
    }

    /// Writes the features of `samples` to `out`, `[frames, bins]` (transformers has bins first). Returns the number
    /// of samples used, at most [`Self::samples`]; the remaining samples belong to the next window.
    ///
    /// Fewer samples, or none, are padded with silence. The scale depends on the loudest bin, so the features of a
    /// window depend on all of its samples.
    ///
    /// # Errors
    /// The length of `out` is not [`Self::len`].
    pub fn extract(&self, samples: &[f32], out: &mut [f32]) -> Result<usize, Error> {
        if out.len() != self.len() {
            let expected = format!("{} numbers, [{}, {}]", self.len(), self.frames(), self.bins());
            return Err(Error::invalid_input("space", expected, out.len()));
        }
        let taken = samples.len().min(self.samples());
        let samples = &samples[..taken];
        let last = self.samples() - 1;
        // Mirrored at the first and at the last sample, including the silence.
        let sample = |i: isize| {
            let i = i.unsigned_abs();
            samples.get(if i > last { 2 * last - i } else { i }).copied().unwrap_or(0.0)
        };
        let mut transform = FrameTransform::new(self);
        let mut largest = f32::NEG_INFINITY;
        for (number, values) in out.chunks_exact_mut(self.bins()).enumerate() {
            largest = largest.max(transform.frame(self, number, sample, values)?);
        }
        out.iter_mut().for_each(|value| *value = scaled(*value, largest));
        Ok(taken)
    }
}

/// The feature of a logarithm of power, where `largest` is the largest one.
pub(crate) fn scaled(value: f32, largest: f32) -> f32 {
    (value.max(largest - 8.0) + 4.0) / 4.0
}

/// The memory of the Fourier transform of a frame.
pub(crate) struct FrameTransform {
    frame: Vec<f64>,
    spectrum: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    powers: Vec<f64>,
}

impl FrameTransform {
    pub(crate) fn new(extractor: &FeatureExtractor) -> Self {
        let transform = &extractor.transform;
        let spectrum = transform.make_output_vec();
        let (frame, scratch) = (transform.make_input_vec(), transform.make_scratch_vec());
        let powers = vec![0.0; spectrum.len()];
        Self { frame, spectrum, scratch, powers }
    }

    /// Writes `log10` of the power in each mel bin of frame `number` to `out`, `[bins]`, and returns the largest.
    /// `sample` returns a sample by its index, which may be negative.
    pub(crate) fn frame(
        &mut self,
        extractor: &FeatureExtractor,
        number: usize,
        sample: impl Fn(isize) -> f32,
        out: &mut [f32],
    ) -> Result<f32, Error> {
        self.transform(extractor, number, sample)?;
        let mut largest = f32::NEG_INFINITY;
        for (bin, value) in out.iter_mut().enumerate() {
            *value = logarithm(extractor.filters.power(bin, &self.powers));
            largest = largest.max(*value);
        }
        Ok(largest)
    }

    /// Raises `loudest` to the largest value that [`frame`](Self::frame) writes. It computes few logarithms.
    pub(crate) fn raise(
        &mut self,
        extractor: &FeatureExtractor,
        number: usize,
        sample: impl Fn(isize) -> f32,
        loudest: &mut Loudest,
    ) -> Result<(), Error> {
        self.transform(extractor, number, sample)?;
        for bin in 0..extractor.bins() {
            let power = extractor.filters.power(bin, &self.powers);
            // A smaller power has no larger logarithm, whatever the rounding.
            if power >= loudest.power * (1.0 - 1e-9) {
                loudest.power = loudest.power.max(power);
                loudest.value = loudest.value.max(logarithm(power));
            }
        }
        Ok(())
    }

    /// Computes the power spectrum of frame `number`.
    fn transform(
        &mut self,
        extractor: &FeatureExtractor,
        number: usize,
        sample: impl Fn(isize) -> f32,
    ) -> Result<(), Error> {
        let Self { frame, spectrum, scratch, powers } = self;
        let from = (number * HOP) as isize - REACH as isize;
        for ((into, window), i) in frame.iter_mut().zip(&extractor.window).zip(from..) {
            *into = f64::from(sample(i)) * window;
        }
        // The lengths are those of the transform.
        if extractor.transform.process_with_scratch(frame, spectrum, scratch).is_err() {
            let expected = WINDOW.to_string();
            return Err(Error::invalid_input("window", expected, frame.len()));
        }
        for (power, value) in powers.iter_mut().zip(&*spectrum) {
            *power = value.norm_sqr();
        }
        Ok(())
    }
}

/// The feature of a power before scaling.
fn logarithm(power: f64) -> f32 {
    power.max(1e-10).log10() as f32
}

/// The largest feature of some frames before scaling, and its power.
#[derive(Clone, Copy)]
pub(crate) struct Loudest {
    power: f64,
    pub(crate) value: f32,
}

impl Loudest {
    /// That of frames whose largest feature is `value`.
    pub(crate) fn from_value(value: f32) -> Self {
        Self { power: 0.0, value }
    }
}
