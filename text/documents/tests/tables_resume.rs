//! Runs that are interrupted and resumed: the bytes of a run that was not.

use crate::random::Random;
use crate::tables::{CSV, shout, table};
use core::time::Duration;
use simdformer_documents::Error;
use simdformer_documents::tables::{
    ComputeError, Computed, Format, Job, Output, Progress, Summary, Table,
};
use simdformer_testing::effort::cases;
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Forty rows, some of which fail.
fn input() -> String {
    let mut random = Random(4);
    let mut text = String::from("id,text\r\n");
    for id in 0..40 {
        let words = ["oui", "non", "\"peut\nêtre\"", "", "la maison", "là,bas"];
        text += &format!("{id},{}{}\r\n", words[random.below(6)], random.below(5));
    }
    text
}

/// A job with small windows, each of which is committed.
fn job() -> Job {
    let mut job = Job::new(table(CSV, "text", None));
    job.window = 3;
    job.commit_every = Duration::ZERO;
    job.identity =
        vec![("--beams".to_owned(), "4".to_owned()), ("model".to_owned(), "m".to_owned())];
    job
}

type Fake<'f> = &'f mut dyn FnMut(&[&str]) -> Result<Vec<Computed>, ComputeError>;

fn run(
    job: &Job,
    input: &str,
    path: &Path,
    resume: bool,
    compute: Fake<'_>,
) -> Result<Summary, Error> {
    job.fill_column(&mut input.as_bytes(), Output::File { path, resume }, compute, &mut |_| ())
}

/// The bytes of a run that is not interrupted.
fn undisturbed() -> Vec<u8> {
    let mut bytes = Vec::new();
    let output = Output::Stream(&mut bytes);
    job().fill_column(&mut input().as_bytes(), output, &mut shout, &mut |_| ()).unwrap();
    bytes
}

/// The files of an output in a directory of their own.
struct Files {
    place: TemporaryFolder,
    output: PathBuf,
}

impl Files {
    fn new() -> Self {
        let place = TemporaryFolder::new("tables");
        let output = place.0.join("out.csv");
        Self { place, output }
    }

    fn part(&self) -> PathBuf {
        self.place.0.join("out.csv.part")
    }

    fn journal(&self) -> PathBuf {
        self.place.0.join("out.csv.journal")
    }

    /// The names of the files.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.place.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn resume(&self) -> Result<Summary, Error> {
        // Without commits: this run is not interrupted.
        let job = Job { commit_every: Duration::MAX, ..job() };
        run(&job, &input(), &self.output, true, &mut shout)
    }

    /// The output is complete and alone.
    fn check(&self) {
        assert_eq!(fs::read(&self.output).unwrap(), undisturbed());
        assert_eq!(self.names(), ["out.csv"]);
    }
}

/// Runs until the function is called for the time `calls`, from 0.
fn interrupted(files: &Files, calls: usize) -> Error {
    let mut called = 0;
    let mut compute = |sources: &[&str]| {
        called += 1;
        if called > calls { Err("out of power".into()) } else { shout(sources) }
    };
    run(&job(), &input(), &files.output, true, &mut compute).unwrap_err()
}

/// The part and the journal at each call of the function.
fn snapshots() -> Vec<(Vec<u8>, Vec<u8>)> {
    let files = Files::new();
    let mut found = Vec::new();
    let mut compute = |sources: &[&str]| {
        found.push((fs::read(files.part()).unwrap(), fs::read(files.journal()).unwrap()));
        shout(sources)
    };
    run(&job(), &input(), &files.output, false, &mut compute).unwrap();
    files.check();
    assert!(found.len() > 8);
    found
}

