//! Instruction sets: detection, names, selection, and the single entry into the `target_feature` regions.
//!
//! An [`Isa`] can only be made for a set that this CPU and its operating system support, so a value of this type is
//! the proof that dispatch needs. Detection tests exactly the features that the kernels are compiled with: those of
//! pulp's token of that set (`compiled_for_v3` and `compiled_for_v4` are checked against the tokens). On x86-64 it also
//! checks in XCR0 that the operating system saves the wide registers.
//!
//! A new set needs a name in [`ISA_NAMES`], a token in `Level`, and a file in `arch` that implements `SimdF32` for it;
//! compiler errors then show the missing parts. `isa/int8.rs` has what int8 products add.

use crate::arch::scalar::Scalar;
#[cfg(vectors = "x86_64")]
use crate::arch::x86_64::features::system_saves;
use crate::error::{Error, FoundName};
use crate::float_mode::DefaultMode;
use crate::simd::{SimdF32, SimdOp};
use core::fmt;

pub(crate) mod auto_vectorize;
mod int8;

/// Name of the environment variable that [`Isa::detect`] reads in builds with the `std` feature.
pub const ISA_VARIABLE: &str = "SIMDFORMER_ISA";

/// An instruction set that this machine has.
///
/// ```
/// use simdformer_kernels::Isa;
///
/// let isa = Isa::detect()?;
/// assert!(Isa::available().any(|available| available == isa));
/// assert_eq!(Isa::from_name("scalar")?, Isa::SCALAR);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Isa {
    level: Level,
    /// Whether to use int8 dot-product instructions where the CPU has them.
    dot_products: bool,
    /// Whether to use int8 matrix instructions where the CPU has them.
    matrix_products: bool,
}

#[derive(Clone, Copy)]
enum Level {
    Scalar(Scalar),
    #[cfg(vectors = "x86_64")]
    Avx2(pulp::x86::V3),
    #[cfg(vectors = "x86_64")]
    Avx512(pulp::x86::V4),
    #[cfg(vectors = "aarch64")]
    Neon(pulp::aarch64::Neon),
}

impl Level {
    /// The set called `name`, if this machine has it.
    fn detect(name: &str) -> Option<Self> {
        match name {
            "scalar" => Some(Self::Scalar(Scalar)),
            // The token does not include F16C. Every CPU with AVX2 has it; a hypervisor may still hide it.
            #[cfg(vectors = "x86_64")]
            "avx2" if system_saves(XCR0_AVX) && pulp::core_arch::x86::F16c::is_available() => {
                pulp::x86::V3::try_new().map(Self::Avx2)
            }
            #[cfg(vectors = "x86_64")]
            "avx512" if system_saves(XCR0_AVX512) => pulp::x86::V4::try_new().map(Self::Avx512),
            #[cfg(vectors = "aarch64")]
            "neon" => pulp::aarch64::Neon::try_new().map(Self::Neon),
            _ => None,
        }
    }
}

/// Every name that [`Isa::from_name`] accepts, on any machine.
pub const ISA_NAMES: [&str; 4] = ["scalar", "avx2", "avx512", "neon"];

impl Isa {
    /// Plain Rust, on every machine.
    pub const SCALAR: Self = Self::from_level(Level::Scalar(Scalar));

    /// The best instruction set of this machine, or in builds with `std` the one that the environment variable
    /// [`ISA_VARIABLE`] names. Call this once at program start and store the result: reading the environment takes a
    /// lock and may allocate.
    ///
    /// # Errors
    /// The variable names an unknown set, or one that this machine lacks. The variable is never ignored: a measurement
    /// or a debugging session would otherwise silently use another set.
    pub fn detect() -> Result<Self, Error> {
        #[cfg(feature = "std")]
        if let Some(isa) = Self::from_environment()? {
            return Ok(isa);
        }
        Ok(Self::best())
    }

    /// The set named by [`ISA_VARIABLE`], or `None` if the variable is not set.
    ///
    /// # Errors
    /// The name is unknown, or this machine lacks the set.
    #[cfg(feature = "std")]
    pub fn from_environment() -> Result<Option<Self>, Error> {
        let name = std::env::var_os(ISA_VARIABLE);
        name.map(|name| Self::from_name(&name.to_string_lossy())).transpose()
    }

