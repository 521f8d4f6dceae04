//! The map of a file of packed weights: the only unsafe code outside of the kernels.

use crate::memory::SharedBytes;
use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Maps the whole content of `file` read-only, for [`LoadOptions::map_packed`](super::LoadOptions::map_packed), which says
/// what happens if the file changes. Only this module sees the bytes: a `&[u8]` whose content another program changes, or a
/// `&str` of it, would be undefined behavior in safe code.
///
/// # Errors
/// The system cannot map the file, or has no maps of files.
#[allow(unsafe_code, reason = "the only call that maps a file")]
pub(super) fn map_file(file: &File) -> io::Result<SharedBytes> {
    // SAFETY: the map is read-only, so no code of this process writes to it. The content must not change while it is
    // mapped. A program cannot check that: every process that may write to the file can change it, and the documentation of
    // `LoadOptions::map_packed` states this condition. Only a model has the map: it copies the header before it parses it,
    // and reads the rest as numbers, of which every value is valid. A page that the system cannot read ends the process.
    let map = unsafe { Mmap::map(file) }?;
    // Where the system has huge pages for files. If the call fails, the weights are only slower to read.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(Arc::new(map))
}
