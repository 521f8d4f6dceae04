//! Compares every operation of every instruction set of this machine with plain Rust.

use super::{MAX_LANES, MAX_PANEL, SimdF32, Table};
use crate::isa::Isa;
#[cfg(vectors = "x86_64")]
use std::vec::Vec;

simd_op!(
    fn check_operations<S: SimdF32>(s: S) {
        const N: usize = MAX_LANES;
        assert!(S::LANES <= MAX_LANES && S::PANEL <= MAX_PANEL && S::PANEL % S::LANES == 0);
        let a: [f32; N] = core::array::from_fn(|i| (i as f32 - 5.5) * 1.37);
        let b: [f32; N] = core::array::from_fn(|i| ((i * 7) % 11) as f32 - 3.2);
        // SAFETY: every array has at least MAX_LANES floats.
        let (va, vb) = unsafe { (s.load(a.as_ptr()), s.load(b.as_ptr())) };
        let check = |v: S::F32, want: &dyn Fn(usize) -> f32| {
            let mut out = [f32::NAN; N];
            // SAFETY: `out` has MAX_LANES floats.
            unsafe { s.store(out.as_mut_ptr(), v) };
            for i in 0..S::LANES {
                assert_eq!(out[i].to_bits(), want(i).to_bits(), "lane {i}");
            }
        };
        check(s.splat(2.5), &|_| 2.5);
        check(s.add(va, vb), &|i| a[i] + b[i]);
        check(s.sub(va, vb), &|i| a[i] - b[i]);
        check(s.mul(va, vb), &|i| a[i] * b[i]);
        check(s.div(va, vb), &|i| a[i] / b[i]);
        #[cfg(feature = "train")]
        check(s.sqrt(s.abs(va)), &|i| a[i].abs().sqrt());
        check(s.max(va, vb), &|i| if a[i] > b[i] { a[i] } else { b[i] });
        check(s.min(va, vb), &|i| if a[i] < b[i] { a[i] } else { b[i] });
        check(s.abs(va), &|i| a[i].abs());
        check(s.copy_sign(va, vb), &|i| a[i].copysign(b[i]));
        static TABLE: Table = Table::new([0.5, -1.0, 2.0, f32::MAX, 3.5, 0.0, -0.0, 7.0]);
        for bits in [0u32, 5, 0x4b40_0000, 0xffff_fff0] {
            let index: [f32; N] = core::array::from_fn(|i| f32::from_bits(bits + i as u32));
            // SAFETY: `index` has MAX_LANES floats, and a table has sixteen.
            let (at, table) =
                unsafe { (s.load(index.as_ptr()), TABLE.as_ptr().cast::<[f32; 8]>().read()) };
            check(s.lookup(&TABLE, at), &|i| table[index[i].to_bits() as usize % 8]);
        }
        let nan = s.splat(f32::NAN);
        check(s.max(nan, va), &|i| a[i]);
        check(s.min(nan, va), &|i| a[i]);
        check(s.select(s.less(va, vb), va, vb), &|i| if a[i] < b[i] { a[i] } else { b[i] });
        assert!(!s.any(s.less(nan, va)) && !s.any(s.less(va, nan)) && s.any(s.first(1)));
        assert!(!s.any(s.first(0)));
        check(s.select(s.not_less(va, vb), va, vb), &|i| if a[i] < b[i] { b[i] } else { a[i] });
        assert!(s.any(s.not_less(nan, va)) && s.any(s.not_less(va, nan)));
        for n in 0..=S::LANES + 1 {
            check(s.select(s.first(n), va, vb), &|i| if i < n { a[i] } else { b[i] });
        }
        for n in 0..=S::LANES {
            // SAFETY: `n` is at most the length of the arrays.
            check(unsafe { s.load_prefix(a.as_ptr(), n) }, &|i| if i < n { a[i] } else { 0.0 });
            let mut out = [-1.0f32; N];
            // SAFETY: `n <= LANES <= MAX_LANES`, the length of `out`.
            unsafe { s.store_prefix(out.as_mut_ptr(), va, n) };
            for (i, x) in out.iter().enumerate() {
                assert_eq!(*x, if i < n { a[i] } else { -1.0 });
            }
        }
        let fused = s.mul_add(va, vb, s.splat(0.5));
        // (1 + 2^-12)^2 - 1 needs 25 bits before the subtraction.
        let near_one = s.splat(1.0 + 1.0 / 4096.0);
        let square = s.mul_add(near_one, near_one, s.splat(-1.0));
        check(square, &|_| 1.0 / 2048.0 + 1.0 / 16_777_216.0);
        let mut out = [0.0f32; N];
        // SAFETY: `out` has MAX_LANES floats.
        unsafe { s.store(out.as_mut_ptr(), fused) };
        for i in 0..S::LANES {
            let exact = f64::from(a[i]) * f64::from(b[i]) + 0.5;
            let error = (f64::from(out[i]) - exact).abs();
            assert!(error <= exact.abs() * 1e-6 + 1e-6, "{} * {} + 0.5 = {}", a[i], b[i], out[i]);
        }
        let sum: f64 = a[..S::LANES].iter().map(|&x| f64::from(x)).sum();
        assert!((f64::from(s.reduce_add(va)) - sum).abs() <= 1e-4);
        assert_eq!(s.reduce_max(va), a[S::LANES - 1]);

        for part in 0..2 {
            let mut outs = [[f32::NAN; N]; 2];
            let [shared, alone] = outs.each_mut();
            // SAFETY: every array has at least MAX_LANES floats.
            unsafe {
                s.store(shared.as_mut_ptr(), s.load_bf16(a.as_ptr(), part));
                s.store(alone.as_mut_ptr(), s.load_bf16_alone(a.as_ptr(), part));
            }
            for (i, a) in a.iter().enumerate().take(S::LANES) {
                let bytes = a.to_ne_bytes();
                let half = u16::from_ne_bytes([bytes[2 * part], bytes[2 * part + 1]]);
                assert_eq!(outs.map(|out| out[i].to_bits()), [u32::from(half) << 16; 2]);
            }
        }
        // The f16 numbers of one step, then those of the next one.
        let halves: [u16; 2 * N] = core::array::from_fn(|i| 0x3c00 + i as u16);
        for part in 0..2 {
            let mut outs = [[f32::NAN; N]; 2];
            let (from, [whole, half]) = (halves.as_ptr().cast(), outs.each_mut());
            // SAFETY: `halves` has as many numbers as two of the widest vectors.
            unsafe {
                s.store(whole.as_mut_ptr(), s.load_f16(from, part));
                s.half().store(half.as_mut_ptr(), s.load_f16_half(from, part));
            }
            assert_eq!(outs[0][..S::Half::LANES], outs[1][..S::Half::LANES]);
        }

        let block: [f32; 3 * N * N] = core::array::from_fn(|i| i as f32);
        let mut turned = [f32::NAN; 3 * N * N];
        let (stride, out_stride) = (S::LANES + 3, S::LANES + 5);
        // SAFETY: the last rows end before `LANES * (LANES + 5)`, inside the arrays.
        unsafe { s.transpose(block.as_ptr(), stride, turned.as_mut_ptr(), out_stride) };
        for i in 0..S::LANES {
            for j in 0..S::LANES {
                assert_eq!(turned[j * out_stride + i], block[i * stride + j]);
            }
        }
        for rows in 0..=S::LANES {
            turned.fill(f32::NAN);
            let mut block = block;
            block[rows * stride..].fill(f32::NAN);
            let to = turned.as_mut_ptr();
            // SAFETY: the last rows end before `LANES * (LANES + 5)`, inside the arrays.
            unsafe { s.transpose_first(block.as_ptr(), stride, rows, to, out_stride) };
            for i in 0..S::LANES {
                for j in 0..S::LANES {
                    let expected = if i < rows { block[i * stride + j] } else { 0.0 };
                    assert_eq!(turned[j * out_stride + i], expected, "{rows} rows");
                }
            }
        }
    }
);

