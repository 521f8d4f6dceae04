//! Tells the command from which commit it is built: the environment variable `SIMDFORMER_COMMIT`, or the commit of the
//! published package, or, in an optimized build, that of the repository.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Letters of a commit that are shown.
const SHOWN: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SIMDFORMER_COMMIT");
    let set = env::var("SIMDFORMER_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = set.or_else(of_package).or_else(of_repository);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    let shown: String = commit.trim().chars().take(SHOWN).collect();
    println!("cargo::rustc-env=SIMDFORMER_COMMIT={shown}");
}

/// `cargo package` writes `{"git": {"sha1": "..."}}` into the package.
fn of_package() -> Option<String> {
    const FILE: &str = ".cargo_vcs_info.json";
    let text = fs::read_to_string(FILE).ok()?;
    // Only a file that exists may be named: cargo runs the script at every build for one that does not.
    println!("cargo::rerun-if-changed={FILE}");
    let (_, after) = text.split_once("\"sha1\"")?;
    Some(after.split('"').nth(1)?.to_owned())
}

/// The commit of the repository around this folder. A development build has none: its files often differ from the
/// commit, and after each commit the package would be compiled again.
fn of_repository() -> Option<String> {
    if env::var("PROFILE").ok()? != "release" {
        return None;
    }
    let questions = ["rev-parse", "--show-toplevel", "HEAD", "--git-path", "logs/HEAD"];
    let output =
        Command::new("git").args(questions).output().ok().filter(|o| o.status.success())?;
    let answers = String::from_utf8(output.stdout).ok()?;
    let mut answers = answers.lines();
    let [root, commit, log] = [answers.next()?, answers.next()?, answers.next()?];
    // This folder may be a copy inside of another repository.
    let here = env::current_dir().ok()?.parent()?.canonicalize().ok()?;
    if Path::new(root).canonicalize().ok()? != here {
        return None;
    }
    // The log changes with every commit and every checkout.
    if Path::new(log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    Some(commit.to_owned())
}
