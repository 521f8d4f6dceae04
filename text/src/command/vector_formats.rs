//! Output formats of vectors: lines of JSON, a table of cosines, a NumPy file.

use crate::Failure;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

/// Receives vectors one at a time; `None` for a text without a vector.
pub(crate) enum Vectors {
    Lines,
    Table(Vec<(String, Option<Vec<f32>>)>),
    Npy(Npy),
}

impl Vectors {
    pub(crate) fn add(
        &mut self,
        text: &str,
        vector: Option<Vec<f32>>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        match self {
            // The shortest decimal representation that restores the same bits.
            Self::Lines => writeln!(out, "{}", serde_json::to_string(&vector)?)?,
            Self::Table(rows) => rows.push((text.to_owned(), vector)),
            Self::Npy(file) => file.add(vector.as_deref())?,
        }
        Ok(())
    }

    pub(crate) fn end(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Lines => Ok(()),
            Self::Table(rows) => table(&rows, out),
            Self::Npy(file) => file.end(),
        }
    }
}

/// Prints one line per text: its number, its cosine with every text, and the text.
fn table(rows: &[(String, Option<Vec<f32>>)], out: &mut dyn Write) -> Result<(), Failure> {
    let wide = rows.len().to_string().len();
    if !rows.is_empty() {
        write!(out, "{:wide$}", "")?;
        (1..=rows.len()).try_for_each(|number| write!(out, " {number:>7}"))?;
        writeln!(out)?;
    }
    for (i, (text, a)) in rows.iter().enumerate() {
        write!(out, "{:>wide$}", i + 1)?;
        for (_, b) in rows {
            match (a, b) {
                (Some(a), Some(b)) => write!(out, " {:>7.4}", cosine(a, b))?,
                _ => write!(out, " {:>7}", "-")?,
            }
        }
        let line: String =
            text.chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }).collect();
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// The cosine of the angle between two vectors; 0 if one of them is zero.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    let lengths = (product(a, a) * product(b, b)).sqrt();
    if lengths == 0.0 { 0.0 } else { product(a, b) / lengths }
}

/// A NumPy file: float32, `[texts, width]`. The number of texts is written at the end.
pub(crate) struct Npy {
    file: BufWriter<File>,
    width: usize,
    rows: usize,
}

/// Bytes of magic number, version, length and header text: the data begins at a multiple of 64.
const HEADER: usize = 128;

impl Npy {
    pub(crate) fn new(path: &Path, width: usize) -> Result<Self, Failure> {
        let file =
            File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        let mut npy = Self { file: BufWriter::new(file), width, rows: 0 };
        npy.header()?;
        Ok(npy)
    }

    fn header(&mut self) -> Result<(), Failure> {
        let (rows, width) = (self.rows, self.width);
        let shape =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
        self.file.write_all(b"\x93NUMPY\x01\x00")?;
        let text = HEADER - 10;
        self.file.write_all(&(text as u16).to_le_bytes())?;
        // Two numbers of twenty digits fit.
        writeln!(self.file, "{shape:<0$}", text - 1)?;
        Ok(())
    }

    /// Adds one row; NaNs if there is no vector.
    fn add(&mut self, vector: Option<&[f32]>) -> Result<(), Failure> {
        self.rows += 1;
        match vector {
            Some(vector) => {
                vector.iter().try_for_each(|x| self.file.write_all(&x.to_le_bytes()))?;
            }
            None => {
                (0..self.width).try_for_each(|_| self.file.write_all(&f32::NAN.to_le_bytes()))?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), Failure> {
        self.file.seek(SeekFrom::Start(0))?;
        self.header()?;
        Ok(self.file.flush()?)
    }
}
