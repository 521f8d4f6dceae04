//! An op allocates its result, which candle's interface requires, and nothing else.
//!
//! Compared with ops that only return a result of the same shape, serial and on a pool of two threads.

use candle_core::{
    CpuStorage, CustomOp1, CustomOp3, InplaceOp2, Layout, Module, Result, Shape, Tensor,
};
use simdformer_candle::{AddLayerNorm, HeadLayout, SimdAttention, SimdLinear, Threads};
use simdformer_candle_support::Random;
use simdformer_kernels::Activation;
use std::alloc::{GlobalAlloc, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the allocator of the system.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: std::alloc::Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: std::alloc::Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns a result of the width of a linear layer, or of the shape of the query.
struct Nothing(usize);

impl CustomOp1 for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn cpu_fwd(&self, _: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let mut dims = layout.dims().to_vec();
        *dims.last_mut().expect("a dimension") = self.0;
        Ok((CpuStorage::F32(vec![0.0; dims.iter().product()]), Shape::from(dims)))
    }
}

impl CustomOp3 for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        layout: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let shape = layout.shape().clone();
        Ok((CpuStorage::F32(vec![0.0; shape.elem_count()]), shape))
    }
}

impl InplaceOp2 for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<()> {
        Ok(())
    }
}

/// Allocations of 10 calls, after the thread has allocated its scratch memory.
fn count(what: &str, call: &dyn Fn() -> Result<()>) -> Result<usize> {
    for _ in 0..3 {
        call()?;
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..10 {
        call()?;
    }
    let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
    println!("{what}: {count} allocations in 10 calls");
    Ok(count)
}

fn check(threads: Threads) -> Result<()> {
    let isa = simdformer_candle_support::isa();
    let mut random = Random::new(51);
    let layer = SimdLinear::new(isa, &random.tensor(&[300, 200])?, Some(&random.tensor(&[300])?))?
        .activated(Activation::Gelu)
        .threads(threads);
    let nothing = Nothing(300);
    for (name, x) in [
        ("dense", random.tensor(&[4, 40, 200])?),
        ("transposed", random.tensor(&[200, 160])?.t()?),
        ("copied", random.tensor(&[40, 4, 200])?.transpose(0, 1)?),
    ] {
        let least = count("nothing", &|| x.apply_op1_no_bwd(&nothing).map(drop))?;
        let found =
            count(&format!("linear, {name}, {threads:?}"), &|| layer.forward(&x).map(drop))?;
        assert_eq!(found, least, "linear, {name}");
    }

    let fused = random.tensor(&[4, 64, 3, 4, 48])?;
    let part = |index| fused.narrow(2, index, 1)?.squeeze(2);
    let [query, key, value] = [part(0)?, part(1)?, part(2)?];
    let scattered = random.tensor(&[4, 64, 48, 4])?.transpose(2, 3)?;
    let lengths = [64, 1, 30, 17];
    for (layout, lengths) in [
        (HeadLayout::TokensFirst, None),
        (HeadLayout::TokensFirst, Some(&lengths)),
        (HeadLayout::HeadsFirst, None),
        (HeadLayout::HeadsFirst, Some(&lengths)),
    ] {
        for (name, key) in [("in place", &key), ("copied", &scattered)] {
            let mut op = SimdAttention::new(isa, layout).threads(threads);
            if let Some(lengths) = lengths {
                op = op.lengths(lengths);
            }
            let ordered = |tensor: &Tensor| match layout {
                HeadLayout::TokensFirst => Ok(tensor.clone()),
                HeadLayout::HeadsFirst => tensor.transpose(1, 2),
            };
            let (query, key, value) = (ordered(&query)?, ordered(key)?, ordered(&value)?);
            let least =
                count("nothing", &|| query.apply_op3_no_bwd(&key, &value, &nothing).map(drop))?;
            let what = format!("attention, {layout:?}, {name}, {threads:?}");
            let found = count(&what, &|| op.attend(&query, &key, &value).map(drop))?;
            assert_eq!(found, least, "{what}");
        }
    }

    let norm = AddLayerNorm::new(isa, &random.tensor(&[200])?, &random.tensor(&[200])?, 1e-5)?
        .threads(threads);
    for (name, residual, x) in [
        ("dense", random.tensor(&[160, 200])?, random.tensor(&[160, 200])?),
        ("copied", random.tensor(&[200, 160])?.t()?, random.tensor(&[200, 160])?.t()?),
    ] {
        let least = count("nothing", &|| residual.inplace_op2(&x, &nothing))?;
        let found =
            count(&format!("add + layer norm, {name}, {threads:?}"), &|| norm.add(&residual, &x))?;
        assert_eq!(found, least, "add + layer norm, {name}");
    }
    Ok(())
}

fn main() -> Result<()> {
    check(Threads::Serial)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
    pool.install(|| check(Threads::Rayon))
}
