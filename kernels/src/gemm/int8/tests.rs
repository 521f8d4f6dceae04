//! Tests of products in AMX blocks, on the emulator of the tile registers and on the CPU if it has AMX. Both use the
//! same layouts, loops and instructions, and must equal the oracle. On a CPU without AMX that part is skipped with a
//! message.

mod amx_emulator;

use self::amx_emulator::AmxEmulator;
use super::amx::multiply_blocks;
use super::pack_activations::{Layout, MIN_BLOCK_ROWS, MIN_BLOCK_STEPS, Quantize, quantize_by_row};
use super::product::split;
use super::tile_operand::Int8Range;
use super::{Quantization, QuantizedActivations, QuantizedMatrix, gemm_int8};
use crate::activation::Activation;
use crate::arch::scalar::Scalar;
#[cfg(vectors = "x86_64")]
use crate::arch::x86_64::amx::{Amx, none_granted};
use crate::gemm::epilogue::{Epilogue, PostOp};
use crate::gemm::store_tile::Store;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::{Exec, Executor, Parallelism};
use crate::reference::gemm_int8::gemm_int8 as oracle;
#[cfg(vectors = "x86_64")]
use crate::simd::int8::Int8Dot;
use crate::simd::int8::Int8Op;
#[cfg(vectors = "x86_64")]
use crate::simd::matrix_unit::MatrixUnit;
use core::ops::Range;
use simdformer_testing::effort::cases;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;
use std::{format, println, vec};

const PRECISIONS: [Quantization; 2] = [Quantization::W8A8, Quantization::W8A16];

/// A value that marks memory as not written.
const POISON: f32 = f32::from_bits(0x7fc0_dead);

/// Prints once that a machine has no AMX.
static SKIPPED: Once = Once::new();

/// The matrix unit, and the vector instruction set for the rest.
#[derive(Clone, Copy)]
enum Backend {
    /// The emulator, and scalar code.
    Scalar,
    /// The emulator, and AVX-512.
    #[cfg(vectors = "x86_64")]
    Vectors(crate::arch::x86_64::vnni::Vnni512),
    /// The AMX of the CPU.
    #[cfg(vectors = "x86_64")]
    Amx(Amx),
}

impl Backend {
    /// All backends that this machine has.
    fn all() -> Vec<Self> {
        #[cfg(vectors = "x86_64")]
        let vectors = pulp::x86::V4::try_new()
            .filter(|_| Isa::available().any(|isa| isa.name() == "avx512"))
            .and_then(crate::arch::x86_64::vnni::Vnni512::detect_with)
            .map(Self::Vectors);
        #[cfg(vectors = "x86_64")]
        let cpu = Isa::best().matrices().map(|MatrixUnit::Amx(amx)| Self::Amx(amx));
        #[cfg(not(vectors = "x86_64"))]
        let (vectors, cpu) = (None, None);
        if cpu.is_none() {
            SKIPPED.call_once(|| println!("skipped: amx, which this machine does not have"));
        }
        [Some(Self::Scalar), vectors, cpu].into_iter().flatten().collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Scalar => "emulator",
            #[cfg(vectors = "x86_64")]
            Self::Vectors(_) => "emulator with avx512",
            #[cfg(vectors = "x86_64")]
            Self::Amx(_) => "amx",
        }
    }

    fn blocks(
        self,
        rows: &QuantizedActivations<'_>,
        weight: &QuantizedMatrix<'_>,
        store: &Store,
        (tiles, panels): (Range<usize>, Range<usize>),
    ) {
        let range = Int8Range { rows, weight, store, tiles, panels };
        match self {
            Self::Scalar => multiply_blocks(AmxEmulator, range).run_with::<Scalar, 4, 4>(Scalar),
            #[cfg(vectors = "x86_64")]
            Self::Vectors(vnni) => vnni.call_noinline(multiply_blocks(AmxEmulator, range)),
            #[cfg(vectors = "x86_64")]
            Self::Amx(amx) => amx.enter(multiply_blocks(amx, range)),
        }
    }

    /// The product in blocks. The rows are quantized into a buffer of exactly their length.
    fn product(
        self,
        x: Matrix<'_>,
        precision: Quantization,
        weight: &QuantizedMatrix<'_>,
        epilogue: &Epilogue<'_>,
        mut c: MatrixMut<'_>,
        parallelism: Parallelism<'_>,
    ) {
        let length = QuantizedActivations::buffer_len(x.rows(), x.columns(), precision)
            .expect("a small size");
        let mut words = vec![POISON; length];
        let layout = Layout::of_blocks(x.rows(), x.columns(), precision).expect("a large shape");
        let round = |tiles: Quantize<'_, '_>| match self {
            Self::Scalar => quantize_by_row(tiles).run_with::<Scalar, 4, 4>(Scalar),
            #[cfg(vectors = "x86_64")]
            Self::Vectors(vnni) => vnni.call_noinline(quantize_by_row(tiles)),
            #[cfg(vectors = "x86_64")]
            Self::Amx(amx) => amx.enter(quantize_by_row(tiles)),
        };
        let set = (Isa::SCALAR, layout);
        let rows = QuantizedActivations::quantize_by(
            set,
            x,
            precision,
            &mut words,
            parallelism.workers(),
            &round,
        )
        .expect("that length");
        let store = Store::new(epilogue, &mut c);
        split(&rows, weight, parallelism.workers(), &|tiles, panels| {
            self.blocks(&rows, weight, &store, (tiles, panels));
        });
    }

    /// [`Backend::product`] of dense rows without epilogue into a new output.
    fn plain(
        self,
        x: &[f32],
        rows: usize,
        precision: Quantization,
        weight: &QuantizedMatrix<'_>,
        parallelism: Parallelism<'_>,
    ) -> Vec<f32> {
        let mut c = vec![POISON; rows * weight.columns()];
        let x = Matrix::new(x, rows, weight.depth()).expect("X");
        let view = MatrixMut::new(&mut c, rows, weight.columns()).expect("C");
        self.product(x, precision, weight, &Epilogue::default(), view, parallelism);
        c
    }
}

