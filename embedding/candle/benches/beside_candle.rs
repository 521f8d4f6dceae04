//! Our ops compared with candle's own in one run: `cargo bench` in this folder prints a table.
//!
//! Both run in turn within a round, and a ratio is computed within a round. The printed numbers are
//! medians. candle reads its number of threads from `RAYON_NUM_THREADS` once for a process. Without this
//! variable the program starts itself with one thread and with two. Everything runs inside candle's pool,
//! entered once.
//!
//! `cargo bench -- attention` runs the rows with that word. On a machine that is also used for other work,
//! `cargo bench -- --fastest` prints the fastest rounds instead of medians.

use candle_core::{CpuStorage, CustomOp1, D, Device, Layout, Module, Result, Shape, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use candle_nn::{LayerNorm, Linear};
use candle_transformers::models::marian::MTModel;
use simdformer_candle::marian::Marian;
use simdformer_candle::{AddLayerNorm, HeadLayout, SimdAttention, SimdLinear, Threads};
use simdformer_candle_support::{Random, checkpoint};
use simdformer_kernels::{Activation, Isa, Matrix, MatrixMut};
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const ROUNDS: usize = 31;
/// The minimum duration of one measurement.
const SAMPLE: Duration = Duration::from_millis(2);

type Work<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// Seconds of each work in each round. The works run in turn.
fn alternate(works: &mut [Work<'_>]) -> Result<Vec<Vec<f64>>> {
    let mut counts = Vec::new();
    for work in works.iter_mut() {
        work()?;
        let start = Instant::now();
        work()?;
        let once = start.elapsed().as_secs_f64();
        counts.push((SAMPLE.as_secs_f64() / once).ceil().clamp(1.0, 1e4) as usize);
    }
    let mut seconds = vec![Vec::new(); works.len()];
    for round in 0..ROUNDS {
        for turn in 0..works.len() {
            let index = (turn + round) % works.len();
            let start = Instant::now();
            for _ in 0..counts[index] {
                works[index]()?;
            }
            seconds[index].push(start.elapsed().as_secs_f64() / counts[index] as f64);
        }
    }
    Ok(seconds)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The number that is printed for the rounds of one work.
fn typical(seconds: &[f64]) -> f64 {
    match fastest() {
        true => seconds.iter().copied().fold(f64::INFINITY, f64::min),
        false => median(seconds.iter().copied()),
    }
}

fn fastest() -> bool {
    std::env::args().any(|argument| argument == "--fastest")
}

/// Whether the rows of `work` are requested.
fn wanted(work: &str) -> bool {
    let mut words =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    words.peek().is_none() || words.any(|word| work.contains(&word))
}

fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1e-3 => format!("{:.2} us", seconds * 1e6),
        _ => format!("{:.2} ms", seconds * 1e3),
    }
}

/// Prints a row of the table.
fn row(work: &str, shape: &str, ours: Work<'_>, theirs: Work<'_>) -> Result<()> {
    if !wanted(work) {
        return Ok(());
    }
    let seconds = alternate(&mut [ours, theirs])?;
    let [ours, theirs] = [0, 1].map(|index| typical(&seconds[index]));
    let ratio = match fastest() {
        true => theirs / ours,
        false => median(seconds[0].iter().zip(&seconds[1]).map(|(ours, theirs)| theirs / ours)),
    };
    let [ours, theirs] = [ours, theirs].map(time);
    println!("| {work} | {shape} | {ours} | {theirs} | {ratio:.2} |");
    Ok(())
}

fn linear(isa: Isa, random: &mut Random) -> Result<()> {
    for (rows, outputs, inputs) in
        [(1, 2048, 512), (8, 512, 512), (8, 2048, 512), (256, 2048, 512), (256, 512, 2048)]
    {
        let own = Linear::new(random.tensor(&[outputs, inputs])?, Some(random.tensor(&[outputs])?));
        let x = random.tensor(&[rows, inputs])?;
        let layer = SimdLinear::from_linear(isa, &own)?;
        let shape = format!("{rows} x {outputs} x {inputs}");
        row(
            "linear + bias",
            &shape,
            Box::new(|| layer.forward(&x).map(drop)),
            Box::new(|| own.forward(&x).map(drop)),
        )?;
        if (rows, outputs) == (256, 2048) {
            let layer = layer.clone().activated(Activation::Silu);
            row(
                "linear + bias + SiLU",
                &shape,
                Box::new(|| layer.forward(&x).map(drop)),
                Box::new(|| own.forward(&x)?.silu().map(drop)),
            )?;
            let turned = random.tensor(&[inputs, rows])?.t()?;
            let layer = SimdLinear::from_linear(isa, &own)?;
            row(
                "linear + bias, transposed input",
                &shape,
                Box::new(|| layer.forward(&turned).map(drop)),
                Box::new(|| own.forward(&turned).map(drop)),
            )?;
        }
    }
    Ok(())
}

/// Attention as a product, a softmax and a product, with tokens first in input and output.
fn products(query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let first = |tensor: &Tensor| tensor.transpose(1, 2)?.contiguous();
    let scale = 1.0 / (query.dim(3)? as f64).sqrt();
    let scores =
        ((first(query)? * scale)?).matmul(&first(key)?.transpose(D::Minus2, D::Minus1)?)?;
    let scores = match mask {
        Some(mask) => scores.broadcast_add(mask)?,
        None => scores,
    };
    candle_nn::ops::softmax_last_dim(&scores)?.matmul(&first(value)?)?.transpose(1, 2)?.contiguous()
}

fn attention(isa: Isa, random: &mut Random) -> Result<()> {
    for tokens in [128, 1024] {
        let [query, key, value] = [(); 3].map(|()| random.tensor(&[1, tokens, 8, 64]));
        let (query, key, value) = (query?, key?, value?);
        let mask = (0..tokens * tokens).map(|index| match index % tokens > index / tokens {
            true => f32::NEG_INFINITY,
            false => 0.0,
        });
        let mask = Tensor::from_iter(mask, &Device::Cpu)?.reshape((tokens, tokens))?;
        let shape = format!("8 heads x {tokens} x {tokens} x 64");
        for causal in [false, true] {
            let op = SimdAttention::new(isa, HeadLayout::TokensFirst);
            let (op, name, mask) = match causal {
                false => (op, "attention", None),
                true => (op.causal(), "causal attention", Some(&mask)),
            };
            let ours = || op.attend(&query, &key, &value).map(drop);
            row(
                &format!("{name}, beside `matmul` and `softmax`"),
                &shape,
                Box::new(ours),
                Box::new(|| products(&query, &key, &value, mask).map(drop)),
            )?;
            let theirs = || match causal {
                false => AttnMask::None,
                true => AttnMask::causal(),
            };
            row(
                &format!("{name}, beside `flash_attn`"),
                &shape,
                Box::new(ours),
                Box::new(|| {
                    flash_attn::<f32>(&query, &key, &value, 0.125, theirs(), None, None).map(drop)
                }),
            )?;
        }
    }
    Ok(())
}

fn norm(isa: Isa, random: &mut Random) -> Result<()> {
    for rows in [8, 256] {
        let own = LayerNorm::new(random.tensor(&[512])?, random.tensor(&[512])?, 1e-5);
        let norm = AddLayerNorm::from_layer_norm(isa, &own)?;
        let (residual, x) = (random.tensor(&[rows, 512])?, random.tensor(&[rows, 512])?);
        let theirs = residual.copy()?;
        row(
            "add + layer norm",
            &format!("{rows} x 512"),
            Box::new(|| norm.add(&residual, &x)),
            Box::new(|| own.forward(&(&theirs + &x)?).map(drop)),
        )?;
    }
    Ok(())
}

fn marian(isa: Isa, random: &mut Random) -> Result<()> {
    if !wanted("OPUS-MT, encode and steps") {
        return Ok(());
    }
    const SOURCE: usize = 32;
    const STEPS: usize = 16;
    let config = checkpoint::opus();
    let ours = Marian::load(isa, &config, checkpoint::seeded(None))?;
    let mut theirs = MTModel::new(&config, checkpoint::seeded(None))?;
    for batch in [1, 8] {
        let ids: Vec<u32> = (0..batch * SOURCE).map(|_| random.from(1, 3999) as u32).collect();
        let ids = Tensor::from_vec(ids, (batch, SOURCE), &Device::Cpu)?;
        let start = Tensor::full(config.decoder_start_token_id, (batch, 1), &Device::Cpu)?;
        let lengths = vec![SOURCE; batch];
        let theirs = &mut theirs;
        row(
            "OPUS-MT, encode",
            &format!("{batch} x {SOURCE} tokens"),
            Box::new(|| ours.encode(&ids, &lengths).map(drop)),
            Box::new(|| {
                theirs.reset_kv_cache();
                theirs.encoder().forward(&ids, 0).map(drop)
            }),
        )?;
        let encoded = ours.encode(&ids, &lengths)?;
        theirs.reset_kv_cache();
        let states = theirs.encoder().forward(&ids, 0)?;
        row(
            &format!("OPUS-MT, {STEPS} steps, 4001 words"),
            &format!("{batch} sentences of {SOURCE} tokens"),
            Box::new(|| {
                let mut cache = ours.kv_cache(batch, STEPS)?;
                for _ in 0..STEPS {
                    ours.decode(&start, &encoded, &mut cache)?;
                }
                Ok(())
            }),
            Box::new(|| {
                theirs.reset_kv_cache();
                for step in 0..STEPS {
                    theirs.decode(&start, &states, step)?;
                }
                Ok(())
            }),
        )?;
    }
    Ok(())
}

/// An op that only allocates a result of the shape of a linear layer's.
struct Nothing(usize);

impl CustomOp1 for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn cpu_fwd(&self, _: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let mut dims = layout.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = self.0;
        }
        Ok((CpuStorage::F32(vec![0.0; dims.iter().product()]), Shape::from(dims)))
    }
}

