//! The network of Silero, version 6: from samples to the probability of speech in each chunk.

use crate::error::Error;
use core::fmt;
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use simdformer::KernelError;
use simdformer::kernels::activation::{self, Activation};
use simdformer::kernels::{
    Dtype, Epilogue, Exec, Input, Isa, Linear, Matrix, MatrixMut, Parallelism, PostOp,
};
use std::sync::Arc;

/// f32 in little-endian order: weights and biases of four convolutions, `[outputs, taps, inputs]`; the matrices of the inputs
/// and of the state of the LSTM, `[gates, width]`, and their bias; a row and its bias. `tests/real/silero_vad.py` writes it.
static WEIGHTS: &[u8] = include_bytes!("silero_v6.bin");

/// Samples of a chunk.
pub(super) const CHUNK: usize = 512;
/// Samples before a chunk that it depends on.
const CONTEXT: usize = 64;
/// Chunks that are computed together.
const BATCH: usize = 16;
/// Frames of a chunk: their number, samples and frequencies, and the samples from one to the next.
const FRAMES: usize = 4;
const FRAME: usize = 256;
const BINS: usize = FRAME / 2 + 1;
const HOP: usize = 128;
/// The width of the LSTM, and its gates: input, output, forget, cell.
const WIDTH: usize = 128;
const GATES: usize = 4 * WIDTH;
/// Larger samples are cut; sound is from -1 to 1.
const LARGEST: f32 = 64.0;

/// The weights, packed for an instruction set.
struct Network {
    isa: Isa,
    window: Vec<f64>,
    transform: Arc<dyn RealToComplex<f64>>,
    convolutions: [Linear; 4],
    inputs: Linear,
    recurrent: Linear,
    /// The last row, and its bias.
    output: Vec<f32>,
}

impl Network {
    fn new(isa: Isa) -> Result<Self, KernelError> {
        let mut numbers =
            WEIGHTS.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let mut take = |count: usize| numbers.by_ref().take(count).collect::<Vec<f32>>();
        let mut layer = |outputs: usize, inputs: usize, bias: usize| {
            let (weight, bias) = (take(outputs * inputs), take(bias));
            let bias = (!bias.is_empty()).then_some(&bias[..]);
            Linear::new(isa, Dtype::F32, Matrix::new(&weight, outputs, inputs)?, bias)
        };
        let convolutions = [
            layer(128, 3 * BINS, 128)?,
            layer(64, 3 * 128, 64)?,
            layer(64, 2 * 64, 64)?,
            layer(WIDTH, 64, WIDTH)?,
        ];
        let inputs = layer(GATES, WIDTH, 0)?;
        let recurrent = layer(GATES, WIDTH, GATES)?;
        let angle = core::f64::consts::TAU / FRAME as f64;
        Ok(Self {
            isa,
            window: (0..FRAME).map(|i| 0.5 - 0.5 * (angle * i as f64).cos()).collect(),
            transform: RealFftPlanner::new().plan_fft_forward(FRAME),
            convolutions,
            inputs,
            recurrent,
            output: take(WIDTH + 1),
        })
    }
}

/// What a batch of chunks is computed in.
#[derive(Clone)]
struct Scratch {
    frame: Vec<f64>,
    spectrum: Vec<Complex<f64>>,
    transform: Vec<Complex<f64>>,
    /// The inputs of the first two convolutions, `[4 chunks, 3 taps, bins]` and `[2 chunks, 3 taps, 128]`. What is padding
    /// stays zero.
    magnitudes: Vec<f32>,
    taps: Vec<f32>,
    /// What the convolutions and the LSTM write, `[chunks, ...]`.
    outputs: [Vec<f32>; 4],
    gates: Vec<f32>,
    probabilities: [f32; BATCH],
}

/// Returns the probability of speech for each chunk of 512 samples (32 ms at 16 kHz), for samples that come in any pieces.
///
/// The network is Silero's, version 6; its probabilities are within 1e-4 of those that onnxruntime computes. A chunk depends
/// on those before it. After [`new`](Self::new) nothing is allocated. The bits depend on the samples alone: not on the
/// pieces, nor on the instruction set.
///
/// A clone continues from the same state and shares the weights: to listen to many streams, clone a new detector.
///
/// ```
/// use simdformer_speech::vad::SpeechDetector;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut detector = SpeechDetector::new()?;
/// let mut probabilities = Vec::new();
/// let samples = vec![0.0; 16_000]; // one second
/// for piece in samples.chunks(1_000) {
///     detector.push(piece, &mut |probability| probabilities.push(probability))?;
/// }
/// detector.finish(&mut |probability| probabilities.push(probability))?;
/// assert_eq!(probabilities.len(), 32);
/// assert!(probabilities.iter().all(|&probability| probability < 0.1));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SpeechDetector {
    network: Arc<Network>,
    state: [f32; WIDTH],
    cell: [f32; WIDTH],
    /// The samples before the next chunk, then those of it and of further ones.
    samples: Vec<f32>,
    filled: usize,
    scratch: Scratch,
}

