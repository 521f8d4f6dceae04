//! An output file that appears when it is complete, and that an interrupted run continues.
//!
//! The rows go to `OUTPUT.part`. A journal beside it, `OUTPUT.journal`, says after which bytes of the input the part
//! ends. Each commit syncs the part and then appends a record to the journal and syncs it, so a record never counts
//! bytes that a crash can take away. At the end the part is renamed and the journal is deleted. The journal is locked
//! while a run uses it; only the process that has the lock deletes it.

use super::journal::{Identity, Journal, Record};
use crate::error::{Error, path_text};
use simdformer_atomic_file as atomic_file;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How often the journal is opened again because another process has just deleted it.
const ATTEMPTS: usize = 16;

/// The files of an output.
pub(super) struct DurableOutput {
    path: PathBuf,
    part: (PathBuf, File),
    journal_file: (PathBuf, File),
    journal: Journal,
}

/// An opened output.
pub(super) enum Opened {
    /// A run that begins, or that continues after a record.
    Run(DurableOutput, Option<Record>),
    /// The interrupted run has written everything.
    Complete(CompleteOutput, Record),
}

/// A complete output, which may not be in its place yet.
#[derive(Debug)]
pub(super) struct CompleteOutput {
    path: PathBuf,
    /// `None` if it was renamed.
    part: Option<(PathBuf, File)>,
    /// The file is locked.
    journal: (PathBuf, File),
}

impl CompleteOutput {
    /// Puts the output in its place.
    pub(super) fn finish(self) -> Result<(), Error> {
        if let Some((part, file)) = self.part {
            file.sync_all().map_err(about(&part))?;
            // Some systems cannot rename an open file.
            drop(file);
            rename(&part, &self.path)?;
        }
        delete(&self.journal.0)
    }
}

impl DurableOutput {
    /// The output, its part and its journal; none if the output is a device or a pipe.
    pub(super) fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
        let Some(path) = atomic_file::replaced_file(path)? else { return Ok(Vec::new()) };
        let beside = [with_suffix(&path, ".part"), with_suffix(&path, ".journal")];
        Ok([path].into_iter().chain(beside).collect())
    }

    /// Locks and opens the files of `path`.
    pub(super) fn open(path: &Path, resume: bool, identity: &Identity) -> Result<Opened, Error> {
        let Some(real) = atomic_file::replaced_file(path).map_err(about(path))? else {
            let reason = "expected a file, found a device or a pipe, which is a stream";
            return Err(about(path)(io::Error::new(io::ErrorKind::InvalidInput, reason)));
        };
        let path = &real;
        let part = with_suffix(path, ".part");
        let journal = with_suffix(path, ".journal");
        let file = locked(&journal)?;
        Files { path, part, journal, file }.open(resume, identity)
    }

    /// Appends rows.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.part.1.write_all(bytes).map_err(about(&self.part.0))
    }

    /// From now on an interrupted run continues after `record`.
    pub(super) fn commit(&mut self, record: &Record) -> Result<(), Error> {
        self.part.1.sync_data().map_err(about(&self.part.0))?;
        let (path, file) = &mut self.journal_file;
        let written = self.journal.record(file, record).and_then(|()| file.sync_data());
        written.map_err(about(path))
    }

    /// Deletes the files of a run that has written nothing.
    pub(super) fn discard(self) {
        drop(self.part.1);
        // The error that ended the run is reported; empty files do not hinder the next one.
        let _ = fs::remove_file(&self.part.0);
        let _ = fs::remove_file(&self.journal_file.0);
    }

    /// Puts the output in its place.
    pub(super) fn finish(mut self, record: &Record) -> Result<(), Error> {
        self.commit(record)?;
        // Some systems cannot rename an open file.
        drop(self.part.1);
        rename(&self.part.0, &self.path)?;
        delete(&self.journal_file.0)
    }
}

/// What is on the disk. The journal is locked.
struct Files<'f> {
    path: &'f Path,
    part: PathBuf,
    journal: PathBuf,
    file: File,
}

