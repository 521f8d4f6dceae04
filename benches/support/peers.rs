//! `C = A W` by other crates, on the operands of `matmul`. W is packed beforehand if the crate can do so.

#![allow(unsafe_code)]

use crate::matmul::Shape;
use crate::work::Work;
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::NdTensorView;
use std::hint::black_box;

/// The crate `gemm` on one thread. It packs in every call as it chooses.
pub(crate) fn gemm_crate(shape: Shape) -> Work {
    let Shape(m, n, k) = shape;
    let (a, w, mut c) = shape.operands();
    shape.work(move |_| {
        let (a, n_stride, k_stride) = (black_box(&a), n as isize, k as isize);
        // SAFETY: the buffers have m x k, k x n and m x n floats without gaps.
        unsafe {
            ::gemm::gemm(
                m,
                n,
                k,
                c.as_mut_ptr(),
                1,
                n_stride,
                false,
                a.as_ptr(),
                1,
                k_stride,
                w.as_ptr(),
                1,
                n_stride,
                0.0,
                1.0,
                false,
                false,
                false,
                ::gemm::Parallelism::None,
            );
        }
    })
}

thread_local! {
    /// It selects its kernel when it is created, and cannot be sent to another thread.
    static RTEN: GemmExecutor<f32> = GemmExecutor::new();
}

/// rten-gemm with W packed beforehand, on the rayon pool of the calling thread.
pub(crate) fn rten(shape: Shape) -> Work {
    let Shape(m, n, k) = shape;
    let (a, w, mut c) = shape.operands();
    let packed = RTEN.with(|rten| rten.prepack_b(NdTensorView::from_data([k, n], &w[..])));
    shape.work(move |_| {
        let a = NdTensorView::from_data([m, k], &black_box(&a)[..]);
        let (a, w) = (GemmInputA::Unpacked(a), GemmInputB::Packed(&packed));
        RTEN.with(|rten| rten.gemm(&mut c, a, w, GemmOptions::default())).expect("gemm");
    })
}
