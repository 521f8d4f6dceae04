//! What the tests, benches and examples of all packages share. It is not published.

pub mod compare_texts;
pub mod counting;
pub mod cpu_time;
pub mod digest;
pub mod effort;
#[cfg(feature = "model")]
pub mod gradient_goldens;
#[cfg(feature = "model")]
pub mod malicious_input;
#[cfg(feature = "model")]
pub mod random_model;
#[cfg(feature = "model")]
pub mod scoped;
#[cfg(feature = "model")]
pub mod soak;
pub mod temporary_folder;
#[cfg(feature = "model")]
pub mod torch_file;
#[cfg(feature = "model")]
pub mod toy;