#[test]
fn operations_match_plain_rust() {
    for isa in Isa::available() {
        isa.dispatch(check_operations());
    }
}

#[cfg(vectors = "x86_64")]
simd_op!(
    /// A multiply-add and an exponential of each element.
    fn compute<S: SimdF32>(s: S, x: &[f32], out: &mut Vec<[u32; 2]>) {
        for x in x.chunks_exact(S::LANES) {
            let mut values = [[0.0; MAX_LANES]; 2];
            // SAFETY: a chunk and each array have LANES floats or more.
            unsafe {
                let v = s.load(x.as_ptr());
                let sum =
                    s.mul_add(v, s.splat(1.0 + 1.0 / 4096.0), s.mul(v, s.splat(1.0 / 8192.0)));
                s.store(values[0].as_mut_ptr(), sum);
                s.store(values[1].as_mut_ptr(), crate::math::exp(s, v));
            }
            let [sums, powers] = values.map(|values| values.map(f32::to_bits));
            out.extend((0..S::LANES).map(|i| [sums[i], powers[i]]));
        }
    }
);

/// The scalar set of x86-64 has SSE2 registers. The plain Rust that other targets have is tested here, too.
#[cfg(vectors = "x86_64")]
#[test]
fn portable_operations_match_plain_rust_and_sse2() {
    use super::SimdOp;
    use crate::arch::scalar::{Portable, Scalar};
    check_operations().run_with(Portable);
    let x: Vec<f32> =
        (0..1 << 16).map(|i: u32| f32::from_bits(i.wrapping_mul(0x9e37_79b9))).collect();
    let (mut portable, mut sse2) = (Vec::new(), Vec::new());
    compute(&x, &mut portable).run_with(Portable);
    compute(&x, &mut sse2).run_with(Scalar);
    for ((x, portable), sse2) in x.iter().zip(&portable).zip(&sse2) {
        // The payload of a NaN is not guaranteed.
        let same = |i: usize| {
            portable[i] == sse2[i]
                || [portable, sse2].iter().all(|bits| f32::from_bits(bits[i]).is_nan())
        };
        assert!(same(0) && same(1), "{x:e}: {portable:x?} and {sse2:x?}");
    }
    assert_eq!(portable.len(), x.len());
}
