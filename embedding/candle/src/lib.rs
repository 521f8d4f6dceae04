//! simdformer's kernels as candle ops.
//!
//! candle has no way to replace its matrix product, but it has custom ops. Each layer here is such an op,
//! so a call allocates only its result, which candle's interface requires.
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
//! Tensors may be transposed, narrowed, broadcast, shifted or empty. They are read in place wherever the
//! kernels can do so (any two strides of a matrix; any strides of batch, tokens and heads if the elements
//! of a head are contiguous). Otherwise they are copied once, into memory that the thread keeps for the
//! next call. The bits of the result do not depend on the layout.
//!
//! # Threads
//!
//! [`Threads::Rayon`] uses the pool that the caller is in: candle's own, entered once at the top of the
//! application by `device.with_context(..)`, or any other. An op never enters a pool, because a thread that
//! waits in another pool runs unrelated jobs.
//!
//! # Guarantees and limits
//!
//! The guarantees of the kernels hold: on one instruction set the bits of a row depend only on that row and
//! the weights, not on the batch, the padding, the layout or the threads. An unsupported call is an error
//! that says what to call instead ([`OpError`]). There is no gradient, as in every op that candle applies
//! with `no_bwd`: a graph that is trained must keep candle's own layers.

mod attention;
mod layout;
mod linear;
pub mod marian;
mod norm;
mod op_error;
mod scratch;
mod threads;

pub use attention::{HeadLayout, SimdAttention};
pub use linear::{SimdLinear, activation};
pub use norm::AddLayerNorm;
pub use op_error::OpError;
pub use threads::Threads;
