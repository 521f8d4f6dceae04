//! The integration tests. Each file is a module of this one program.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod audio;
#[cfg(feature = "files")]
mod audio_files;
#[cfg(feature = "files")]
mod heard_sound;
#[cfg(feature = "files")]
mod joined_sound;
#[cfg(feature = "files")]
mod recorded_sound;
mod streaming;
mod transcriber;
mod transcriber_properties;
mod vad;
