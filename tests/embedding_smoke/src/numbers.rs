//! Pseudorandom numbers, and a small model made of them.

use simdformer::Model;
use simdformer::checkpoint::{Checkpoint, Dtype, TensorId};
use simdformer::config::{Config, Dimensions, SpecialTokens};
use simdformer_kernels::{Executor, Isa, ThreadPool};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A linear congruential generator.
pub(crate) struct Numbers(pub(crate) u32);

impl Numbers {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    pub(crate) fn float(&mut self) -> f32 {
        self.bits() as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

pub(crate) fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|x| x.to_bits()).collect()
}

/// A pool that counts the calls of `for_each`.
pub(crate) struct Engine {
    pool: ThreadPool,
    asked: AtomicUsize,
}

impl Engine {
    pub(crate) fn new(threads: usize) -> Self {
        Self { pool: ThreadPool::new(threads).expect("threads"), asked: AtomicUsize::new(0) }
    }

    /// Whether `for_each` was called, as it must be if the pool has several threads.
    pub(crate) fn was_asked(&self) -> bool {
        (self.asked.load(Ordering::Relaxed) > 0) == (self.threads() > 1)
    }
}

impl Executor for Engine {
    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.pool.for_each(tasks, task);
    }
}

pub(crate) const VOCABULARY: usize = 1200;

/// Wide enough that its products are split into tasks.
pub(crate) fn config() -> Config {
    let small =
        Dimensions { d_model: 96, heads: 4, layers: 2, ffn_dim: 256, vocabulary: VOCABULARY };
    let tokens = SpecialTokens { eos: vec![0], decoder_start: Some(1), ..SpecialTokens::default() };
    Config { tokens, ..Config::transformer(small) }
}

/// The tensors of a model by the names of their `TensorId`s, as an engine holds them.
pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

pub(crate) fn tensors(config: &Config) -> Tensors {
    let mut random = Numbers(3);
    let mut tensors = Tensors::new();
    for role in TensorId::all(config) {
        let Some(shape) = role.shape(config) else { continue };
        let numbers: usize = shape.iter().product();
        let floats = match shape[..] {
            [_] if role.to_string().ends_with("norm.weight") => vec![1.0; numbers],
            // The embeddings and the output matrix are tied, so they have the same numbers.
            [rows, _] if rows == config.target_vocab => {
                Numbers(4).floats(numbers).into_iter().map(|x| x / 4.0).collect()
            }
            _ => random.floats(numbers).into_iter().map(|x| x / 4.0).collect(),
        };
        let bytes = floats.into_iter().flat_map(f32::to_le_bytes).collect();
        let name = role.names(config).pop().expect("a name");
        tensors.entry(name).or_insert((shape, bytes));
    }
    tensors
}

/// Borrows `tensors` as a checkpoint.
pub(crate) fn checkpoint<'t>(
    config: &Config,
    tensors: &'t Tensors,
) -> Result<Checkpoint<'t>, simdformer::Error> {
    Checkpoint::from_tensors(config.clone(), |name| {
        let (shape, data) = tensors.get(name)?;
        Some((Dtype::F32, shape.clone(), &data[..]))
    })
}

pub(crate) fn model() -> Model {
    let config = config();
    let tensors = tensors(&config);
    Model::load(&checkpoint(&config, &tensors).expect("whole"), Isa::best()).expect("a model")
}
