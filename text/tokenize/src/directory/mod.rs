//! A checkpoint directory: its files, its settings, and its family.

mod converted;
mod files;
mod read_file;
mod settings;

pub(crate) mod family;
pub(crate) use files::Directory;
pub use files::tokenizer_folder;
pub use settings::Settings;
#[cfg(feature = "json")]
pub(crate) use settings::{short, token};