impl fmt::Debug for SpeechDetector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpeechDetector").field("isa", &self.network.isa).finish_non_exhaustive()
    }
}

impl SpeechDetector {
    /// Samples of a chunk: 512.
    pub const CHUNK: usize = CHUNK;
    /// Samples per second: 16,000.
    pub const RATE: u32 = 16_000;

    /// A detector at the start of a recording, for the instruction set that [`Isa::detect`] returns.
    ///
    /// # Errors
    /// The environment names an instruction set that the machine lacks.
    pub fn new() -> Result<Self, Error> {
        Self::with_isa(Isa::detect().map_err(simdformer::Error::from)?)
    }

    /// A detector for an instruction set.
    ///
    /// # Errors
    /// None for the instruction sets of this machine.
    pub fn with_isa(isa: Isa) -> Result<Self, Error> {
        let network = Network::new(isa).map_err(simdformer::Error::from)?;
        let transform = &network.transform;
        let scratch = Scratch {
            frame: transform.make_input_vec(),
            spectrum: transform.make_output_vec(),
            transform: transform.make_scratch_vec(),
            magnitudes: vec![0.0; BATCH * FRAMES * 3 * BINS],
            taps: vec![0.0; BATCH * 2 * 3 * 128],
            outputs: [FRAMES * 128, 2 * 64, 64, WIDTH].map(|len| vec![0.0; BATCH * len]),
            gates: vec![0.0; BATCH * GATES],
            probabilities: [0.0; BATCH],
        };
        Ok(Self {
            network: Arc::new(network),
            state: [0.0; WIDTH],
            cell: [0.0; WIDTH],
            samples: vec![0.0; CONTEXT + BATCH * CHUNK],
            filled: CONTEXT,
            scratch,
        })
    }

    /// Forgets everything that was heard.
    pub fn reset(&mut self) {
        self.state.fill(0.0);
        self.cell.fill(0.0);
        self.samples.fill(0.0);
        self.filled = CONTEXT;
    }

