//! Tables through the command: columns, failures, kills and a full disk.

use crate::command::{err, out, run_command};
use serde_json::Value;
use simdformer_testing::effort::cases;
use simdformer_testing::published::french;
use simdformer_testing::random_model::Random;
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn translate(place: &TemporaryFolder, more: &[&str], input: &str) -> Output {
    run_command(&[&["translate", "--model", place.0.to_str().unwrap()], more].concat(), input)
}

#[test]
fn a_column_is_translated() {
    let place = french();
    let csv = "id,texte,note\r\n1,quel mois,\"a,b\"\r\n2,,\r\n3,Je suis étudiant,x\r\n";
    let expected = "id,texte,note,translation\r\n1,quel mois,\"a,b\",what month\r\n2,,,\r\n\
        3,Je suis étudiant,x,i am a student\r\n";
    let output = translate(&place, &["--format", "csv", "--column", "texte"], csv);
    assert_eq!((out(&output), err(&output)), (expected, ""));
    assert_eq!(output.status.code(), Some(0));
    let tsv = "1\tquel mois\n2\tJe suis étudiant\n";
    let more = ["--format", "tsv", "--no-header", "--column", "2", "--to-column", "1"];
    let output = translate(&place, &more, tsv);
    assert_eq!(out(&output), "what month\tquel mois\ni am a student\tJe suis étudiant\n");
    let json = "{\"id\": 1, \"fr\": \"quel mois\", \"n\": 1.0}\n";
    let more = ["--format", "jsonl", "--column", "fr", "--to-column", "en", "--beams", "2"];
    let output = translate(&place, &more, json);
    assert_eq!(
        out(&output),
        "{\"id\": 1, \"fr\": \"quel mois\", \"n\": 1.0, \"en\": \"what month\"}\n"
    );
    // A cell of several sentences, and the same as one sentence.
    let two = "{\"fr\":\"La vieille maison blanche est belle. Où est-ce qu'elle habite ?\"}\n";
    let more = ["--format", "jsonl", "--column", "fr", "--to-column", "fr"];
    assert_eq!(
        out(&translate(&place, &more, two)),
        "{\"fr\":\"the old white house is beautiful . where does she live ?\"}\n"
    );
    let one = translate(&place, &[&more[..], &["--lines"]].concat(), two);
    assert!(one.status.success() && out(&one) != two && !out(&one).contains("beautiful ."));
    let semicolons = "fr;en\nquel mois;\n";
    let more = ["--format", "csv", "--delimiter", ";", "--column", "fr", "--to-column", "en"];
    assert_eq!(out(&translate(&place, &more, semicolons)), "fr;en\nquel mois;what month\n");
}

