//! `--output`: where results go that are not written to standard output.

use crate::arguments::UsageError;
use crate::streams::Failure;
use simdformer::atomic_file;
use simdformer_text::model_files;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Whether `--output` is a directory, for so many inputs.
pub(crate) fn is_directory(inputs: usize, output: &Path) -> bool {
    inputs > 1
        || output.is_dir()
        || output.as_os_str().to_string_lossy().ends_with(std::path::is_separator)
}

/// The file of each input, which is a file or has no name. In a directory, `rename` makes the name of the output from that of
/// the input.
pub(crate) fn outputs(
    inputs: &[Option<&Path>],
    output: &Path,
    rename: &dyn Fn(&OsStr) -> OsString,
) -> Result<Vec<PathBuf>, Failure> {
    if !is_directory(inputs.len(), output) {
        return Ok(vec![output.to_owned()]);
    }
    fs::create_dir_all(output)
        .map_err(|error| format!("cannot create {}: {error}", output.display()))?;
    let mut names: BTreeSet<OsString> = BTreeSet::new();
    let mut paths = Vec::with_capacity(inputs.len());
    for input in inputs {
        let Some(name) = input.and_then(Path::file_name) else {
            return Err("--output DIR needs files; a text and standard input have no name".into());
        };
        let name = rename(name);
        let path = output.join(&name);
        if names.contains(&name) {
            return Err(format!("two files have the name {}", name.display()).into());
        }
        names.insert(name);
        paths.push(path);
    }
    Ok(paths)
}

/// Returns an error if a file that would be written is read, by whatever path, or is written twice. The files of the model
/// are read, too.
pub(crate) fn refuse_inputs(
    outputs: &[&Path],
    inputs: &[&Path],
    model: &Path,
) -> Result<(), Failure> {
    let of_model = model_files::list(model)
        .map_err(|error| format!("cannot read {}: {error}", model.display()))?;
    let of_model: Vec<PathBuf> = of_model.iter().map(|file| model.join(file)).collect();
    let inputs = inputs.iter().copied().chain(of_model.iter().map(PathBuf::as_path));
    let inputs: Vec<&Path> = inputs.collect();
    for (i, output) in outputs.iter().enumerate() {
        for input in &inputs {
            if is_same(output, input)? {
                let output = output.display();
                let what = match input.display().to_string() {
                    same if same == output.to_string() => same,
                    other => format!("{output}, which is {other},"),
                };
                return Err(UsageError(format!("{what} is read and would be replaced")).into());
            }
        }
        for other in &outputs[..i] {
            if place(output)? == place(other)? || is_same(output, other)? {
                let (output, other) = (output.display(), other.display());
                let what = format!("two outputs are one file: {other} and {output}");
                return Err(UsageError(what).into());
            }
        }
    }
    Ok(())
}

/// The path of a file that there may not be yet.
fn place(path: &Path) -> Result<PathBuf, Failure> {
    let found = atomic_file::replaced_file(path).map_err(cannot_write(path))?;
    let found = found.unwrap_or_else(|| path.to_owned());
    let folder = found.parent().map(|folder| match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    });
    // Without the folder nothing is written.
    let folder = folder.and_then(|folder| fs::canonicalize(folder).ok());
    Ok(match (folder, found.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => found,
    })
}

fn is_same(one: &Path, other: &Path) -> Result<bool, Failure> {
    let same = atomic_file::is_same_file(one, other);
    same.map_err(|error| format!("cannot compare {}: {error}", one.display()).into())
}

/// The error of a file that cannot be written.
pub(crate) fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| format!("cannot write {}: {error}", path.display()).into()
}
