//! `--output`: where results go that are not written to standard output.

use crate::Failure;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Write};
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

/// A file that appears when it is complete: until then it has a temporary name beside its own, which no other process uses.
/// A device or a pipe is written to directly.
pub(crate) struct OutputFile {
    writer: BufWriter<File>,
    /// Unless it was renamed, or is not needed.
    temporary: Option<PathBuf>,
    path: PathBuf,
}

impl OutputFile {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        options.write(true);
        let is_special = fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
        let temporary = (!is_special).then(|| {
            let random = RandomState::new().build_hasher().finish();
            path.with_file_name(format!(".simdformer-{random:016x}.part"))
        });
        let opened = temporary.as_deref().unwrap_or(path);
        let file = options
            .create_new(!is_special)
            .open(opened)
            .map_err(|error| format!("cannot write {}: {error}", opened.display()))?;
        Ok(Self { writer: BufWriter::new(file), temporary, path: path.to_owned() })
    }

    pub(crate) fn writer(&mut self) -> &mut dyn Write {
        &mut self.writer
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let path = self.path.clone();
        let failure = |error: io::Error| format!("cannot write {}: {error}", path.display());
        self.writer.flush().map_err(failure)?;
        if let Some(temporary) = &self.temporary {
            self.writer.get_ref().sync_all().map_err(failure)?;
            fs::rename(temporary, &self.path).map_err(failure)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The caller reports the error that came first.
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_complete() {
        let folder = std::env::temp_dir().join(format!("simdformer-output-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.txt");
        let names = || fs::read_dir(&folder).unwrap().count();
        let write = |text: &str| {
            let mut file = OutputFile::create(&path).unwrap();
            file.writer().write_all(text.as_bytes()).unwrap();
            file
        };
        // Two at once have a file each. One that is given up leaves nothing.
        let (first, second) = (write("first"), write("second"));
        assert_eq!(names(), 2);
        assert!(!path.exists());
        drop(first);
        second.finish().unwrap();
        assert_eq!((names(), fs::read_to_string(&path).unwrap()), (1, "second".to_owned()));
        write("third").finish().unwrap();
        assert_eq!((names(), fs::read_to_string(&path).unwrap()), (1, "third".to_owned()));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_written_to_and_stays() {
        use std::os::unix::fs::FileTypeExt;
        let device = Path::new("/dev/null");
        let mut file = OutputFile::create(device).unwrap();
        file.writer().write_all(b"text").unwrap();
        file.finish().unwrap();
        assert!(fs::metadata(device).unwrap().file_type().is_char_device());
    }
}