    /// Takes the next samples, one channel at 16 kHz, -1 to 1, and calls `on_probability` for each chunk that they complete.
    ///
    /// # Errors
    /// A sample is not finite. The probabilities of the chunks before its own are reported.
    pub fn push(
        &mut self,
        samples: &[f32],
        on_probability: &mut dyn FnMut(f32),
    ) -> Result<(), Error> {
        let good = samples.iter().position(|sample| !sample.is_finite()).unwrap_or(samples.len());
        let mut rest = &samples[..good];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(self.samples.len() - self.filled));
            let space = &mut self.samples[self.filled..][..now.len()];
            for (space, sample) in space.iter_mut().zip(now) {
                *space = sample.clamp(-LARGEST, LARGEST);
            }
            self.filled += now.len();
            rest = later;
            if rest.is_empty() || self.filled == self.samples.len() {
                self.compute((self.filled - CONTEXT) / CHUNK, on_probability)?;
            }
        }
        match samples.get(good) {
            None => Ok(()),
            Some(found) => Err(Error::invalid_input("a sample", "a finite number", found)),
        }
    }

    /// Fills up the last chunk with zeros, reports it unless it is empty, and [resets](Self::reset) the detector.
    ///
    /// # Errors
    /// None.
    pub fn finish(&mut self, on_probability: &mut dyn FnMut(f32)) -> Result<(), Error> {
        if self.filled > CONTEXT {
            self.samples[self.filled..].fill(0.0);
            self.filled = CONTEXT + CHUNK;
            self.compute(1, on_probability)?;
        }
        self.reset();
        Ok(())
    }

    /// Computes the first `chunks` chunks and keeps the samples after them.
    fn compute(&mut self, chunks: usize, on_probability: &mut dyn FnMut(f32)) -> Result<(), Error> {
        if chunks == 0 {
            return Ok(());
        }
        self.spectra(chunks)?;
        self.layers(chunks).map_err(simdformer::Error::from)?;
        self.scratch.probabilities[..chunks].iter().copied().for_each(on_probability);
        self.samples.copy_within(chunks * CHUNK..self.filled, 0);
        self.filled -= chunks * CHUNK;
        Ok(())
    }

    /// The magnitudes of all frequencies, as taps of the frame itself and of its neighbors.
    fn spectra(&mut self, chunks: usize) -> Result<(), Error> {
        let Self { network, samples, scratch, .. } = self;
        let Scratch { frame, spectrum, transform, magnitudes, .. } = scratch;
        let taps = magnitudes.chunks_exact_mut(FRAMES * 3 * BINS);
        for (chunk, taps) in taps.take(chunks).enumerate() {
            let heard = &samples[chunk * CHUNK..][..CONTEXT + CHUNK];
            let last = heard.len() - 1;
            for number in 0..FRAMES {
                for ((into, window), i) in frame.iter_mut().zip(&network.window).zip(number * HOP..)
                {
                    // Mirrored at the last sample.
                    *into = f64::from(heard[i.min(2 * last - i)]) * window;
                }
                // The lengths are those of the transform.
                if network.transform.process_with_scratch(frame, spectrum, transform).is_err() {
                    let expected = FRAME.to_string();
                    return Err(Error::invalid_input("window", expected, frame.len()));
                }
                for (bin, value) in spectrum.iter().enumerate() {
                    let magnitude = value.norm_sqr().sqrt() as f32;
                    // A frame is the second tap of itself, the last of the one before it, and the first of the one after it.
                    for tap in 0..3 {
                        if let Some(row) = (number + 1).checked_sub(tap).filter(|&row| row < FRAMES)
                        {
                            taps[(row * 3 + tap) * BINS + bin] = magnitude;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The layers after the spectrum.
    fn layers(&mut self, chunks: usize) -> Result<(), KernelError> {
        let Self { network, state, cell, scratch, .. } = self;
        let Scratch { magnitudes, taps, outputs, gates, probabilities, .. } = scratch;
        let [first, second, third, fourth] = outputs;
        let serial = Parallelism::Serial;
        let relu = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
        let run =
            |layer: &Linear, rows: usize, x: &[f32], epilogue: &Epilogue<'_>, y: &mut [f32]| {
                let x = Matrix::new(x, rows, layer.inputs())?;
                let y = MatrixMut::new(y, rows, layer.outputs())?;
                layer.forward_with(x, epilogue, y, &mut [], serial)
            };
        let [one, two, three, four] = &network.convolutions;
        run(one, FRAMES * chunks, magnitudes, &relu, first)?;
        // Every second position: padding, 0, 1; and 1, 2, 3.
        for (from, to) in
            first.chunks_exact(FRAMES * 128).zip(taps.chunks_exact_mut(6 * 128)).take(chunks)
        {
            to[128..3 * 128].copy_from_slice(&from[..2 * 128]);
            to[3 * 128..].copy_from_slice(&from[128..]);
        }
        run(two, 2 * chunks, taps, &relu, second)?;
        run(three, chunks, second, &relu, third)?;
        run(four, chunks, third, &relu, fourth)?;
        run(&network.inputs, chunks, fourth, &Epilogue::default(), gates)?;
        let (row, bias) = network.output.split_at(WIDTH);
        let add = Epilogue { post_op: PostOp::AddOutput, ..Epilogue::default() };
        let apply = |what, x: &mut [f32]| {
            let count = x.len();
            activation::apply(
                Exec::serial(network.isa),
                what,
                Input::Output,
                MatrixMut::new(x, 1, count)?,
            )
        };
        for (gates, out) in gates.chunks_exact_mut(GATES).zip(&mut *probabilities).take(chunks) {
            run(&network.recurrent, 1, state, &add, gates)?;
            let (open, new) = gates.split_at_mut(3 * WIDTH);
            apply(Activation::Sigmoid, open)?;
            apply(Activation::Tanh, new)?;
            for (i, cell) in cell.iter_mut().enumerate() {
                *cell = open[2 * WIDTH + i] * *cell + open[i] * new[i];
            }
            state.copy_from_slice(cell);
            apply(Activation::Tanh, state)?;
            state.iter_mut().zip(&open[WIDTH..]).for_each(|(state, open)| *state *= open);
            let heard = state.iter().zip(row).map(|(state, weight)| state.max(0.0) * weight);
            *out = heard.sum::<f32>() + bias[0];
        }
        apply(Activation::Sigmoid, &mut probabilities[..chunks])
    }
}
