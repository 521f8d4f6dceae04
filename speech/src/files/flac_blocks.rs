//! Leaves out the metadata of a FLAC file: pictures, comments and seek tables, which a decoder does not need.
//!
//! `symphonia` 0.6 takes a hundred bytes for each comment, sorts a seek table in quadratic time, and has no limits of its own.
//! Source: RFC 9639, section 8.

use super::bytes::{invalid, skip};
use super::flac_bytes::FlacBytes;
use crate::input::stream::Stream;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What a stream begins with.
pub(super) const MARKER: &[u8; 4] = b"fLaC";
/// The block `STREAMINFO`, and its bytes.
const STREAMINFO: u8 = 0;
const STREAMINFO_BYTES: usize = 34;
/// The flag of the last block.
const LAST: u8 = 0x80;
/// The bytes of metadata before the first frame: pictures have some megabytes.
const LONGEST: u64 = 256 << 20;

/// Reads the metadata of a file, and returns one that has `STREAMINFO` and the frames. `frames` gets the number of bytes of
/// frames that were read.
pub(super) fn frames_only<'s>(
    mut reader: Stream<'s>,
    frames: Arc<AtomicU64>,
) -> io::Result<impl Read + use<'s>> {
    let mut head = [0; 4];
    reader.read_exact(&mut head)?;
    if &head != MARKER {
        return Err(invalid("expected `fLaC`"));
    }
    let (mut info, mut read) = (None, 0);
    loop {
        let mut block = [0; 4];
        reader.read_exact(&mut block)?;
        let [kind, size @ ..] = block;
        let mut size = u64::from(u32::from_be_bytes([0, size[0], size[1], size[2]]));
        read += size;
        if read > LONGEST {
            return Err(invalid("there is no audio in many megabytes"));
        }
        if kind & !LAST == STREAMINFO {
            if size != STREAMINFO_BYTES as u64 {
                return Err(invalid(format!("STREAMINFO: expected 34 bytes, found {size}")));
            }
            let mut found = [0; STREAMINFO_BYTES];
            reader.read_exact(&mut found)?;
            size = 0;
            if info.replace(found).is_some() {
                return Err(invalid("expected one STREAMINFO, found two"));
            }
        }
        skip(&mut reader, size)?;
        if kind & LAST != 0 {
            break;
        }
    }
    let Some(info) = info else { return Err(invalid("expected STREAMINFO, found none")) };
    let mut kept = MARKER.to_vec();
    kept.extend([LAST | STREAMINFO, 0, 0, STREAMINFO_BYTES as u8]);
    kept.extend(info);
    Ok(io::Cursor::new(kept).chain(FlacBytes::new(reader, frames)))
}
