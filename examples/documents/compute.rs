//! The kernels, called with whole tensors, and how far the rounding of a document's inputs moves their results.

use crate::Failure;
use crate::page::Computed;
use crate::tensor::Tensor;
use simdformer::kernels::embedding::embed;
use simdformer::kernels::norm::{LayerNorm, Norm, NormInput, norm};
use simdformer::kernels::position::{PositionEncoding, encode};
use simdformer::kernels::softmax::{FullyMasked, SoftmaxOptions, softmax};
use simdformer::kernels::{
    AttentionOptions, AttentionOutput, AttentionWeights, Epilogue, Exec, Heads, HeadsMut, Input,
    Isa, Matrix, MatrixMut, Qkv, Sequence, attention, attention_scratch, gemm_unpacked,
    gemm_unpacked_scratch, reference,
};

fn view(x: &Tensor) -> Result<Matrix<'_>, Failure> {
    Ok(Matrix::new(&x.data, x.rows(), x.columns())?)
}

/// `scale * a b`, `[rows, depth]` times `[depth, columns]`.
pub(crate) fn product(a: &Tensor, b: &Tensor, scale: f32) -> Result<Tensor, Failure> {
    let isa = Isa::best();
    let mut out = Tensor::new(&[a.rows(), b.columns()], vec![0.0; a.rows() * b.columns()]);
    let mut scratch = vec![0.0; gemm_unpacked_scratch(isa, b.rows(), b.columns())?];
    let (rows, columns) = (out.rows(), out.columns());
    let c = MatrixMut::new(&mut out.data, rows, columns)?;
    let epilogue = Epilogue { scale, ..Epilogue::default() };
    gemm_unpacked(Exec::serial(isa), view(a)?, view(b)?, &epilogue, c, &mut scratch)?;
    Ok(out)
}

/// [`product`] of matrices whose elements are off by up to `a_error` and `b_error`.
pub(crate) fn rounded_product(
    a: &Tensor,
    b: &Tensor,
    scale: f32,
    [a_error, b_error]: [f64; 2],
) -> Result<Computed, Failure> {
    let numbers = product(a, b, scale)?;
    let mut error = Vec::new();
    for i in 0..a.rows() {
        for j in 0..b.columns() {
            let pairs = a.row(i).iter().enumerate().map(|(k, &x)| (x.abs(), b.get(k, j).abs()));
            let moved = |(x, y): (f32, f32)| {
                f64::from(x) * b_error + f64::from(y) * a_error + a_error * b_error + 1e-6
            };
            error.push(pairs.map(moved).sum::<f64>() * f64::from(scale.abs()));
        }
    }
    Ok(Computed { numbers, error })
}

/// The softmax of each row; `lengths` says how many columns of a row are valid.
pub(crate) fn softmax_rows(
    scores: &Tensor,
    lengths: Option<&[usize]>,
    fully_masked: FullyMasked,
) -> Result<Tensor, Failure> {
    let mut out = Tensor::new(&scores.shape, vec![0.0; scores.data.len()]);
    let (rows, columns) = (scores.rows(), scores.columns());
    let view_mut = MatrixMut::new(&mut out.data, rows, columns)?;
    let options = SoftmaxOptions { lengths, fully_masked, ..SoftmaxOptions::default() };
    softmax(Exec::serial(Isa::best()), Input::Matrix(view(scores)?), options, view_mut)?;
    Ok(out)
}

/// How far a softmax moves if no score of its row moves by more than `score`: each probability stays between
/// `p e^(-2 score)` and `p e^(2 score)`.
pub(crate) fn softmax_error(probabilities: Tensor, score: f64) -> Computed {
    let error =
        probabilities.data.iter().map(|&p| f64::from(p) * ((2.0 * score).exp() - 1.0) + 1e-6);
    Computed { error: error.collect(), numbers: probabilities }
}

/// The rows of a table with these ids.
pub(crate) fn embedded(table: &Tensor, ids: &[u32]) -> Result<Tensor, Failure> {
    let mut out =
        Tensor::new(&[ids.len(), table.columns()], vec![0.0; ids.len() * table.columns()]);
    let (rows, columns) = (out.rows(), out.columns());
    let view_mut = MatrixMut::new(&mut out.data, rows, columns)?;
    embed(Exec::serial(Isa::best()), view(table)?, ids, 1.0, None, view_mut)?;
    Ok(out)
}

/// `(x - mean) / deviation` of each row, with the deviation of `n` numbers, not `n - 1`.
pub(crate) fn normalized(x: &Tensor) -> Result<Tensor, Failure> {
    let ones = vec![1.0; x.columns()];
    let mut out = Tensor::new(&x.shape, vec![0.0; x.data.len()]);
    let (rows, columns) = (x.rows(), x.columns());
    let layer = Norm::Layer(LayerNorm { weight: &ones, bias: None, eps: 0.0 });
    let to = MatrixMut::new(&mut out.data, rows, columns)?;
    norm(Exec::serial(Isa::best()), layer, NormInput::Matrix(view(x)?), to)?;
    Ok(out)
}

