//! Pools around, inside and beside the ops: the same bits, and no thread waits for ever.

use candle_core::{Device, Module, Result, Tensor};
use rayon::prelude::*;
use simdformer_candle::{AddLayerNorm, HeadLayout, SimdAttention, SimdLinear, Threads};
use simdformer_candle_support::{Random, bits, isa};
use simdformer_kernels::Activation;

struct Block {
    linear: SimdLinear,
    norm: AddLayerNorm,
    threads: Threads,
}

impl Block {
    fn new(threads: Threads) -> Result<Self> {
        let mut random = Random::new(41);
        let linear = SimdLinear::new(isa(), &random.tensor(&[256, 256])?, None)?;
        let [weight, bias] = [random.tensor(&[256])?, random.tensor(&[256])?];
        let norm = AddLayerNorm::new(isa(), &weight, &bias, 1e-5)?;
        let linear = linear.activated(Activation::Gelu).threads(threads);
        Ok(Self { linear, norm: norm.threads(threads), threads })
    }

    /// Large enough that every op uses more than one thread. Every second call copies an operand.
    fn run(&self, call: usize) -> Result<Vec<u32>> {
        let mut random = Random::new(call as u64 + 42);
        let x = match call % 2 {
            0 => random.tensor(&[2, 96, 256])?,
            _ => random.tensor(&[96, 256, 2])?.permute((2, 0, 1))?,
        };
        let y = self.linear.forward(&x)?;
        let heads = y.reshape((2, 96, 4, 64))?;
        let key = match call % 2 {
            0 => heads.clone(),
            _ => heads.transpose(2, 3)?.contiguous()?.transpose(2, 3)?,
        };
        let op = SimdAttention::new(isa(), HeadLayout::TokensFirst).threads(self.threads);
        let z = op.causal().attend(&heads, &key, &heads)?.reshape((2, 96, 256))?;
        self.norm.add(&y, &z)?;
        bits(&y)
    }
}

const CALLS: usize = 12;

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool")
}

#[test]
fn every_pool_gives_the_bits_of_one_thread() -> Result<()> {
    let serial = Block::new(Threads::Serial)?;
    let expected: Vec<_> = (0..CALLS).map(|call| serial.run(call)).collect::<Result<_>>()?;
    let shared = Block::new(Threads::Rayon)?;
    let all = || (0..CALLS).map(|call| shared.run(call)).collect::<Result<Vec<_>>>();
    assert_eq!(all()?, expected, "rayon's global pool");
    for threads in [1, 2, 3, 7] {
        assert_eq!(pool(threads).install(all)?, expected, "a pool of {threads}");
    }
    assert_eq!(Device::Cpu.with_context(all)?, expected, "candle's pool");
    Ok(())
}

#[test]
fn concurrent_calls_share_a_pool() -> Result<()> {
    let serial = Block::new(Threads::Serial)?;
    let expected: Vec<_> = (0..CALLS).map(|call| serial.run(call)).collect::<Result<_>>()?;
    for inner in [Threads::Serial, Threads::Rayon] {
        let block = Block::new(inner)?;
        for threads in [1, 2, 3] {
            let found: Result<Vec<_>> = pool(threads)
                .install(|| (0..CALLS).into_par_iter().map(|call| block.run(call)).collect());
            assert_eq!(found?, expected, "{inner:?} inside a pool of {threads}");
        }
    }
    Ok(())
}

/// Threads of the application, each of which calls ops that share rayon's global pool.
#[test]
fn concurrent_threads_share_the_global_pool() -> Result<()> {
    let serial = Block::new(Threads::Serial)?;
    let block = Block::new(Threads::Rayon)?;
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4)
            .map(|call| {
                (
                    call,
                    scope.spawn({
                        let block = &block;
                        move || block.run(call)
                    }),
                )
            })
            .collect();
        for (call, found) in calls {
            assert_eq!(found.join().expect("no panic")?, serial.run(call)?);
        }
        Ok(())
    })
}

/// Views of one storage, which candle locks once for each.
#[test]
fn views_of_one_storage_are_read_together() -> Result<()> {
    let fused = Random::new(43).tensor(&[2, 20, 3, 4, 16])?;
    let part = |index| fused.narrow(2, index, 1)?.squeeze(2);
    let op = SimdAttention::new(isa(), HeadLayout::TokensFirst);
    let found = op.attend(&part(0)?, &part(1)?, &part(2)?)?;
    let alone = |index: usize| -> Result<Tensor> { part(index)?.contiguous() };
    assert_eq!(bits(&found)?, bits(&op.attend(&alone(0)?, &alone(1)?, &alone(2)?)?)?);
    Ok(())
}
