//! Models by name: `simdformer get ORG/NAME`, and `--model ORG/NAME` wherever a directory is accepted.
//!
//! The files come from the Hugging Face hub, or from the server that `HF_ENDPOINT` names, into the cache that the Python
//! client uses ([`cache`]). Only this module has code for the network.

mod cache;
mod checksum;
mod client;
mod download;
mod environment;
mod error;
mod file_selection;
mod listing;
mod model_name;

pub(crate) use model_name::ModelName;

use crate::progress;
use crate::streams::{Failure, Streams};
use cache::ModelCache;
use clap::Args;
use client::Client;
use download::Download;
use environment::Environment;
use error::HubError;
use indicatif::{HumanBytes, ProgressBar};
use listing::Listing;
use std::io::Write;
use std::path::PathBuf;

/// The end of `simdformer get --help`.
const EXAMPLES: &str = "\
Examples:
  simdformer get Helsinki-NLP/opus-mt-en-fr
  simdformer get facebook/nllb-200-distilled-600M@main
  simdformer translate --model Helsinki-NLP/opus-mt-en-fr \"How are you?\"
  HF_HUB_OFFLINE=1 simdformer show --model Helsinki-NLP/opus-mt-en-fr

The variables are those of the Python client: HF_HOME or HF_HUB_CACHE (where the files are kept), HF_TOKEN, \
HF_ENDPOINT, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT (seconds without a byte, 10), HTTPS_PROXY, SSL_CERT_FILE. \
SIMDFORMER_HUB_RETRIES is the number of attempts after a failed one (5). The exit code is 0; 1 if the model could not \
be had; 2 for a wrong command line.";

/// The arguments of `simdformer get`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Get {
    /// The model; REVISION is a branch, a tag, a whole commit, or refs/pr/N (main)
    #[arg(value_name = "ORG/NAME[@REVISION]")]
    name: ModelName,
    /// Show no progress
    #[arg(long, help_heading = "Reports")]
    quiet: bool,
}

/// Attempts after a first one that failed, before any file is there. A user who is offline learns it in a second.
const FIRST_ATTEMPTS: u32 = 2;

/// `simdformer get`: prints the directory of the model.
pub(crate) fn get(arguments: &Get, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    let path = obtain(&arguments.name, arguments.quiet, streams.notes)?;
    writeln!(streams.out, "{}", path.display())?;
    Ok(0)
}

/// Replaces the name of a model by the directory with its files. A path that exists is not a name.
pub(crate) fn resolve(
    directory: &mut PathBuf,
    quiet: bool,
    notes: &mut dyn Write,
) -> Result<(), Failure> {
    if directory.exists() {
        return Ok(());
    }
    let Some(name) = directory.to_str().and_then(|path| path.parse::<ModelName>().ok()) else {
        return Ok(());
    };
    *directory = obtain(&name, quiet, notes).map_err(|error| {
        format!("there is no directory {name}, so it is the name of a model: {error}")
    })?;
    Ok(())
}

/// The directory of a model, with all needed files.
fn obtain(name: &ModelName, quiet: bool, notes: &mut dyn Write) -> Result<PathBuf, HubError> {
    let environment = Environment::of_process()?;
    let cache = ModelCache::new(&environment.cache, name);
    let kept = |commit: &str| cache.complete(name, &cache.listing(commit)?);
    let cached = cache.commit_of(name).and_then(|commit| kept(&commit));
    if let (Some(path), Some(_)) = (&cached, name.commit()) {
        return Ok(path.clone());
    }
    if environment.offline {
        return cached.ok_or_else(|| HubError::Offline {
            name: name.to_string(),
            cache: environment.cache.clone(),
        });
    }
    let client = Client::new(&environment)?;
    // With a copy at hand there is no reason to wait for a server.
    let attempts = if cached.is_some() { 0 } else { environment.retries.min(FIRST_ATTEMPTS) };
    let current = || -> Result<_, HubError> {
        let commit = match name.commit() {
            Some(commit) => commit.to_owned(),
            None => Listing::commit_of(&client, name, attempts)?,
        };
        match kept(&commit) {
            Some(path) => Ok((commit, Err(path))),
            // A list that is kept may be damaged, and is short.
            None => {
                Listing::fetch(&client, name, commit.clone(), attempts).map(|new| (commit, Ok(new)))
            }
        }
    };
    let (commit, listing) = match current() {
        Ok(current) => current,
        Err(error) => {
            if let Some(path) = cached.filter(|_| error.permits_cached()) {
                if !quiet {
                    // If the note cannot be written, the copy is still right.
                    let _ = writeln!(notes, "simdformer: {error}; using the copy in the cache");
                }
                return Ok(path);
            }
            return Err(error);
        }
    };
    let listing = match listing {
        Ok(listing) => listing,
        Err(path) => {
            // A cache with all files may be read-only.
            let _ = cache.set_commit(name, &commit);
            return Ok(path);
        }
    };
    let path = download(&client, &cache, name, &listing, quiet, notes)?;
    cache.set_commit(name, &commit)?;
    Ok(path)
}

/// Downloads all files that are needed and missing.
fn download(
    client: &Client<'_>,
    cache: &ModelCache,
    name: &ModelName,
    listing: &Listing,
    quiet: bool,
    notes: &mut dyn Write,
) -> Result<PathBuf, HubError> {
    // It comes before the files, because it decides whether they are complete.
    cache.keep_listing(listing)?;
    let commit = &listing.commit[..];
    let bar = ProgressBar::hidden();
    let mut download = Download { client, cache, name, commit, bar, notes, quiet };
    let fetch = |download: &mut Download<'_>, path: &str| match listing.get(path) {
        Some(entry) => download.file(path, entry),
        None => Err(HubError::Files {
            name: name.to_string(),
            reason: format!("expected {path} in the list of files, found none"),
        }),
    };
    let needed = file_selection::select(name, &listing.names(), &mut |path| {
        fetch(&mut download, path)?;
        cache.json(commit, path)
    })?;
    let entries = needed.iter().filter_map(|path| Some((path, listing.get(path)?)));
    let missing: Vec<_> =
        entries.filter(|(path, entry)| !cache.is_whole(commit, path, entry)).collect();
    let total: u64 = missing.iter().map(|(_, entry)| entry.size).sum();
    let path = cache.snapshot(commit);
    if !quiet {
        let files = if missing.len() == 1 { "1 file" } else { &format!("{} files", missing.len()) };
        let bytes = HumanBytes(total);
        let note =
            format!("simdformer: downloading {name}, {files}, {bytes}, to {}", path.display());
        // If the note cannot be written, the download is still right.
        let _ = writeln!(download.notes, "{note}");
    }
    download.bar = progress::download(total, quiet);
    let all = missing.into_iter().try_for_each(|(path, _)| fetch(&mut download, path));
    download.bar.finish_and_clear();
    all.map(|()| path)
}
