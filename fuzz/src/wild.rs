//! Small shapes with arbitrary strides. Axes of length 0 and 1, where a stride is never stepped, have any
//! stride. Longer axes have 0, 1, overlapping rows, and sometimes a stride that must be an error. Most
//! shapes fit each other, so that most cases reach the kernel. A kernel must compute every case that it
//! accepts, from the elements of the views and no others.
//!
//! `run` returns whether the kernel accepted the case. The tests below check the fraction of accepted
//! cases: a generator whose cases are all rejected would test only the checks.

use crate::{GAP, check_largest, same_bits};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use simdformer_kernels::pruned_argmax::{self, Product, PruningTable, UNDECIDED};
use simdformer_kernels::{
    AttentionOptions, Epilogue, Exec, FullyMasked, Heads, HeadsMut, Isa, Matrix, MatrixMut,
    PackedMatrix, Parallelism, PostOp, Qkv, Sequence, attention, attention_scratch, gemm,
    gemm_unpacked, gemm_unpacked_scratch,
};

/// A length: often 0 or 1, never much more than a vector.
fn small(byte: u8) -> usize {
    [0, 1, 1, 2, 3, 4, 7, 17][usize::from(byte) % 8]
}

/// True in one of `n` cases.
fn one_in(n: u8, byte: u8) -> bool {
    byte % n == n - 1
}

/// The distance of the elements of an axis.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Stride {
    kind: u8,
    bits: usize,
}

impl Stride {
    /// Huge, or a negative number cast to unsigned, or arbitrary.
    fn wild(self) -> usize {
        match self.kind / 16 % 4 {
            0 => usize::MAX - self.bits % 8,
            1 => isize::MAX as usize - self.bits % 8,
            2 => (1 << (usize::BITS - 2)) + self.bits % 8,
            _ => self.bits,
        }
    }

    /// For an axis of `length` whose elements are `dense` apart in a dense layout.
    fn stride_for(self, length: usize, dense: usize) -> usize {
        if length < 2 {
            return if self.kind.is_multiple_of(4) { dense } else { self.wild() };
        }
        match self.kind % 16 {
            0 => self.wild(),
            1 | 2 => 0,
            3 | 4 => 1,
            5 | 6 => self.bits % 8,
            _ => dense + self.bits % 3,
        }
    }

    /// The same for an output, where elements that share memory are an error, so they are rare.
    fn of_output(self, length: usize, dense: usize) -> usize {
        if length < 2 || one_in(8, self.kind) {
            self.stride_for(length, dense)
        } else {
            dense + self.bits % 3
        }
    }
}

/// Floats of every view, enough for every regular case.
const FLOATS: usize = 4096;

/// Integers whose sums are exact in any order.
fn integers() -> Vec<f32> {
    (0..FLOATS).map(|i| (i * 7 % 11) as f32 - 5.0).collect()
}

/// The index of element `(i, j)` of a view that was accepted.
fn place([i, j]: [usize; 2], [row, column]: [usize; 2]) -> usize {
    i.wrapping_mul(row).wrapping_add(j.wrapping_mul(column))
}

/// A product of small matrices.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct WildProduct {
    shape: [u8; 3],
    /// Strides of the left matrix, the weight, the residual and the output; rows first.
    strides: [[Stride; 2]; 4],
    by_columns: [bool; 4],
    residual: bool,
    misfit: u8,
}

