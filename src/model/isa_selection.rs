//! Which instruction set the weights are packed for, and why.

use super::error::ModelError;
use core::fmt;
use simdformer_kernels::{ISA_VARIABLE, Isa};

/// Why it is the one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The environment variable [`ISA_VARIABLE`] names it.
    Environment,
    /// The machine has no better one.
    Best,
    /// The caller named it.
    Caller,
}

/// The instruction set that the environment names, or else the best one.
pub(super) fn choose() -> Result<(Isa, Reason), ModelError> {
    let named = Isa::from_environment().map_err(ModelError::Isa)?;
    Ok(named.map_or_else(|| (Isa::best(), Reason::Best), |isa| (isa, Reason::Environment)))
}

/// The sets of this kind of machine, from the simplest to the best.
const SETS: &[&str] = if cfg!(target_arch = "x86_64") {
    &["avx2", "avx512"]
} else if cfg!(target_arch = "aarch64") {
    &["neon"]
} else {
    &[]
};

impl fmt::Display for Reason {
    /// To come after the name of the set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => write!(f, "forced by {ISA_VARIABLE}")?,
            Self::Best => f.write_str("the best that was detected")?,
            Self::Caller => f.write_str("named by the caller")?,
        }
        let lacking = SETS.iter().filter(|name| Isa::from_name(name).is_err());
        for (index, name) in lacking.enumerate() {
            write!(f, "{}{name}", if index == 0 { "; this machine lacks " } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_says_who_chose_and_what_is_lacking() {
        let lacking: Vec<&str> =
            SETS.iter().copied().filter(|name| Isa::from_name(name).is_err()).collect();
        let tail = match lacking[..] {
            [] => String::new(),
            _ => format!("; this machine lacks {}", lacking.join(", ")),
        };
        for (reason, words) in [
            (Reason::Environment, "forced by SIMDFORMER_ISA"),
            (Reason::Best, "the best that was detected"),
            (Reason::Caller, "named by the caller"),
        ] {
            assert_eq!(reason.to_string(), format!("{words}{tail}"));
        }
        // The names here are names there, and the best set is one of them or plain Rust.
        use simdformer_kernels::ISA_NAMES;
        assert!(SETS.iter().all(|name| ISA_NAMES.contains(name)));
        assert!(Isa::best() == Isa::SCALAR || SETS.contains(&Isa::best().name()));
    }
}
