//! Tables through a function: which bytes change, and which sources are computed.

use crate::random::Random;
use simdformer_documents::Error;
use simdformer_documents::tables::{ComputeError, Computed, Format, Job, Output, Progress, Table};
use simdformer_testing::effort::properties;
use std::collections::HashSet;
use std::io::{self, Read};

pub const CSV: Format = Format::Csv { delimiter: b',' };

pub fn table(format: Format, source: &str, output: Option<&str>) -> Table {
    Table { format, header: true, source: source.to_owned(), output: output.map(str::to_owned) }
}

/// A text with everything that a format must quote.
pub fn shouted(source: &str) -> String {
    match source.len() % 4 {
        0 => source.to_uppercase(),
        1 => format!("{source}, \"{source}\""),
        2 => format!("{source};\t\r\n{source}"),
        _ => String::new(),
    }
}

pub fn shout(sources: &[&str]) -> Result<Vec<Computed>, ComputeError> {
    let text = |source: &&str| Computed { text: Some(shouted(source)), note: None };
    Ok(sources.iter().map(text).collect())
}

/// What is written, the notes, and the rows with those that failed.
struct Done {
    bytes: Vec<u8>,
    notes: Vec<String>,
    rows: (u64, u64),
}

fn run(job: &Job, input: &mut (dyn Read + Send)) -> Result<Done, Error> {
    let (mut bytes, mut notes) = (Vec::new(), Vec::new());
    let mut report = |progress: Progress<'_>| {
        if let Progress::Row { number, note } = progress {
            notes.push(format!("{number}: {note}"));
        }
    };
    let done = job.fill_column(input, Output::Stream(&mut bytes), &mut shout, &mut report)?;
    Ok(Done { bytes, notes, rows: (done.rows, done.failed) })
}

fn written(table: Table, input: &str) -> (String, Vec<String>) {
    let done = run(&Job::new(table), &mut input.as_bytes()).unwrap();
    (String::from_utf8(done.bytes).unwrap(), done.notes)
}

/// Bytes that arrive a few at a time.
struct Trickle<'t>(&'t [u8], Random);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = 1 + self.1.below(9);
        if most == 5 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let part = most.min(buffer.len());
        self.0.read(&mut buffer[..part])
    }
}

#[test]
fn csv_cells_are_appended_and_replaced() {
    let replaced = Some("b");
    for (columns, input, expected) in [
        // Texts of four bytes are shouted; those of five are quoted.
        (("a", None), "a,b\nfour,2\n", "a,b,translation\nfour,2,FOUR\n"),
        (("a", None), "a,b\nhello,2", "a,b,translation\nhello,2,\"hello, \"\"hello\"\"\""),
        (("1", None), "a,b\r\nfour,2\r\n", "a,b,translation\r\nfour,2,FOUR\r\n"),
        (("a", Some("c")), "a,b\rfour,2\r", "a,b,c\rfour,2,FOUR\r"),
        (("a", replaced), "a,b\nfour,2\n", "a,b\nfour,FOUR\n"),
        (("b", replaced), "a,b\n\"x\"\"\n\" ,four\n", "a,b\n\"x\"\"\n\" ,FOUR\n"),
        (("b", Some("1")), "a,b\n1,four\n", "a,b\nFOUR,four\n"),
        // The style of the cell of the source, and of the last name.
        (
            ("a", None),
            "\"a\",\"b\"\n\"four\",\"\"\n",
            "\"a\",\"b\",\"translation\"\n\"four\",\"\",\"FOUR\"\n",
        ),
        // Blank lines and blank cells.
        (("a", None), "a,b\n\n,1\n  ,2\n\r\n", "a,b,translation\n\n,1,\n  ,2,  \n\r\n"),
        // Short rows are filled up.
        (("a", None), "a,b,c\nfour\n", "a,b,c,translation\nfour,,,FOUR\n"),
        (("a", Some("c")), "a,b,c\nfour\n", "a,b,c\nfour,,FOUR\n"),
        // A line break in a cell, a quote in a cell without quotes, text after a quote.
        (("a", None), "a\n\"fo\nr\"\n", "a,translation\n\"fo\nr\",\"FO\nR\"\n"),
        (
            ("a", None),
            "a\nfo\"r\n\"fo\"ur\n",
            "a,translation\nfo\"r,\"FO\"\"R\"\n\"fo\"ur,\"FOUR\"\n",
        ),
        // An empty text in a row of one cell is no blank line.
        (("a", Some("a")), "a\nfifteen\nfour\n", "a\n\"\"\nFOUR\n"),
        // The byte order mark is no part of the name.
        (("a", None), "\u{feff}a\nfour\n", "\u{feff}a,translation\nfour,FOUR\n"),
        (("a", None), "a\n\u{feff}x\n", "a,translation\n\u{feff}x,\u{feff}X\n"),
        (("a", None), "", ""),
        (("a", None), "a", "a,translation"),
    ] {
        let (found, notes) = written(table(CSV, columns.0, columns.1), input);
        assert_eq!((&found[..], notes.len()), (expected, 0), "{input:?}");
    }
    let semicolons = table(Format::Csv { delimiter: b';' }, "a", None);
    let input = "a;b\nhello;1,5\nto;x\n";
    let expected = "a;b;translation\nhello;1,5;\"hello, \"\"hello\"\"\"\nto;x;\"to;\t\r\nto\"\n";
    assert_eq!(written(semicolons, input).0, expected);
    let numbers = Table { header: false, ..table(CSV, "2", None) };
    assert_eq!(written(numbers, "\u{feff}1,four\n2,four").0, "\u{feff}1,four,FOUR\n2,four,FOUR");
    let first = Table { header: false, ..table(CSV, "1", Some("1")) };
    assert_eq!(written(first, "\u{feff}four\nfour").0, "\u{feff}FOUR\nFOUR");
}