impl WildProduct {
    /// Whether the kernel accepts the case.
    ///
    /// # Panics
    /// The case was accepted and the result is wrong.
    pub fn check_kernel(&self, isa: Isa) -> bool {
        let [rows, depth, columns] = self.shape.map(small);
        let strides = |which: usize, [rows, columns]: [usize; 2], output: bool| {
            let dense = if self.by_columns[which] { [1, rows] } else { [columns, 1] };
            let [row, column] = self.strides[which];
            if output {
                [row.of_output(rows, dense[0]), column.of_output(columns, dense[1])]
            } else {
                [row.stride_for(rows, dense[0]), column.stride_for(columns, dense[1])]
            }
        };
        let data = integers();
        let mut memory = vec![GAP; FLOATS];
        let extra = usize::from(one_in(16, self.misfit));
        let a_strides = strides(0, [rows, depth + extra], false);
        let w_strides = strides(1, [depth, columns], false);
        let r_strides = strides(2, [rows, columns], false);
        let c_strides = strides(3, [rows, columns], true);
        let a = Matrix::strided(&data, rows, depth + extra, a_strides[0], a_strides[1]);
        let w = Matrix::strided(&data, depth, columns, w_strides[0], w_strides[1]);
        let r = Matrix::strided(&data, rows, columns, r_strides[0], r_strides[1]);
        let c = MatrixMut::strided(&mut memory, rows, columns, c_strides[0], c_strides[1]);
        let (Ok(a), Ok(w), Ok(r), Ok(c)) = (a, w, r, c) else { return false };
        let mut buffer = vec![GAP; PackedMatrix::buffer_len(isa, depth, columns).expect("small")];
        let packed = PackedMatrix::pack(isa, w, &mut buffer).expect("a buffer of that length");
        let post_op = if self.residual { PostOp::Add(r) } else { PostOp::None };
        let epilogue = Epilogue { post_op, ..Epilogue::default() };
        let serial = Parallelism::Serial;
        let result = gemm(a, &packed, &epilogue, c, serial);
        // The same product of unpacked matrices: accepted or rejected alike, with the same bits.
        let mut again = vec![GAP; FLOATS];
        let floats = gemm_unpacked_scratch(isa, depth, columns).expect("small");
        let mut scratch = vec![GAP; floats];
        let c = MatrixMut::strided(&mut again, rows, columns, c_strides[0], c_strides[1]);
        let c = c.expect("accepted before");
        assert_eq!(gemm_unpacked(Exec::serial(isa), a, w, &epilogue, c, &mut scratch), result);
        if result.is_err() {
            return false;
        }
        let same = |(one, other): (&f32, &f32)| one.to_bits() == other.to_bits();
        assert!(memory.iter().zip(&again).all(same), "{isa}: not packed, {self:?}");
        let mut expected = vec![GAP; FLOATS];
        for i in 0..rows {
            for j in 0..columns {
                let term = |k| data[place([i, k], a_strides)] * data[place([k, j], w_strides)];
                let sum: f32 = (0..depth).map(term).sum();
                let residual = if self.residual { data[place([i, j], r_strides)] } else { 0.0 };
                expected[place([i, j], c_strides)] = sum + residual;
            }
        }
        for (index, (found, expected)) in memory.iter().zip(&expected).enumerate() {
            // Integers are equal as numbers, so zeros may have either sign. Gaps are compared
            // by their bits.
            let same = found == expected || found.to_bits() == expected.to_bits();
            assert!(same, "{isa}: {found} instead of {expected} at {index} of {self:?}");
        }
        true
    }
}

/// Attention over a few tokens.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct WildAttention {
    tokens: [u8; 2],
    kv_heads: u8,
    group: u8,
    head_dim: u8,
    /// Strides of queries, keys, values and the output; tokens first.
    strides: [[Stride; 2]; 4],
    sequences: [[u8; 5]; 2],
    count: u8,
    /// Replaces one field of one sequence in rare cases.
    field: u8,
    number: usize,
    scratch: u8,
    causal: bool,
    uniform: bool,
}

impl WildAttention {
    fn sequences(&self, queries: usize, keys: usize) -> Vec<Sequence> {
        let mut end = 0;
        let mut sequences: Vec<Sequence> = Vec::new();
        for draws in self.sequences.iter().take(usize::from(self.count % 3)) {
            // A number up to `most`.
            let draw = |i: usize, most: usize| usize::from(draws[i]) % (most + 1);
            let query_start = end + draw(0, queries - end);
            let query_len = draw(1, queries - query_start);
            let key_start = draw(2, keys);
            let padded_len = draw(3, keys - key_start);
            let key_len = draw(4, padded_len);
            end = query_start + query_len;
            sequences.push(Sequence { query_start, query_len, key_start, key_len, padded_len });
        }
        if let (true, Some(sequence)) = (one_in(8, self.field), sequences.last_mut()) {
            match self.field / 8 % 5 {
                0 => sequence.query_start = self.number,
                1 => sequence.query_len = self.number,
                2 => sequence.key_start = self.number,
                3 => sequence.key_len = self.number,
                _ => sequence.padded_len = self.number,
            }
        }
        sequences
    }

