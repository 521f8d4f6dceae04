//! Errors of a bulk run.

use core::fmt;
use std::error::Error;
use std::io;
use std::path::PathBuf;

/// An error that ends a bulk run. Rows that fail do not end it.
#[derive(Debug)]
#[non_exhaustive]
pub enum BulkError {
    /// The input cannot be read.
    Read(io::Error),
    /// The stream of the output cannot be written.
    Stream(io::Error),
    /// A file of the output cannot be written.
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The input begins with the mark of UTF-16.
    Utf16,
    /// A row is longer than the limit, as it is after a quote that is not closed.
    RowTooLong {
        /// Its number.
        row: u64,
        /// Where it begins, in bytes.
        offset: u64,
        /// The largest number of bytes.
        limit: usize,
    },
    /// The header has no such column.
    NoColumn {
        /// The name or number that was asked for.
        column: String,
        /// The first names of the header, or nothing if there is no header.
        header: Vec<String>,
        /// The number of columns.
        columns: usize,
    },
    /// Two columns have this name.
    ColumnTwice {
        /// The name.
        column: String,
    },
    /// The column that is to be appended exists.
    OutputExists {
        /// Its name.
        column: String,
    },
    /// Another process writes this output.
    Locked {
        /// The locked file.
        path: PathBuf,
    },
    /// An earlier run was interrupted, and this one was not asked to resume it.
    Unfinished {
        /// The output of the earlier run so far.
        path: PathBuf,
        /// The rows that are in it.
        rows: u64,
    },
    /// The interrupted run is another one.
    OtherRun {
        /// The journal of the interrupted run.
        journal: PathBuf,
        /// What differs.
        what: String,
        /// What the interrupted run had.
        expected: String,
        /// What this run has.
        found: String,
    },
    /// The input does not begin with the rows that the interrupted run has read.
    OtherInput {
        /// The bytes that it has read.
        bytes: u64,
        /// The bytes that this input has, if they are fewer, or if the interrupted run had read all.
        found: Option<u64>,
    },
    /// There is a partial output without a readable journal.
    NoJournal {
        /// The partial output.
        path: PathBuf,
        /// The journal.
        journal: PathBuf,
    },
    /// The function returned a wrong number of answers.
    Answers {
        /// The number of sources.
        expected: usize,
        /// The number of answers.
        found: usize,
    },
    /// [`Job::cancel`](super::Job#structfield.cancel) was set. The rows before are kept, and the run can be resumed.
    Cancelled,
    /// The function failed.
    Compute(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for BulkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot read the rows: {error}"),
            Self::Stream(error) => write!(f, "cannot write the rows: {error}"),
            Self::Write { path, error } => write!(f, "cannot write {}: {error}", path.display()),
            Self::Utf16 => f.write_str("the rows must be UTF-8, found UTF-16"),
            Self::RowTooLong { row, offset, limit } => write!(
                f,
                "row {row}, which begins at byte {offset}, must have at most {limit} bytes; \
                 is a quote not closed?"
            ),
            Self::NoColumn { column, header, columns } if header.is_empty() => {
                write!(f, "there is no column {column:?}: expected a number from 1 to {columns}")
            }
            Self::NoColumn { column, header, columns } => {
                let more = if header.len() < *columns { ", ..." } else { "" };
                let names: Vec<String> = header.iter().map(|name| format!("{name:?}")).collect();
                let names = names.join(", ");
                write!(f, "there is no column {column:?}: the header has {names}{more}")
            }
            Self::ColumnTwice { column } => {
                write!(f, "two columns have the name {column:?}: choose one by its number")
            }
            Self::OutputExists { column } => {
                write!(f, "there is already a column {column:?}; name it to replace its cells")
            }
            Self::Locked { path } => {
                write!(f, "{} is locked: another process writes this output", path.display())
            }
            Self::Unfinished { path, rows } => {
                let path = path.display();
                write!(
                    f,
                    "{path} has {rows} rows of an interrupted run: resume it or delete {path}"
                )
            }
            Self::OtherRun { journal, what, expected, found } => write!(
                f,
                "{} is of another run: {what} was {expected:?}, is {found:?}",
                journal.display()
            ),
            Self::OtherInput { bytes, found: Some(found) } => write!(
                f,
                "another input: the interrupted run has read {bytes} bytes, this input has {found}"
            ),
            Self::OtherInput { bytes, found: None } => write!(
                f,
                "another input: the {bytes} bytes that the interrupted run has read are different"
            ),
            Self::NoJournal { path, journal } => {
                let (path, journal) = (path.display(), journal.display());
                write!(f, "{path} has rows, but its journal {journal} is not readable: delete both")
            }
            Self::Answers { expected, found } => {
                write!(f, "expected {expected} answers, found {found}")
            }
            Self::Cancelled => f.write_str("the run was cancelled"),
            Self::Compute(error) => error.fmt(f),
        }
    }
}

impl Error for BulkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Read(error) | Self::Stream(error) | Self::Write { error, .. } => Some(error),
            Self::Compute(error) => Some(&**error),
            _ => None,
        }
    }
}
