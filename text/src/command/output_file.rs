//! `--output`: where results go that are not written to standard output.

use crate::Failure;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
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
        let same = |path: &Path| path.canonicalize().ok();
        if input.and_then(same).is_some_and(|source| same(&path) == Some(source)) {
            return Err(format!("{} is read and would be written", path.display()).into());
        }
        if names.contains(&name) {
            return Err(format!("two files have the name {}", name.display()).into());
        }
        names.insert(name);
        paths.push(path);
    }
    Ok(paths)
}

/// A file that appears when it is complete.
pub(crate) struct OutputFile {
    writer: BufWriter<File>,
    partial: PathBuf,
    path: PathBuf,
}

impl OutputFile {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let partial = path.with_file_name(name);
        let file = File::create(&partial)
            .map_err(|error| format!("cannot write {}: {error}", partial.display()))?;
        Ok(Self { writer: BufWriter::new(file), partial, path: path.to_owned() })
    }

    pub(crate) fn writer(&mut self) -> &mut dyn Write {
        &mut self.writer
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.writer.flush()?;
        self.writer.get_ref().sync_all()?;
        fs::rename(&self.partial, &self.path)
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // After `finish` there is none.
        let _ = fs::remove_file(&self.partial);
    }
}
