//! Guarantee 4 for kernels: operands of the wrong shape are errors that say what was expected and what was
//! found. No two mistakes have the same text.

use crate::rejections::{Seen, error_text};
use simdformer::kernels::embedding::embed;
use simdformer::kernels::norm::{self, LayerNorm, Norm, NormInput};
use simdformer::kernels::position::{PositionEncoding, encode};
use simdformer::kernels::pruned_argmax::PruningTable;
use simdformer::kernels::softmax::{SoftmaxOptions, softmax};
use simdformer::kernels::topk::{argmax, top_k};
use simdformer::kernels::{
    AttentionOptions, CacheMut, CacheShape, CachedSequence, Dtype, Epilogue, Exec, Heads, HeadsMut,
    Input, Isa, Matrix, MatrixMut, PackOptions, PackedMatrix, Parallelism, PostOp, Qkv,
    QuantizedMatrix, Sequence, SlotTable, attention, attention_cached, attention_decode,
    attention_scratch, gemm,
};

#[test]
fn wrong_operands_of_kernels_are_errors() {
    let mut seen = Seen::default();
    let isa = Isa::best();
    let (serial, data) = (Parallelism::Serial, [0.5f32; 256]);
    let matrix = |rows, columns| Matrix::new(&data, rows, columns).expect("a matrix");
    let mut out = [7.0f32; 256];

    seen.check("a short slice", error_text(Matrix::new(&data, 17, 16)), &["272", "256"]);
    let wide = error_text(Matrix::strided(&data, 3, 2, usize::MAX / 2, 1));
    seen.check("strides that overflow", wide, &["overflows"]);
    let overlap = error_text(MatrixMut::strided(&mut out, 4, 4, 3, 1));
    seen.check("rows that overlap", overlap, &["distinct", "3"]);
    seen.check("too few heads", error_text(Heads::new(&data, [3, 9, 10])), &["270", "256"]);
    seen.check(
        "rows outside",
        error_text(matrix(4, 4).block(3, 2)),
        &["rows", "at most 4", "found 5"],
    );

    let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, 8, 6).expect("a length")];
    let short = error_text(PackedMatrix::pack(isa, matrix(8, 6), &mut [0.0; 3]));
    seen.check("no space to pack", short, &["buffer", "found 3"]);
    // A buffer of another length was packed for another instruction set, dtype or shape.
    let floats = buffer.len();
    for found in [floats - 1, floats + 1, 2 * floats] {
        let what = format!("{found} packed floats");
        let (expected, found) = (format!("expected {floats}"), vec![0.0; found]);
        let other = error_text(PackedMatrix::from_packed(isa, 8, 6, &found));
        seen.check(&what, other, &[&expected, &format!("found {}", found.len())]);
    }
    let whole = PackedMatrix::buffer_len(isa, 8, 6).expect("a length");
    let half = error_text(PackOptions::new(Dtype::F16).from_packed(isa, 8, 6, &buffer));
    seen.check(
        "f32 read as f16",
        half,
        &[&format!("expected {}", whole / 2), &format!("found {whole}")],
    );
    let mut longer = vec![0.0; floats + 5];
    PackedMatrix::pack(isa, matrix(8, 6), &mut longer).expect("space to pack may be left");
    let words = QuantizedMatrix::buffer_len(8, 6).expect("a length");
    let other = error_text(QuantizedMatrix::from_quantized(8, 6, &vec![0.0; words + 1]));
    seen.check(
        "too many words",
        other,
        &[&format!("expected {words}"), &format!("found {}", words + 1)],
    );
    let mut longer = vec![0.0; words + 5];
    QuantizedMatrix::quantize(isa, matrix(8, 6), &mut longer).expect("space to round may be left");
    let bytes = PruningTable::buffer_len(8, 6).expect("a length");
    let other = error_text(PruningTable::from_built(8, 6, &vec![0.0; bytes + 1]));
    seen.check(
        "a longer pruning table",
        other,
        &[&format!("expected {bytes}"), &format!("found {}", bytes + 1)],
    );
    let columns =
        error_text(PackOptions::default().pack_columns(isa, matrix(8, 4), (8, 6), 3, &mut buffer));
    seen.check("columns that do not fit", columns, &["last column", "at most 6", "found 7"]);
    seen.check(
        "a packed matrix without end",
        error_text(PackedMatrix::buffer_len(isa, usize::MAX, 6)),
        &["packed matrix overflows"],
    );
    let packed = PackedMatrix::pack(isa, matrix(8, 6), &mut buffer).expect("packed");
    let plain = Epilogue::default();
    let mut run = |a: [usize; 2], c: [usize; 2], epilogue: &Epilogue| {
        let c = MatrixMut::new(&mut out, c[0], c[1]).expect("a matrix");
        error_text(gemm(matrix(a[0], a[1]), &packed, epilogue, c, serial))
    };
    seen.check("another depth", run([2, 7], [2, 6], &plain), &["8", "7"]);
    seen.check("other rows", run([2, 8], [3, 6], &plain), &["[2, 6]", "[3, 6]"]);
    seen.check("other columns", run([2, 8], [2, 5], &plain), &["[2, 6]", "[2, 5]"]);
    let bias = Epilogue { bias: Some(&data[..5]), ..plain };
    seen.check("a short bias", run([2, 8], [2, 6], &bias), &["bias", "6", "5"]);
    let residual = Epilogue { post_op: PostOp::Add(matrix(2, 7)), ..plain };
    seen.check("another residual", run([2, 8], [2, 6], &residual), &["[2, 6]", "[2, 7]"]);

    let heads = |tokens| Heads::new(&data, [tokens, 2, 3]).expect("heads");
    let options = AttentionOptions::new(3);
    let mut run = |tokens: usize, sequences: &[Sequence], floats: usize, rows: usize| {
        let mut scratch = vec![0.0; floats];
        let out = HeadsMut::new(&mut out, [rows, 2, 3]).expect("heads");
        let (query, key) = (heads(tokens), heads(tokens));
        error_text(attention(
            Exec::serial(isa),
            Qkv { query, key, value: key },
            sequences,
            &options,
            out.into(),
            &mut scratch,
        ))
    };
    let packed = Sequence::packed;
    let enough = attention_scratch(isa, &[packed(0, 9)], 2, 3).expect("a size");
    seen.check("another output", run(4, &[packed(0, 4)], enough, 5), &["[4, 2, 3]", "[5, 2, 3]"]);
    seen.check(
        "a sequence outside",
        run(4, &[packed(2, 3)], enough, 4),
        &["query end", "at most 4", "found 5"],
    );
    seen.check(
        "sequences that overlap",
        run(4, &[packed(0, 3), packed(2, 2)], enough, 4),
        &["query start", "sequence 1", "found 2"],
    );
    let keys = Sequence { key_len: 6, padded_len: 6, ..packed(0, 4) };
    seen.check("keys outside", run(4, &[keys], enough, 4), &["key end", "at most 4", "found 6"]);
    let valid = Sequence { padded_len: 3, ..packed(0, 4) };
    seen.check(
        "more valid keys than keys",
        run(4, &[valid], enough, 4),
        &["valid keys", "at most 3", "found 4"],
    );
    seen.check("no scratch", run(4, &[packed(0, 4)], 1, 4), &["scratch", "found 1"]);

    let shape = CacheShape::new(2, 4, 2, 3);
    let len = shape.buffer_len(isa).expect("a length");
    let mut memory = vec![f32::NAN; len];
    seen.check(
        "a short cache",
        error_text(CacheMut::new(isa, shape, &mut memory[..9])),
        &["data", "found 9"],
    );
    let mut cache = CacheMut::new(isa, shape, &mut memory).expect("a cache");
    seen.check(
        "a foreign slot",
        error_text(cache.write(2, 0, heads(1), heads(1))),
        &["slot", "less than 2"],
    );
    seen.check(
        "a full slot",
        error_text(cache.write(0, 3, heads(2), heads(2))),
        &["positions", "at most 4", "found 5"],
    );
    seen.check(
        "other values",
        error_text(cache.write(0, 0, heads(2), heads(1))),
        &["value", "[2, 2, 3]", "[1, 2, 3]"],
    );
    let narrow = Heads::new(&data, [1, 3, 2]).expect("heads");
    seen.check(
        "other heads",
        error_text(cache.write(0, 0, narrow, narrow)),
        &["key", "[1, 2, 3]", "[1, 3, 2]"],
    );
    let places = error_text(cache.append(&[0, 1], &[0], heads(2), heads(2)));
    seen.check("a position too few", places, &["positions", "expected 2", "found 1"]);
    cache.write(0, 0, heads(4), heads(4)).expect("written");
    let mut read = |slot, key_len| {
        let sequence = [CachedSequence { query_start: 0, query_len: 1, slot, key_len }];
        let out = HeadsMut::new(&mut out, [1, 2, 3]).expect("heads");
        error_text(attention_cached(
            heads(1),
            &cache.as_view(),
            &sequence,
            &options,
            out.into(),
            serial,
        ))
    };
    seen.check("reading a foreign slot", read(7, 1), &["slot", "found 7"]);
    seen.check("reading past the end", read(0, 9), &["positions", "found 9"]);
    let one = HeadsMut::new(&mut out, [1, 2, 3]).expect("heads");
    let short = error_text(attention_decode(
        heads(1),
        &cache.as_view(),
        SlotTable { lens: &[3], slots: &[0, 0], stride: 2 },
        &options,
        one,
        serial,
    ));
    seen.check("a short ancestry", short, &["slots", "at least 3", "found 2"]);

    let mut square = |rows, columns, call: &dyn Fn(MatrixMut) -> Option<String>| {
        call(MatrixMut::new(&mut out, rows, columns).expect("a matrix"))
    };
    let norm =
        |weight, bias| LayerNorm { weight: &data[..weight], bias: Some(&data[..bias]), eps: 0.1 };
    let norm_of = |layer: LayerNorm<'_>, x: Matrix<'_>, out: MatrixMut<'_>| {
        error_text(norm::norm(Exec::serial(isa), Norm::Layer(layer), NormInput::Matrix(x), out))
    };
    let x = matrix(3, 5);
    let (a, b, c) = (norm(4, 5), norm(5, 6), norm(5, 5));
    seen.check("a short weight", square(3, 5, &|out| norm_of(a, x, out)), &["weight", "5", "4"]);
    seen.check("a long bias", square(3, 5, &|out| norm_of(b, x, out)), &["bias", "5", "6"]);
    seen.check("another shape", square(2, 5, &|out| norm_of(c, x, out)), &["[2, 5]", "[3, 5]"]);
    let transposed = matrix(5, 3).transposed();
    seen.check("strided rows", square(3, 5, &|out| norm_of(c, transposed, out)), &["stride", "3"]);
    let soft = |lengths: &'static [usize]| {
        move |out: MatrixMut| {
            let options = SoftmaxOptions { lengths: Some(lengths), ..SoftmaxOptions::default() };
            error_text(softmax(Exec::serial(isa), Input::Matrix(x), options, out))
        }
    };
    seen.check("a length too few", square(3, 5, &soft(&[1, 2])), &["3", "2"]);
    seen.check("a length past the row", square(3, 5, &soft(&[1, 2, 6])), &["row 2", "6"]);
    seen.check(
        "a foreign id",
        square(2, 5, &|out| error_text(embed(Exec::serial(isa), x, &[1, 3], 1.0, None, out))),
        &["3"],
    );
    let encoding = PositionEncoding::HalfSplitClosed { offset: 0 };
    seen.check(
        "narrow positions",
        square(2, 3, &|out| error_text(encode(encoding, 0, out))),
        &["columns", "3"],
    );
    let (mut values, mut indices) = ([0.0; 6], [0; 6]);
    seen.check(
        "more than there are",
        error_text(top_k(Exec::serial(isa), x, 6, &mut values, &mut indices)),
        &["columns", "at least 6", "found 5"],
    );
    seen.check(
        "no space for values",
        error_text(top_k(Exec::serial(isa), x, 2, &mut values[..5], &mut indices)),
        &["values", "6", "5"],
    );
    seen.check(
        "no space for indices",
        error_text(top_k(Exec::serial(isa), x, 2, &mut values, &mut indices[..4])),
        &["indices", "6", "4"],
    );
    seen.check(
        "the best of nothing",
        error_text(argmax(Exec::serial(isa), matrix(3, 0), &mut indices[..3])),
        &["columns", "at least 1", "found 0"],
    );
    seen.check("an unknown set", error_text(Isa::from_name("sse9")), &["unknown", "scalar"]);
    let elsewhere = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
    seen.check("a set of others", error_text(Isa::from_name(elsewhere)), &[elsewhere, isa.name()]);
}