/// A reader that has enough, such as `head`, is no error.
#[test]
fn a_closed_pipe_ends_a_table_without_an_error() {
    let place = french();
    let mut child = Command::new(env!("CARGO_BIN_EXE_simdformer"))
        .args(["translate", "--model", place.0.to_str().unwrap(), "--format", "csv"])
        .args(["--column", "fr", "--to-column", "en"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let rows = format!("id,fr\n{}", "1,quel mois\n".repeat(3000));
    let mut input = child.stdin.take().unwrap();
    let written = std::thread::spawn(move || input.write_all(rows.as_bytes()));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let _ = written.join().unwrap();
}

#[test]
fn wrong_tables_are_rejected() {
    let place = french();
    for (more, message, code) in [
        (
            &["--format", "csv"][..],
            "--format csv, tsv or jsonl: --column says where the texts are",
            2,
        ),
        (
            &["--format", "csv", "--column", "a", "--resume"],
            "--resume: standard output cannot be continued; add --output FILE",
            2,
        ),
        (
            &["--format", "csv", "--column", "a", "--sample"],
            "--column: equal texts have one result, ",
            2,
        ),
        (
            &["--format", "csv", "--column", "a"],
            "column: expected one that the header has (\"x\", \"y\"), found \"a\"",
            1,
        ),
    ] {
        let output = translate(&place, more, "x,y\n");
        assert!(err(&output).starts_with(&format!("simdformer: {message}")), "{}", err(&output));
        assert_eq!((out(&output), output.status.code()), ("", Some(code)));
    }
    for (more, part) in [
        (&["--column", "a"][..], "--column: expected --format csv, tsv or jsonl"),
        (&["--column", "a", "--format", "html"], "--column: expected --format csv, tsv or jsonl"),
        (
            &["--column", "a", "--format", "tsv", "--delimiter", ";"],
            "--delimiter is for --format csv",
        ),
        (&["--resume"], "--column <NAME>"),
        (&["--format", "csv", "--column", "a", "--json"], "cannot be used with"),
        (&["--format", "csv", "--column", "a", "text"], "cannot be used with"),
        (&["--format", "csv", "--delimiter", "ab"], "expected one ASCII character"),
        (&["--format", "tsv", "--delimiter", "\""], "expected one ASCII character"),
    ] {
        let output = translate(&place, more, "");
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(part), "{}", err(&output));
    }
}

#[test]
fn rows_that_are_too_long_are_reported() {
    let place = french();
    let long = "la maison ".repeat(400);
    let input = format!("fr\nquel mois\n{long}\nquel mois\n");
    let output = translate(&place, &["--format", "tsv", "--column", "fr", "--lines"], &input);
    let expected =
        format!("fr\ttranslation\nquel mois\twhat month\n{long}\t\nquel mois\twhat month\n");
    assert_eq!((out(&output), output.status.code()), (&expected[..], Some(1)));
    let notes = err(&output);
    assert!(notes.starts_with("simdformer: row 3: 801 tokens, the model takes "), "{notes}");
    assert!(notes.ends_with("simdformer: 1 of 4 rows have no result\n"), "{notes}");
}

/// A table of sentences that the model knows.
fn sentences(rows: usize) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en/held_out.jsonl");
    let text = fs::read_to_string(path).unwrap();
    let mut table = String::from("id,fr\n");
    for (id, line) in text.lines().take(rows).enumerate() {
        let pair: Value = serde_json::from_str(line).unwrap();
        table += &format!("{id},\"{}\"\n", pair["source"].as_str().unwrap());
    }
    table
}

/// A run of a table to a file.
struct Table {
    place: TemporaryFolder,
    input: PathBuf,
    output: PathBuf,
    expected: Vec<u8>,
    time: Duration,
}

impl Table {
    fn new(rows: usize) -> Self {
        let place = french();
        place.write("in.csv", sentences(rows));
        let (input, output) = (place.0.join("in.csv"), place.0.join("out.csv"));
        let mut table = Self { place, input, output, expected: Vec::new(), time: Duration::ZERO };
        let begun = Instant::now();
        let done = table.command(&[]).output().unwrap();
        table.time = begun.elapsed();
        assert_eq!((done.status.code(), err(&done)), (Some(0), ""));
        table.expected = fs::read(&table.output).unwrap();
        assert_eq!(table.expected.iter().filter(|&&byte| byte == b'\n').count(), rows + 1);
        fs::remove_file(&table.output).unwrap();
        table
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_simdformer"));
        command.args(["translate", "--format", "csv", "--column", "fr", "--model"]);
        command.arg(&self.place.0).arg("--file").arg(&self.input);
        command.arg("--output").arg(&self.output).args(more).stdin(Stdio::null());
        command
    }

    /// The output is complete, and nothing else is left.
    fn check(&self) {
        assert!(fs::read(&self.output).unwrap() == self.expected);
        for suffix in ["part", "journal"] {
            assert!(!self.output.with_extension(format!("csv.{suffix}")).exists(), "{suffix}");
        }
        fs::remove_file(&self.output).unwrap();
    }
}

