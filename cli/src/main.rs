//! `simdformer`: reads a checkpoint directory and text, audio or token ids; writes text, vectors, scores or token ids.
//!
//! `simdformer --help` lists the commands. Results are written to standard output, everything else to standard error.

mod arguments;
mod command_line;
mod embed;
mod generate;
#[cfg(feature = "hub")]
mod hub;
mod inputs;
mod loading;
mod man_pages;
mod npy;
mod output_file;
mod pack;
mod progress;
mod rerank;
mod search_arguments;
#[cfg(feature = "serve")]
mod serve;
mod show;
mod streams;
#[cfg(feature = "transcribe")]
mod transcribe;
mod translate;
mod vector_formats;

use arguments::UsageError;
use command_line::Command;
use std::error::Error;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;
use streams::Streams;

/// Exit code for a wrong command line; clap uses the same one.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let command = match command_line::parse(std::env::args_os()) {
        Ok(command) => command,
        // Help and version are printed here, too, with exit code 0.
        Err(error) => error.exit(),
    };
    let mut streams = Streams {
        input: &mut io::stdin(),
        out: &mut BufWriter::new(io::stdout()),
        notes: &mut io::stderr(),
        terminal: io::stderr().is_terminal(),
    };
    // The name of a model becomes the directory with its files.
    #[cfg(feature = "hub")]
    let mut command = command;
    #[cfg(feature = "hub")]
    let (directories, quiet) = command.directories();
    #[cfg(feature = "hub")]
    for directory in directories {
        if let Err(error) = hub::resolve(directory, quiet, streams.notes) {
            let _ = writeln!(io::stderr(), "simdformer: {error}");
            return ExitCode::FAILURE;
        }
    }
    let done = match command {
        #[cfg(feature = "hub")]
        Command::Get(arguments) => hub::get(&arguments, &mut streams),
        Command::Translate(arguments) => translate::translate(&arguments, &mut streams),
        Command::Summarize(arguments) => translate::summarize(&arguments, &mut streams),
        Command::Generate(arguments) => generate::answer_requests(&arguments, &mut streams),
        Command::Embed(arguments) => embed::embed_texts(&arguments, &mut streams),
        Command::Rerank(arguments) => rerank::rerank_texts(&arguments, &mut streams),
        #[cfg(feature = "transcribe")]
        Command::Transcribe(arguments) => transcribe::transcribe_files(&arguments, &mut streams),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::serve_requests(&arguments, &mut streams),
        Command::Languages(directory) => show::languages(&directory.model, streams.out),
        Command::Show(directory) => show::model(&directory.model, &mut streams),
        Command::Pack(arguments) => pack::pack_model(&arguments, &mut streams),
        Command::Completions { shell } => man_pages::completions(shell, streams.out),
        Command::Man { command } => man_pages::manual(command.as_deref(), streams.out),
    };
    match done.and_then(|code| Ok((code, streams.out.flush()?))) {
        Ok((code, ())) => ExitCode::from(code),
        // The reader closed the pipe, as `head` does, so no error is reported.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "simdformer: {error}");
            if error.is::<UsageError>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let of_stream = match error.downcast_ref() {
        Some(simdformer_text::Error::Io { error, .. }) => Some(error),
        _ => error.downcast_ref::<io::Error>(),
    };
    // The rows of a table.
    let of_stream = match error.downcast_ref() {
        Some(simdformer_text::documents::Error::Io { error, .. }) => Some(error),
        _ => of_stream,
    };
    #[cfg(feature = "transcribe")]
    let of_stream = match error.downcast_ref() {
        Some(simdformer_speech::Error::Io { error, .. }) => Some(error),
        _ => of_stream,
    };
    of_stream.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