    /// Whether the kernel accepts the case.
    ///
    /// # Panics
    /// The case was accepted, and the bits are not those of dense copies of the same elements.
    pub fn check_kernel(&self, isa: Isa) -> bool {
        let kv_heads = usize::from(self.kv_heads % 3);
        let heads = kv_heads * (1 + usize::from(self.group % 2));
        let [queries, keys] = self.tokens.map(|tokens| usize::from(tokens % 8));
        let head_dim = small(self.head_dim);
        let query_shape = [queries, heads, head_dim];
        let key_shape = [keys, kv_heads, head_dim];
        let strides = |which: usize, [tokens, heads, head_dim]: [usize; 3], output: bool| {
            let [token, head] = self.strides[which];
            if output {
                [token.of_output(tokens, heads * (head_dim + 2)), head.of_output(heads, head_dim)]
            } else {
                [token.stride_for(tokens, heads * head_dim), head.stride_for(heads, head_dim)]
            }
        };
        let q = strides(0, query_shape, false);
        let k = strides(1, key_shape, false);
        let v = strides(2, key_shape, false);
        let o = strides(3, query_shape, true);
        let data: Vec<f32> = (0..FLOATS).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let mut memory = vec![GAP; FLOATS];
        let sequences = self.sequences(queries, keys);
        let fully_masked = if self.uniform { FullyMasked::Uniform } else { FullyMasked::Zeros };
        let options = AttentionOptions {
            causal: self.causal,
            fully_masked,
            ..AttentionOptions::new(head_dim.max(1))
        };
        let query = Heads::strided(&data, query_shape, q[0], q[1]);
        let key = Heads::strided(&data, key_shape, k[0], k[1]);
        let value = Heads::strided(&data, key_shape, v[0], v[1]);
        let out = HeadsMut::strided(&mut memory, query_shape, o[0], o[1]);
        let (Ok(query), Ok(key), Ok(value), Ok(out)) = (query, key, value, out) else {
            return false;
        };
        // Sequences that need more memory than there is must be an error.
        let needed = attention_scratch(isa, &sequences, kv_heads, head_dim).unwrap_or(0);
        let needed = needed.min(1 << 20) >> u32::from(one_in(16, self.scratch));
        let mut scratch = vec![GAP; needed];
        let qkv = Qkv { query, key, value };
        if attention(Exec::serial(isa), qkv, &sequences, &options, out.into(), &mut scratch)
            .is_err()
        {
            return false;
        }

        let dense = |[tokens, heads, head_dim]: [usize; 3], strides: [usize; 2]| {
            let mut floats = Vec::new();
            for token in 0..tokens {
                for head in 0..heads {
                    let start = place([token, head], strides);
                    floats.extend((0..head_dim).map(|i| data[start + i]));
                }
            }
            floats
        };
        let [query, key, value] = [dense(query_shape, q), dense(key_shape, k), dense(key_shape, v)];
        let mut plain = vec![GAP; queries * heads * head_dim];
        attention(
            Exec::serial(isa),
            Qkv {
                query: Heads::new(&query, query_shape).expect("dense"),
                key: Heads::new(&key, key_shape).expect("dense"),
                value: Heads::new(&value, key_shape).expect("dense"),
            },
            &sequences,
            &options,
            HeadsMut::new(&mut plain, query_shape).expect("dense").into(),
            &mut scratch,
        )
        .expect("accepted with other strides");
        let mut expected = vec![GAP; FLOATS];
        for token in 0..queries {
            for head in 0..heads {
                let (to, from) = (place([token, head], o), (token * heads + head) * head_dim);
                expected[to..][..head_dim].copy_from_slice(&plain[from..][..head_dim]);
            }
        }
        for (index, (found, expected)) in memory.iter().zip(&expected).enumerate() {
            let same = same_bits(*found, *expected);
            assert!(same, "{isa}: {found:e} instead of {expected:e} at {index} of {self:?}");
        }
        true
    }
}

