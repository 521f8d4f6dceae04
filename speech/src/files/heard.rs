//! Which samples of a decoder are heard. Encoders add some before the first and after the last one, and editors leave some out by a
//! list alone. MP4 says so by a list of edits, Matroska by the delay of a codec and the padding of blocks. `symphonia` 0.6 reads
//! neither.
//!
//! Sources: ISO/IEC 14496-12:2022, 8.6.6; RFC 9559, 5.1.4.1.28.15 and 5.1.3.5.7.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The times of an MP4 track that are heard.
pub(super) struct Edits {
    /// Ticks in a second.
    pub(super) ticks: u32,
    /// In ticks from the first decoded sample on, none before the end of the one before it. An end of `u64::MAX` is that of the track.
    pub(super) heard: VecDeque<Range<u64>>,
    /// The ticks of all packets, if the index has them all.
    pub(super) length: Option<u64>,
}

/// What is not heard of the frame with a number in a Matroska track, in nanoseconds: at its end, or at its beginning if it is
/// negative.
struct Padding {
    track: u64,
    frame: u64,
    nanoseconds: i64,
}

#[derive(Default)]
struct Inner {
    edits: Option<Edits>,
    /// Tracks, and the nanoseconds before the first sample.
    delays: Vec<(u64, u64)>,
    /// The track that is decoded, once it is known.
    track: Option<u64>,
    paddings: VecDeque<Padding>,
    /// The ticks of the packets before the fragments of an MP4 file, if it may have some.
    before_fragments: Option<u64>,
}

/// What the reader of a container tells the decoder, which is behind it by what is buffered between them.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Inner>>);

impl Heard {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_edits(&self, edits: Edits) {
        self.inner().edits = Some(edits);
    }

    pub(super) fn take_edits(&self) -> Option<Edits> {
        self.inner().edits.take()
    }

    pub(super) fn set_before_fragments(&self, ticks: u64) {
        self.inner().before_fragments = Some(ticks);
    }

    pub(super) fn before_fragments(&self) -> Option<u64> {
        self.inner().before_fragments
    }

    pub(super) fn add_delay(&self, track: u64, nanoseconds: u64) {
        self.inner().delays.push((track, nanoseconds));
    }

    pub(super) fn add_padding(&self, track: u64, frame: u64, nanoseconds: i64) {
        let mut inner = self.inner();
        if nanoseconds != 0 && inner.track.is_none_or(|chosen| chosen == track) {
            inner.paddings.push_back(Padding { track, frame, nanoseconds });
        }
    }

    /// Keeps what is said of one track, and returns its delay in nanoseconds, if that is known.
    pub(super) fn choose(&self, track: u64) -> Option<u64> {
        let mut inner = self.inner();
        inner.track = Some(track);
        inner.paddings.retain(|padding| padding.track == track);
        inner.delays.iter().find(|&&(number, _)| number == track).map(|&(_, delay)| delay)
    }

    /// The padding of a frame of the chosen track; those of frames before it are forgotten.
    pub(super) fn take_padding(&self, frame: u64) -> i64 {
        let mut inner = self.inner();
        let mut found = 0;
        while inner.paddings.front().is_some_and(|padding| padding.frame <= frame) {
            let padding = inner.paddings.pop_front();
            found = padding.filter(|padding| padding.frame == frame).map_or(0, |p| p.nanoseconds);
        }
        found
    }
}

/// The number of samples in some ticks, of which a second has `ticks`.
pub(super) fn samples_in(count: u64, ticks: u64, rate: u32) -> u64 {
    let (product, ticks) = (u128::from(count) * u128::from(rate), u128::from(ticks.max(1)));
    u64::try_from((product + ticks / 2) / ticks).unwrap_or(u64::MAX)
}

/// Leaves of the samples from `position` on those in `heard`, whose ranges before that are removed.
pub(super) fn keep_heard(samples: &mut Vec<f32>, position: u64, heard: &mut VecDeque<Range<u64>>) {
    let end = position + samples.len() as u64;
    let mut kept = 0;
    while let Some(range) = heard.front() {
        let (first, last) = (range.start.max(position), range.end.min(end));
        if first < last {
            let from = (first - position) as usize;
            let count = (last - first) as usize;
            samples.copy_within(from..from + count, kept);
            kept += count;
        }
        if range.end > end {
            break;
        }
        heard.pop_front();
    }
    samples.truncate(kept);
}
