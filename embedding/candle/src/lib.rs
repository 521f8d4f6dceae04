//! simdformer's kernels as candle ops: the first engine that embeds them.
//!
//! candle has no way to plug in another matrix product; it has ops of one's own. Each layer here *is*
//! such an op, so that calling it costs what candle's interface demands and nothing else: the memory of
//! the result.
//!
//! | here | instead of | as |
//! |---|---|---|
//! | [`SimdLinear`] | [`candle_nn::Linear`] and the activation after it | `CustomOp1` |
//! | [`SimdAttention`] | `matmul`, mask, `softmax`, `matmul`, with their copies | `CustomOp3` |
//! | [`AddLayerNorm`] | `+` and [`candle_nn::LayerNorm`] | `InplaceOp2` |
//! | [`marian`] | [`candle_transformers::models::marian`] | a model of these, batched with padding |
//!
//! ```
//! use candle_core::{DType, Device, Module, Tensor};
//! use simdformer_candle::{HeadLayout, SimdAttention, SimdLinear};
//! use simdformer_kernels::{Activation, Isa};
//!
//! let isa = Isa::detect()?;
//! let weight = Tensor::ones((8, 4), DType::F32, &Device::Cpu)?; // [out, in]
//! let linear = SimdLinear::new(isa, &weight, None)?.activated(Activation::Relu);
//! let x = Tensor::ones((2, 3, 4), DType::F32, &Device::Cpu)?;
//! let y = linear.forward(&x)?; // Or x.apply(&linear), or x.apply_op1_no_bwd(&linear).
//! assert_eq!(y.dims(), [2, 3, 8]);
//!
//! let heads = y.reshape((2, 3, 2, 4))?; // Two sequences of 3 tokens, 2 heads of 4.
//! let attention = SimdAttention::new(isa, HeadLayout::TokensFirst).lengths(&[3, 1]);
//! let z = attention.attend(&heads, &heads, &heads)?;
//! assert_eq!(z.dims(), [2, 3, 2, 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layouts
//!
//! Tensors may be transposed, narrowed, broadcast, shifted or empty. They are read where they lie
//! wherever the kernels can (any two strides of a matrix; any strides of batch, tokens and heads, as
//! long as the elements of a head are side by side) and copied once where they cannot, into memory that
//! the thread keeps for the next time. The bits of the result do not depend on the layout.
//!
//! # Threads
//!
//! [`Threads::Rayon`] is the pool that the caller is in: candle's own, entered once at the top of the
//! application by `device.with_context(..)`, or any other. An op never enters a pool: a thread that
//! waits inside another pool runs unrelated jobs meanwhile.
//!
//! # What is promised, and what is not
//!
//! The promises of the kernels hold: on one instruction set the bits of a row depend on that row and
//! the weights only, not on the batch, the padding, the layout or the threads. What cannot be done is
//! refused with one error that says what to call instead ([`Refusal`]). There is no gradient, as in
//! every op that candle applies `no_bwd`: a graph that is trained must keep candle's own layers.

mod attention;
mod layout;
mod linear;
pub mod marian;
mod norm;
mod refusal;
mod scratch;
mod threads;

pub use attention::{HeadLayout, SimdAttention};
pub use linear::{SimdLinear, activation};
pub use norm::AddLayerNorm;
pub use refusal::Refusal;
pub use threads::Threads;
