//! Runs a table through a function, window by window.

use super::durable_output::{DurableOutput, Opened};
use super::journal::{Identity, Record};
use super::known_texts::KnownTexts;
use super::row_reader::{InputPosition, RowReader, Window};
use super::table::{APPENDED, ROWS, Source, Table};
use crate::error::Error;
use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The rows of a window, at most.
const WINDOW: usize = 4096;
/// The rows of the first window, and of any window at least: enough for a function that runs many sources at a time.
const SMALLEST_WINDOW: usize = 64;
/// The bytes of a row, at most.
const LONGEST_ROW: usize = 16 << 20;
/// A window takes about this time, if its rows permit it: an interruption loses at most the work on one window.
const WINDOW_TIME: Duration = Duration::from_secs(10);

/// What a function made of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    /// The text; `None` if there is none. Then the cell is empty, in JSON `null`, and the row counts as failed.
    pub text: Option<String>,
    /// What is reported for each row with this source: why there is no text, or that the source was cut.
    pub note: Option<String>,
}

/// The error of a function.
pub type ComputeError = Box<dyn core::error::Error + Send + Sync>;

/// Turns sources, of which no two are equal and none is blank, into answers, one for each, in order. An answer depends
/// on its source alone: the answer to a source that comes again may be that of its first time.
type Compute<'c> = dyn FnMut(&[&str]) -> Result<Vec<Computed>, ComputeError> + 'c;

/// Where the rows are written.
pub enum Output<'o> {
    /// A stream, which gets the rows of each window when they are known.
    Stream(&'o mut (dyn Write + Send)),
    /// A file. It appears when it is complete. Until then its rows are in `PATH.part`, and `PATH.journal` says which.
    File {
        /// The path.
        path: &'o Path,
        /// Whether an interrupted run is continued. Without one, the run begins.
        resume: bool,
    },
}

impl Output<'_> {
    /// The files that a run writes for the output `path`: the output, the rows of a run that has not ended, and the
    /// journal. None if it is a device or a pipe, which can only be a [stream](Self::Stream).
    ///
    /// # Errors
    /// The path does not name a file.
    pub fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
        DurableOutput::files(path)
    }
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(_) => f.write_str("Stream"),
            Self::File { path, resume } => {
                f.debug_struct("File").field("path", path).field("resume", resume).finish()
            }
        }
    }
}

/// What a run reports.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'p> {
    /// The run continues an interrupted one after these rows.
    Resumed(Summary),
    /// Something about a row: why it failed, or how its source was changed.
    Row {
        /// Its number from 1, in which the header and blank lines count: in CSV without line breaks in cells, the
        /// number of its line.
        number: u64,
        /// What there is to say.
        note: &'p str,
    },
    /// A window was written.
    Window(Summary),
}

/// The rows of a run, including those that an interrupted run had written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The rows, with the header and blank lines.
    pub rows: u64,
    /// The rows without a text.
    pub failed: u64,
    /// The bytes of the input.
    pub bytes: u64,
}

impl From<Record> for Summary {
    fn from(record: Record) -> Self {
        Self { rows: record.rows, failed: record.failed, bytes: record.input }
    }
}

/// Fills a column of a table with what a function makes of another column.
///
/// The rows come in windows of at most 4,096. Equal sources of a window are computed once, and those of the last 8 MiB
/// of sources and texts are not computed again. A blank cell is copied without the function. So the memory does not
/// depend on the number of rows. All other bytes of the input are in the output, in order.
///
/// ```
/// use simdformer_documents::tables::{Computed, Format, Job, Output, Table};
///
/// # fn main() -> Result<(), simdformer_documents::Error> {
/// let format = Format::Csv { delimiter: b',' };
/// let job = Job::new(Table { format, header: true, source: "fr".to_owned(), output: None });
/// let input = "id,fr\r\n1,\"oui, non\"\r\n2,\r\n";
/// let mut written = Vec::new();
/// let mut shout = |sources: &[&str]| {
///     let text = |source: &&str| Computed { text: Some(source.to_uppercase()), note: None };
///     Ok(sources.iter().map(text).collect())
/// };
/// let output = Output::Stream(&mut written);
/// let summary = job.fill_column(&mut input.as_bytes(), output, &mut shout, &mut |_| ())?;
/// let expected = "id,fr,translation\r\n1,\"oui, non\",\"OUI, NON\"\r\n2,,\r\n";
/// assert_eq!(written, expected.as_bytes());
/// assert_eq!((summary.rows, summary.failed), (3, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    /// The format and the columns.
    pub table: Table,
    /// The names and values of everything else on which the texts depend: the options, the model. An interrupted run is
    /// only continued if all of them are equal.
    pub identity: Vec<(String, String)>,
    /// The rows of a window, at most.
    pub window: usize,
    /// The bytes of a row, at most: 16 MiB. A longer row ends the run, because a quote that is not closed makes one row of
    /// all that follow.
    pub longest_row: usize,
    /// The time between two commits: what is lost at most, beside the window, if the process is killed.
    pub commit_every: Duration,
    /// Set by another thread or a signal handler, it ends a run with [`Error::Cancelled`] before the next window, or when
    /// the function fails while it is set: give what the function calls the same flag. What was written stays and can be
    /// resumed.
    pub cancel: Arc<AtomicBool>,
}

