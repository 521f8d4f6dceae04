//! Checksums of the files of a hub: the SHA-256 of the content, or the SHA-1 of git.

use crate::hub::listing::Entry;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Bytes that are read at a time.
pub(crate) const BLOCK: usize = 1 << 16;

/// The begun checksum of a file: a SHA-256, or the SHA-1 of git, which begins with the length.
pub(crate) fn begin(entry: &Entry) -> Context {
    if entry.is_sha256() {
        return Context::new(&SHA256);
    }
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(format!("blob {}\0", entry.size).as_bytes());
    digest
}

/// The checksum in hexadecimal digits.
pub(crate) fn finish(digest: Context) -> String {
    digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The checksum of a whole file, of the kind of `entry`.
pub(crate) fn of_file(path: &Path, entry: &Entry) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = begin(entry);
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(finish(digest)),
            Ok(read) => digest.update(&block[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
}
