//! Loads the model that the command line names, and starts its threads.

use crate::arguments::{ModelArguments, ReportArguments};
use crate::progress;
use crate::streams::{Failure, Streams};
use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::{Engine, EngineBuilder, LoadOptions, Model, Threads};

impl ModelArguments {
    pub(crate) fn isa(&self) -> Result<Isa, Failure> {
        Ok(self.isa.map_or_else(Isa::detect, Ok)?)
    }

    /// Loads the model of `checkpoint` and shows progress. The required memory is reported before any weight is read, in
    /// a summary and on a terminal.
    pub(crate) fn load(
        &self,
        checkpoint: &Checkpoint<'_>,
        reports: &ReportArguments,
        streams: &mut Streams<'_>,
    ) -> Result<Model, Failure> {
        if reports.summary || (streams.terminal && !reports.quiet) {
            let options = self.options();
            let needed = Model::requirements(checkpoint, options)?;
            writeln!(streams.notes, "needs {needed}")?;
        }
        let model = load(checkpoint, self.options(), reports.quiet)?;
        for note in model.notes() {
            writeln!(streams.notes, "simdformer: note: {note}")?;
        }
        Ok(model)
    }

    fn options(&self) -> LoadOptions<'static> {
        LoadOptions { isa: self.isa, dtypes: self.weights.clone(), ..LoadOptions::default() }
    }

    /// The engine of `model` with these threads, which runs inside [`in_pool`](Self::in_pool).
    pub(crate) fn engine(&self, model: Model) -> EngineBuilder {
        Engine::builder(model).threads(self.threads())
    }

    pub(crate) fn threads(&self) -> Threads<'static> {
        if self.thread_count() == 1 { Threads::Serial } else { Threads::Rayon }
    }

    /// Runs `work` on the calling thread if it is the only one, otherwise in a pool.
    pub(crate) fn in_pool<R: Send>(
        &self,
        work: impl FnOnce() -> Result<R, Failure> + Send,
    ) -> Result<R, Failure> {
        let threads = self.thread_count();
        if threads == 1 {
            return work();
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        // A thread allocates when it starts, so all threads start before allocations are counted.
        pool.broadcast(|_| ());
        pool.install(work)
    }
}

/// Loads the model of `checkpoint` and shows progress; packed weights are mapped.
pub(crate) fn load(
    checkpoint: &Checkpoint<'_>,
    options: LoadOptions<'_>,
    quiet: bool,
) -> Result<Model, Failure> {
    let bar = progress::loading(quiet);
    let model = Model::load(
        checkpoint,
        LoadOptions { map_packed: true, ..options }.on_progress(|loading| {
            bar.set_length(loading.total);
            bar.set_position(loading.done);
            bar.set_message(loading.tensor.to_string());
        }),
    );
    bar.finish_and_clear();
    Ok(model?)
}