/// Context `[heads, queries, d]` and weights `[heads, queries, keys]`.
#[derive(Debug)]
pub(crate) struct Attended {
    pub(crate) context: Tensor,
    pub(crate) weights: Tensor,
    /// The largest difference of a weight or a context from `reference::attention`, which computes in f64.
    pub(crate) from_reference: f64,
}

/// `[heads, tokens, d]` as the kernel's `[tokens, heads, d]`, by strides.
fn heads_first(x: &Tensor) -> Result<Heads<'_>, Failure> {
    let &[heads, tokens, d] = &x.shape[..] else { return Err("expected three dimensions".into()) };
    Ok(Heads::strided(&x.data, [tokens, heads, d], d, tokens * d)?)
}

/// The tokens of one sentence: what the kernels read in place of a mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    /// Queries and keys, with padding.
    pub(crate) padded: [usize; 2],
    /// How many of them are tokens. They come first.
    pub(crate) tokens: [usize; 2],
    /// How many keys a padding query sees.
    pub(crate) padding_sees: usize,
    /// Whether the queries that are tokens see no later keys.
    pub(crate) causal: bool,
}

impl Lengths {
    /// Without padding: each query sees all keys.
    pub(crate) fn of(queries: usize, keys: usize) -> Self {
        Self { padded: [queries, keys], tokens: [queries, keys], padding_sees: 0, causal: false }
    }

    fn sequences(&self) -> Vec<Sequence> {
        let ([queries, keys], [query_len, key_len]) = (self.padded, self.tokens);
        let tokens = Sequence { query_len, key_len, padded_len: keys, ..Sequence::default() };
        // One for each: the causal flag counts from the last query of a sequence.
        let padding = |query_start| {
            let key_len = self.padding_sees;
            Sequence { query_start, query_len: 1, key_len, padded_len: keys, ..tokens }
        };
        std::iter::once(tokens).chain((query_len..queries).map(padding)).collect()
    }

    /// `[queries, keys]`: 1 where [`attention`] gives a key a weight. Queries and keys are zeros, so that all scores are
    /// equal.
    pub(crate) fn mask(&self) -> Result<Tensor, Failure> {
        let zeros = |tokens: usize| Tensor::new(&[1, tokens, 1], vec![0.0; tokens]);
        let (query, key) = (zeros(self.padded[0]), zeros(self.padded[1]));
        let attended = attend(&query, &key, &key, self, 1.0)?;
        Ok(attended.weights.at(0).map(|weight| f32::from(u8::from(weight > 0.0))))
    }
}

/// Attention of one sentence by the flash attention kernel. Query, key and value are `[heads, tokens, d]`. A query that
/// sees no key gives zeros.
pub(crate) fn attend(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    lengths: &Lengths,
    scale: f32,
) -> Result<Attended, Failure> {
    let isa = Isa::best();
    let &[heads, queries, d] = &query.shape[..] else {
        return Err("expected three dimensions".into());
    };
    let keys = key.shape[1];
    if lengths.padded != [queries, keys] {
        return Err(format!(
            "expected lengths of {queries} queries and {keys} keys, found {lengths:?}"
        )
        .into());
    }
    let sequences = lengths.sequences();
    let options = AttentionOptions { scale, causal: lengths.causal, ..AttentionOptions::new(d) };
    let mut context = Tensor::new(&query.shape, vec![0.0; query.data.len()]);
    let mut weights = Tensor::new(&[heads, queries, keys], vec![0.0; heads * queries * keys]);
    let all: Vec<usize> = (0..heads).collect();
    let output = AttentionOutput {
        weights: Some(AttentionWeights {
            data: &mut weights.data,
            heads: &all,
            head_stride: queries * keys,
            query_stride: keys,
            keys,
        }),
        context: HeadsMut::strided(&mut context.data, [queries, heads, d], d, queries * d)?,
    };
    let mut scratch = vec![0.0; attention_scratch(isa, &sequences, heads, d)?];
    let qkv =
        Qkv { query: heads_first(query)?, key: heads_first(key)?, value: heads_first(value)? };
    attention(Exec::serial(isa), qkv, &sequences, &options, output, &mut scratch)?;

    let mut from_reference: f64 = 0.0;
    for sequence in sequences {
        let count = sequence.query_len;
        let mut exact = vec![0.0; count * heads * d];
        let mut exact_weights = vec![0.0; heads * count * keys];
        reference::attention::attention(qkv, sequence, &options, &mut exact, &mut exact_weights)?;
        for head in 0..heads {
            for i in 0..count {
                let row = head * queries + sequence.query_start + i;
                // The reference writes `[queries, heads, d]`.
                let context =
                    context.data[row * d..][..d].iter().zip(&exact[(i * heads + head) * d..]);
                let exact_weights = &exact_weights[(head * count + i) * keys..];
                let pairs =
                    context.chain(weights.data[row * keys..][..keys].iter().zip(exact_weights));
                let differences = pairs.map(|(&found, exact)| (f64::from(found) - exact).abs());
                from_reference = differences.fold(from_reference, f64::max);
            }
        }
    }
    Ok(Attended { context, weights, from_reference })
}

