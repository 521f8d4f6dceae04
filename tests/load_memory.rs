//! The memory that loading takes: at most 1.15 times the packed weights and the largest tensor when the
//! weights are read from a file, and 1.05 times the packed weights when they are borrowed from memory.

use random_model::Dims;
use simdformer::Model;
use simdformer::checkpoint::{Checkpoint, Dtype};
use simdformer::config::Family;
use simdformer::kernels::Isa;
use simdformer_testing::{counting, effort, random_model};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// The resident memory of this process, if the system reports it.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? * 1024)
}

/// This is the only test of the program: the counter counts every thread.
#[test]
fn loading_peaks_at_the_packed_weights() {
    for family in [Family::Marian, Family::Bart, Family::M2M100, Family::NnTransformer] {
        let dims = Dims {
            d_model: 192,
            layers: [3, 2],
            heads: [3, 6],
            ffn: [775, 769],
            vocabulary: 5003,
            ..Dims::small(family)
        };
        let sizes =
            dims.tensors().into_iter().map(|(_, shape)| shape.iter().product::<usize>() * 4);
        let largest = sizes.max().expect("a tensor");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("load").join(family.model_type());
        dims.write(5, &folder);
        for isa in sets(family) {
            let before = counting::bytes();
            let resident = resident_bytes();
            counting::forget_peak();
            let checkpoint = Checkpoint::open(&folder).expect("a checkpoint");
            let needed = Model::requirements(&checkpoint, isa).expect("requirements");
            let opened = counting::bytes();
            counting::forget_peak();
            let model = Model::load(&checkpoint, isa).expect("a model");
            let weights = model.bytes();
            // The bytes that `requirements` stated, and some bookkeeping for each tensor.
            let loading =
                counting::peak() - opened + if cfg!(target_os = "linux") { weights } else { 0 };
            let lists = 400 * model.parameters().len() + 4096;
            let most = needed.peak_bytes + lists;
            assert!(
                needed.model_bytes == weights && needed.peak_bytes <= loading,
                "{needed:?} {loading}"
            );
            assert!(
                loading <= most,
                "{family:?} {isa}: {loading} bytes while loading, expected {most}"
            );
            // Weights of this size are in memory mappings, which the counting allocator does
            // not see.
            let pages = if cfg!(target_os = "linux") { weights } else { 0 };
            if let (Some(before), Some(after)) = (resident, resident_bytes()) {
                let grown = after.saturating_sub(before);
                assert!(grown as f64 >= 0.5 * weights as f64, "{grown} resident for {weights}");
            }
            let peak = counting::peak() - before + pages;
            let share = peak as f64 / weights as f64;
            assert!(peak >= weights, "the peak was not seen: {peak} for {weights}");
            let bound = 1.15 * weights as f64 + largest as f64;
            assert!(peak as f64 <= bound, "{family:?} {isa}: {peak} bytes at once, bound {bound}");
            drop(checkpoint);
            // What stays: the weights and some bookkeeping.
            let held = counting::bytes() - before + pages;
            assert!(held as f64 <= 1.01 * weights as f64, "{family:?} {isa}: {held} stay");
            drop((model, needed));
            assert_eq!(counting::bytes(), before, "{family:?} {isa}: bytes lost");
            // Printed at the end, because captured output is memory too.
            println!(
                "{} {isa}: weights {weights}, largest tensor {largest}, peak {peak} ({share:.4} x)",
                family.model_type()
            );
        }
        std::fs::remove_dir_all(&folder).expect("removed");
        borrowed(&dims, family);
    }
}

/// All instruction sets for one family, and the best one for the others.
fn sets(family: Family) -> impl Iterator<Item = Isa> {
    let all = family == Family::Marian;
    Isa::available().filter(move |&isa| all || effort::all_cases_on(isa))
}

/// Tensors in memory of the caller are read without a copy.
fn borrowed(dims: &Dims, family: Family) {
    let bytes = dims.bytes(5);
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    for isa in sets(family) {
        let before = counting::bytes();
        counting::forget_peak();
        let find = |name: &str| {
            let tensor = tensors.tensor(name).ok()?;
            let shape = tensor.shape().to_vec();
            Some((Dtype::F32, shape, tensor.data()))
        };
        let checkpoint = Checkpoint::from_tensors(dims.config(), find).expect("a checkpoint");
        let model = Model::load(&checkpoint, isa).expect("a model");
        let weights = model.bytes();
        let pages = if cfg!(target_os = "linux") { weights } else { 0 };
        let peak = counting::peak() - before + pages;
        assert!(peak >= weights, "the peak was not seen: {peak} for {weights}");
        let bound = 1.05 * weights as f64;
        assert!(peak as f64 <= bound, "{dims:?} {isa}: {peak} bytes at once, bound {bound}");
        drop(checkpoint);
        drop(model);
        assert_eq!(counting::bytes(), before, "{dims:?} {isa}: bytes lost");
    }
}
