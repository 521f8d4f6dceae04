//! `simdformer`: reads a checkpoint directory and text; writes text, vectors or scores.
//!
//! `simdformer --help` lists the commands. Results are written to standard output, everything else to standard error.

mod arguments;
mod embed;
mod encoder;
mod generate;
mod inputs;
mod loading;
mod progress;
#[cfg(feature = "audio")]
mod prompt;
mod rerank;
mod show;
#[cfg(feature = "audio")]
mod transcribe;
mod vectors;

use arguments::{Command, HELP};
use std::error::Error;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::process::ExitCode;

/// Why a command failed or was incomplete.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Exit code for a wrong command line.
const USAGE: u8 = 2;

/// The streams of a command.
pub(crate) struct Streams<'s> {
    pub(crate) input: &'s mut (dyn Read + Send),
    pub(crate) out: &'s mut (dyn Write + Send),
    pub(crate) notes: &'s mut (dyn Write + Send),
    /// Whether a user sees the notes, so that progress is shown.
    pub(crate) watched: bool,
}

fn main() -> ExitCode {
    let mut notes = io::stderr();
    let command = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(command) => command,
        Err(error) => {
            let _ = writeln!(notes, "simdformer: {error}\nsimdformer: --help tells the commands");
            return ExitCode::from(USAGE);
        }
    };
    let mut streams = Streams {
        input: &mut io::stdin(),
        out: &mut BufWriter::new(io::stdout()),
        notes: &mut notes,
        watched: io::stderr().is_terminal(),
    };
    let done = match command {
        Command::Help => streams.out.write_all(HELP.as_bytes()).map(|()| 0).map_err(Failure::from),
        Command::Languages(model) => show::languages(&model, streams.out).map(|()| 0),
        Command::Show(model) => show::model(&model, &mut streams).map(|()| 0),
        Command::Generate(arguments) => generate::run(&arguments, &mut streams),
        Command::Embed(arguments) => embed::run(&arguments, &mut streams),
        Command::Rerank(arguments) => rerank::run(&arguments, &mut streams),
        #[cfg(feature = "audio")]
        Command::Transcribe(arguments) => transcribe::run(&arguments, &mut streams),
        #[cfg(not(feature = "audio"))]
        Command::Transcribe(_) => Err("transcribe: built without the feature `audio`".into()),
    };
    match done.and_then(|code| Ok((code, streams.out.flush()?))) {
        Ok((code, ())) => ExitCode::from(code),
        // The reader closed the pipe, as `head` does, so no error is reported.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "simdformer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
