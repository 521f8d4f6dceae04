//! Numbers with a shape, and how they are printed.

use crate::Failure;
use serde_json::Value;
use std::fmt::Write;

/// A dense row-major tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f32>,
}

impl Tensor {
    pub(crate) fn new(shape: &[usize], data: Vec<f32>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "a tensor of shape {shape:?}");
        Self { shape: shape.to_vec(), data }
    }

    /// Element `[i, j]` of a matrix is `element(i, j)`.
    pub(crate) fn from_fn(
        rows: usize,
        columns: usize,
        element: impl Fn(usize, usize) -> f32,
    ) -> Self {
        let all = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
        Self::new(&[rows, columns], all.map(|(i, j)| element(i, j)).collect())
    }

    /// A nested array of numbers; `true` is 1, `false` is 0, and `"-inf"` is minus infinity.
    pub(crate) fn read(value: &Value) -> Result<Self, Failure> {
        let (mut shape, mut first) = (Vec::new(), value);
        while let Value::Array(items) = first {
            shape.push(items.len());
            first = items.first().ok_or("expected numbers, found an empty array")?;
        }
        let mut data = Vec::new();
        collect(value, &mut data)?;
        if shape.iter().product::<usize>() != data.len() {
            return Err(format!("expected {shape:?} numbers, found {}", data.len()).into());
        }
        Ok(Self { shape, data })
    }

    /// The tensor `name` of a document's data.
    pub(crate) fn of(data: &Value, name: &str) -> Result<Self, Failure> {
        Self::read(&data[name]).map_err(|error| format!("{name}: {error}").into())
    }

    /// Element `index` of the first dimension.
    pub(crate) fn at(&self, index: usize) -> Self {
        let size = self.data.len() / self.shape[0];
        Self::new(&self.shape[1..], self.data[index * size..][..size].to_vec())
    }

    /// The same elements in another shape.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Self {
        Self::new(shape, self.data.clone())
    }

    pub(crate) fn rows(&self) -> usize {
        self.shape[0]
    }

    pub(crate) fn columns(&self) -> usize {
        self.shape[1]
    }

    /// Row `i` of a matrix.
    pub(crate) fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.columns()..][..self.columns()]
    }

    /// Element `[i, j]` of a matrix.
    pub(crate) fn get(&self, i: usize, j: usize) -> f32 {
        self.row(i)[j]
    }

    pub(crate) fn transposed(&self) -> Self {
        Self::from_fn(self.columns(), self.rows(), |i, j| self.get(j, i))
    }

    pub(crate) fn map(&self, f: impl Fn(f32) -> f32) -> Self {
        Self::new(&self.shape, self.data.iter().map(|&x| f(x)).collect())
    }

    /// Swaps the first two of three dimensions: `[heads, tokens, d]` to `[tokens, heads, d]` and back.
    pub(crate) fn heads_swapped(&self) -> Self {
        let &[a, b, d] = &self.shape[..] else { panic!("a tensor of three dimensions") };
        let rows = (0..b).flat_map(|j| (0..a).map(move |i| (i * b + j) * d));
        let data = rows.flat_map(|start| &self.data[start..start + d]).copied().collect();
        Self::new(&[b, a, d], data)
    }
}

/// The words `name` of a document's data, a list for each sentence.
pub(crate) fn words(data: &Value, name: &str) -> Vec<Vec<String>> {
    let list = |value: &Value| -> Vec<String> {
        let words = value.as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    match &data[name] {
        Value::Array(rows) if rows.first().is_some_and(Value::is_array) => {
            rows.iter().map(list).collect()
        }
        other => vec![list(other)],
    }
}

fn collect(value: &Value, out: &mut Vec<f32>) -> Result<(), Failure> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| collect(item, out))?,
        Value::Bool(x) => out.push(f32::from(u8::from(*x))),
        Value::String(text) if text == "-inf" => out.push(f32::NEG_INFINITY),
        other => {
            out.push(
                other.as_f64().ok_or_else(|| format!("expected a number, found {other}"))? as f32
            )
        }
    }
    Ok(())
}

/// The text of a number: `decimals` after the point, and `-inf` as such.
pub(crate) fn number(x: f32, decimals: usize) -> String {
    // No "-0.0000".
    let x = if x == 0.0 { 0.0 } else { x };
    format!("{x:.decimals$}")
}

/// The lines of a matrix, or of several beside each other, each column as wide as its widest number.
pub(crate) fn side_by_side(titles: &[&str], matrices: &[&Tensor], decimals: usize) -> String {
    side_by_side_marked(titles, matrices, decimals, &[])
}

/// [`side_by_side`], with a `*` after the numbers of the last matrix for which `marks` is true.
pub(crate) fn side_by_side_marked(
    titles: &[&str],
    matrices: &[&Tensor],
    decimals: usize,
    marks: &[bool],
) -> String {
    let cells =
        |m: &Tensor| -> Vec<String> { m.data.iter().map(|&x| number(x, decimals)).collect() };
    let mut texts: Vec<Vec<String>> = matrices.iter().map(|m| cells(m)).collect();
    if let Some(last) = texts.last_mut() {
        for (cell, &mark) in last.iter_mut().zip(marks) {
            cell.push(if mark { '*' } else { ' ' });
        }
    }
    let width = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
    let columns = |m: &Tensor| m.shape.last().copied().unwrap_or(1).max(1);
    // A block is as wide as its title or its numbers.
    let block = |i: usize| {
        (columns(matrices[i]) * (width(&texts[i]) + 1)).max(titles[i].chars().count() + 1)
    };
    let mut lines = vec![String::new()];
    for (i, title) in titles.iter().enumerate() {
        let _ = write!(lines[0], "{title:<0$}   ", block(i));
    }
    let rows = matrices.iter().map(|m| m.data.len() / columns(m)).max().unwrap_or(0);
    for row in 0..rows {
        let mut line = String::new();
        for (i, m) in matrices.iter().enumerate() {
            let from = (row * columns(m)).min(texts[i].len());
            let cells = &texts[i][from..(from + columns(m)).min(texts[i].len())];
            let width = width(&texts[i]);
            let cells: String = cells.iter().map(|cell| format!("{cell:>width$} ")).collect();
            let _ = write!(line, "{cells:<0$}   ", block(i));
        }
        lines.push(line);
    }
    let titled = usize::from(titles.iter().all(|title| title.is_empty()));
    lines[titled..].iter().map(|line| format!("    {}\n", line.trim_end())).collect()
}
