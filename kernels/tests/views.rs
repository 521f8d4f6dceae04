//! Views made from pointers: every layout that tensors of other engines have, between inaccessible pages,
//! and parts of one buffer that several threads write at the same time.

use crate::support::batch::attend;
use crate::support::gemm::{Packed, multiply};
use crate::support::*;
use simdformer_kernels::activation::{self, Activation};
use simdformer_kernels::softmax::{SoftmaxOptions, softmax};
use simdformer_kernels::{
    AttentionOptions, Epilogue, Error, Exec, Expected, Heads, HeadsMut, Input, Isa, Matrix,
    MatrixMut, PackedMatrix, PostOp, Qkv, Sequence, attention, gemm,
};

/// Rows, columns, and strides of matrices in the layouts of other libraries.
const LAYOUTS: [(&str, usize, usize, usize, usize); 9] = [
    ("row after row", 5, 7, 7, 1),
    ("column after column", 5, 7, 1, 5),
    ("padded columns", 5, 7, 1, 8),
    ("padded rows", 5, 7, 12, 1),
    ("every third of every second", 5, 7, 50, 3),
    ("one row, a silly stride", 1, 7, usize::MAX, 1),
    ("one column, a silly stride", 5, 1, 1, usize::MAX - 3),
    ("one element, silly strides", 1, 1, usize::MAX, 1 << (usize::BITS - 1)),
    ("a row and every second column", 1, 7, 0, 2),
];