impl Files<'_> {
    fn open(mut self, resume: bool, identity: &Identity) -> Result<Opened, Error> {
        let rows = length(&self.part)?;
        let other = Journal::other_version(&mut self.file).map_err(about(&self.journal))?;
        if let Some([expected, found]) = other.filter(|_| rows.is_some_and(|rows| rows > 0)) {
            // As for other settings: what the interrupted run had, and what this one has.
            let (before, now) = (found.to_string(), expected.to_string());
            return Err(other_run(&self.journal, "the version of the journal", &before, &now));
        }
        let found = Journal::read_up_to(&mut self.file, rows.unwrap_or(u64::MAX));
        let Some(found) = found.map_err(about(&self.journal))? else {
            // The journal is written before the part is created.
            return match rows {
                None | Some(0) => self.begin(identity),
                Some(_) => {
                    let expected = format!("the journal of the rows in {}", self.part.display());
                    let found = "one that is not readable: delete both";
                    Err(Error::corrupt(path_text(&self.journal), expected, found))
                }
            };
        };
        let Some(record) = found.last else { return self.begin(identity) };
        match (resume, rows) {
            // It was killed after the rename.
            (_, None) if record.complete => {
                let complete = resume && length(self.path)? == Some(record.output);
                if !complete {
                    return self.begin(identity);
                }
                check(&self.journal, &found.identity, identity)?;
                Ok(Opened::Complete(self.complete(None), record))
            }
            (_, None) => self.begin(identity),
            (false, Some(_)) => {
                let (part, rows) = (path_text(&self.part), record.rows);
                let found =
                    format!("{rows} rows of an interrupted run: resume it or delete {part}");
                Err(Error::conflict(part, "no such file", found))
            }
            (true, Some(_)) => {
                check(&self.journal, &found.identity, identity)?;
                if record.complete {
                    let part = self.part(record.output)?;
                    return Ok(Opened::Complete(self.complete(Some(part)), record));
                }
                self.resume(found.journal, record)
            }
        }
    }

    fn begin(self, identity: &Identity) -> Result<Opened, Error> {
        let files = [self.part.clone(), self.journal.clone()];
        let begun = self.begin_files(identity);
        if begun.is_err() {
            // They have no rows. The error is the one that came first.
            files.iter().for_each(|path| drop(fs::remove_file(path)));
        }
        begun
    }

    fn begin_files(mut self, identity: &Identity) -> Result<Opened, Error> {
        // Rows that no record counts go before the journal does: a run that is killed here leaves no rows without the
        // journal that says whose they are.
        if length(&self.part)?.is_some_and(|rows| rows > 0) {
            self.part(0)?.sync_all().map_err(about(&self.part))?;
        }
        let begun = self.file.set_len(0).and_then(|()| {
            self.file.seek(SeekFrom::Start(0))?;
            let journal = Journal::create(&mut self.file, identity)?;
            self.file.sync_all().map(|()| journal)
        });
        let journal = begun.map_err(about(&self.journal))?;
        let part = self.part(0)?;
        sync(self.path).map_err(about(self.path))?;
        Ok(Opened::Run(self.into_output(part, journal), None))
    }

    fn resume(mut self, journal: Journal, record: Record) -> Result<Opened, Error> {
        let part = self.part(record.output)?;
        let cut = self.file.set_len(journal.len);
        let cut = cut.and_then(|()| self.file.seek(SeekFrom::Start(journal.len)));
        cut.map_err(about(&self.journal))?;
        Ok(Opened::Run(self.into_output(part, journal), Some(record)))
    }

    /// The part, cut to its first `len` bytes, at its end.
    fn part(&self, len: u64) -> Result<File, Error> {
        let opened = || {
            let file = File::options().write(true).create(true).truncate(false).open(&self.part);
            let mut file = file?;
            file.set_len(len)?;
            file.seek(SeekFrom::Start(len))?;
            Ok(file)
        };
        opened().map_err(about(&self.part))
    }

    fn complete(self, part: Option<File>) -> CompleteOutput {
        CompleteOutput {
            path: self.path.to_owned(),
            part: part.map(|part| (self.part, part)),
            journal: (self.journal, self.file),
        }
    }

    fn into_output(self, part: File, journal: Journal) -> DurableOutput {
        DurableOutput {
            path: self.path.to_owned(),
            part: (self.part, part),
            journal_file: (self.journal, self.file),
            journal,
        }
    }
}

