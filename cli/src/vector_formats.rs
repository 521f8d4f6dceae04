//! Output formats of vectors: lines of JSON, a table of cosines, a NumPy file.

use crate::arguments::Embed;
use crate::npy::{self, Npy};
use crate::streams::Failure;
use simdformer_text::embedder::{Precision, Quantized, Ranges};
use std::io::Write;
use std::path::PathBuf;

/// With fewer texts, the ranges of int8 depend much on each of them, as sentence-transformers warns.
const FEW: usize = 100;

/// Receives vectors one at a time; `None` for a text without a vector.
pub(crate) struct Vectors {
    precision: Precision,
    format: Format,
    /// The ranges of `--ranges`.
    ranges: Option<Ranges>,
    /// The vectors whose ranges are not yet known.
    held: Vec<Option<Vec<f32>>>,
    /// The ranges of all vectors so far, and how many they are.
    found: Option<Ranges>,
    count: usize,
    /// The texts so far.
    texts: usize,
    save_ranges: Option<PathBuf>,
}

enum Format {
    Lines,
    Table(Vec<(String, Option<Vec<f32>>)>),
    Npy(Npy),
}

impl Vectors {
    /// The output that the command line asks for, for vectors of `dims` dimensions.
    pub(crate) fn new(arguments: &Embed, dims: usize) -> Result<Self, Failure> {
        let precision = arguments.to;
        let ranges = arguments.ranges.as_ref().map(|path| npy::read_ranges(path, dims));
        let format = match &arguments.npy {
            Some(path) => {
                let number = match precision {
                    Precision::F32 => "<f4",
                    Precision::Int8 | Precision::Binary => "|i1",
                    Precision::Uint8 | Precision::Ubinary => "|u1",
                };
                Format::Npy(Npy::new(path, number, precision.width(dims))?)
            }
            None if arguments.table => Format::Table(Vec::new()),
            None => Format::Lines,
        };
        Ok(Self {
            precision,
            format,
            ranges: ranges.transpose()?,
            held: Vec::new(),
            found: None,
            count: 0,
            texts: 0,
            save_ranges: arguments.save_ranges.clone(),
        })
    }

    /// Whether codes are made only when all vectors are known.
    fn holds(&self) -> bool {
        self.precision.needs_ranges() && self.ranges.is_none()
    }

    pub(crate) fn add(
        &mut self,
        text: &str,
        vector: Option<Vec<f32>>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        self.texts += 1;
        if let (None, Format::Npy(file)) = (&vector, &self.format)
            && !file.has_nan()
        {
            // Zeros would be taken for a vector.
            let (to, number) = (self.precision.name(), self.texts);
            return Err(format!(
                "--npy: text {number} has no vector, and {to} has no number that says so: --to f32 writes NaN, \
                 lines of JSON have null"
            )
            .into());
        }
        if let Some(vector) = vector.as_ref().filter(|_| self.holds() || self.save_ranges.is_some())
        {
            self.count += 1;
            match &mut self.found {
                Some(ranges) => ranges.include(vector)?,
                None => self.found = Ranges::from_vectors([&vector[..]])?,
            }
        }
        if self.holds() {
            self.held.push(vector);
            return Ok(());
        }
        if let Format::Table(rows) = &mut self.format {
            rows.push((text.to_owned(), vector));
            return Ok(());
        }
        self.write(vector, out)
    }

    fn write(&mut self, vector: Option<Vec<f32>>, out: &mut dyn Write) -> Result<(), Failure> {
        let ranges = self.ranges.as_ref().or(self.found.as_ref());
        let code = vector.map(|vector| self.precision.apply(vector, ranges)).transpose()?;
        match &mut self.format {
            // The shortest decimal representation that restores the same bits.
            Format::Lines => match code {
                Some(Quantized::F32(code)) => writeln!(out, "{}", serde_json::to_string(&code)?)?,
                Some(Quantized::I8(code)) => writeln!(out, "{}", serde_json::to_string(&code)?)?,
                Some(Quantized::U8(code)) => writeln!(out, "{}", serde_json::to_string(&code)?)?,
                None => writeln!(out, "null")?,
            },
            Format::Npy(file) => file.add(code.as_ref())?,
            Format::Table(_) => (),
        }
        Ok(())
    }

    pub(crate) fn end(mut self, out: &mut dyn Write, notes: &mut dyn Write) -> Result<(), Failure> {
        if self.holds() && self.count < FEW && self.count > 0 {
            let (to, count) = (self.precision.name(), self.count);
            let what = format!("the ranges of {to} are those of {count} texts only");
            writeln!(notes, "simdformer: {what}; --ranges reads those of more")?;
        }
        for vector in std::mem::take(&mut self.held) {
            self.write(vector, out)?;
        }
        match (&self.save_ranges, &self.found) {
            (Some(path), Some(found)) => npy::write_ranges(path, found)?,
            (Some(_), None) => {
                return Err("--save-ranges: there is no vector to take them of".into());
            }
            (None, _) => (),
        }
        match self.format {
            Format::Lines => Ok(()),
            Format::Table(rows) => table(&rows, out),
            Format::Npy(file) => file.end(),
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