fn reach(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> usize {
    let last = |n: usize, stride: usize| if n > 1 { (n - 1) * stride } else { 0 };
    last(rows, row_stride) + last(columns, column_stride) + 1
}

#[test]
fn a_pointer_makes_the_view_that_a_slice_makes() {
    let mut data: Vec<f32> = (0..400).map(|i| i as f32).collect();
    for (what, rows, columns, row_stride, column_stride) in LAYOUTS {
        let slice = Matrix::strided(&data, rows, columns, row_stride, column_stride);
        let slice = slice.expect("space");
        // SAFETY: the elements are those of the view made above.
        let raw = unsafe {
            Matrix::from_raw_parts(data.as_ptr(), rows, columns, row_stride, column_stride)
        };
        let raw = raw.expect("it fits");
        for i in 0..rows {
            for j in 0..columns {
                assert_eq!(raw.at(i, j), slice.at(i, j), "{what}");
                assert_eq!(raw.transposed().at(j, i), slice.at(i, j), "{what}");
            }
        }
        assert_eq!(format!("{raw:?}"), format!("{slice:?}"), "{what}");
        let start = data.as_mut_ptr();
        // SAFETY: as above; nothing else uses the data.
        let raw =
            unsafe { MatrixMut::from_raw_parts(start, rows, columns, row_stride, column_stride) };
        let raw = raw.expect("it fits");
        assert_eq!(
            raw.as_view().at(rows - 1, columns - 1),
            data_of(&data, reach_of(what)),
            "{what}"
        );
    }
    let shape = [3, 2, 4];
    for (token_stride, head_stride) in [(8, 4), (4, 12), (24, 4), (5, 20), (11, 5)] {
        let slice = Heads::strided(&data, shape, token_stride, head_stride).expect("space");
        // SAFETY: the elements are those of the view made above.
        let raw = unsafe { Heads::from_raw_parts(data.as_ptr(), shape, token_stride, head_stride) };
        let raw = raw.expect("it fits");
        for (token, head) in [(0, 0), (2, 1), (1, 0), (3, 0), (0, 2)] {
            assert_eq!(raw.row(token, head), slice.row(token, head));
        }
    }
}

fn reach_of(what: &str) -> usize {
    let layout = LAYOUTS.iter().find(|layout| layout.0 == what).expect("a layout");
    reach(layout.1, layout.2, layout.3, layout.4)
}

fn data_of(data: &[f32], reach: usize) -> f32 {
    data[reach - 1]
}

#[test]
fn views_that_overflow_overlap_or_are_null_are_errors() {
    let mut data = [0.0f32; 64];
    let (read, write) = (data.as_ptr(), data.as_mut_ptr());
    // A negative stride.
    let back = (-4isize).cast_unsigned();
    // SAFETY: the call is an error, or no step along the stride is made.
    unsafe {
        let refused = Matrix::from_raw_parts(read, 3, 4, back, 1);
        assert!(errors::is_large_view(refused.err()));
        assert!(Matrix::from_raw_parts(read, 1, 4, back, 1).is_ok(), "never stepped");
        let refused = MatrixMut::from_raw_parts(write, 3, 4, 4, back);
        assert!(errors::is_large_view(refused.err()));
        for (row_stride, column_stride) in [(0, 1), (3, 1), (1, 2), (4, 0), (2, 2)] {
            let refused = MatrixMut::from_raw_parts(write, 3, 4, row_stride, column_stride);
            let expected = errors::overlap("row and column", [row_stride, column_stride]);
            assert_eq!(refused.err(), Some(expected));
        }
        let refused = Heads::from_raw_parts(read, [3, 2, 4], back, 4);
        assert!(errors::is_large_view(refused.err()));
        for (token_stride, head_stride) in [(0, 4), (7, 4), (4, 11), (8, 3)] {
            let refused = HeadsMut::from_raw_parts(write, [3, 2, 4], token_stride, head_stride);
            let expected = errors::overlap("token and head", [token_stride, head_stride]);
            assert_eq!(refused.err(), Some(expected));
        }
        let null = core::ptr::null_mut::<f32>();
        let null_error = Some(Error::Setting {
            name: "pointer of a view with elements",
            expected: "not null",
            found: 0.0,
        });
        assert_eq!(Matrix::from_raw_parts(null, 1, 1, 1, 1).err(), null_error);
        assert_eq!(MatrixMut::from_raw_parts(null, 2, 1, 1, 1).err(), null_error);
        assert_eq!(Heads::from_raw_parts(null, [1, 1, 1], 1, 1).err(), null_error);
        assert_eq!(HeadsMut::from_raw_parts(null, [1, 1, 1], 1, 1).err(), null_error);
    }
}

/// A view without elements may be made from any pointer and used.
#[test]
fn a_view_without_elements_needs_no_memory() {
    let isa = Isa::best();
    for at in [core::ptr::null_mut::<f32>(), core::ptr::without_provenance_mut(3)] {
        // SAFETY: no view here has an element.
        unsafe {
            let a = Matrix::from_raw_parts(at, 0, 5, 5, 1).expect("nothing");
            let w = [1.0; 15];
            let packed = Packed::new(isa, view_matrix(&w, 5, 3));
            let c = MatrixMut::from_raw_parts(at, 0, 3, 3, 1).expect("nothing");
            gemm(a, &packed.get(), &Epilogue::default(), c, SERIAL).expect("nothing to do");
            let x = MatrixMut::from_raw_parts(at, 4, 0, 0, 0).expect("nothing");
            activation::apply(Exec::serial(isa), Activation::Gelu, Input::Output, x)
                .expect("nothing to do");
            let none = Heads::from_raw_parts(at, [0, 2, 4], 8, 4).expect("nothing");
            let out = HeadsMut::from_raw_parts(at, [0, 2, 4], 8, 4).expect("nothing");
            let qkv = Qkv { query: none, key: none, value: none };
            let options = AttentionOptions::new(4);
            attention(Exec::serial(isa), qkv, &[], &options, out.into(), &mut []).expect("nothing");
            let empty = Heads::from_raw_parts(at, [2, 2, 0], 1, 1).expect("nothing");
            assert_eq!(empty.row(1, 1), Some(&[][..]));
        }
    }
}

#[test]
fn parts_of_views_are_views() {
    let data: Vec<f32> = (0..48).map(|i| i as f32).collect();
    let mut copy = data.clone();
    let whole = view_matrix(&data, 6, 8);
    let mut writable = view_matrix_mut(&mut copy, 6, 8);
    for (first, count) in [(0, 6), (2, 3), (5, 1), (6, 0), (0, 0)] {
        let part = whole.block(first, count).expect("rows");
        let written = writable.reborrow().block(first, count).expect("rows");
        assert_eq!((part.rows(), written.rows()), (count, count));
        for i in 0..count {
            for j in 0..8 {
                assert_eq!(part.at(i, j), data[(first + i) * 8 + j]);
                assert_eq!(written.as_view().at(i, j), part.at(i, j));
            }
        }
        // Blocks of columns, by way of the transposed view.
        let part = writable.reborrow().transposed().block(1, 3).expect("columns").transposed();
        assert_eq!((part.rows(), part.columns()), (6, 3));
        assert_eq!(part.as_view().at(4, 2), whole.at(4, 3));
    }
    for (first, count) in [(0, 7), (6, 1), (7, 0), (usize::MAX, 2), (1, usize::MAX)] {
        let found = first.saturating_add(count);
        let expected = Some(errors::size("end", "a block of rows", Expected::AtMost(6), found));
        assert_eq!(whole.block(first, count).err(), expected);
        assert_eq!(writable.reborrow().block(first, count).err(), expected);
    }
    let block = writable.reborrow().block(1, 2).expect("rows");
    activation::apply(Exec::serial(Isa::best()), Activation::Relu, Input::Output, block)
        .expect("contiguous");
    assert_eq!(writable.as_view().at(5, 7), 47.0);

    let shape = [4, 3, 4];
    let heads = view_heads(&data, shape);
    let mut writable = view_heads_mut(&mut copy, shape);
    for (first, count) in [(0, 4), (1, 2), (4, 0)] {
        let part = heads.block(first, count).expect("tokens");
        let written = writable.reborrow().block(first, count).expect("tokens");
        assert_eq!((part.tokens(), part.heads(), part.head_dim()), (count, 3, 4));
        for token in 0..count {
            assert_eq!(part.row(token, 2), heads.row(first + token, 2));
            assert_eq!(written.as_view().row(token, 2), part.row(token, 2));
        }
        assert_eq!(part.row(count, 0), None);
    }
    for (first, count) in [(0, 5), (5, 0), (usize::MAX, 1)] {
        let found = first.saturating_add(count);
        let expected = Some(errors::size("end", "a block of tokens", Expected::AtMost(4), found));
        assert_eq!(heads.block(first, count).err(), expected);
        assert_eq!(writable.reborrow().block(first, count).err(), expected);
    }
}

/// Threads write interleaved matrices at the same time: column by column, row by row, or in halves of rows.
/// A race detector reports two threads at one element, and the values show the rest.
#[test]
fn threads_write_interleaved_views() {
    const ROWS: usize = 33;
    const COLUMNS: usize = 21;
    const THREADS: usize = 4;
    let depth = 37;
    let mut random = Random::new(6);
    let (a, w) = (random.values(ROWS * depth), random.values(depth * COLUMNS));
    for isa in all_isas() {
        let packed = Packed::new(isa, view_matrix(&w, depth, COLUMNS));
        let a = view_matrix(&a, ROWS, depth);
        let expected = packed.times(a, &Epilogue::default(), SERIAL);
        let width = THREADS * COLUMNS;
        for (what, apart, row_stride, column_stride) in [
            ("columns of others between columns", 1, width, THREADS),
            ("halves of rows", COLUMNS, width, 1),
            ("elements of others between rows", 1, THREADS, THREADS * ROWS),
        ] {
            let mut all = vec![POISON; ROWS * width];
            let start = all.as_mut_ptr();
            let views: Vec<MatrixMut<'_>> = (0..THREADS)
                .map(|thread| {
                    // SAFETY: each view has elements of its own in `all`, which nothing
                    // else uses.
                    unsafe {
                        let at = start.add(thread * apart);
                        MatrixMut::from_raw_parts(at, ROWS, COLUMNS, row_stride, column_stride)
                    }
                    .expect("no overlap")
                })
                .collect();
            std::thread::scope(|scope| {
                for mut c in views {
                    let packed = &packed;
                    scope.spawn(move || {
                        for post_op in [PostOp::None, PostOp::AddOutput] {
                            let epilogue = Epilogue { post_op, ..Epilogue::default() };
                            gemm(a, &packed.get(), &epilogue, c.reborrow(), SERIAL).expect("a fit");
                        }
                        if column_stride == 1 {
                            activation::apply(
                                Exec::serial(isa),
                                Activation::Relu,
                                Input::Output,
                                c.reborrow(),
                            )
                            .expect("contiguous");
                            let options = SoftmaxOptions::default();
                            softmax(Exec::serial(isa), Input::Output, options, c)
                                .expect("contiguous");
                        }
                    });
                }
            });
            let first: Vec<f32> = (0..ROWS * COLUMNS)
                .map(|at| all[at / COLUMNS * row_stride + at % COLUMNS * column_stride])
                .collect();
            if column_stride != 1 {
                let doubled: Vec<f32> = expected.iter().map(|x| x + x).collect();
                assert_eq!(difference(&first, &doubled), None, "{isa}: {what}");
            }
            for thread in 1..THREADS {
                let mine = (0..ROWS * COLUMNS).map(|at| {
                    let at = at / COLUMNS * row_stride + at % COLUMNS * column_stride;
                    all[thread * apart + at]
                });
                assert!(mine.map(f32::to_bits).eq(first.iter().map(|x| x.to_bits())), "{what}");
            }
        }

        // The heads of one tensor, each computed by a thread of its own.
        let shape = [19, 1, 20];
        let (heads, stride) = (THREADS, THREADS * 20);
        let tokens = random.values(19 * stride);
        let mut out = vec![POISON; 19 * stride];
        let start = out.as_mut_ptr();
        std::thread::scope(|scope| {
            for head in 0..heads {
                let data = &tokens[head * 20..];
                // SAFETY: each view has the elements of its own head, and nothing else uses
                // the output.
                let to =
                    unsafe { HeadsMut::from_raw_parts(start.add(head * 20), shape, stride, 20) };
                let to = to.expect("no overlap");
                scope.spawn(move || attend_to(isa, data, shape, stride, to));
            }
        });
        let mut alone = vec![POISON; 19 * stride];
        let to = view_heads_mut(&mut alone, [19, heads, 20]);
        attend_to(isa, &tokens, [19, heads, 20], stride, to);
        assert_eq!(difference(&out, &alone), None, "{isa}: heads");
    }
}

fn attend_to(isa: Isa, data: &[f32], shape: [usize; 3], stride: usize, to: HeadsMut<'_>) {
    let heads = Heads::strided(data, shape, stride, shape[2]).expect("tokens");
    let qkv = Qkv { query: heads, key: heads, value: heads };
    let options = AttentionOptions::new(shape[2]);
    attend(isa, qkv, &[Sequence::packed(0, shape[0])], &options, to, SERIAL).expect("a fit");
}

#[cfg(unix)]
mod guard {
    use super::*;
    use crate::support::Guarded;

    /// As A, as W and as C in each layout, directly beside an inaccessible page.
    #[test]
    fn every_layout_stays_between_guard_pages() {
        let mut random = Random::new(26);
        for isa in all_isas() {
            for (what, rows, columns, row_stride, column_stride) in LAYOUTS {
                let len = reach(rows, columns, row_stride, column_stride);
                let values = random.integers(len, 8);
                for wall in [Guarded::at_start, Guarded::at_end] {
                    let data = wall(&values);
                    // SAFETY: the strides reach `len` floats, which nothing writes.
                    let view = unsafe {
                        let at = data.as_ptr();
                        Matrix::from_raw_parts(at, rows, columns, row_stride, column_stride)
                    };
                    let view = view.expect("a layout");
                    // As A: times ones.
                    let ones = vec![1.0; columns * 3];
                    let c = multiply(isa, view, view_matrix(&ones, columns, 3), SERIAL);
                    for i in 0..rows {
                        let sum: f32 = (0..columns).map(|k| view.at(i, k)).sum();
                        assert_eq!(c[i * 3..][..3], [sum; 3], "{isa}: {what}, as A");
                    }
                    // As W: times ones.
                    let ones = vec![1.0; 2 * rows];
                    let c = multiply(isa, view_matrix(&ones, 2, rows), view, SERIAL);
                    for j in 0..columns {
                        let sum: f32 = (0..rows).map(|k| view.at(k, j)).sum();
                        assert_eq!([c[j], c[columns + j]], [sum; 2], "{isa}: {what}, as W");
                    }
                    // As C and residual.
                    let mut out = wall(&vec![POISON; len]);
                    // SAFETY: as above, and nothing else uses the memory while the view
                    // exists.
                    let to = unsafe {
                        let at = out.as_mut_ptr();
                        MatrixMut::from_raw_parts(at, rows, columns, row_stride, column_stride)
                    };
                    let (a, w) = (vec![1.0; rows * 2], vec![1.0; 2 * columns]);
                    let packed = Packed::new(isa, view_matrix(&w, 2, columns));
                    let epilogue = Epilogue { post_op: PostOp::Add(view), ..Epilogue::default() };
                    let a = view_matrix(&a, rows, 2);
                    packed.multiply(a, &epilogue, to.expect("a layout"), SERIAL);
                    let mut untouched = len;
                    for i in 0..rows {
                        for j in 0..columns {
                            let at = reach(i + 1, j + 1, row_stride, column_stride) - 1;
                            assert_eq!(out[at], view.at(i, j) + 2.0, "{isa}: {what}, as C");
                            untouched -= 1;
                        }
                    }
                    let poison = |x: &&f32| x.to_bits() == POISON.to_bits();
                    assert_eq!(out.iter().filter(poison).count(), untouched, "{isa}: {what}: gaps");
                }
            }
            // One value for all rows, for all columns, or for both.
            for (row_stride, column_stride) in [(0, 1), (1, 0), (0, 0)] {
                let len = reach(6, 9, row_stride, column_stride);
                let data = Guarded::at_end(&random.integers(len, 8));
                // SAFETY: as above.
                let view = unsafe {
                    Matrix::from_raw_parts(data.as_ptr(), 6, 9, row_stride, column_stride)
                };
                let view = view.expect("a view that is read");
                let floats = PackedMatrix::buffer_len(isa, 6, 9).expect("small");
                let mut buffer = Guarded::at_end(&vec![POISON; floats]);
                PackedMatrix::pack(isa, view, &mut buffer).expect("the length");
            }
        }
    }
}