#[test]
fn tsv_has_no_quotes() {
    for (columns, input, expected) in [
        (("b", None), "a\tb\n\"\tfour\r\n", "a\tb\ttranslation\n\"\tfour\tFOUR\r\n"),
        // What a cell cannot have becomes a space.
        (("b", Some("a")), "a\tb\n1\tto\n", "a\tb\nto;   to\tto\n"),
        (("a", None), "a\tb\n\n\t1\nfour\n", "a\tb\ttranslation\n\n\t1\t\nfour\t\tFOUR\n"),
        (("a", None), "a\nfour\rfour", "a\ttranslation\nfour\rfour\tfour four, \"four four\""),
    ] {
        let (found, notes) = written(table(Format::Tsv, columns.0, columns.1), input);
        assert_eq!((&found[..], notes.len()), (expected, 0), "{input:?}");
    }
}

#[test]
fn json_lines_keep_their_bytes() {
    let input = "{\"id\":1,\"a\":\"four\"}\n\
        { \"a\" : \"f\\u006fur\" , \"b\" : [1.50, {\"a\":null}] }\r\n\
        \n\
        {\"a\": \"\", \"n\": 1e400}\n\
        {\"a\":null}\n\
        {\"a\":\"x\",\"a\":\"four\",\"é\":\"\\ud83d\\ude00\"}";
    let expected = "{\"id\":1,\"a\":\"four\",\"t\":\"FOUR\"}\n\
        { \"a\" : \"f\\u006fur\" , \"b\" : [1.50, {\"a\":null}], \"t\": \"FOUR\" }\r\n\
        \n\
        {\"a\": \"\", \"n\": 1e400, \"t\": \"\"}\n\
        {\"a\":null,\"t\":null}\n\
        {\"a\":\"x\",\"a\":\"four\",\"é\":\"\\ud83d\\ude00\",\"t\":\"FOUR\"}";
    let (found, notes) = written(table(Format::JsonLines, "a", Some("t")), input);
    assert_eq!((&found[..], notes.len()), (expected, 0));
    let (found, _) = written(table(Format::JsonLines, "a", Some("a")), "{\"a\": \"to\" }\n");
    assert_eq!(found, "{\"a\": \"to;\\t\\r\\nto\" }\n");
    let input = "{\"t\" :[1, 2],\"a\":\"four\"}";
    assert_eq!(
        written(table(Format::JsonLines, "a", Some("t")), input).0,
        "{\"t\" :\"FOUR\",\"a\":\"four\"}"
    );
}