/// The command is killed at random moments and started again with `--resume`, until it ends: the file has the bytes of a
/// run that was not killed.
#[test]
fn kills_at_random_moments_change_no_byte() {
    let table = Table::new(cases(150, 400));
    let mut random = Random(std::process::id().into());
    let (mut kills, most) = (0, cases(4, 100));
    while kills < most {
        let mut child =
            table.command(&["--resume", "--threads", "2"]).stderr(Stdio::null()).spawn().unwrap();
        let moment = table.time.as_micros() as usize;
        std::thread::sleep(Duration::from_micros(random.below(moment + moment / 8) as u64));
        // It may have ended before.
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            table.check();
        } else {
            kills += 1;
        }
    }
    let done = table.command(&["--resume"]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    table.check();
}

/// Every write fails beyond a size: the error says so, and the same command with `--resume` continues.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_that_can_be_resumed() {
    let table = Table::new(cases(60, 300));
    let blocks = table.expected.len() / 512;
    for limit in (0..=blocks).step_by(cases(blocks / 4, 1).max(1)) {
        // In units of 512 bytes. Without a handler for the signal, a write is an error.
        let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$@\"");
        let plain = table.command(&["--resume"]);
        let mut limited = Command::new("sh");
        limited.args(["-c", &script, "sh"]).arg(plain.get_program()).args(plain.get_args());
        let failed = limited.stdin(Stdio::null()).output().unwrap();
        assert_eq!(failed.status.code(), Some(1), "{limit}: {}", err(&failed));
        assert!(err(&failed).contains(": cannot be written: "), "{}", err(&failed));
        assert!(err(&failed).contains("--resume continues it"), "{}", err(&failed));
        assert!(!table.output.exists());
        let done = table.command(&["--resume"]).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", err(&done));
        table.check();
    }
}

/// Another command line, another model and another input are refused.
#[test]
fn another_command_is_not_resumed() {
    let table = Table::new(20);
    let part = table.output.with_extension("csv.part");
    let journal = table.output.with_extension("csv.journal");
    // A directory with a file in the place of the output: the run ends before the rename.
    fs::create_dir(&table.output).unwrap();
    fs::write(table.output.join("file"), "").unwrap();
    assert_eq!(table.command(&[]).output().unwrap().status.code(), Some(1));
    fs::remove_dir_all(&table.output).unwrap();
    assert!(part.exists() && journal.exists());
    let refused = |more: &[&str], message: &str| {
        let done = table.command(more).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{}", err(&done));
        assert!(err(&done).contains(message), "{}", err(&done));
    };
    refused(
        &[],
        "out.csv.part: expected no such file, found 21 rows of an interrupted run: resume it or delete ",
    );
    refused(
        &["--resume", "--beams", "3"],
        "expected the journal of this run, found one of another run: --beams was \"not given\", is \"3\"",
    );
    refused(
        &["--resume", "--to-column", "id"],
        "the column of the output was \"translation (appended)\", is \"id\"",
    );
    let sentences = fs::read(&table.input).unwrap();
    fs::write(&table.input, [&sentences[..], b"20,x\n"].concat()).unwrap();
    refused(
        &["--resume"],
        "expected the journal of this run, found one of another run: the size of --file was ",
    );
    fs::write(&table.input, sentences).unwrap();
    let config = table.place.0.join("generation_config.json");
    let before = fs::read(&config).unwrap();
    fs::write(&config, [&before[..], b"\n"].concat()).unwrap();
    refused(
        &["--resume"],
        "expected the journal of this run, found one of another run: the content of --model was ",
    );
    fs::write(&config, before).unwrap();
    // Options that change no byte.
    let done = table.command(&["--resume", "--threads", "2", "--slots", "3"]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    table.check();
    // The table is not its own output.
    let same = table.input.to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_simdformer"));
    command.args(["translate", "--column", "fr", "--model"]);
    command.arg(&table.place.0).args(["--file", same, "--output", same]);
    let done = command.output().unwrap();
    assert_eq!(err(&done), format!("simdformer: {same} is read and would be replaced\n"));
}