/// The overhead of an op beside the kernel that it calls.
fn boundary(isa: Isa, random: &mut Random) -> Result<()> {
    if !wanted("boundary") {
        return Ok(());
    }
    let (rows, outputs, inputs) = (8, 512, 512);
    let layer = SimdLinear::new(isa, &random.tensor(&[outputs, inputs])?, None)?;
    let layer = layer.threads(Threads::Serial);
    let floats = random.floats(rows * inputs);
    let x = Tensor::from_vec(floats.clone(), (rows, inputs), &Device::Cpu)?;
    let mut out = vec![0.0; rows * outputs];
    let nothing = Nothing(outputs);
    let seconds = alternate(&mut [
        Box::new(|| layer.forward(&x).map(drop)),
        Box::new(|| {
            let a = Matrix::new(&floats, rows, inputs).map_err(candle_core::Error::wrap)?;
            let to = MatrixMut::new(&mut out, rows, outputs).map_err(candle_core::Error::wrap)?;
            layer.multiply(a, to)?;
            black_box(&mut out);
            Ok(())
        }),
        Box::new(|| x.apply_op1_no_bwd(&nothing).map(drop)),
    ])?;
    let [op, kernel, nothing] = [0, 1, 2].map(|index| typical(&seconds[index]));
    let cost = match fastest() {
        true => op - kernel,
        false => median(seconds[0].iter().zip(&seconds[1]).map(|(op, kernel)| op - kernel)),
    };
    println!();
    println!(
        "The boundary at {rows} x {outputs} x {inputs}: the op takes {}, the kernel {}; the op \
         takes {:.2} us more. An op that does nothing but return zeros of that shape \
         takes {}.",
        time(op),
        time(kernel),
        cost * 1e6,
        time(nothing)
    );
    Ok(())
}

fn run() -> Result<()> {
    let isa = simdformer_candle_support::isa();
    let threads = candle_core::utils::get_num_threads();
    let what = if fastest() { "fastest" } else { "medians" };
    println!("\n{threads} thread(s), {}, {what} of {ROUNDS} rounds\n", isa.name());
    println!("| work | shape | ours | candle | candle / ours |\n|---|---|---|---|---|");
    let mut random = Random::new(71);
    linear(isa, &mut random)?;
    attention(isa, &mut random)?;
    norm(isa, &mut random)?;
    marian(isa, &mut random)?;
    boundary(isa, &mut random)
}

fn main() -> ExitCode {
    if std::env::var_os("RAYON_NUM_THREADS").is_some() {
        return match Device::Cpu.with_context(run) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("beside_candle: {error}");
                ExitCode::FAILURE
            }
        };
    }
    for threads in ["1", "2"] {
        let status = std::env::current_exe().and_then(|program| {
            let arguments = std::env::args_os().skip(1);
            Command::new(program).args(arguments).env("RAYON_NUM_THREADS", threads).status()
        });
        if !status.is_ok_and(|status| status.success()) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