/// Rows that fail are written without a text, counted and reported by their numbers; the others are not affected.
#[test]
fn rows_that_fail_do_not_stop_the_others() {
    let input = b"id,a\n1,four\n2\n3,\xff\n4,x,y\n5,four\n6,\"four\n".as_slice();
    let done = run(&Job::new(table(CSV, "a", None)), &mut { input }).unwrap();
    let expected = b"id,a,translation\n1,four,FOUR\n2,,\n3,\xff,\n4,x,y\n5,four,FOUR\n6,\"four\n";
    assert_eq!(done.bytes, expected);
    assert_eq!(done.rows, (7, 4));
    assert_eq!(
        done.notes,
        [
            "3: 1 cells, the text is in column 2",
            "4: the text is not UTF-8",
            "5: 3 cells, the first row has 2",
            "7: the input ends in a cell whose quote is not closed",
        ]
    );
    let input = "{\"a\":1}\nnull\n{\"a\":\"four\"}\n{\"b\":\"four\"}\n{\"a\":\"x\" \"b\":2}\n{} x\n{\"a\":\"four\",\"translation\":1}\n";
    let done = run(&Job::new(table(Format::JsonLines, "a", None)), &mut input.as_bytes()).unwrap();
    let expected = "{\"a\":1,\"translation\":null}\nnull\n{\"a\":\"four\",\"translation\":\"FOUR\"}\n{\"b\":\"four\",\"translation\":null}\n{\"a\":\"x\" \"b\":2}\n{} x\n{\"a\":\"four\",\"translation\":1}\n";
    assert_eq!(str::from_utf8(&done.bytes).unwrap(), expected);
    assert_eq!(done.rows, (7, 6));
    assert_eq!(
        done.notes,
        [
            "1: the value of \"a\": invalid type: integer `1`, expected a string",
            "2: not a JSON object: expected \"{\" at byte 0",
            "4: the object has no key \"a\"",
            "5: not a JSON object: expected \"}\" at byte 9",
            "6: expected the end of the line at byte 3",
            "7: the object has a key \"translation\"; name it to replace its value",
        ]
    );
    // An answer without a text, and one with a note.
    let (mut bytes, mut notes) = (Vec::new(), Vec::new());
    let mut compute = |sources: &[&str]| {
        let answer = |source: &&str| match *source {
            "bad" => Computed { text: None, note: Some("is bad".to_owned()) },
            _ => Computed { text: Some("ok".to_owned()), note: Some("was cut".to_owned()) },
        };
        Ok(sources.iter().map(answer).collect())
    };
    let mut report = |progress: Progress<'_>| {
        if let Progress::Row { number, note } = progress {
            notes.push(format!("{number} {note}"));
        }
    };
    let job = Job { window: 2, ..Job::new(table(Format::Tsv, "a", None)) };
    let mut input = "a\nbad\nlong\nbad\nbad\nlong\n".as_bytes();
    let done =
        job.fill_column(&mut input, Output::Stream(&mut bytes), &mut compute, &mut report).unwrap();
    assert_eq!(bytes, b"a\ttranslation\nbad\t\nlong\tok\nbad\t\nbad\t\nlong\tok\n");
    assert_eq!((done.rows, done.failed), (6, 3));
    assert_eq!(notes, ["2 is bad", "3 was cut", "4 is bad", "5 is bad", "6 was cut"]);
}