/// Opens and locks a file, which is created if it is missing.
fn locked(path: &Path) -> Result<File, Error> {
    for _ in 0..ATTEMPTS {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(about(path))?;
        if !atomic_file::try_lock(&file).map_err(about(path))? {
            break;
        }
        // Another process may have deleted it after it was opened here.
        if is_at(&file, path).map_err(about(path))? {
            return Ok(file);
        }
    }
    let found = "one that is locked: another process writes this output";
    Err(Error::conflict(path_text(path), "a journal of its own", found))
}

/// Whether `file` is what `path` names now.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(named) => same(&file.metadata()?, &named),
    }
}

#[cfg(unix)]
fn same(open: &fs::Metadata, named: &fs::Metadata) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

/// Other systems do not reuse the name of a file that is open.
#[cfg(not(unix))]
fn same(_: &fs::Metadata, _: &fs::Metadata) -> io::Result<bool> {
    Ok(true)
}

/// Returns an error if the interrupted run is not `run`.
fn check(journal: &Path, expected: &Identity, run: &Identity) -> Result<(), Error> {
    let value = |identity: &Identity, name: &str| {
        let found = identity.iter().find(|(known, _)| known == name);
        found.map_or_else(|| "not given".to_owned(), |(_, value)| value.clone())
    };
    let names = expected.iter().chain(run).map(|(name, _)| name);
    for name in names {
        let (expected, found) = (value(expected, name), value(run, name));
        if expected != found {
            return Err(other_run(journal, name, &expected, &found));
        }
    }
    Ok(())
}

/// The error of a journal of which the setting `what` had the value `before`, and has `now`.
fn other_run(journal: &Path, what: &str, before: &str, now: &str) -> Error {
    let found = format_args!("one of another run: {what} was {before:?}, is {now:?}");
    Error::conflict(path_text(journal), "the journal of this run", found)
}

/// The length of a file, if it exists.
fn length(path: &Path) -> Result<Option<u64>, Error> {
    match fs::metadata(path) {
        Ok(about) => Ok(Some(about.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(about(path)(error)),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    atomic_file::rename(from, to).map_err(about(to))
}

fn delete(journal: &Path) -> Result<(), Error> {
    let deleted = fs::remove_file(journal).and_then(|()| sync(journal));
    deleted.map_err(about(journal))
}

/// Syncs the directory of a file.
fn sync(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    atomic_file::sync_directory(directory.unwrap_or(Path::new(".")))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn about(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::unwritable(&path, error)
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::*;

    /// A run that was killed before its first record leaves rows and a journal. The next run empties the part first:
    /// here it cannot write the journal, as if it was killed before that.
    #[test]
    fn rows_without_a_record_are_deleted_before_the_journal() {
        let output = std::env::temp_dir().join(format!("simdformer-begin-{}", std::process::id()));
        let (part, journal) = (with_suffix(&output, ".part"), with_suffix(&output, ".journal"));
        let identity = vec![("--beams".to_owned(), "2".to_owned())];
        fs::write(&part, "rows").unwrap();
        Journal::create(&mut File::create(&journal).unwrap(), &identity).unwrap();
        let before = fs::read(&journal).unwrap();
        let file = File::open(&journal).unwrap();
        let files = Files { path: &output, part: part.clone(), journal: journal.clone(), file };
        assert!(files.begin_files(&identity).is_err());
        assert_eq!(fs::read(&journal).unwrap(), before);
        assert_eq!(length(&part).unwrap(), Some(0));
        // The next run begins.
        assert!(matches!(DurableOutput::open(&output, true, &identity), Ok(Opened::Run(_, None))));
        fs::remove_file(part).unwrap();
        fs::remove_file(journal).unwrap();
    }
}
