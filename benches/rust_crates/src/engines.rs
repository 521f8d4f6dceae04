//! The crates, each with the operands of one product.

use crate::operands::{Operands, Shape};
use faer::{Accum, MatMut, MatRef, Par};
use numkong::{PackedMatrix as NumKongMatrix, Tensor};
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::NdTensorView;
use simdformer_kernels::{
    Epilogue, Exec, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, Quantization,
    QuantizedActivations, QuantizedMatrix, gemm, gemm_int8,
};
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;

/// An element as it should be, and how far from it a result may be.
type Expected = fn(&Operands, usize, usize) -> (f64, f64);

/// A crate with the operands of one product.
pub(crate) struct Engine<'o> {
    pub(crate) name: &'static str,
    /// Computes the product once.
    pub(crate) run: Box<dyn FnMut() + 'o>,
    /// The element `(row, column)` of the last product.
    element: Box<dyn Fn(usize, usize) -> f64 + 'o>,
    expected: Expected,
}

/// Computes a product of f32 once.
type Run<'o> = Box<dyn FnMut(&mut [f32]) + 'o>;

/// An output that is written by `run` and read by `element`.
type Output<T> = Rc<RefCell<Vec<T>>>;

impl<'o> Engine<'o> {
    /// An engine whose product is row-major in `c`.
    fn new<T: Copy + Into<f64> + Default + 'o>(
        name: &'static str,
        shape: Shape,
        expected: Expected,
        mut run: impl FnMut(&mut [T]) + 'o,
    ) -> Self {
        let Shape(m, n, _) = shape;
        let c: Output<T> = Rc::new(RefCell::new(vec![T::default(); m * n]));
        let read = Rc::clone(&c);
        Self {
            name,
            run: Box::new(move || run(&mut c.borrow_mut())),
            element: Box::new(move |row, column| read.borrow()[row * n + column].into()),
            expected,
        }
    }

    /// An engine whose product is column-major in `c`: gemmkit packs W beforehand for no other output.
    fn transposed<T: Copy + Into<f64> + Default + 'o>(
        name: &'static str,
        shape: Shape,
        expected: Expected,
        run: impl FnMut(&mut [T]) + 'o,
    ) -> Self {
        let Shape(m, n, k) = shape;
        let engine = Self::new(name, Shape(n, m, k), expected, run);
        let element = engine.element;
        Self { element: Box::new(move |row, column| element(column, row)), ..engine }
    }

    /// # Panics
    /// If an element of the corners or of the middle is wrong.
    pub(crate) fn check(&mut self, operands: &Operands) {
        (self.run)();
        let Shape(m, n, _) = operands.shape;
        for row in [0, m / 2, m - 1] {
            for column in [0, n / 2, n - 1] {
                let (expected, bound) = (self.expected)(operands, row, column);
                let found = (self.element)(row, column);
                let name = self.name;
                assert!(
                    (found - expected).abs() <= bound,
                    "{name} {}: C[{row}, {column}] is {found}, expected {expected} within {bound}",
                    operands.shape.name()
                );
            }
        }
    }
}

/// A sum of k products of values below 1, added in any order in f32.
fn sum_of_floats(operands: &Operands, row: usize, column: usize) -> (f64, f64) {
    let depth = operands.shape.2 as f64;
    (operands.expected(row, column), depth * depth.sqrt() * f64::from(f32::EPSILON))
}

fn sum_of_integers(operands: &Operands, row: usize, column: usize) -> (f64, f64) {
    (operands.expected_int8(row, column).into(), 0.0)
}

/// Half a step of 1 / 127 in each factor of each product.
fn sum_of_quantized(operands: &Operands, row: usize, column: usize) -> (f64, f64) {
    (operands.expected(row, column), operands.shape.2 as f64 * 1.02 / 127.0)
}

thread_local! {
    /// It selects its kernel when it is created, and cannot be sent to another thread.
    static RTEN: GemmExecutor<f32> = GemmExecutor::new();
}

