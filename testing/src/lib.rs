//! What the tests, benches and examples of all packages share. It is not published.

pub mod compare_texts;
pub mod counting;
pub mod cpu_time;
pub mod digest;
#[cfg(feature = "text")]
pub mod directories;
pub mod effort;
#[cfg(feature = "model")]
pub mod gradient_goldens;
#[cfg(feature = "model")]
pub mod malicious_input;
#[cfg(feature = "model")]
pub mod published;
#[cfg(feature = "model")]
pub mod random_model;
pub mod riff;
#[cfg(feature = "model")]
pub mod scoped;
#[cfg(feature = "model")]
pub mod soak;
pub mod sounds;
pub mod temporary_folder;
#[cfg(feature = "model")]
pub mod torch_file;
#[cfg(feature = "model")]
pub mod toy;
