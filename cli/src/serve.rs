//! `serve`: answers requests of HTTP.

use crate::arguments::{ModelArguments, ReportArguments, UsageError, at_least_one, parsed};
use crate::streams::{Failure, Streams};
use clap::{Args, ValueHint};
use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::ThreadPool;
use simdformer::task_heads::Classifier;
use simdformer::{Engine, Product, Threads};
use simdformer_serve::{Config, Models, Server};
use simdformer_text::embedder::{EmbedOptions, Embedder, RerankOptions, Reranker};
use simdformer_text::translator::{TranslateOptions, Translator};
use simdformer_text::{Family, Tokenizer};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// A further model, of another kind; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Model")]
    pub(crate) also: Vec<PathBuf>,
    /// The number of texts that a session runs at a time
    #[arg(long, value_name = "N", default_value = "32", value_parser = at_least_one)]
    #[arg(help_heading = "Model")]
    slots: usize,
    /// The language of texts whose request names none
    #[arg(long, value_name = "CODE", help_heading = "Model")]
    from: Option<String>,
    /// The language of translations whose request names none
    #[arg(long, value_name = "CODE", help_heading = "Model")]
    to: Option<String>,
    /// Where to listen; port 0 is a free one, which is reported
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", help_heading = "Server")]
    address: SocketAddr,
    /// Ask clients for the key in the first line of FILE
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    key_file: Option<PathBuf>,
    /// The most source tokens that wait or are run; more are refused with status 429
    #[arg(long, value_name = "N", default_value = "32768", value_parser = at_least_one)]
    #[arg(help_heading = "Server")]
    queue_tokens: usize,
    /// The seconds from a request to its result, after which it is an error
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    #[arg(help_heading = "Server")]
    deadline: Duration,
    /// The seconds that requests have to end after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    #[arg(help_heading = "Server")]
    grace: Duration,
    #[command(flatten)]
    pub(crate) reports: ReportArguments,
}

fn seconds(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "a number of seconds from 0.001 to 86400";
    let found: f64 = parsed(text, EXPECTED)?;
    let found = Some(found).filter(|found| (0.001..=86_400.0).contains(found));
    found.map(Duration::from_secs_f64).ok_or_else(|| format!("expected {EXPECTED}"))
}

/// Answers requests until a signal ends it.
pub(crate) fn serve_requests(arguments: &Serve, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let mut config = Config::default();
    config.address = arguments.address;
    config.key = arguments.key_file.as_deref().map(key).transpose()?;
    config.queue_tokens = arguments.queue_tokens;
    (config.deadline, config.grace) = (arguments.deadline, arguments.grace);
    let first = &arguments.model.directory.model;
    if let Some(name) = first.file_name() {
        config.name = name.to_string_lossy().into_owned();
    }
    let count = arguments.model.thread_count();
    let threads = match count {
        1 => Threads::Serial,
        count => Threads::Shared(Arc::new(ThreadPool::new(count)?)),
    };
    let mut models = Models::default();
    for directory in std::iter::once(first).chain(&arguments.also) {
        add(&mut models, directory, arguments, &threads, streams)?;
    }
    for (option, given) in [("--from", &arguments.from), ("--to", &arguments.to)] {
        if given.is_some() && models.translator.is_none() {
            let text = format!("{option} is for a model that translates, found none");
            return Err(UsageError(text).into());
        }
    }
    let server = Server::start(models, config)?;
    writeln!(streams.notes, "simdformer: listening on http://{}", server.address())?;
    server.wait_for_signal()?;
    writeln!(streams.notes, "simdformer: stopped")?;
    Ok(0)
}

/// The first line of a file.
fn key(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    match text.lines().next().map(str::trim) {
        Some(key) if !key.is_empty() => Ok(key.to_owned()),
        _ => Err(format!("{name}: expected a key in the first line, found none").into()),
    }
}

/// Loads a model, for the routes that its files are for.
fn add(
    models: &mut Models,
    directory: &Path,
    arguments: &Serve,
    threads: &Threads<'static>,
    streams: &mut Streams<'_>,
) -> Result<(), Failure> {
    let twice = |does: &str| -> Failure {
        let name = directory.display();
        format!("{name}: expected one model that {does}, found a second one").into()
    };
    let checkpoint = Checkpoint::open(directory)?;
    let mut engine = || {
        let model = arguments.model.load(&checkpoint, &arguments.reports, streams)?;
        let builder = Engine::builder(model).threads(threads.clone()).slots(arguments.slots);
        Ok::<_, Failure>(builder.build()?)
    };
    if Tokenizer::from_dir(directory)?.family() == Family::Whisper {
        #[cfg(feature = "transcribe")]
        {
            use simdformer_speech::{TranscribeOptions, Transcriber};
            if models.transcriber.is_some() {
                return Err(twice("transcribes"));
            }
            let options = TranscribeOptions::new(checkpoint.config());
            let setup = Transcriber::read_setup(directory, &checkpoint, options)?;
            models.transcriber = Some(Transcriber::build(engine()?, setup)?);
            return Ok(());
        }
        #[cfg(not(feature = "transcribe"))]
        return Err("expected a command with the feature transcribe, found one without".into());
    }
    if checkpoint.config().decoder.is_some() {
        if models.translator.is_some() {
            return Err(twice("translates"));
        }
        let mut options = TranslateOptions::new(checkpoint.config());
        (options.source, options.target) = (arguments.from.clone(), arguments.to.clone());
        let setup = Translator::read_setup(directory, &checkpoint, options)?;
        models.translator = Some(Translator::build(engine()?, setup)?);
    } else if Classifier::from_checkpoint(&checkpoint)?.is_some_and(|head| head.labels() == 1) {
        if models.reranker.is_some() {
            return Err(twice("ranks"));
        }
        // Each client says whether a text may be cut, or is told.
        let options = RerankOptions { truncate: true, ..RerankOptions::default() };
        let setup = Reranker::read_setup(directory, &checkpoint, options)?;
        models.reranker = Some(Reranker::build(engine()?, setup)?);
    } else {
        if models.embedder.is_some() {
            return Err(twice("embeds"));
        }
        let setup = Embedder::read_setup(directory, &checkpoint, EmbedOptions::default())?;
        models.embedder = Some(Embedder::build(engine()?, setup)?);
    }
    Ok(())
}
