//! Kernels on pointers and on the engine's threads give the bits of slices and of one thread.

use crate::counting::allocations;
use crate::numbers::{Engine, Numbers, bits};
use simdformer_kernels::{
    AttentionOptions, Epilogue, Exec, Heads, HeadsMut, Isa, Matrix, MatrixMut, PackedMatrix,
    Parallelism, Qkv, Sequence, attention, attention_scratch, gemm, gemm_unpacked,
    gemm_unpacked_scratch,
};

const ROWS: usize = 70;
const DEPTH: usize = 130;
const COLUMNS: usize = 300;

/// The value between elements, which must not change.
const GAP: f32 = f32::NAN;

/// A matrix `[rows, columns]` whose rows are `stride` elements apart. The gaps are filled.
fn padded(dense: &[f32], columns: usize, stride: usize) -> Vec<f32> {
    dense
        .chunks(columns)
        .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(GAP, stride - columns)))
        .collect()
}

/// The elements of such a matrix. Panics if a gap was written.
fn dense(padded: &[f32], columns: usize, stride: usize) -> Vec<f32> {
    let rows = padded.chunks(stride);
    rows.flat_map(|row| {
        assert!(row[columns..].iter().all(|x| x.to_bits() == GAP.to_bits()), "a gap was written");
        row[..columns].to_vec()
    })
    .collect()
}

pub(crate) fn a_product_of_raw_views() {
    let mut random = Numbers(1);
    let (a, w) = (random.floats(ROWS * DEPTH), random.floats(DEPTH * COLUMNS));
    let bias = random.floats(COLUMNS);
    let epilogue = Epilogue { bias: Some(&bias), ..Epilogue::default() };
    for isa in Isa::available() {
        let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, DEPTH, COLUMNS).expect("small")];
        let weight = Matrix::new(&w, DEPTH, COLUMNS).expect("dense");
        let weight = PackedMatrix::pack(isa, weight, &mut buffer).expect("space");
        let mut expected = vec![0.0; ROWS * COLUMNS];
        let c = MatrixMut::new(&mut expected, ROWS, COLUMNS).expect("dense");
        let x = Matrix::new(&a, ROWS, DEPTH).expect("dense");
        gemm(x, &weight, &epilogue, c, Parallelism::Serial).expect("shapes that fit");

        let (a, w) = (padded(&a, DEPTH, DEPTH + 5), padded(&w, COLUMNS, COLUMNS + 3));
        let floats = gemm_unpacked_scratch(isa, DEPTH, COLUMNS).expect("small");
        let (mut scratch, mut packed) = (vec![GAP; floats], vec![GAP; buffer.len()]);
        for threads in [1, 2, 3] {
            let pool = Engine::new(threads);
            let parallelism = Parallelism::Executor(&pool);
            let empty = padded(&[GAP; ROWS * COLUMNS], COLUMNS, COLUMNS + 7);
            for unpacked in [false, true] {
                let mut out = empty.clone();
                let (calls, ()) = allocations(|| {
                    // SAFETY: `padded` made rows of these strides, and all of them are
                    // borrowed here.
                    let (a, w, c) = unsafe {
                        (
                            Matrix::from_raw_parts(a.as_ptr(), ROWS, DEPTH, DEPTH + 5, 1),
                            Matrix::from_raw_parts(w.as_ptr(), DEPTH, COLUMNS, COLUMNS + 3, 1),
                            MatrixMut::from_raw_parts(
                                out.as_mut_ptr(),
                                ROWS,
                                COLUMNS,
                                COLUMNS + 7,
                                1,
                            ),
                        )
                    };
                    let (a, w, c) = (a.expect("a"), w.expect("w"), c.expect("c"));
                    if unpacked {
                        gemm_unpacked(Exec::new(isa, parallelism), a, w, &epilogue, c, &mut scratch)
                    } else {
                        let weight = PackedMatrix::pack(isa, w, &mut packed).expect("space");
                        gemm(a, &weight, &epilogue, c, parallelism)
                    }
                    .expect("shapes that fit");
                });
                assert_eq!(calls, 0, "{isa}: {threads} threads");
                let found = dense(&out, COLUMNS, COLUMNS + 7);
                assert!(bits(&found) == bits(&expected), "{isa}: {threads} threads, {unpacked}");
                assert!(pool.was_asked(), "{isa}: {threads} threads, {unpacked}");
            }
        }
    }
}