#[test]
fn an_interrupted_run_continues() {
    for call in 0..snapshots().len() {
        let files = Files::new();
        assert_eq!(interrupted(&files, call).to_string(), "the texts of the rows: out of power");
        if call == 0 {
            // Nothing was written, so nothing is left.
            assert!(files.names().is_empty());
        } else {
            assert_eq!(files.names(), ["out.csv.journal", "out.csv.part"]);
        }
        let mut resumed = 0;
        let mut again = 0;
        let mut report = |progress: Progress<'_>| match progress {
            Progress::Resumed(summary) => resumed = summary.rows,
            Progress::Window(_) => again += 1,
            _ => (),
        };
        let input = input();
        let output = Output::File { path: &files.output, resume: true };
        let done =
            job().fill_column(&mut input.as_bytes(), output, &mut shout, &mut report).unwrap();
        files.check();
        assert_eq!((done.rows, done.bytes), (41, input.len() as u64));
        assert!(call == 0 || resumed > 1, "{call}");
        assert!(again <= 14 - resumed / 3, "{call}: {again} windows after {resumed} rows");
    }
}

/// Whatever is on the disk beyond the last whole record of the journal, and wherever the journal was cut.
#[test]
fn any_end_of_the_files_is_resumed() {
    let snapshots = snapshots();
    let step = cases(17, 1);
    let (part, journal) = &snapshots[snapshots.len() * 2 / 3];
    let longer = &snapshots[snapshots.len() - 1].0;
    let begin = snapshots[0].1.len();
    for len in (0..=journal.len()).step_by(step) {
        for part in [&part[..], longer] {
            let files = Files::new();
            fs::write(files.part(), part).unwrap();
            fs::write(files.journal(), &journal[..len]).unwrap();
            match files.resume() {
                Ok(_) => files.check(),
                Err(error) => {
                    assert!(len < begin && !part.is_empty(), "{len}: {error}");
                    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                    // Nothing was deleted.
                    assert_eq!(fs::read(files.part()).unwrap(), part);
                }
            }
        }
    }
    // Bytes of the last record that were not written, or that are of something else.
    for more in [&[0; 56][..], b"x", &[0xff; 100]] {
        let files = Files::new();
        fs::write(files.part(), [part, more].concat()).unwrap();
        fs::write(files.journal(), [journal, more].concat()).unwrap();
        files.resume().unwrap();
        files.check();
    }
    // A part that has lost bytes: the records that count them are passed over.
    for len in (0..part.len()).step_by(step) {
        let files = Files::new();
        fs::write(files.part(), &part[..len]).unwrap();
        fs::write(files.journal(), journal).unwrap();
        files.resume().unwrap();
        files.check();
    }
}

/// The byte of a journal that has its version.
const VERSION: usize = 15;

#[test]
fn a_journal_of_another_version_is_named() {
    let snapshots = snapshots();
    let (part, journal) = &snapshots[snapshots.len() / 2];
    let files = Files::new();
    let mut journal = journal.clone();
    let now = std::mem::replace(&mut journal[VERSION], 1);
    fs::write(files.part(), part).unwrap();
    fs::write(files.journal(), journal).unwrap();
    let error = files.resume().unwrap_err().to_string();
    let expected =
        format!("found one of another run: the version of the journal was \"1\", is \"{now}\"");
    assert!(error.contains(&expected), "{error}");
    // Without rows there is nothing to lose.
    fs::write(files.part(), "").unwrap();
    files.resume().unwrap();
    files.check();
}

#[test]
fn damage_of_any_byte_of_the_journal_is_found() {
    let snapshots = snapshots();
    let (part, journal) = &snapshots[snapshots.len() / 2];
    let begin = snapshots[0].1.len();
    for at in (0..journal.len()).step_by(cases(17, 1)) {
        for flip in [0x01, 0x80] {
            let files = Files::new();
            let mut journal = journal.clone();
            journal[at] ^= flip;
            fs::write(files.part(), part).unwrap();
            fs::write(files.journal(), journal).unwrap();
            match files.resume() {
                Ok(_) => {
                    assert!(at >= begin, "{at}");
                    files.check();
                }
                Err(error) => {
                    assert!(at < begin, "{at}: {error}");
                    let is_version = at == VERSION && matches!(error, Error::Conflict { .. });
                    assert!(is_version || matches!(error, Error::Corrupt { .. }), "{error}");
                }
            }
        }
    }
}