impl Job {
    /// A job whose texts depend on the table alone.
    #[must_use]
    pub fn new(table: Table) -> Self {
        let commit_every = Duration::from_millis(200);
        Self {
            table,
            identity: Vec::new(),
            window: WINDOW,
            longest_row: LONGEST_ROW,
            commit_every,
            cancel: Arc::default(),
        }
    }

    /// Writes the rows of `input` with the texts of `compute`.
    ///
    /// A row that fails does not end the run. If the run ends before its end in any way, also by a full disk or because
    /// the process is killed, a run with the same input and [`Output::File`] with `resume` continues it, and the file
    /// has the bytes of a run that was not interrupted. The input is read again from its begin, so it may be a pipe.
    ///
    /// # Errors
    /// The input cannot be read, has no such column or has a row that is too long; the output cannot be written, or
    /// another process writes it; there is an interrupted run of this output that must be resumed, or that is another
    /// one; `compute` failed; the run was [cancelled](Self::cancel).
    pub fn fill_column(
        &self,
        input: &mut (dyn Read + Send),
        output: Output<'_>,
        compute: &mut Compute<'_>,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Summary, Error> {
        let mut written = Vec::new();
        // First, so that a wrong column leaves no files.
        let mut rows = RowReader::open(input, &self.table, self.longest_row, &mut written)?;
        let target = match output {
            Output::Stream(stream) => Target::Stream(stream),
            Output::File { path, resume } => {
                match DurableOutput::open(path, resume, &self.identity())? {
                    Opened::Complete(output, record) => {
                        rows.skip_to(&record, &self.cancel)?;
                        rows.expect_end()?;
                        output.finish()?;
                        return Ok(record.into());
                    }
                    Opened::Run(files, record) => Target::File { files, record },
                }
            }
        };
        let mut record = Record::default();
        if let Target::File { record: Some(last), .. } = &target {
            rows.skip_to(last, &self.cancel)?;
            record = *last;
            written.clear();
            report(Progress::Resumed(record.into()));
        }
        let texts = Texts { known: KnownTexts::new(), compute };
        let mut run = Run { rows, texts, target, record, written };
        match run.windows(self, report) {
            Ok(()) => {
                run.record.complete = true;
                run.target.finish(&run.record)?;
                Ok(run.record.into())
            }
            Err(error) => {
                run.end(&error);
                Err(error)
            }
        }
    }

    /// The identity with the table.
    fn identity(&self) -> Identity {
        let Table { format, header, source, output } = &self.table;
        let table = [
            ("the format", format!("{format:?}")),
            ("the header", header.to_string()),
            ("the column of the texts", source.clone()),
            (
                "the column of the output",
                output.clone().unwrap_or_else(|| format!("{APPENDED} (appended)")),
            ),
        ];
        let table = table.map(|(name, value)| (name.to_owned(), value));
        self.identity.iter().cloned().chain(table).collect()
    }
}

/// The error of a function that a cancellation ended.
fn cancelled(error: Error, cancel: &AtomicBool) -> Error {
    match error {
        Error::Caller { .. } if cancel.load(Ordering::Relaxed) => Error::Cancelled,
        error => error,
    }
}

/// The rows of the window after one of `most` rows that took `time`. The output does not depend on windows.
fn next_window(most: usize, time: Duration) -> usize {
    if time > WINDOW_TIME * 2 {
        (most / 2).max(SMALLEST_WINDOW)
    } else if time < WINDOW_TIME / 2 {
        most * 2
    } else {
        most
    }
}

/// A run in progress.
struct Run<'r, 'i, 'c> {
    rows: RowReader<'i>,
    texts: Texts<'r, 'c>,
    target: Target<'r>,
    /// What was appended to the target.
    record: Record,
    /// What is appended next.
    written: Vec<u8>,
}