/// In a buffer `[rows, columns]`, one thread writes the even columns and another the odd ones.
pub(crate) fn columns_of_one_buffer_on_two_threads() {
    struct Shared(*mut f32);
    // SAFETY: each thread writes only its own columns.
    unsafe impl Sync for Shared {}
    let (isa, mut random) = (Isa::best(), Numbers(2));
    let (a, w) = (random.floats(ROWS * DEPTH), random.floats(DEPTH * COLUMNS));
    let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, DEPTH, COLUMNS).expect("small")];
    let weight = Matrix::new(&w, DEPTH, COLUMNS).expect("dense");
    let weight = PackedMatrix::pack(isa, weight, &mut buffer).expect("space");
    let x = Matrix::new(&a, ROWS, DEPTH).expect("dense");
    let mut expected = vec![0.0; ROWS * COLUMNS];
    let c = MatrixMut::new(&mut expected, ROWS, COLUMNS).expect("dense");
    gemm(x, &weight, &Epilogue::default(), c, Parallelism::Serial).expect("shapes that fit");

    let mut out = vec![GAP; ROWS * COLUMNS * 2];
    let shared = Shared(out.as_mut_ptr());
    std::thread::scope(|scope| {
        let write = |parity| {
            let (shared, weight) = (&shared, &weight);
            scope.spawn(move || {
                // SAFETY: the last element is the last or the last but one of the buffer.
                // The other thread writes only the elements between.
                let c = unsafe {
                    let first = shared.0.add(parity);
                    MatrixMut::from_raw_parts(first, ROWS, COLUMNS, 2 * COLUMNS, 2)
                };
                let c = c.expect("apart");
                gemm(x, weight, &Epilogue::default(), c, Parallelism::Serial).expect("a fit");
            })
        };
        // A thread allocates until it is joined, and the next test counts allocations.
        for thread in [write(0), write(1)] {
            thread.join().expect("a product");
        }
    });
    for (pair, expected) in out.chunks(2).zip(&expected) {
        assert_eq!(bits(pair), [expected.to_bits(); 2]);
    }
}

pub(crate) fn attention_of_raw_views() {
    const TOKENS: usize = 90;
    const HEADS: usize = 4;
    const HEAD_DIM: usize = 24;
    const WIDTH: usize = HEADS * HEAD_DIM;
    let shape = [TOKENS, HEADS, HEAD_DIM];
    let sequences = [Sequence::packed(0, 50), Sequence::packed(50, 40)];
    let options = AttentionOptions { causal: true, ..AttentionOptions::new(HEAD_DIM) };
    let fused = Numbers(4).floats(3 * TOKENS * WIDTH);
    // Head after head, as in engines with `[heads, tokens, head_dim]`.
    let head_major = |part: usize| -> Vec<f32> {
        let element =
            |h: usize, t: usize, i: usize| fused[t * 3 * WIDTH + part * WIDTH + h * HEAD_DIM + i];
        let places = (0..HEADS).flat_map(|h| (0..TOKENS).map(move |t| (h, t)));
        places.flat_map(|(h, t)| (0..HEAD_DIM).map(move |i| element(h, t, i))).collect()
    };
    let parts = [0, 1, 2].map(head_major);
    for isa in Isa::available() {
        let floats = attention_scratch(isa, &sequences, HEADS, HEAD_DIM).expect("small");
        let (mut scratch, mut expected) = (vec![GAP; floats], vec![GAP; TOKENS * WIDTH]);
        attention(
            Exec::serial(isa),
            Qkv::fused(&fused, shape).expect("dense"),
            &sequences,
            &options,
            HeadsMut::new(&mut expected, shape).expect("dense").into(),
            &mut scratch,
        )
        .expect("shapes that fit");
        for threads in [1, 2, 3] {
            let pool = Engine::new(threads);
            let mut out = vec![GAP; TOKENS * WIDTH];
            let (calls, ()) = allocations(|| {
                let view = |part: &[f32]| {
                    let (data, stride) = (part.as_ptr(), TOKENS * HEAD_DIM);
                    // SAFETY: the tensor ends with its part of the buffer, which
                    // outlives the call.
                    unsafe { Heads::from_raw_parts(data, shape, HEAD_DIM, stride) }.expect("a view")
                };
                let [query, key, value] = [&parts[0], &parts[1], &parts[2]].map(|part| view(part));
                let stride = TOKENS * HEAD_DIM;
                // SAFETY: as above, and nothing else uses the output.
                let to =
                    unsafe { HeadsMut::from_raw_parts(out.as_mut_ptr(), shape, HEAD_DIM, stride) };
                attention(
                    Exec::new(isa, Parallelism::Executor(&pool)),
                    Qkv { query, key, value },
                    &sequences,
                    &options,
                    to.expect("a view").into(),
                    &mut scratch,
                )
                .expect("shapes that fit");
            });
            assert_eq!(calls, 0, "{isa}: {threads} threads");
            let places = (0..TOKENS).flat_map(|t| (0..HEADS).map(move |h| (t, h)));
            let found: Vec<f32> = places
                .flat_map(|(t, h)| out[(h * TOKENS + t) * HEAD_DIM..][..HEAD_DIM].to_vec())
                .collect();
            assert!(bits(&found) == bits(&expected), "{isa}: {threads} threads");
            assert!(pool.was_asked(), "{isa}: {threads} threads");
        }
    }
}