/// The two moments after the last row: before the rename and after it. Nothing is computed again.
#[test]
fn a_complete_part_is_only_renamed() {
    let files = Files::new();
    // A directory with a file cannot be replaced.
    fs::create_dir(&files.output).unwrap();
    fs::write(files.output.join("file"), "").unwrap();
    let error = run(&job(), &input(), &files.output, false, &mut shout).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    fs::remove_dir_all(&files.output).unwrap();
    let journal = fs::read(files.journal()).unwrap();
    let mut never = |_: &[&str]| Err("computed again".into());
    // More bytes than the journal counts are dropped.
    let part = fs::read(files.part()).unwrap();
    fs::write(files.part(), [&part[..], b"more"].concat()).unwrap();
    let done = run(&job(), &input(), &files.output, true, &mut never).unwrap();
    assert_eq!((done.rows, done.bytes), (41, input().len() as u64));
    files.check();
    // Killed between the rename and the end.
    fs::write(files.journal(), &journal).unwrap();
    assert_eq!(run(&job(), &input(), &files.output, true, &mut never).unwrap(), done);
    files.check();
    // It is of another input, also if that only goes on, and the output stays.
    for (input, expected) in [
        (input().replace("1", "2"), "are different"),
        (input() + "x\n", "another input, which has"),
        (input()[..input().len() - 1].to_owned(), "another input, which has"),
    ] {
        fs::write(files.journal(), &journal).unwrap();
        let error = run(&job(), &input, &files.output, true, &mut never).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(fs::read(&files.output).unwrap(), undisturbed());
        assert_eq!(files.names(), ["out.csv", "out.csv.journal"]);
    }
    // A new run replaces the output, and what an old run has left.
    fs::write(files.journal(), &journal).unwrap();
    fs::write(&files.output, "old").unwrap();
    run(&job(), &input(), &files.output, false, &mut shout).unwrap();
    files.check();
}

#[test]
fn another_run_is_refused() {
    let files = Files::new();
    interrupted(&files, 5);
    let before = (fs::read(files.part()).unwrap(), fs::read(files.journal()).unwrap());
    let refused = |job: &Job, input: &str, resume: bool, expected: &str| {
        let error = run(job, input, &files.output, resume, &mut shout).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        let after = (fs::read(files.part()).unwrap(), fs::read(files.journal()).unwrap());
        assert!(before == after, "{expected}");
    };
    let changed = |change: &dyn Fn(&mut Job)| {
        let mut job = job();
        change(&mut job);
        job
    };
    let text = input();
    refused(&job(), &text, false, " rows of an interrupted run: resume it or delete ");
    for (job, expected) in [
        (
            changed(&|job| job.identity[0].1 = "2".to_owned()),
            "found one of another run: --beams was \"4\", is \"2\"",
        ),
        (changed(&|job| job.identity[1].1 = "n".to_owned()), "model was \"m\", is \"n\""),
        (
            changed(&|job| job.identity.push(("--seed".to_owned(), "1".to_owned()))),
            "--seed was \"not given\", is \"1\"",
        ),
        (changed(&|job| drop(job.identity.remove(0))), "--beams was \"4\", is \"not given\""),
        (
            changed(&|job| job.table.source = "id".to_owned()),
            "the column of the texts was \"text\", is \"id\"",
        ),
        (
            changed(&|job| job.table.format = Format::Csv { delimiter: b';' }),
            // The header has one column.
            "found \"text\"",
        ),
    ] {
        refused(&job, &text, true, expected);
    }
    let other = text.replacen("id,text", "no,text", 1);
    refused(
        &job(),
        &other,
        true,
        " bytes that the interrupted run has read, found another input, whose bytes are different",
    );
    refused(
        &job(),
        &text[..30],
        true,
        " bytes that the interrupted run has read, found another input, which has 30",
    );
    // Rows that were not read yet may change.
    run(&job(), &text, &files.output, true, &mut shout).unwrap();
    files.check();
}

