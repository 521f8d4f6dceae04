//! Tells the crate with which optimization it is compiled, which a compiler tells nobody else: without any, the
//! kernels work and are hundreds of times slower, and whoever loads a model can say so. Declares the one `cfg` that
//! `.ci/tsan` sets.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(small_tasks)");
    if let Ok(level) = std::env::var("OPT_LEVEL") {
        println!("cargo::rustc-env=SIMDFORMER_KERNELS_OPT_LEVEL={level}");
    }
}
