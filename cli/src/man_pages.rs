//! Completion scripts and manual pages, made from the definition of the command line.

use crate::arguments::UsageError;
use crate::command_line::definition;
use crate::streams::Failure;
use clap_complete::Shell;
use std::io::Write;

pub(crate) fn completions(shell: Shell, out: &mut dyn Write) -> Result<u8, Failure> {
    // `clap_complete` panics when it cannot write, for example to a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition(), "simdformer", &mut script);
    out.write_all(&script)?;
    Ok(0)
}

/// The manual page of a command; `None` for that of the program.
pub(crate) fn manual(command: Option<&str>, out: &mut dyn Write) -> Result<u8, Failure> {
    let mut all = definition();
    // Completes the names: the page of `translate` is `simdformer-translate`.
    all.build();
    let page = match command {
        Some(name) => all.find_subcommand(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = all.get_subcommands().map(clap::Command::get_name).collect();
            UsageError(format!("man: expected one of {}, found {name:?}", names.join(", ")))
        })?,
        None => all,
    };
    clap_mangen::Man::new(page).render(&mut &mut *out)?;
    Ok(0)
}