/// Ours, then the others.
pub(crate) fn f32_engines<'o>(isa: Isa, operands: &'o Operands) -> Vec<Engine<'o>> {
    let shape @ Shape(m, n, k) = operands.shape;
    let (a, w) = (&operands.a[..], &operands.w[..]);
    let engine = |name, run: Run<'o>| Engine::new(name, shape, sum_of_floats, run);
    let strides = (k as isize, n as isize);
    vec![
        engine("simdformer", Box::new(simdformer(isa, operands))),
        numkong_f32(operands),
        Engine::transposed("gemmkit", shape, sum_of_floats, {
            let packed = gemmkit::prepack_rhs(gemmkit::MatRef::from_row_major(w, k, n));
            move |c: &mut [f32]| {
                let a = gemmkit::MatRef::from_row_major(black_box(a), m, k);
                let c = gemmkit::MatMut::from_col_major(c, m, n);
                gemmkit::gemm_packed_b(1.0, a, &packed, 0.0, c, gemmkit::Parallelism::Serial);
            }
        }),
        engine("rten-gemm", {
            let packed = RTEN.with(|rten| rten.prepack_b(NdTensorView::from_data([k, n], w)));
            Box::new(move |c| {
                let a = GemmInputA::Unpacked(NdTensorView::from_data([m, k], black_box(a)));
                let w = GemmInputB::Packed(&packed);
                RTEN.with(|rten| rten.gemm(c, a, w, GemmOptions::default())).expect("rten-gemm");
            })
        }),
        engine(
            "faer",
            Box::new(move |c| {
                let a = MatRef::from_row_major_slice(black_box(a), m, k);
                let w = MatRef::from_row_major_slice(w, k, n);
                let c = MatMut::from_row_major_slice_mut(c, m, n);
                faer::linalg::matmul::matmul(c, Accum::Replace, a, w, 1.0, Par::Seq);
            }),
        ),
        engine(
            "gemm",
            Box::new(move |c| {
                let (a, c) = (black_box(a).as_ptr(), c.as_mut_ptr());
                let (serial, w) = (::gemm::Parallelism::None, w.as_ptr());
                let (row_of_a, row) = strides;
                // SAFETY: the buffers have m x k, k x n and m x n floats without gaps.
                unsafe {
                    ::gemm::gemm(
                        m, n, k, c, 1, row, false, a, 1, row_of_a, w, 1, row, 0.0, 1.0, false,
                        false, false, serial,
                    );
                }
            }),
        ),
        engine(
            "matrixmultiply",
            Box::new(move |c| {
                let (a, w, c) = (black_box(a).as_ptr(), w.as_ptr(), c.as_mut_ptr());
                let (row_of_a, row) = strides;
                // SAFETY: the buffers have m x k, k x n and m x n floats without gaps.
                unsafe {
                    matrixmultiply::sgemm(m, k, n, 1.0, a, row_of_a, 1, w, row, 1, 0.0, c, row, 1);
                }
            }),
        ),
    ]
}

/// Ours, then the others.
pub(crate) fn int8_engines<'o>(isa: Isa, operands: &'o Operands) -> Vec<Engine<'o>> {
    let shape @ Shape(m, n, k) = operands.shape;
    let (a, w) = (&operands.a_int8[..], &operands.w_int8[..]);
    vec![
        Engine::new(
            "simdformer",
            shape,
            sum_of_quantized,
            Box::new(simdformer_int8(isa, operands)) as Run<'o>,
        ),
        numkong_int8(operands),
        Engine::transposed("gemmkit", shape, sum_of_integers, {
            let packed = gemmkit::prepack_rhs_i8(gemmkit::MatRef::from_row_major(w, k, n));
            move |c: &mut [i32]| {
                let a = gemmkit::MatRef::from_row_major(black_box(a), m, k);
                let c = gemmkit::MatMut::from_col_major(c, m, n);
                gemmkit::gemm_i8_packed_b(1, a, &packed, 0, c, gemmkit::Parallelism::Serial);
            }
        }),
    ]
}

