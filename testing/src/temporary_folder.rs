//! A directory of a test.

use std::fs;
use std::path::{Path, PathBuf};

/// A directory that is deleted at the end of a test.
pub struct Folder(PathBuf);

impl Folder {
    /// A new empty directory; `name` is unique among the tests of a program.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("simdformer-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