/// What no linear map with a bias explains of `y`, by [`not_linear`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unexplained {
    /// The largest absolute element of the rest.
    pub(crate) largest: f64,
    /// The sum of the squares of the rest.
    pub(crate) square: f64,
    /// The number of rows minus the number of independent unknowns.
    pub(crate) freedom: usize,
}

impl Unexplained {
    /// Adds that of another column.
    pub(crate) fn add(&mut self, other: Self) {
        self.largest = self.largest.max(other.largest);
        self.square += other.square;
        self.freedom += other.freedom;
    }
}

/// The part of `y` that no linear map with a bias makes of the rows of `x`: `y` minus its projection on the columns of
/// `x` and a column of ones. In f64, by modified Gram-Schmidt.
///
/// If the map has `n` unknowns and `x` has more than `n` independent rows, a small result is evidence that `y` is such a
/// map of `x`.
pub(crate) fn not_linear(x: &[Vec<f64>], y: &[f64]) -> Unexplained {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let project = |basis: &[Vec<f64>], v: &mut Vec<f64>| {
        for b in basis {
            let dot: f64 = b.iter().zip(v.iter()).map(|(b, v)| b * v).sum();
            v.iter_mut().zip(b).for_each(|(v, b)| *v -= dot * b);
        }
    };
    let columns = x.first().map_or(0, Vec::len);
    let column = |c: usize| x.iter().map(|row| row[c]).collect::<Vec<f64>>();
    let ones = vec![1.0; x.len()];
    for mut v in std::iter::once(ones).chain((0..columns).map(column)) {
        let length = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let before = length(&v);
        // Twice is enough (Kahan and Parlett).
        project(&basis, &mut v);
        project(&basis, &mut v);
        let after = length(&v);
        // The columns of normalized rows add up to zero: one of them depends on the others up to rounding.
        if after > 1e-4 * before.max(1.0) {
            basis.push(v.iter().map(|v| v / after).collect());
        }
    }
    let mut rest = y.to_vec();
    project(&basis, &mut rest);
    project(&basis, &mut rest);
    Unexplained {
        largest: rest.iter().fold(0.0, |largest, r| r.abs().max(largest)),
        square: rest.iter().map(|r| r * r).sum(),
        freedom: x.len() - basis.len(),
    }
}

/// The `w` for which the rows of `x` times `w` come closest to `y`, the shortest one if there are several:
/// `(x^T x + e)^-1 x^T y`, or `x^T (x x^T + e)^-1 y` if there are fewer rows than columns, in f64. `e` is negligible
/// beside the rounding of the documents' numbers.
pub(crate) fn least_norm(x: &[Vec<f64>], y: &[f64]) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let columns = x.first().map_or(0, Vec::len);
    let transposed: Vec<Vec<f64>> =
        (0..columns).map(|c| x.iter().map(|row| row[c]).collect()).collect();
    let products = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> {
        rows.iter().map(|a| rows.iter().map(|b| dot(a, b)).collect()).collect()
    };
    if x.len() < columns {
        let z = solution(products(x), y);
        transposed.iter().map(|column| dot(column, &z)).collect()
    } else {
        let right: Vec<f64> = transposed.iter().map(|column| dot(column, y)).collect();
        solution(products(&transposed), &right)
    }
}

/// Solves `(matrix + e) z = right` by Gaussian elimination.
fn solution(mut matrix: Vec<Vec<f64>>, right: &[f64]) -> Vec<f64> {
    let n = right.len();
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] += 1e-10;
        row.push(right[i]);
    }
    for pivot in 0..n {
        let largest =
            |&a: &usize, &b: &usize| matrix[a][pivot].abs().total_cmp(&matrix[b][pivot].abs());
        let best = (pivot..n).max_by(largest).unwrap_or(pivot);
        matrix.swap(pivot, best);
        let from = matrix[pivot].clone();
        for (i, row) in matrix.iter_mut().enumerate() {
            if i != pivot {
                let factor = row[pivot] / from[pivot];
                row.iter_mut().zip(&from).for_each(|(a, b)| *a -= factor * b);
            }
        }
    }
    (0..n).map(|i| matrix[i][n] / matrix[i][i]).collect()
}

/// The position table of the paper, `[positions, d]`.
pub(crate) fn position_table(positions: usize, d: usize) -> Result<Tensor, Failure> {
    let mut table = Tensor::new(&[positions, d], vec![0.0; positions * d]);
    encode(PositionEncoding::Interleaved, 0, MatrixMut::new(&mut table.data, positions, d)?)?;
    Ok(table)
}

/// A number in -1..1 from a linear congruential generator (Knuth's constants), the same on every machine.
pub(crate) fn random(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// 20,000 numbers of a normal distribution with deviation 100, as the chapter draws them (Box and Muller 1958).
pub(crate) fn normal(count: usize, deviation: f32) -> Vec<f32> {
    let mut seed = 100;
    let mut uniform = || f64::from(random(&mut seed) + 1.0) / 2.0;
    let one = |_| {
        let (a, b) = (1.0 - uniform(), uniform());
        ((-2.0 * a.max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32 * deviation
    };
    (0..count).map(one).collect()
}