#[test]
fn wrong_tables_are_errors() {
    for (table, input, expected) in [
        (
            table(CSV, "c", None),
            "a,b\n",
            "column: expected one that the header has (\"a\", \"b\"), found \"c\"",
        ),
        (
            table(CSV, "3", None),
            "a,b\n",
            "column: expected one that the header has (\"a\", \"b\"), found \"3\"",
        ),
        (
            table(CSV, "0", None),
            "a,b\n",
            "column: expected one that the header has (\"a\", \"b\"), found \"0\"",
        ),
        (
            Table { header: false, ..table(CSV, "a", None) },
            "a,b\n",
            "column: expected a number from 1 to 2, found \"a\"",
        ),
        (
            Table { header: false, ..table(CSV, "1", Some("c")) },
            "a,b\n",
            "column: expected a number from 1 to 2, found \"c\"",
        ),
        (
            table(CSV, "a", None),
            "a,b,a\n",
            "column: expected the name of one column, found \"a\", which two columns have: choose one by its number",
        ),
        (
            table(CSV, "a", None),
            "a,translation\n",
            "column of the output: expected a new name, found \"translation\", which there is already; name it to replace its cells",
        ),
    ] {
        let error = run(&Job::new(table), &mut input.as_bytes()).err().unwrap();
        assert_eq!(error.to_string(), expected);
    }
    let utf16 = b"\xff\xfea\0\n\0".as_slice();
    let error = run(&Job::new(table(CSV, "a", None)), &mut { utf16 }).err().unwrap();
    assert_eq!(error.to_string(), "the rows: expected UTF-8, found UTF-16");
    // A quote that is not closed does not fill the memory.
    let mut endless = "a,b\n1,2\n\"x,".as_bytes().chain(io::repeat(b'y'));
    let job = Job { longest_row: 1 << 20, ..Job::new(table(CSV, "a", None)) };
    let error = run(&job, &mut endless).err().unwrap();
    let expected = "row 3, which begins at byte 8: expected at most 1048576 bytes, found more; is a quote not closed?";
    assert_eq!(error.to_string(), expected);
}

/// Random tables in any style, read in pieces of a few bytes and in small windows: the new cell is where it must be, and
/// every other byte is that of the input.
#[test]
fn other_cells_keep_their_bytes() {
    const PARTS: [&str; 14] =
        ["a", "é", "\"", ",", "\n", "\r", "\r\n", ";", "\t", " ", "中", "''", "\\", "\u{feff}"];
    let mut random = Random(1);
    for case in 0..properties(200) {
        let columns = 2 + random.below(3);
        let (source, output) = (random.below(columns), random.below(columns + 1));
        let ends = ["\n", "\r\n", "\r"];
        let end = ends[random.below(3)];
        let quote = |cell: &str, always: bool| {
            if always || cell.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.to_owned()
            }
        };
        let mut input = random.pick(&["", "\u{feff}"]).to_owned();
        let mut expected = input.clone();
        let names: Vec<String> = (0..columns).map(|i| format!("c{i}")).collect();
        let line = |names: &[String]| names.join(",");
        input += &(line(&names) + end);
        let appended = output == columns;
        let more = if appended { ",c,new" } else { "" };
        expected += &(line(&names) + more + end);
        let rows = random.below(12);
        for row in 0..rows {
            let cells: Vec<String> = (0..columns).map(|_| random.text(&PARTS, 5)).collect();
            let styled: Vec<bool> = (0..columns).map(|_| random.below(3) == 0).collect();
            let mut raw: Vec<String> = (0..columns).map(|i| quote(&cells[i], styled[i])).collect();
            let end = if row + 1 == rows { random.pick(&["", end]) } else { end };
            input += &(raw.join(",") + end);
            let blank = cells[source].trim().is_empty();
            let text = if blank { cells[source].clone() } else { shouted(&cells[source]) };
            let cell = quote(&text, raw[source].starts_with('"'));
            if appended {
                raw.push(cell);
            } else {
                raw[output] = cell;
            }
            expected += &(raw.join(",") + end);
        }
        let name = if appended { "c,new".to_owned() } else { format!("c{output}") };
        expected = expected.replacen("c,new", "\"c,new\"", 1);
        let job = Job {
            window: 1 + random.below(4),
            ..Job::new(table(CSV, &format!("c{source}"), Some(&name)))
        };
        let mut pieces = Trickle(input.as_bytes(), Random(u64::from(case)));
        let done = run(&job, &mut pieces).unwrap();
        let found = String::from_utf8(done.bytes).unwrap();
        assert_eq!((found, done.rows), (expected, (1 + rows as u64, 0)), "{input:?}");
    }
}