/// A pseudo-random value in `-1.0..1.0`, the same in every run.
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

fn values(count: usize, seed: usize) -> Vec<f32> {
    let state = &mut (seed as u64 + 1);
    (0..count).map(|_| random(state)).collect()
}

/// The quantized first `columns` columns of `w`, whose rows have `all` columns.
fn weight(w: &[f32], (depth, columns, all): (usize, usize, usize)) -> Vec<f32> {
    let mut words =
        vec![POISON; QuantizedMatrix::buffer_len(depth, columns).expect("a small size")];
    let w = Matrix::strided(w, depth, columns, all, 1).expect("inside W");
    QuantizedMatrix::quantize(Isa::SCALAR, w, &mut words).expect("the length");
    words
}

fn expected(
    x: &[f32],
    w: &[f32],
    (rows, depth, columns): (usize, usize, usize),
    precision: Quantization,
) -> Vec<f32> {
    let mut out = vec![0.0; rows * columns];
    let x = Matrix::new(x, rows, depth).expect("X");
    let w = Matrix::new(w, depth, columns).expect("W");
    oracle(x, w, precision, &Epilogue::default(), None, &mut out).expect("shapes that fit");
    out
}

/// Panics unless all elements were written and have the same bits, or are both NaN.
fn assert_same(found: &[f32], expected: &[f32], what: impl Fn() -> std::string::String) {
    assert_eq!(found.len(), expected.len());
    for (at, (&x, &y)) in found.iter().zip(expected).enumerate() {
        let same = x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
        assert!(same && x.to_bits() != POISON.to_bits(), "{}: at {at}: {x:e}, {y:e}", what());
    }
}

/// Numbers of rows around one and two tiles of rows, of columns around tiles and panels, and depths around words of
/// four and steps of 64.
#[test]
fn every_shape_around_every_edge_equals_the_oracle() {
    const ROWS: [usize; 12] = [32, 33, 34, 47, 48, 49, 63, 64, 65, 80, 81, 97];
    const COLUMNS: [usize; 14] = [1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 70];
    const MOST: (usize, usize) = (97, 70);
    let mut depths: Vec<usize> = (61..=69).collect();
    depths.extend([124, 125, 127, 128, 129, 131, 132, 133, 190, 192, 193, 253, 320]);
    for (seed, &depth) in depths.iter().enumerate() {
        let (x, w) = (values(MOST.0 * depth, seed), values(depth * MOST.1, 1000 + seed));
        for precision in PRECISIONS {
            let all = expected(&x, &w, (MOST.0, depth, MOST.1), precision);
            for (index, &columns) in COLUMNS.iter().enumerate() {
                let words = weight(&w, (depth, columns, MOST.1));
                let matrix = QuantizedMatrix::from_quantized(depth, columns, &words).expect("W");
                for (turn, backend) in Backend::all().into_iter().enumerate() {
                    for (place, &rows) in ROWS.iter().enumerate() {
                        // On the emulator, only a part of the combinations.
                        if (index + place + seed + turn) % cases(8, 3) > 0
                            && backend.name() != "amx"
                        {
                            continue;
                        }
                        let x = &x[..rows * depth];
                        let c = backend.plain(x, rows, precision, &matrix, Parallelism::Serial);
                        for (row, c) in c.chunks_exact(columns).enumerate() {
                            assert_same(c, &all[row * MOST.1..][..columns], || {
                                let shape = format!("{rows} x {columns} x {depth}, row {row}");
                                format!("{}, {precision:?}, {shape}", backend.name())
                            });
                        }
                    }
                }
            }
        }
    }
}