/// A pruned argmax, in some cases with arbitrary words as pruning table.
#[derive(Arbitrary, Clone, Debug)]
pub struct WildPrunedArgmax {
    shape: [u8; 3],
    /// Strides of the rows and of the weight by column.
    strides: [[Stride; 2]; 2],
    by_column: bool,
    words: Vec<(u16, u32)>,
    misfit: u8,
}

impl WildPrunedArgmax {
    /// Whether the kernel accepts the case.
    ///
    /// # Panics
    /// The case was accepted and the result is wrong.
    pub fn check_kernel(&self, isa: Isa) -> bool {
        let [rows, depth, columns] = self.shape.map(small);
        // In some cases more than one panel of columns.
        let columns = if columns == 17 { 50 } else { columns };
        let data = integers();
        let strides = |which: usize, rows: usize, columns: usize| {
            let [row, column] = self.strides[which];
            [row.stride_for(rows, columns), column.stride_for(columns, 1)]
        };
        let (x, w) = (strides(0, rows, depth), strides(1, columns, depth));
        let x = Matrix::strided(&data, rows, depth, x[0], x[1]);
        let by_column = Matrix::strided(&data, columns, depth, w[0], w[1]);
        let (Ok(x), Ok(by_column)) = (x, by_column) else { return false };
        let mut buffer = vec![GAP; PackedMatrix::buffer_len(isa, depth, columns).expect("small")];
        let packed = PackedMatrix::pack(isa, by_column.transposed(), &mut buffer).expect("a fit");
        let mut bytes = vec![GAP; PruningTable::buffer_len(depth, columns).expect("small")];
        PruningTable::build(&packed, &mut bytes).expect("a fit");
        let mut intact = true;
        if let len @ 1.. = bytes.len() {
            for &(at, word) in &self.words {
                bytes[usize::from(at) % len] = f32::from_bits(word);
                intact = false;
            }
        }
        let claimed = columns + usize::from(one_in(16, self.misfit));
        let Ok(pruning_table) = PruningTable::from_built(depth, claimed, &bytes) else {
            return false;
        };
        let product = Product {
            weight: &packed,
            pruning_table: &pruning_table,
            bias: None,
            by_column: self.by_column.then_some(by_column),
        };
        let (mut found, mut values) = (vec![7; rows], vec![GAP; rows]);
        let mut buffer = vec![GAP; pruned_argmax::argmax_scratch(rows, depth).expect("small")];
        let outputs = (&mut found[..], &mut values[..]);
        let serial = Parallelism::Serial;
        if pruned_argmax::argmax(&product, x, &|_, _| false, outputs, &mut buffer, serial).is_err()
        {
            return false;
        }
        if !intact {
            let inside = |&column: &u32| column == UNDECIDED || (column as usize) < columns;
            assert!(found.iter().all(inside), "{isa}: {found:?} of {columns} columns");
            return true;
        }
        let mut logits = vec![GAP; rows * columns];
        let c = MatrixMut::new(&mut logits, rows, columns).expect("a fit");
        gemm(x, &packed, &Epilogue::default(), c, serial).expect("a fit");
        check_largest(isa, &logits, columns, &|_, _| false, (&found, &values));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use libfuzzer_sys::arbitrary::Unstructured;

    /// How many of 2,000 random cases are accepted, on each instruction set.
    fn accepted<T: for<'a> Arbitrary<'a>>(run: impl Fn(&T, Isa) -> bool) {
        for isa in Isa::available() {
            let mut rng = Rng::new(1);
            let mut reached = 0;
            for _ in 0..2000 {
                let bytes: Vec<u8> = (0..64).flat_map(|_| rng.bits().to_le_bytes()).collect();
                let case = T::arbitrary(&mut Unstructured::new(&bytes)).expect("enough bytes");
                reached += u32::from(run(&case, isa));
            }
            println!("{isa}: {reached} of 2000");
            assert!(reached >= 800, "{isa}: only {reached} of 2000 cases reach the kernel");
        }
    }

    #[test]
    fn most_products_reach_the_kernel() {
        accepted(WildProduct::check_kernel);
    }

    #[test]
    fn most_attention_reaches_the_kernel() {
        accepted(WildAttention::check_kernel);
    }

    #[test]
    fn most_pruned_argmaxes_reach_the_kernel() {
        accepted(WildPrunedArgmax::check_kernel);
    }
}