/// Random objects in any style.
#[test]
fn other_keys_keep_their_bytes() {
    const VALUES: [&str; 8] = [
        "null",
        "-0.10e+5",
        "\"\\u00e9\\n\"",
        "[ ]",
        "{ \"a\":{ } }",
        "[1,2 ,[\"}\"]]",
        "true",
        "\",\"",
    ];
    const PARTS: [&str; 8] = ["a", "é", "\\\"", "\\n", "\\u4e2d", " ", "}", ","];
    const BLANKS: [&str; 3] = ["", " ", "\t "];
    let mut random = Random(2);
    for case in 0..properties(200) {
        let (mut input, mut expected) = (String::new(), String::new());
        let rows = random.below(12);
        for row in 0..rows {
            let mut blank = |line: &mut String| *line += random.pick(&BLANKS);
            let mut before = String::new();
            blank(&mut before);
            before += "{";
            let mut after = String::new();
            blank(&mut after);
            let keys = random.below(4);
            let at = random.below(keys + 1);
            let mut line = before;
            let source = random.text(&PARTS, 5);
            let mut spaces = false;
            for key in 0..=keys {
                let colon = random.pick(&[":", ": ", " :"]);
                spaces = if key == 0 { colon == ": " } else { spaces };
                let comma = if key == 0 { "" } else { random.pick(&[",", ", ", " ,"]) };
                let value = if key == at {
                    format!("\"{source}\"")
                } else {
                    random.pick(&VALUES).to_owned()
                };
                let name = if key == at { "s\\u006furce".to_owned() } else { format!("k{key}") };
                line += &format!("{comma}\"{name}\"{colon}{value}");
            }
            let end = if row + 1 == rows {
                random.pick(&["", "\n"])
            } else {
                random.pick(&["\n", "\r\n"])
            };
            let tail = format!("{after}}}{end}");
            let text: String = serde_json::from_str(&format!("\"{source}\"")).unwrap();
            let text = if text.trim().is_empty() { text } else { shouted(&text) };
            let (comma, colon) = if spaces { (", ", ": ") } else { (",", ":") };
            let text = serde_json::to_string(&text).unwrap();
            input += &format!("{line}{tail}");
            expected += &format!("{line}{comma}\"t\"{colon}{text}{tail}");
        }
        let job = Job {
            window: 1 + random.below(4),
            ..Job::new(table(Format::JsonLines, "source", Some("t")))
        };
        let mut pieces = Trickle(input.as_bytes(), Random(u64::from(case)));
        let done = run(&job, &mut pieces).unwrap();
        assert_eq!(
            (String::from_utf8(done.bytes).unwrap(), done.notes.len()),
            (expected, 0),
            "{input:?}"
        );
    }
}

/// Rows of any length, around the sizes in which the input is read.
#[test]
fn long_rows_are_read() {
    for len in [65_535, 65_536, 200_001] {
        let cell = "x,\"\"\n".repeat(len / 5) + &"y".repeat(len % 5);
        let input = format!("a,b\n\"{cell}\",four\n1,four\n");
        let expected = format!("a,b,translation\n\"{cell}\",four,FOUR\n1,four,FOUR\n");
        assert!(written(table(CSV, "b", None), &input).0 == expected, "{len}");
    }
}

/// No source is computed twice, and blank ones never.
#[test]
fn equal_sources_are_computed_once() {
    let mut seen = HashSet::new();
    let mut compute = |sources: &[&str]| {
        for source in sources {
            assert!(!source.trim().is_empty());
            assert!(seen.insert((*source).to_owned()), "{source} again");
        }
        shout(sources)
    };
    let mut input = String::from("a\n");
    let mut random = Random(3);
    for _ in 0..5000 {
        input += &format!("{}\n", random.pick(&["one", "two", " ", "", "three", "one "]));
    }
    let mut bytes = Vec::new();
    let job = Job { window: 100, ..Job::new(table(Format::Tsv, "a", None)) };
    let (output, report) = (Output::Stream(&mut bytes), &mut |_: Progress<'_>| ());
    job.fill_column(&mut input.as_bytes(), output, &mut compute, report).unwrap();
    assert_eq!(seen.len(), 4);
    let expected = input.lines().skip(1).filter(|line| !line.is_empty()).count() + 1;
    let found = String::from_utf8(bytes).unwrap();
    assert_eq!(found.lines().filter(|line| line.contains('\t')).count(), expected);
}
