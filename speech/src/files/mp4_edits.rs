//! The list of edits of an MP4 track: which times of it are heard.
//!
//! Source: ISO/IEC 14496-12:2022, 8.6.5 and 8.6.6.

use super::heard::Edits;
use super::mp4_atoms::{Atom, content, each_entry, find, number};
use std::collections::VecDeque;
use std::io::{self, Read, Seek};

/// The field of the ticks in a second of a header, by its version.
const TICKS: [usize; 2] = [12, 20];
/// The rate of an entry that plays sound as it is: 16 bits before the point, and 16 after it.
const USUAL: u32 = 1 << 16;

/// The ticks in a second that an `mvhd` or an `mdhd` says.
fn ticks(source: &mut (impl Read + Seek), header: Atom) -> io::Result<u32> {
    let fields: [u8; 24] = content(source, header)?;
    Ok(number(&fields[TICKS[usize::from(fields[0] == 1)]..]))
}

/// The number of an entry that is at a place, signed.
fn signed(entry: &[u8], at: usize, is_long: bool) -> i64 {
    match is_long {
        true => i64::from(number(&entry[at..])) << 32 | i64::from(number(&entry[at + 4..])),
        // -1 has as many ones.
        false => i64::from(number(&entry[at..]) as i32),
    }
}

/// Reads the list of a track: `edits` and the headers of the movie and of the track. `length`: the ticks of all packets, if the
/// index has them all. `None` if there is no list, or one that plays times twice, in another order, slower or faster: then
/// all sound is heard.
pub(super) fn read_edits(
    source: &mut (impl Read + Seek),
    edits: Atom,
    [movie, media]: [Atom; 2],
    length: Option<u64>,
) -> io::Result<Option<Edits>> {
    let [Some(list)] = find(source, edits.range(), [b"elst"])? else { return Ok(None) };
    let (movie, media) = (ticks(source, movie)?, ticks(source, media)?);
    if movie == 0 || media == 0 {
        return Ok(None);
    }
    let fields: [u8; 8] = content(source, list)?;
    let is_long = fields[0] == 1;
    let mut entries: Vec<(u64, i64, u32)> = Vec::new();
    let count = number(&fields[4..]);
    let mut add = |entry: &[u8]| {
        let width = if is_long { 8 } else { 4 };
        let duration = match is_long {
            true => signed(entry, 0, true).cast_unsigned(),
            false => u64::from(number(entry)),
        };
        entries.push((duration, signed(entry, width, is_long), number(&entry[2 * width..])));
        Ok(())
    };
    match is_long {
        true => each_entry::<20>(source, list, (8, count), &mut add)?,
        false => each_entry::<12>(source, list, (8, count), &mut add)?,
    }
    // Before sound that begins later is a time without media, which has no samples.
    entries.retain(|&(_, start, _)| start != -1);
    // What fragments add is heard, too.
    if length.is_none() {
        entries.truncate(1);
    }
    let mut heard = VecDeque::with_capacity(entries.len());
    let mut before = 0;
    for (duration, start, rate) in entries {
        let Ok(start) = u64::try_from(start) else { return Ok(None) };
        if start < before || rate != USUAL {
            return Ok(None);
        }
        let ticks = u128::from(duration) * u128::from(media) / u128::from(movie);
        let end = start.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX));
        // A movie often has a thousand ticks in a second, a track more. No duration at all is that of the track.
        let tick = u64::from(media.div_ceil(movie));
        let is_inside = length.is_some_and(|length| end.saturating_add(tick) < length);
        let end = if is_inside && duration > 0 { end } else { u64::MAX };
        heard.extend((start < end).then_some(start..end));
        before = end;
    }
    Ok((!heard.is_empty()).then_some(Edits { ticks: media, heard, length }))
}
