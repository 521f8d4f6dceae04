//! NumPy files: vectors are written, ranges are written and read.

use crate::output_file::cannot_write;
use crate::streams::Failure;
use simdformer::atomic_file::AtomicFile;
use simdformer_text::embedder::{Quantized, Ranges};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The first bytes of a file of version 1.
const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// Bytes of magic number, version, length and header text: the data begins at a multiple of 64.
const HEADER: usize = 128;

/// A NumPy file of rows of one type of number. The number of rows is written at the end.
pub(crate) struct Npy {
    file: AtomicFile,
    path: PathBuf,
    /// The type as NumPy names it: `<f4`, `|i1` or `|u1`.
    number: &'static str,
    width: usize,
    rows: usize,
}

impl Npy {
    pub(crate) fn new(path: &Path, number: &'static str, width: usize) -> Result<Self, Failure> {
        let file = AtomicFile::create(path).map_err(cannot_write(path))?;
        let mut npy = Self { file, path: path.to_owned(), number, width, rows: 0 };
        npy.header().map_err(cannot_write(path))?;
        Ok(npy)
    }

    fn header(&mut self) -> io::Result<()> {
        let (number, rows, width) = (self.number, self.rows, self.width);
        let shape = format!(
            "{{'descr': '{number}', 'fortran_order': False, 'shape': ({rows}, {width}), }}"
        );
        self.file.write_all(MAGIC)?;
        let text = HEADER - MAGIC.len() - 2;
        self.file.write_all(&(text as u16).to_le_bytes())?;
        // Two numbers of twenty digits fit.
        writeln!(self.file, "{shape:<0$}", text - 1)?;
        Ok(())
    }

    /// Whether a row can say that there is no vector.
    pub(crate) fn has_nan(&self) -> bool {
        self.number == "<f4"
    }

    /// Adds one row. Without a vector it is NaNs, which is an error where the numbers have no NaN.
    pub(crate) fn add(&mut self, row: Option<&Quantized>) -> Result<(), Failure> {
        if row.is_none() && !self.has_nan() {
            let expected = format!("expected a vector for each row of {}", self.number);
            return Err(format!("{}: {expected}, found none", self.path.display()).into());
        }
        self.row(row).map_err(cannot_write(&self.path))
    }

    fn row(&mut self, row: Option<&Quantized>) -> io::Result<()> {
        self.rows += 1;
        let file = &mut self.file;
        match row {
            Some(Quantized::F32(row)) => {
                row.iter().try_for_each(|x| file.write_all(&x.to_le_bytes()))?;
            }
            Some(Quantized::I8(row)) => {
                row.iter().try_for_each(|x| file.write_all(&x.to_le_bytes()))?;
            }
            Some(Quantized::U8(row)) => file.write_all(row)?,
            None => (0..self.width).try_for_each(|_| file.write_all(&f32::NAN.to_le_bytes()))?,
        }
        Ok(())
    }

    pub(crate) fn end(mut self) -> Result<(), Failure> {
        let begun = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.header());
        begun.and_then(|()| self.file.finish()).map_err(cannot_write(&self.path))
    }
}

/// Writes ranges as sentence-transformers takes them: float32, `[2, dims]`, the least values first.
pub(crate) fn write_ranges(path: &Path, ranges: &Ranges) -> Result<(), Failure> {
    let mut file = Npy::new(path, "<f4", ranges.least().len())?;
    for row in [ranges.least(), ranges.most()] {
        file.add(Some(&Quantized::F32(row.to_vec())))?;
    }
    file.end()
}

/// Reads ranges of `dims` dimensions.
pub(crate) fn read_ranges(path: &Path, dims: usize) -> Result<Ranges, Failure> {
    let said = |what: String| Failure::from(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|e| said(format!("cannot be read: {e}")))?;
    // A header of at most 64 KiB, and the numbers.
    let most = MAGIC.len() + 2 + usize::from(u16::MAX) + 8 * dims;
    let mut bytes = Vec::new();
    let read = file.take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|e| said(format!("cannot be read: {e}")))?;
    let wrong = |found: &str| {
        said(format!("expected a NumPy array of float32, (2, {dims}), in order, found {found}"))
    };
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("another file"))?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(|| wrong("a cut file"))?;
    let length = usize::from(u16::from_le_bytes(*length));
    let (header, data) = rest.split_at_checked(length).ok_or_else(|| wrong("a cut file"))?;
    let header = String::from_utf8_lossy(header);
    let dense: String = header.chars().filter(|c| !c.is_whitespace()).collect();
    let parts = ["'descr':'<f4'", "'fortran_order':False", &format!("'shape':(2,{dims})")];
    if !parts.iter().all(|part| dense.contains(part)) {
        let start: String = header.trim().chars().take(80).collect();
        return Err(wrong(&format!("{start:?}")));
    }
    if data.len() != 8 * dims {
        return Err(wrong(&format!("{} bytes of numbers", data.len())));
    }
    let numbers = data.chunks_exact(4).filter_map(|four| four.try_into().ok());
    let mut least: Vec<f32> = numbers.map(f32::from_le_bytes).collect();
    let greatest = least.split_off(dims);
    Ranges::new(least, greatest).map_err(|error| said(error.to_string()))
}
