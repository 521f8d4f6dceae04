//! Translates French to English with the small model in `models/fr-en`.
//!
//! ```sh
//! cargo run --release -p translate                                   # sample sentences
//! cargo run --release -p translate -- "je suis étudiant" "quel mois" # one sentence each
//! cargo run --release -p translate < sentences.txt                   # one sentence a line
//! ```
//!
//! The model only translates the words of its grammar (`models/fr-en/README.md`).

#[path = "support/vocabulary.rs"]
mod vocabulary;

use simdformer::search::{Finish, Hooks, SearchOptions};
use simdformer::{Engine, Event, Model, Session, Source};
use simdformer_testing::counting;
use std::error::Error;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vocabulary::Vocabulary;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Agreement, negation, questions, and changes of word order.
const SAMPLES: [&str; 14] = [
    "je suis étudiant",
    "quel mois",
    "les petites filles sont heureuses",
    "la vieille maison blanche est belle",
    "nous ne mangeons jamais de viande",
    "il n'a rien vu",
    "où est-ce qu'elle habite ?",
    "parles-tu anglais ?",
    "pourquoi Marie n'est-elle pas venue ?",
    "combien de livres as-tu achetés ?",
    "je ne la vois plus",
    "la voiture de Paul est plus rapide que le train",
    "elle aime son père et il aime sa mère",
    "il fait froid et les enfants dorment",
];

const HELP: &str = "\
Translates French to English.

    translate                    sample sentences
    translate SENTENCE...        the sentences
    translate < FILE             the lines of the file; blank lines are skipped

Exits with 1 if a sentence could not be translated.
";

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let piped = arguments.is_empty() && !io::stdin().is_terminal();
    let mut stdin = io::stdin().lock();
    let stdin: Option<&mut dyn Read> = if piped { Some(&mut stdin) } else { None };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = run(&arguments, stdin, &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    match result {
        Ok(code) => ExitCode::from(code),
        // The reader closed the pipe, as `head` does, so no error is reported.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("translate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Translates the arguments, the piped lines, or the samples; returns the exit code.
pub(crate) fn run(
    arguments: &[String],
    piped: Option<&mut dyn Read>,
    out: &mut dyn Write,
) -> Result<u8, Box<dyn Error>> {
    if let Some(option) = arguments.iter().find(|argument| argument.starts_with("--")) {
        if option == "--help" {
            out.write_all(HELP.as_bytes())?;
            return Ok(0);
        }
        return Err(format!("unknown option `{option}`; see --help").into());
    }
    let mut text = Vec::new();
    if let Some(piped) = piped {
        piped.read_to_end(&mut text)?;
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = if !arguments.is_empty() {
        arguments.iter().map(String::as_str).collect()
    } else if !text.is_empty() {
        text.lines().collect()
    } else {
        SAMPLES.to_vec()
    };
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|l| !l.is_empty()).collect();
    // The manifest is that of `examples/translate`, and in the tests that of the repository.
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = folders.find(|folder| folder.join("models").is_dir()).unwrap_or(Path::new(""));
    let folder = root.join("models/fr-en");
    let model = Arc::new(Model::open(&folder)?);
    let vocabulary = Vocabulary::read(&folder)?;
    let (translations, report) = translate(&model, &vocabulary, &lines)?;

    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0).min(60);
    let mut untranslated = 0;
    for (line, translation) in lines.iter().zip(&translations) {
        match translation {
            Ok(translation) => writeln!(out, "{line:width$}  ->  {translation}")?,
            Err(reason) => {
                untranslated += 1;
                writeln!(out, "{line:width$}  ..  not translated: {reason}")?;
            }
        }
    }
    writeln!(out, "\n{report}")?;
    if untranslated > 0 {
        writeln!(out, "{untranslated} of {} sentences not translated", lines.len())?;
    }
    Ok(u8::from(untranslated > 0))
}

/// The statistics of a run.
pub(crate) struct Report {
    pub(crate) isa: &'static str,
    pub(crate) tokens: usize,
    pub(crate) elapsed: Duration,
    pub(crate) planned_bytes: usize,
    pub(crate) allocations: u64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { isa, tokens, elapsed, planned_bytes, allocations } = self;
        // Avoids a division by zero if there is no sentence.
        let per = |amount: f64, of: f64| if of > 0.0 { amount / of } else { 0.0 };
        let rate = per(*tokens as f64, elapsed.as_secs_f64());
        writeln!(f, "{tokens} tokens in {elapsed:.1?} on {isa}: {rate:.0} tokens per second")?;
        writeln!(f, "{planned_bytes} bytes planned")?;
        let each = per(*allocations as f64, *tokens as f64);
        write!(f, "{each} heap allocations per token ({allocations} in all)")
    }
}

/// The English sentence, or the error.
pub(crate) type Translation = Result<String, String>;

/// Translates `lines` with greedy search; each result is the translation or the error.
pub(crate) fn translate(
    model: &Arc<Model>,
    vocabulary: &Vocabulary,
    lines: &[&str],
) -> Result<(Vec<Translation>, Report), Box<dyn Error>> {
    let positions = model.config().encoder.max_positions.unwrap_or(usize::MAX);
    let ids: Vec<Result<Vec<u32>, String>> = lines
        .iter()
        .map(|line| match vocabulary.encode(line) {
            Ok(ids) if ids.len() == 1 => Err("there are no words in it".to_owned()),
            Ok(ids) if ids.len() > positions => Err(format!(
                "it has {} words and marks, the model takes at most {}",
                ids.len() - 1,
                positions - 1
            )),
            Ok(ids) => Ok(ids),
            Err(unknown) => Err(unknown.to_string()),
        })
        .collect();
    let known: Vec<&[u32]> = ids.iter().flatten().map(Vec::as_slice).collect();
    let sources: Vec<Source> = known.iter().map(|tokens| Source::new(tokens)).collect();

    let engine = Engine::from(model);
    // The output is text only, so no scores are computed.
    let options = SearchOptions { scores: false, ..engine.search_options() };
    let longest = engine.fit(&options, 1).1.target_tokens() + 1;
    let mut outputs: Vec<Vec<u32>> = known.iter().map(|_| Vec::with_capacity(longest)).collect();
    let mut finishes = vec![Finish::End; known.len()];
    // All memory is planned here, for the longest sentence; the closure does not allocate.
    let run = |session: &mut Session<'_>, sources: &[Source<'_>], options: &SearchOptions| {
        let (start, allocated) = (Instant::now(), counting::allocations());
        session.generate(sources, options, &mut Hooks::default(), &mut |event| {
            if let Event::Done(done) = event
                && let Some(best) = done.hypotheses().next()
            {
                finishes[done.source] = done.finish;
                outputs[done.source].extend_from_slice(best.tokens);
            }
        })?;
        Ok::<_, simdformer::Error>((start.elapsed(), counting::allocations() - allocated))
    };
    let (elapsed, allocations) = engine.with_session_for(&sources, &options, run)??;
    let report = Report {
        isa: model.isa().name(),
        tokens: outputs.iter().map(Vec::len).sum(),
        elapsed,
        planned_bytes: engine.report().bytes,
        allocations,
    };

    let mut outputs = outputs.iter().zip(finishes);
    let mut next = || match outputs.next() {
        None | Some((_, Finish::NotFinite)) => Err("its scores are NaN or infinite".to_owned()),
        Some((tokens, _)) => Ok(vocabulary.decode(tokens)),
    };
    let translations = ids.into_iter().map(|ids| ids.and_then(|_| next())).collect();
    Ok((translations, report))
}