fn simdformer(isa: Isa, operands: &Operands) -> impl FnMut(&mut [f32]) + '_ {
    let Shape(m, n, k) = operands.shape;
    let mut packed = aligned(PackedMatrix::buffer_len(isa, k, n).expect("a length"));
    let weight = Matrix::new(&operands.w, k, n).expect("W");
    PackedMatrix::pack(isa, weight, packed.floats()).expect("packed");
    move |c| {
        let weight = PackedMatrix::from_packed(isa, k, n, packed.floats()).expect("packed");
        let a = Matrix::new(black_box(&operands.a), m, k).expect("A");
        let c = MatrixMut::new(c, m, n).expect("C");
        gemm(a, &weight, &Epilogue::default(), c, Parallelism::Serial).expect("gemm");
    }
}

fn simdformer_int8(isa: Isa, operands: &Operands) -> impl FnMut(&mut [f32]) + '_ {
    let Shape(m, n, k) = operands.shape;
    let words = QuantizedMatrix::buffer_len(k, n).expect("a length");
    let packed: &'static mut [f32] = Box::leak(Box::new(aligned(words))).floats();
    let weight = Matrix::new(&operands.w, k, n).expect("W");
    let weight = QuantizedMatrix::quantize(isa, weight, packed).expect("quantized");
    let precision = Quantization::W8A8;
    let words = QuantizedActivations::buffer_len(m, k, precision).expect("a length");
    let rows: &'static mut [f32] = Box::leak(Box::new(aligned(words))).floats();
    let a = Matrix::new(&operands.a, m, k).expect("A");
    let rows = QuantizedActivations::quantize(Exec::serial(isa), a, precision, rows).expect("rows");
    move |c| {
        let c = MatrixMut::new(c, m, n).expect("C");
        gemm_int8(black_box(&rows), &weight, &Epilogue::default(), c, Parallelism::Serial)
            .expect("gemm_int8");
    }
}

fn numkong_f32(operands: &Operands) -> Engine<'_> {
    let Shape(m, n, k) = operands.shape;
    let a = Tensor::<f32>::try_from_slice(&operands.a, &[m, k]).expect("A");
    let w = Tensor::<f32>::try_from_slice(&operands.w, &[k, n]).expect("W");
    let packed = NumKongMatrix::try_pack_transposed(&w).expect("packed");
    let c = Rc::new(RefCell::new(Tensor::<f64>::try_zeros(&[m, n]).expect("C")));
    let read = Rc::clone(&c);
    Engine {
        name: "numkong",
        run: Box::new(move || {
            black_box(&a).try_dots_packed_into(&packed, &mut *c.borrow_mut()).expect("numkong");
        }),
        element: Box::new(move |row, column| read.borrow().as_slice()[row * n + column]),
        expected: sum_of_floats,
    }
}

fn numkong_int8(operands: &Operands) -> Engine<'_> {
    let Shape(m, n, k) = operands.shape;
    let a = Tensor::<i8>::try_from_slice(&operands.a_int8, &[m, k]).expect("A");
    let w = Tensor::<i8>::try_from_slice(&operands.w_int8, &[k, n]).expect("W");
    let packed = NumKongMatrix::try_pack_transposed(&w).expect("packed");
    let c = Rc::new(RefCell::new(Tensor::<i32>::try_zeros(&[m, n]).expect("C")));
    let read = Rc::clone(&c);
    Engine {
        name: "numkong",
        run: Box::new(move || {
            black_box(&a).try_dots_packed_into(&packed, &mut *c.borrow_mut()).expect("numkong");
        }),
        element: Box::new(move |row, column| read.borrow().as_slice()[row * n + column].into()),
        expected: sum_of_integers,
    }
}

/// Floats that begin at a multiple of 64 bytes.
struct Aligned {
    floats: Vec<f32>,
    first: usize,
    count: usize,
}

fn aligned(count: usize) -> Aligned {
    let floats = vec![0.0; count + 16];
    let first = floats.as_ptr().align_offset(64);
    Aligned { floats, first, count }
}

impl Aligned {
    fn floats(&mut self) -> &mut [f32] {
        &mut self.floats[self.first..][..self.count]
    }
}
