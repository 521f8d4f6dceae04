//! The memory of a table does not depend on the number of its rows.

use simdformer_documents::tables::{Computed, Format, Job, Output, Table};
use simdformer_testing::counting::most_bytes;
use simdformer_testing::effort::cases;
use std::fmt::Write as _;
use std::io::{self, Read, Write};

/// The rows of a table, made as they are read.
struct Rows {
    format: Format,
    row: usize,
    rows: usize,
    /// Of so many rows, all sources are different.
    different: usize,
    line: String,
    at: usize,
}

impl Read for Rows {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.line.len() {
            self.line.clear();
            self.at = 0;
            if self.row <= self.rows {
                let row = self.row;
                let text = row % self.different;
                match self.format {
                    _ if row == 0 && self.format != Format::JsonLines => self.line += "id,fr\n",
                    Format::JsonLines => {
                        writeln!(self.line, "{{\"id\":{row},\"fr\":\"le texte {text:080}\"}}")
                            .unwrap();
                    }
                    _ => writeln!(self.line, "{row},\"le texte, {text:080}\"").unwrap(),
                }
                self.row += 1;
            }
        }
        let rest = &self.line.as_bytes()[self.at..];
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        self.at += len;
        Ok(len)
    }
}

/// Counts what is written.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The largest number of bytes that a run of `rows` rows takes.
fn most(format: Format, rows: usize, different: usize) -> usize {
    let table = Table { format, header: true, source: "fr".to_owned(), output: None };
    let mut input =
        Rows { format, row: 0, rows, different, line: String::with_capacity(200), at: 0 };
    let mut compute = |sources: &[&str]| {
        let text = |source: &&str| Computed { text: Some(source.to_uppercase()), note: None };
        Ok(sources.iter().map(text).collect())
    };
    let mut count = Count(0);
    let output = Output::Stream(&mut count);
    let run = || Job::new(table).fill_column(&mut input, output, &mut compute, &mut |_| ());
    let (done, most) = most_bytes(run);
    let done = done.unwrap();
    assert_eq!((done.rows, done.failed), (rows as u64 + 1, 0));
    assert!(count.0 > rows as u64 * 190, "{}", count.0);
    most
}

#[test]
fn a_million_rows_take_the_memory_of_ten_thousand() {
    let csv = Format::Csv { delimiter: b',' };
    for (format, different) in [(csv, usize::MAX), (csv, 100), (Format::JsonLines, usize::MAX)] {
        let few = most(format, 10_000, different);
        let many = most(format, cases(20_000, 1_000_000), different);
        assert!(few < 20 << 20, "{format:?}: {few}");
        assert!(many as f64 <= few as f64 * 1.01, "{format:?}: {few} {many}");
    }
}
