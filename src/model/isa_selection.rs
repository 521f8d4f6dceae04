//! Selects the instruction set for which the weights are packed, and records the reason.

use super::error::ModelError;
use core::fmt;
use simdformer_kernels::{ISA_VARIABLE, Isa};

/// The reason for the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The environment variable [`ISA_VARIABLE`] names it.
    Environment,
    /// It is the best one that the machine has.
    Best,
    /// The caller named it.
    Caller,
}

/// The instruction set that the environment names, otherwise the best one.
pub(super) fn choose() -> Result<(Isa, Reason), ModelError> {
    let named = Isa::from_environment().map_err(ModelError::Isa)?;
    Ok(named.map_or_else(|| (Isa::best(), Reason::Best), |isa| (isa, Reason::Environment)))
}

/// The instruction sets of this architecture, from the simplest to the best.
const SETS: &[&str] = if cfg!(target_arch = "x86_64") {
    &["avx2", "avx512"]
} else if cfg!(target_arch = "aarch64") {
    &["neon"]
} else {
    &[]
};

impl fmt::Display for Reason {
    /// Text to print after the name of the instruction set.
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
    fn reason_names_the_source_and_missing_features() {
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
        // SETS is a subset of the kernels' names, and the best set is in SETS or is `scalar`.
        use simdformer_kernels::ISA_NAMES;
        assert!(SETS.iter().all(|name| ISA_NAMES.contains(name)));
        assert!(Isa::best() == Isa::SCALAR || SETS.contains(&Isa::best().name()));
    }
}