#[test]
fn a_file_without_a_journal_is_not_replaced() {
    let files = Files::new();
    fs::write(files.part(), "of another program").unwrap();
    for resume in [false, true] {
        let error = run(&job(), &input(), &files.output, resume, &mut shout).unwrap_err();
        assert!(
            error.to_string().contains("out.csv.journal: expected the journal of the rows in ")
                && error
                    .to_string()
                    .ends_with("out.csv.part, found one that is not readable: delete both"),
            "{error}"
        );
        assert_eq!(fs::read(files.part()).unwrap(), b"of another program");
    }
}

#[test]
fn two_runs_of_one_output_are_refused() {
    let files = Files::new();
    let mut refused = 0;
    let mut compute = |sources: &[&str]| {
        for resume in [false, true] {
            let error = run(&job(), &input(), &files.output, resume, &mut shout).unwrap_err();
            assert!(matches!(error, Error::Conflict { .. }), "{error}");
            assert!(error.to_string().ends_with(": expected a journal of its own, found one that is locked: another process writes this output"));
            refused += 1;
        }
        shout(sources)
    };
    run(&job(), &input(), &files.output, false, &mut compute).unwrap();
    assert!(refused > 8);
    files.check();
}

/// Windows and commits change nothing.
#[test]
fn windows_do_not_change_the_output() {
    for (window, seconds) in [(1, 0), (2, 0), (5, 100), (4096, 0)] {
        let files = Files::new();
        let job = Job { window, commit_every: Duration::from_secs(seconds), ..job() };
        run(&job, &input(), &files.output, false, &mut shout).unwrap();
        files.check();
    }
}

#[test]
fn a_wrong_column_leaves_no_files() {
    let files = Files::new();
    let wrong = Job { table: Table { source: "c".to_owned(), ..job().table }, ..job() };
    run(&wrong, &input(), &files.output, false, &mut shout).unwrap_err();
    assert!(files.names().is_empty());
    let output = files.place.0.join("none").join("out.csv");
    let error = run(&job(), &input(), &output, false, &mut shout).unwrap_err().to_string();
    assert!(error.contains("out.csv.journal: cannot be written: "), "{error}");
    let mut none = |_: &[&str]| Ok(Vec::new());
    let error = run(&job(), &input(), &files.output, false, &mut none).unwrap_err().to_string();
    assert!(error.starts_with("answers: expected ") && error.ends_with(", found 0"), "{error}");
}

/// A run of a table that is cancelled, in the function and between two windows, is resumed with the bytes of a run that
/// was not interrupted.
#[test]
fn a_cancelled_run_is_resumed() {
    let table = table(CSV, "fr", None);
    let rows: String = (0..20).map(|i| format!("{i},text {i}\n")).collect();
    let input = format!("id,fr\n{rows}");
    let place = TemporaryFolder::new("tables");
    let path = place.0.join("out.csv");
    let mut resume = false;
    let mut cancelled = 0;
    for fails in [true, false, true, false] {
        let job = Job { window: 3, ..Job::new(table.clone()) };
        let mut calls = 0;
        let mut compute = |sources: &[&str]| {
            calls += 1;
            if calls == 2 {
                job.cancel.store(true, Ordering::Relaxed);
                if fails {
                    return Err("the cause".into());
                }
            }
            let text = |source: &&str| Computed { text: Some(source.to_uppercase()), note: None };
            Ok(sources.iter().map(text).collect())
        };
        let output = Output::File { path: &path, resume };
        let done = job.fill_column(&mut input.as_bytes(), output, &mut compute, &mut |_| ());
        assert!(matches!(done, Err(Error::Cancelled)), "{done:?}");
        (resume, cancelled) = (true, cancelled + 1);
    }
    let job = Job::new(table);
    let mut compute = |sources: &[&str]| {
        let text = |source: &&str| Computed { text: Some(source.to_uppercase()), note: None };
        Ok(sources.iter().map(text).collect())
    };
    let output = Output::File { path: &path, resume: true };
    let done = job.fill_column(&mut input.as_bytes(), output, &mut compute, &mut |_| ()).unwrap();
    assert_eq!((done.rows, done.failed, cancelled), (21, 0, 4));
    let rows: String = (0..20).map(|i| format!("{i},text {i},TEXT {i}\n")).collect();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("id,fr,translation\n{rows}"));
}
