//! Tells the crate with which optimization it is compiled, which a compiler tells nobody else: without any, the
//! kernels work and are hundreds of times slower, and whoever loads a model can say so. Says with `cfg(vectors)` for which
//! architecture there are vector registers. Declares the one `cfg` that `.ci/sanitize` sets.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(small_tasks)");
    println!("cargo::rustc-check-cfg=cfg(vectors, values(\"x86_64\", \"aarch64\"))");
    // Targets without an operating system, for kernels and firmware, have the architecture and not its registers for
    // floats: functions there may not even pass a vector. They have the scalar set only. `Cargo.toml` has the same
    // conditions for pulp.
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let features = variable("CARGO_CFG_TARGET_FEATURE");
    let has = |feature: &str| features.split(',').any(|found| found == feature);
    match variable("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" if has("sse2") => println!("cargo::rustc-cfg=vectors=\"x86_64\""),
        "aarch64" if has("neon") => println!("cargo::rustc-cfg=vectors=\"aarch64\""),
        _ => {}
    }
    if let Ok(level) = std::env::var("OPT_LEVEL") {
        println!("cargo::rustc-env=SIMDFORMER_KERNELS_OPT_LEVEL={level}");
    }
}
