//! The kernels on the caller's own buffers and on a pool of std threads: a linear layer and attention in a program
//! without a model, a session or rayon. The caller owns the memory, and functions return the scratch sizes.

use simdformer_kernels::{
    Activation, AttentionOptions, Epilogue, Exec, HeadsMut, Isa, Matrix, MatrixMut, PackedMatrix,
    Parallelism, Qkv, Sequence, ThreadPool, attention, attention_scratch, gemm,
};
use std::error::Error;

const TOKENS: usize = 96;
const HEADS: usize = 8;
const HEAD_DIM: usize = 64;
const WIDTH: usize = HEADS * HEAD_DIM;

/// The largest element of attention over `relu(x W + bias)`. It equals the largest element of the bias, because
/// attention computes means, and a mean is not larger than its largest element.
pub(crate) fn run(threads: usize) -> Result<f32, Box<dyn Error>> {
    let (isa, pool) = (Isa::detect()?, ThreadPool::new(threads)?);
    let parallelism = Parallelism::Executor(&pool);

    // A weight as PyTorch stores it, `[outputs, inputs]`, packed once for this CPU.
    let outputs = 3 * WIDTH;
    let weight = vec![0.0; outputs * WIDTH];
    let mut packed = vec![0.0; PackedMatrix::buffer_len(isa, WIDTH, outputs)?];
    let weight = Matrix::new(&weight, outputs, WIDTH)?.transposed();
    let weight = PackedMatrix::pack(isa, weight, &mut packed)?;

    // Query, key and value of every token, side by side.
    let bias: Vec<f32> = (0..outputs).map(|i| (i % 7) as f32 - 3.0).collect();
    let epilogue =
        Epilogue { bias: Some(&bias), activation: Activation::Relu, ..Epilogue::default() };
    let x = vec![1.0; TOKENS * WIDTH];
    let mut fused = vec![0.0; TOKENS * outputs];
    let to = MatrixMut::new(&mut fused, TOKENS, outputs)?;
    gemm(Matrix::new(&x, TOKENS, WIDTH)?, &weight, &epilogue, to, parallelism)?;

    // Two concatenated sentences that do not attend to each other, read without copying.
    let sentences = [Sequence::packed(0, 60), Sequence::packed(60, TOKENS - 60)];
    let shape = [TOKENS, HEADS, HEAD_DIM];
    let mut scratch = vec![0.0; attention_scratch(isa, &sentences, HEADS, HEAD_DIM)?];
    let mut context = vec![0.0; TOKENS * WIDTH];
    attention(
        Exec::new(isa, parallelism),
        Qkv::fused(&fused, shape)?,
        &sentences,
        &AttentionOptions { causal: true, ..AttentionOptions::new(HEAD_DIM) },
        HeadsMut::new(&mut context, shape)?.into(),
        &mut scratch,
    )?;
    Ok(context.into_iter().fold(f32::NEG_INFINITY, f32::max))
}
