//! Dynamic time warping and the median filter over time, as in OpenAI's `whisper/timing.py`.

/// The values of which a median is taken.
const WIDTH: usize = 7;
const REACH: usize = WIDTH / 2;
/// Medians that are computed at a time, in the lanes of vectors.
const LANES: usize = 8;

/// Adds to `sum` the median of the 7 values around each value of `row`, which is mirrored at its ends; a row of less than 4
/// values is added as it is. `padded` is scratch of [`padded_len`] floats.
pub(super) fn add_median(row: &[f32], padded: &mut [f32], sum: &mut [f32]) {
    let columns = row.len();
    if columns <= REACH {
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        return;
    }
    padded[REACH..][..columns].copy_from_slice(row);
    for i in 1..=REACH {
        padded[REACH - i] = row[i];
        padded[REACH + columns - 1 + i] = row[columns - 1 - i];
    }
    for first in (0..columns).step_by(LANES) {
        let mut values = [[0.0; LANES]; WIDTH];
        for (i, values) in values.iter_mut().enumerate() {
            values.copy_from_slice(&padded[first + i..][..LANES]);
        }
        let medians = median(values);
        sum[first..columns].iter_mut().zip(medians).for_each(|(sum, median)| *sum += median);
    }
}

/// The floats that [`add_median`] needs for a row.
pub(super) const fn padded_len(columns: usize) -> usize {
    columns + WIDTH + LANES
}

/// The median in each lane, by a network of comparisons.
fn median(mut values: [[f32; LANES]; WIDTH]) -> [f32; LANES] {
    const NETWORK: [(usize, usize); 13] = [
        (0, 5),
        (0, 3),
        (1, 6),
        (2, 4),
        (0, 1),
        (3, 5),
        (2, 6),
        (2, 3),
        (3, 6),
        (4, 5),
        (1, 4),
        (1, 3),
        (3, 4),
    ];
    for (low, high) in NETWORK {
        let (mut smaller, mut larger) = (values[low], values[high]);
        for (a, b) in smaller.iter_mut().zip(&mut larger) {
            (*a, *b) = if *a < *b { (*a, *b) } else { (*b, *a) };
        }
        (values[low], values[high]) = (smaller, larger);
    }
    values[WIDTH / 2]
}

/// A cheapest path's last step.
const DIAGONAL: u8 = 0;
const NEXT_ROW: u8 = 1;
const NEXT_COLUMN: u8 = 2;

/// The memory of dynamic time warping.
pub(super) struct Warping {
    /// `[2, columns + 1]`: the costs of the best paths to the cells of two rows.
    costs: Vec<f64>,
    /// `[rows, columns]`: the last step of the best path to each cell.
    steps: Vec<u8>,
}

impl Warping {
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        Self { costs: vec![0.0; 2 * (columns + 1)], steps: vec![0; rows * columns] }
    }

    /// The path from the first to the last cell of `similarity`, `[rows, columns]`, with the largest sum; each step goes to
    /// the next row, the next column, or both. Writes the first column of each row on it to `starts`, `[rows]`.
    pub(super) fn starts(&mut self, similarity: &[f32], columns: usize, starts: &mut [u32]) {
        let Self { costs, steps } = self;
        let (mut before, mut costs) = costs[..2 * (columns + 1)].split_at_mut(columns + 1);
        before.fill(f64::INFINITY);
        before[0] = 0.0;
        for (row, steps) in similarity.chunks_exact(columns).zip(steps.chunks_exact_mut(columns)) {
            costs[0] = f64::INFINITY;
            for (i, (&value, step)) in row.iter().zip(steps).enumerate() {
                let (diagonal, next_row, next_column) = (before[i], before[i + 1], costs[i]);
                let cost;
                (cost, *step) = if diagonal < next_row && diagonal < next_column {
                    (diagonal, DIAGONAL)
                } else if next_row < diagonal && next_row < next_column {
                    (next_row, NEXT_ROW)
                } else {
                    (next_column, NEXT_COLUMN)
                };
                costs[i + 1] = cost - f64::from(value);
            }
            (before, costs) = (costs, before);
        }
        // Back from the last cell.
        let mut column = columns.saturating_sub(1);
        for (row, start) in starts.iter_mut().enumerate().rev() {
            loop {
                *start = column as u32;
                match steps[row * columns + column] {
                    _ if row == 0 => {
                        *start = 0;
                        break;
                    }
                    NEXT_ROW => break,
                    DIAGONAL => {
                        column = column.saturating_sub(1);
                        break;
                    }
                    _ if column == 0 => break,
                    _ => column -= 1,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from 0 to 1, always the same.
    fn numbers(count: usize, mut state: u32) -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn medians_are_those_of_sorted_values() {
        for columns in [1, 3, 4, 5, 8, 9, 40, 51] {
            let row = numbers(columns, columns as u32);
            let (mut padded, mut sum) = (vec![f32::NAN; padded_len(columns)], vec![1.0; columns]);
            add_median(&row, &mut padded, &mut sum);
            let last = columns as isize - 1;
            for (i, found) in (0..).zip(&sum) {
                let mirrored = |j: isize| {
                    let j = j.abs();
                    row[if j > last { 2 * last - j } else { j } as usize]
                };
                let mut around: Vec<f32> = match columns {
                    1..=3 => vec![row[i as usize]],
                    _ => (i - 3..=i + 3).map(mirrored).collect(),
                };
                around.sort_by(f32::total_cmp);
                assert_eq!(*found, 1.0 + around[around.len() / 2], "{columns} {i}");
            }
        }
    }

    /// The largest sum of all paths to the last cell, and the first columns of its rows: every path is tried.
    fn best(cells: &[f32], columns: usize, (row, column): (usize, usize)) -> (f64, Vec<u32>) {
        let here = f64::from(cells[row * columns + column]);
        if (row, column) == (0, 0) {
            return (here, vec![0]);
        }
        let mut found: Option<(f64, Vec<u32>)> = None;
        for (rows, by) in [(1, 1), (1, 0), (0, 1)] {
            let (Some(from), Some(at)) = (row.checked_sub(rows), column.checked_sub(by)) else {
                continue;
            };
            let (sum, mut starts) = best(cells, columns, (from, at));
            if rows == 1 {
                starts.push(column as u32);
            }
            if found.as_ref().is_none_or(|(best, _)| sum + here > *best) {
                found = Some((sum + here, starts));
            }
        }
        found.unwrap_or((f64::NAN, Vec::new()))
    }

    #[test]
    fn the_path_is_the_best_of_all() {
        let mut warping = Warping::new(6, 7);
        for (rows, columns) in [(1, 1), (1, 5), (5, 1), (2, 3), (3, 7), (6, 6), (5, 4)] {
            for seed in 0..8 {
                let cells: Vec<f32> =
                    numbers(rows * columns, seed).iter().map(|x| x - 0.5).collect();
                let mut starts = vec![9; rows];
                warping.starts(&cells, columns, &mut starts);
                let (_, expected) = best(&cells, columns, (rows - 1, columns - 1));
                assert_eq!(starts, expected, "{rows} {columns} {seed}");
            }
        }
    }
}