impl Run<'_, '_, '_> {
    fn windows(&mut self, job: &Job, report: &mut dyn FnMut(Progress<'_>)) -> Result<(), Error> {
        let mut most = SMALLEST_WINDOW.min(job.window).max(1);
        let mut committed = Instant::now();
        loop {
            if job.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let begun = Instant::now();
            let (more, failed) = match self.rows.window(most)? {
                Some(window) => {
                    let written = self.texts.write(&window, &mut self.written, report);
                    (true, written.map_err(|error| cancelled(error, &job.cancel))?)
                }
                None => (false, 0),
            };
            self.target.append(&self.written)?;
            let InputPosition { bytes, rows } = self.rows.position;
            self.record = Record {
                input: bytes,
                checksum: self.rows.checksum.digest(),
                output: self.record.output + self.written.len() as u64,
                rows,
                failed: self.record.failed + failed,
                complete: false,
            };
            self.written.clear();
            if !more {
                return Ok(());
            }
            report(Progress::Window(self.record.into()));
            if committed.elapsed() >= job.commit_every {
                self.target.commit(&self.record)?;
                committed = Instant::now();
            }
            most = next_window(most, begun.elapsed()).min(job.window).max(1);
        }
    }

    /// After an error: keeps what was appended.
    fn end(self, error: &Error) {
        let Target::File { mut files, .. } = self.target else { return };
        if self.record.rows == 0 {
            files.discard();
        } else if !matches!(error, Error::Io { action: "written", .. }) {
            // An error here costs the rows since the last commit. After a failed write, a later sync may succeed
            // without the bytes.
            let _ = files.commit(&self.record);
        }
    }
}

/// Where rows are appended.
enum Target<'t> {
    Stream(&'t mut (dyn Write + Send)),
    File { files: DurableOutput, record: Option<Record> },
}

impl Target<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match self {
            Self::Stream(stream) => stream
                .write_all(bytes)
                .and_then(|()| stream.flush())
                .map_err(Error::of_stream("written", ROWS)),
            Self::File { files, .. } => files.append(bytes),
        }
    }

    fn commit(&mut self, record: &Record) -> Result<(), Error> {
        match self {
            Self::Stream(_) => Ok(()),
            Self::File { files, .. } => files.commit(record),
        }
    }

    fn finish(self, record: &Record) -> Result<(), Error> {
        match self {
            Self::Stream(_) => Ok(()),
            Self::File { files, .. } => files.finish(record),
        }
    }
}

/// The texts of sources, each computed once.
struct Texts<'t, 'c> {
    known: KnownTexts,
    compute: &'t mut Compute<'c>,
}

impl Texts<'_, '_> {
    /// Appends the rows of a window with their texts; returns how many have none.
    fn write(
        &mut self,
        window: &Window<'_>,
        out: &mut Vec<u8>,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> Result<u64, Error> {
        // The sources without those that come again, and the number of the source of each row.
        let mut sources: Vec<&str> = Vec::new();
        let mut numbers: HashMap<&str, usize> = HashMap::with_capacity(window.rows.len());
        let number_of_row: Vec<Option<usize>> = (window.rows.iter())
            .map(|row| {
                let Source::Text(range) = &row.source else { return None };
                let source = &window.texts[range.clone()];
                if source.trim().is_empty() {
                    return None;
                }
                Some(*numbers.entry(source).or_insert_with(|| {
                    sources.push(source);
                    sources.len() - 1
                }))
            })
            .collect();
        let answers = self.answers(&sources)?;
        let (mut at, mut failed) = (0, 0);
        for ((row, source), number) in window.rows.iter().zip(number_of_row).zip(window.first..) {
            let raw = &window.bytes[at..at + row.len];
            at += row.len;
            let answer = source.map(|source| &answers[source]);
            let note = match &row.source {
                Source::Failed(reason) => Some(reason),
                _ => answer.and_then(|answer| answer.note.as_ref()),
            };
            let text = match (&row.source, answer) {
                (_, Some(answer)) => answer.text.as_deref(),
                (Source::Text(range), None) => Some(&window.texts[range.clone()]),
                _ => None,
            };
            let missing = answer.is_some_and(|answer| answer.text.is_none());
            failed += u64::from(missing || matches!(row.source, Source::Failed(_)));
            if let Some(note) = note {
                report(Progress::Row { number, note });
            }
            window.columns.write(raw, row.place.as_ref(), text, out);
        }
        Ok(failed)
    }

    fn answers(&mut self, sources: &[&str]) -> Result<Vec<Computed>, Error> {
        let known = |source: &&str| Computed {
            text: self.known.get(source).map(str::to_owned),
            note: None,
        };
        let mut answers: Vec<Computed> = sources.iter().map(known).collect();
        let unknown: Vec<usize> =
            (0..sources.len()).filter(|&i| answers[i].text.is_none()).collect();
        if unknown.is_empty() {
            return Ok(answers);
        }
        let asked: Vec<&str> = unknown.iter().map(|&i| sources[i]).collect();
        let computed = (self.compute)(&asked).map_err(|error| {
            let operand = "the texts of the rows".into();
            Error::Caller { operand, error }
        })?;
        if computed.len() != asked.len() {
            let (expected, found) = (asked.len(), computed.len());
            let expected = format!("{expected}, one for each source");
            return Err(Error::invalid_input("answers", expected, found));
        }
        for ((i, source), answer) in unknown.into_iter().zip(asked).zip(computed) {
            // A note is reported for each row.
            if let Computed { text: Some(text), note: None } = &answer {
                self.known.insert(source, text);
            }
            answers[i] = answer;
        }
        Ok(answers)
    }
}