    /// The best instruction set of this machine. The environment variable is ignored.
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::SCALAR)
    }

    /// Every instruction set of this machine, from the simplest to the best.
    pub fn available() -> impl Iterator<Item = Self> {
        ISA_NAMES.iter().filter_map(|name| Self::find(name)?.1)
    }

    /// The set called `name`, one of [`ISA_NAMES`].
    ///
    /// # Errors
    /// The name is unknown, or this machine lacks the set.
    pub fn from_name(name: &str) -> Result<Self, Error> {
        let (expected, found) = (&ISA_NAMES, FoundName::from_name(name));
        let unsupported = |best| Error::UnsupportedIsa { expected, best, found };
        let (_, isa) = Self::find(name).ok_or_else(|| unsupported(None))?;
        isa.ok_or_else(|| unsupported(Some(Self::best().name())))
    }

    const fn from_level(level: Level) -> Self {
        Self { level, dot_products: true, matrix_products: true }
    }

    fn find(name: &str) -> Option<(&'static str, Option<Self>)> {
        let name = *ISA_NAMES.iter().find(|known| **known == name)?;
        Some((name, Level::detect(name).map(Self::from_level)))
    }

    /// The name, the f32 lanes of a vector, and the columns of a packed panel.
    const fn properties(self) -> (&'static str, usize, usize) {
        const fn describe<S: SimdF32>(name: &'static str, _: &S) -> (&'static str, usize, usize) {
            (name, S::LANES, S::PANEL)
        }
        match &self.level {
            Level::Scalar(token) => describe("scalar", token),
            #[cfg(vectors = "x86_64")]
            Level::Avx2(token) => describe("avx2", token),
            #[cfg(vectors = "x86_64")]
            Level::Avx512(token) => describe("avx512", token),
            #[cfg(vectors = "aarch64")]
            Level::Neon(token) => describe("neon", token),
        }
    }

    /// The name of this set, one of [`ISA_NAMES`].
    pub const fn name(self) -> &'static str {
        self.properties().0
    }

    /// f32 lanes in one vector of this set.
    pub const fn lanes(self) -> usize {
        self.properties().1
    }

    /// Columns in one panel of a packed matrix of this set.
    pub const fn panel(self) -> usize {
        self.properties().2
    }

    /// Runs `kernel` with every function that is inlined into it compiled for this set. Call it once per loop nest,
    /// not once per tile.
    #[inline]
    pub(crate) fn dispatch<K: SimdOp>(self, kernel: K) -> K::Output {
        let _mode = DefaultMode::enter();
        // A separate function on every set, so that only the selected path uses stack, and no arithmetic moves out of the
        // default mode.
        match self.level {
            Level::Scalar(token) => SimdF32::call_noinline(token, kernel),
            #[cfg(vectors = "x86_64")]
            Level::Avx2(token) => token.call_noinline(kernel),
            #[cfg(vectors = "x86_64")]
            Level::Avx512(token) => token.call_noinline(kernel),
            #[cfg(vectors = "aarch64")]
            Level::Neon(token) => token.call_noinline(kernel),
        }
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let without = match (self.dot_products, self.matrix_products) {
            (true, true) => "",
            (true, false) => " without matrix products",
            (false, _) => " without dot products",
        };
        write!(f, "Isa({}{without})", self.name())
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Isa {
    fn eq(&self, other: &Self) -> bool {
        let fields = |isa: &Self| (isa.name(), isa.dot_products, isa.matrix_products);
        fields(self) == fields(other)
    }
}

impl Eq for Isa {}

/// The best set of this machine.
impl Default for Isa {
    fn default() -> Self {
        Self::best()
    }
}

/// SSE and AVX registers.
#[cfg(vectors = "x86_64")]
const XCR0_AVX: u64 = 0b110;
/// The registers of [`XCR0_AVX`], the mask registers and both halves of the 512-bit registers.
#[cfg(vectors = "x86_64")]
const XCR0_AVX512: u64 = 0b1110_0110;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for isa in Isa::available() {
            assert_eq!(Isa::from_name(isa.name()), Ok(isa));
            assert_eq!(isa.panel() % isa.lanes(), 0);
        }
        for unknown in ["mmx", "", "AVX2", "avx51"] {
            let Err(Error::UnsupportedIsa { best: None, found, .. }) = Isa::from_name(unknown)
            else {
                panic!("{unknown:?} is no instruction set")
            };
            assert_eq!(found.as_str(), unknown);
        }
    }

    #[test]
    fn sets_without_some_instructions_have_the_name_and_are_not_equal() {
        for isa in Isa::available() {
            let sets = [isa, isa.without_matrix_products(), isa.without_dot_products()];
            for (i, a) in sets.iter().enumerate() {
                for (j, b) in sets.iter().enumerate() {
                    assert_eq!(a.name(), b.name());
                    assert_eq!(a == b, i == j, "{a:?} and {b:?}");
                    assert_eq!(std::format!("{a:?}") == std::format!("{b:?}"), i == j);
                }
            }
        }
    }

    #[test]
    fn a_missing_set_is_an_error() {
        let missing =
            ISA_NAMES.iter().find(|name| !Isa::available().any(|isa| isa.name() == **name));
        if let Some(name) = missing {
            let (best, found) = (Some(Isa::best().name()), FoundName::from_name(name));
            let missing = Error::UnsupportedIsa { expected: &ISA_NAMES, best, found };
            assert_eq!(Isa::from_name(name), Err(missing));
        }
    }

    #[test]
    #[cfg(feature = "std")]
    fn required_sets_are_present() {
        if let Ok(required) = std::env::var("SIMDFORMER_REQUIRE_ISA") {
            for name in required.split(',').filter(|name| !name.is_empty()) {
                assert!(Isa::from_name(name).is_ok(), "{name} is required and missing");
            }
        }
    }
}
