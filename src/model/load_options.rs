//! How a model is loaded: for which instruction set, in which dtypes, and where its progress is reported.

use super::weight_dtypes::WeightDtypes;
use crate::error::Error;
use core::fmt;
use core::ops::ControlFlow;
use simdformer_kernels::{ISA_VARIABLE, Isa};

/// How a model is loaded: the options of [`Model::open_with`](crate::Model::open_with),
/// [`Model::load`](crate::Model::load), [`Model::from_fn_with`](crate::Model::from_fn_with) and
/// [`Model::requirements`](crate::Model::requirements). These functions also take an [`Isa`] or [`WeightDtypes`] alone.
///
/// ```
/// use simdformer::checkpoint::Checkpoint;
/// use simdformer::kernels::Isa;
/// use simdformer::{LoadOptions, Model, Quantization, WeightDtypes};
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
///
/// let checkpoint = Checkpoint::open("models/fr-en")?;
/// let mut percent = 0;
/// let options = LoadOptions {
///     isa: Some(Isa::SCALAR),
///     dtypes: WeightDtypes::all(Quantization::W8A8),
///     ..LoadOptions::default()
/// };
/// let model = Model::load(&checkpoint, options.on_progress(|loading| {
///     percent = 100 * loading.done / loading.total; // and `loading.tensor`
/// }))?;
/// assert_eq!((model.isa(), percent), (Isa::SCALAR, 100));
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Default)]
pub struct LoadOptions<'c> {
    /// The instruction set to pack the weights for. `None` for the one that the environment variable
    /// [`ISA_VARIABLE`] names, or else the best one of this machine.
    pub isa: Option<Isa>,
    /// The dtypes of the matrices.
    pub dtypes: WeightDtypes,
    /// Called after every few rows; see [`LoadOptions::on_progress`].
    pub on_progress: Option<Box<OnLoading<'c>>>,
    /// For packed weights: whether to map their file, so that the weights are used in place (false). The model opens in
    /// milliseconds, pages that no process has read yet come from the disk when a call first needs them, and all processes
    /// share one copy in memory. Without it a copy of the file is read and verified.
    ///
    /// A file that is replaced by renaming another one over it, as [`Model::save_packed`](crate::Model::save_packed) and
    /// package managers do, or that is deleted, is safe: models that have mapped it keep the old content. A file that is
    /// changed in place changes the weights of running processes. If it is truncated, access to the missing pages ends the
    /// process with `SIGBUS`. The same happens if a disk or a network file system fails while a page is read. So packed
    /// weights that are mapped belong in a directory that only the writer of models may write to.
    pub map_packed: bool,
    /// For packed weights that are mapped: whether to verify the checksum of all weights and that they are finite, which
    /// reads the whole file. Without it the header and all lengths are verified, and the weights are read when they are
    /// used; a damaged weight then gives wrong results, but no undefined behavior. Weights that are copied are always
    /// verified.
    pub verify_packed: bool,
}

/// The progress callback of [`LoadOptions`]; `Break(())` ends the load.
type OnLoading<'c> = dyn FnMut(Loading<'_>) -> ControlFlow<()> + 'c;

impl<'c> LoadOptions<'c> {
    /// Calls `callback` after every few rows. It returns nothing, or a [`ControlFlow`]: `Break(())` ends the load with
    /// [`Error::Cancelled`] and frees the memory.
    pub fn on_progress<A: IntoControlFlow<()>>(
        self,
        mut callback: impl FnMut(Loading<'_>) -> A + 'c,
    ) -> Self {
        let callback = move |loading: Loading<'_>| callback(loading).answer();
        Self { on_progress: Some(Box::new(callback)), ..self }
    }

    /// Reports that `done` of `total` bytes have been stored, the last ones in `tensor`.
    pub(super) fn report(&mut self, tensor: &str, done: u64, total: u64) -> Result<(), Error> {
        let callback = self.on_progress.as_mut();
        match callback.map(|callback| callback(Loading { tensor, done, total })) {
            None | Some(ControlFlow::Continue(())) => Ok(()),
            Some(ControlFlow::Break(())) => Err(Error::Cancelled { progress: Some([done, total]) }),
        }
    }
}

impl From<Isa> for LoadOptions<'_> {
    fn from(isa: Isa) -> Self {
        Self { isa: Some(isa), ..Self::default() }
    }
}

impl From<WeightDtypes> for LoadOptions<'_> {
    fn from(dtypes: WeightDtypes) -> Self {
        Self { dtypes, ..Self::default() }
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("LoadOptions");
        text.field("isa", &self.isa).field("dtypes", &self.dtypes).finish_non_exhaustive()
    }
}

/// Progress of loading, which is reported to [`LoadOptions::on_progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loading<'t> {
    /// The tensor whose rows were just stored, by its name in the checkpoint.
    pub tensor: &'t str,
    /// Bytes of the checkpoint that have been read. Never decreases.
    pub done: u64,
    /// Total bytes to read. A tensor that is stored twice is read twice.
    pub total: u64,
}

/// The result of a callback: `()` to continue, or a [`ControlFlow`], whose `Break` stops the operation.
pub trait IntoControlFlow<S> {
    /// Whether to continue.
    fn answer(self) -> ControlFlow<S>;
}

impl<S> IntoControlFlow<S> for () {
    fn answer(self) -> ControlFlow<S> {
        ControlFlow::Continue(())
    }
}

impl<S> IntoControlFlow<S> for ControlFlow<S> {
    fn answer(self) -> ControlFlow<S> {
        self
    }
}

/// The reason for the selection of an instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The environment variable [`ISA_VARIABLE`] names it.
    Environment,
    /// It is the best one that the machine has.
    Best,
    /// The caller named it.
    Caller,
}

/// The instruction set that the caller or the environment names, otherwise the best one.
pub(super) fn select_isa(named: Option<Isa>) -> Result<(Isa, Reason), Error> {
    if let Some(isa) = named {
        return Ok((isa, Reason::Caller));
    }
    let named = Isa::from_environment()?;
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