/// The largest possible sums, of both signs.
#[test]
fn extremes_are_exact() {
    for depth in [64, 518, 519, 1041, 4099] {
        for (x_sign, w_sign) in [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)] {
            let (rows, columns) = (33, 2);
            let (x, w) =
                (vec![x_sign * 127.0; rows * depth], vec![w_sign * 127.0; depth * columns]);
            let words = weight(&w, (depth, columns, columns));
            let matrix = QuantizedMatrix::from_quantized(depth, columns, &words).expect("W");
            for precision in PRECISIONS {
                let one = expected(&x[..depth], &w, (1, depth, columns), precision);
                let exact = f64::from(x_sign * w_sign) * 16129.0 * depth as f64;
                assert!((f64::from(one[0]) - exact).abs() <= 1e-6 * exact.abs());
                for backend in Backend::all() {
                    let c = backend.plain(&x, rows, precision, &matrix, Parallelism::Serial);
                    for c in c.chunks_exact(columns) {
                        assert_same(c, &one, || format!("{}, depth {depth}", backend.name()));
                    }
                }
            }
        }
    }
}

/// Values that quantization never produces, down to -128, and rows whose stored bytes are 255 and 1.
#[test]
fn int8_values_from_other_sources_are_multiplied_exactly() {
    let (rows, depth, columns) = (40, 70usize, 37usize);
    let steps = depth.div_ceil(4);
    let x: Vec<f32> = (0..rows * depth).map(|i| if i / 3 % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let mut words = vec![0.0; QuantizedMatrix::buffer_len(depth, columns).expect("a small size")];
    let panel = words.len() / columns.div_ceil(32);
    for n in 0..columns {
        let at = n / 32 * panel + n % 32;
        let byte = |k: usize| if (k + n).is_multiple_of(5) { 127i8 } else { -128 };
        for step in 0..steps {
            let four: [u8; 4] = core::array::from_fn(|i| byte(4 * step + i).cast_unsigned());
            words[at + 32 * step] = f32::from_bits(u32::from_le_bytes(four));
        }
        let sum: i32 = (0..4 * steps).map(|k| i32::from(byte(k))).sum();
        words[at + 32 * steps] = 0.5;
        words[at + 32 * (steps + 1)] = f32::from_bits((-128 * sum).cast_unsigned());
    }
    let matrix = QuantizedMatrix::from_quantized(depth, columns, &words).expect("W");
    let (serial, view) = (Parallelism::Serial, Matrix::new(&x, rows, depth).expect("X"));
    for precision in PRECISIONS {
        let mut reference = vec![POISON; rows * columns];
        let mut buffer =
            vec![POISON; QuantizedActivations::buffer_len(rows, depth, precision).expect("small")];
        let read =
            QuantizedActivations::quantize(Exec::serial(Isa::SCALAR), view, precision, &mut buffer)
                .expect("X");
        let c = MatrixMut::new(&mut reference, rows, columns).expect("C");
        gemm_int8(&read, &matrix, &Epilogue::default(), c, serial).expect("shapes that fit");
        for backend in Backend::all() {
            let c = backend.plain(&x, rows, precision, &matrix, serial);
            assert_same(&c, &reference, || format!("{}, {precision:?}", backend.name()));
        }
    }
}

/// Zeros, the smallest and the largest numbers, and values that are not finite, in one row, at every position of a
/// block.
#[test]
fn magnitudes_and_non_finite_values_affect_only_their_row() {
    let kinds =
        [0.0, 1e-31, f32::MIN_POSITIVE, f32::MAX, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let (rows, depth, columns) = (51, 67, 35);
    let (x, w) = (values(rows * depth, 1), values(depth * columns, 2));
    let words = weight(&w, (depth, columns, columns));
    let matrix = QuantizedMatrix::from_quantized(depth, columns, &words).expect("W");
    for precision in PRECISIONS {
        let whole = expected(&x, &w, (rows, depth, columns), precision);
        for place in 0..rows {
            let kind = kinds[place % kinds.len()];
            let mut x = x.clone();
            let row = &mut x[place * depth..][..depth];
            row.fill(0.0);
            row[place] = kind;
            let own = expected(row, &w, (1, depth, columns), precision);
            assert_eq!(own.iter().all(|y| y.is_nan()), !kind.is_finite());
            let mut all = whole.clone();
            all[place * columns..][..columns].copy_from_slice(&own);
            for backend in Backend::all() {
                let c = backend.plain(&x, rows, precision, &matrix, Parallelism::Serial);
                assert_same(&c, &all, || {
                    format!("{}, {precision:?}, {kind:e} in row {place}", backend.name())
                });
            }
        }
    }
}

/// Epilogues, strides and gaps give the same result as scalar vector tiles.
#[test]
fn every_epilogue_and_layout_equals_the_vector_tiles() {
    let (rows, depth, columns) = (50, 68, 70);
    let (x, w) = (values(rows * depth, 3), values(depth * columns, 4));
    let words = weight(&w, (depth, columns, columns));
    let matrix = QuantizedMatrix::from_quantized(depth, columns, &words).expect("W");
    let (bias, added) = (values(columns, 5), values(rows * columns, 6));
    let added = Matrix::new(&added, rows, columns).expect("a residual");
    // By row with a gap, by column, and with both strides above 1.
    for (stride, apart) in [(columns + 3, 1), (1, rows + 1), (2 * columns + 1, 2)] {
        let previous = values((rows - 1) * stride + (columns - 1) * apart + 1, 7);
        let transposed: Vec<f32> =
            (0..rows * depth).map(|i| x[i % rows * depth + i / rows]).collect();
        for (turn, post_op) in
            [PostOp::None, PostOp::AddOutput, PostOp::Add(added), PostOp::MultiplyOutput]
                .into_iter()
                .enumerate()
        {
            for activation in [Activation::Identity, Activation::Relu, Activation::Gelu] {
                for (scale, bias) in [(1.0, None), (1.0, Some(&*bias)), (-1.7, Some(&*bias))] {
                    for precision in PRECISIONS {
                        let epilogue = Epilogue { scale, bias, activation, post_op };
                        let x = if turn % 2 == 0 {
                            Matrix::new(&x, rows, depth)
                        } else {
                            Matrix::strided(&transposed, rows, depth, 1, rows)
                        };
                        let x = x.expect("X");
                        let serial = Parallelism::Serial;
                        let mut reference = previous.clone();
                        let length = QuantizedActivations::buffer_len(rows, depth, precision)
                            .expect("small");
                        let mut buffer = vec![POISON; length];
                        let read = QuantizedActivations::quantize(
                            Exec::serial(Isa::SCALAR),
                            x,
                            precision,
                            &mut buffer,
                        )
                        .expect("X");
                        let c = MatrixMut::strided(&mut reference, rows, columns, stride, apart);
                        gemm_int8(&read, &matrix, &epilogue, c.expect("C"), serial)
                            .expect("shapes that fit");
                        for backend in Backend::all() {
                            let mut out = previous.clone();
                            let c = MatrixMut::strided(&mut out, rows, columns, stride, apart);
                            backend.product(
                                x,
                                precision,
                                &matrix,
                                &epilogue,
                                c.expect("C"),
                                serial,
                            );
                            assert_same(&out, &reference, || {
                                format!("{}: {epilogue:?}", backend.name())
                            });
                        }
                    }
                }
            }
        }
    }
}

/// An executor that starts this number of threads for each call.
struct Threads(usize);

impl Executor for Threads {
    fn threads(&self) -> usize {
        self.0
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(index) =
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < tasks)
            {
                task(index);
            }
        };
        std::thread::scope(|scope| {
            (1..self.0).for_each(|_| drop(scope.spawn(work)));
            work();
        });
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch_nor_on_threads() {
    // With few columns threads also split rows. One case has more rows than one pass over the panels.
    for (most, depth, columns) in [(97, 131, 133), (260, 67, 65), (150, 7300, 3)] {
        let (x, w) = (values(most * depth, 8), values(depth * columns, 9));
        let words = weight(&w, (depth, columns, columns));
        let matrix = QuantizedMatrix::from_quantized(depth, columns, &words).expect("W");
        for precision in PRECISIONS {
            let (serial, view) = (Parallelism::Serial, Matrix::new(&x, most, depth).expect("X"));
            let mut reference = vec![POISON; most * columns];
            let mut buffer = vec![
                POISON;
                QuantizedActivations::buffer_len(most, depth, precision)
                    .expect("small")
            ];
            let read = QuantizedActivations::quantize(
                Exec::serial(Isa::SCALAR),
                view,
                precision,
                &mut buffer,
            )
            .expect("X");
            let c = MatrixMut::new(&mut reference, most, columns).expect("C");
            gemm_int8(&read, &matrix, &Epilogue::default(), c, serial).expect("shapes that fit");
            for backend in Backend::all() {
                for &threads in cases(&[1, 3][..], &[1, 2, 3, 7]) {
                    let executor = Threads(threads);
                    let parallelism = Parallelism::Executor(&executor);
                    let c = backend.plain(&x, most, precision, &matrix, parallelism);
                    assert_same(&c, &reference, || {
                        format!("{}, {threads} threads", backend.name())
                    });
                }
                for (first, rows) in [(0, 32), (17, 45), (most - 33, 33)] {
                    let part = &x[first * depth..][..rows * depth];
                    let c = backend.plain(part, rows, precision, &matrix, serial);
                    let reference = &reference[first * columns..][..rows * columns];
                    assert_same(&c, reference, || format!("{}, rows from {first}", backend.name()));
                }
            }
        }
    }
}

/// Whether a product uses blocks depends on its shape, on the CPU and on the permission of the operating system. The
/// bits do not depend on it.
#[test]
fn without_amx_or_its_permission_products_are_the_same() {
    for (rows, depth, blocks) in [
        (MIN_BLOCK_ROWS - 1, 512, false),
        (MIN_BLOCK_ROWS, 512, true),
        (MIN_BLOCK_ROWS, 4 * MIN_BLOCK_STEPS - 4, false),
        (MIN_BLOCK_ROWS, 4 * MIN_BLOCK_STEPS - 3, true),
        (0, 512, false),
    ] {
        for precision in PRECISIONS {
            assert_eq!(Layout::of_blocks(rows, depth, precision).is_some(), blocks);
        }
    }
    let (rows, depth, columns) = (37, 90, 40);
    let (x, w) = (values(rows * depth, 10), values(depth * columns, 11));
    let words = weight(&w, (depth, columns, columns));
    let matrix = QuantizedMatrix::from_quantized(depth, columns, &words).expect("W");
    for precision in PRECISIONS {
        let all = expected(&x, &w, (rows, depth, columns), precision);
        let product = |isa: Isa, blocks: Option<bool>| {
            let serial = Parallelism::Serial;
            let mut buffer = vec![
                POISON;
                QuantizedActivations::buffer_len(rows, depth, precision)
                    .expect("small")
            ];
            let x = Matrix::new(&x, rows, depth).expect("X");
            let read = QuantizedActivations::quantize(Exec::serial(isa), x, precision, &mut buffer)
                .expect("X");
            let in_blocks = blocks.unwrap_or(isa.has_matrix_products());
            assert_eq!(read.matrices().is_some(), in_blocks, "{isa}");
            let mut c = vec![POISON; rows * columns];
            let view = MatrixMut::new(&mut c, rows, columns).expect("C");
            gemm_int8(&read, &matrix, &Epilogue::default(), view, serial).expect("a fit");
            assert_same(&c, &all, || format!("{isa}, in blocks: {in_blocks}"));
        };
        for isa in Isa::available() {
            product(isa, None);
            product(isa.without_matrix_products(), Some(false));
            product(isa.without_dot_products(), Some(false));
            #[cfg(vectors = "x86_64")]
            none_granted(|| {
                assert!(!isa.has_matrix_products(), "{isa}");
                product(isa, Some(false));
            });
        }
    }
}

/// A test run that requires matrix instructions fails if the CPU has none.
#[test]
fn required_matrix_products_are_present() {
    if std::env::var_os("SIMDFORMER_REQUIRE_MATRIX_PRODUCTS").is_some_and(|value| value == "1") {
        assert!(Isa::best().has_matrix_products(), "they are required and missing");
    }
}
