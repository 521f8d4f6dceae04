//! The position encodings of encoder-decoder Transformers, written into the caller's table.
//!
//! Angles, sines and cosines are computed in f64 and rounded once, by functions that are the same on every machine.
//! Models that were trained with tables computed in f32 differ from the exact values by about `position * 6e-8`.

use crate::error::{Error, Expected};
use crate::float_mode::in_default_mode;
use crate::matrix::{Matrix, MatrixMut};

/// The formula for the row of position `p`, with `d` columns. `half` is `d / 2`, rounded down.
#[derive(Clone, Copy, Debug)]
pub enum PositionEncoding<'a> {
    /// `sin(p / 10000^(2k/d))` in the first columns, one for each `k < d - half`, then `cos(p / 10000^(2k/d))` for
    /// each `k < half`: Marian in Hugging Face transformers.
    HalfSplit,
    /// `sin(q / 10000^(k/(half-1)))` for each `k < half`, then the cosines, with `q = p + offset`. With an odd `d` the
    /// last column is 0. Used by fairseq and M2M100 (offset 2) and Marian's own C++ (offset 0). Needs at least four
    /// columns.
    HalfSplitClosed {
        /// Added to every position.
        offset: usize,
    },
    /// As [`HalfSplitClosed`](Self::HalfSplitClosed), with the step of the exponent `ln 10000 / (half-1)`, its
    /// multiples, the frequency and the angle each rounded to f32, as in PyTorch code that computes the table in f32:
    /// FSMT and Seamless. Needs at least four columns.
    HalfSplitSingle {
        /// Added to every position.
        offset: usize,
    },
    /// `sin(p / 10000^(2k/d))` in column `2k` and the cosine in column `2k + 1`: "Attention Is All
    /// You Need", section 3.5.
    Interleaved,
    /// Row `p + offset` of a learned table: BART (offset 2), BERT (offset 0).
    Learned {
        /// The learned table.
        table: Matrix<'a>,
        /// Rows of the table before the row for position 0.
        offset: usize,
    },
}

/// Writes the encoding of position `first + i` into row `i` of `out` `[positions, d]`. Any strides.
///
/// # Errors
/// The encoding is not defined for `d`, or the learned table has the wrong number of columns or too few rows.
///
/// ```
/// use simdformer_kernels::MatrixMut;
/// use simdformer_kernels::position::{PositionEncoding, encode};
///
/// let mut table = [0.0; 8];
/// encode(PositionEncoding::Interleaved, 0, MatrixMut::new(&mut table, 2, 4)?)?;
/// assert_eq!(table[..4], [0.0, 1.0, 0.0, 1.0]);
/// assert_eq!(table[4], libm::sin(1.0) as f32);
/// assert_eq!(table[7], libm::cos(0.01) as f32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn encode(
    encoding: PositionEncoding<'_>,
    first: usize,
    out: MatrixMut<'_>,
) -> Result<(), Error> {
    in_default_mode(|| write(encoding, first, out))
}

fn write(
    encoding: PositionEncoding<'_>,
    first: usize,
    mut out: MatrixMut<'_>,
) -> Result<(), Error> {
    let (rows, d) = (out.rows(), out.columns());
    let half = d / 2;
    let mut write_column = |column: usize, value: &dyn Fn(usize) -> f32| {
        for row in 0..rows {
            *out.at_mut(row, column) = value(row);
        }
    };
    // Without rows there is nothing to write, however many columns there are.
    let columns = if rows == 0 { 0 } else { d };
    let position = |row: usize, offset: usize| first as f64 + row as f64 + offset as f64;
    match encoding {
        PositionEncoding::HalfSplit | PositionEncoding::Interleaved => {
            for column in 0..columns {
                let (k, is_sine) = match encoding {
                    PositionEncoding::Interleaved => (column / 2, column % 2 == 0),
                    _ if column < d - half => (column, true),
                    _ => (column - (d - half), false),
                };
                let wavelength = libm::pow(10000.0, 2.0 * k as f64 / d as f64);
                let wave = if is_sine { libm::sin } else { libm::cos };
                write_column(column, &|row| wave(position(row, 0) / wavelength) as f32);
            }
        }
        PositionEncoding::HalfSplitClosed { offset }
        | PositionEncoding::HalfSplitSingle { offset } => {
            Error::check_size("columns", "out", Expected::AtLeast(4), d)?;
            let single = matches!(encoding, PositionEncoding::HalfSplitSingle { .. });
            let step = -((libm::log(10000.0) / (half - 1) as f64) as f32);
            for k in 0..half.min(columns) {
                let wavelength = libm::pow(10000.0, k as f64 / (half - 1) as f64);
                let frequency = libm::exp(f64::from(k as f32 * step)) as f32;
                let angle = |row| match single {
                    true => f64::from(position(row, offset) as f32 * frequency),
                    false => position(row, offset) / wavelength,
                };
                write_column(k, &|row| libm::sin(angle(row)) as f32);
                write_column(half + k, &|row| libm::cos(angle(row)) as f32);
            }
            if d % 2 == 1 {
                write_column(d - 1, &|_| 0.0);
            }
        }
        PositionEncoding::Learned { table, offset } => {
            Error::check_size("columns", "table", Expected::Exactly(d), table.columns())?;
            let start = first.saturating_add(offset);
            let expected = start.saturating_add(rows);
            if rows > 0 {
                let expected = Expected::AtLeast(expected);
                Error::check_size("rows", "table", expected, table.rows())?;
            }
            for column in 0..columns {
                write_column(column, &|row| table.at(start + row, column));
            }
        }
    }
    Ok(())
}
