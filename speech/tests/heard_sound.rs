//! Samples that a decoder gives and that are not heard: before the first and after the last one of the source, by lists of edits (MP4),
//! delays and paddings (Matroska).

use crate::recorded_sound::{EDGE, extension, sound, whole};
use simdformer_testing::effort::cases;
use std::ops::Range;

/// A generator of numbers below `most`.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % most.max(1)
    }
}

/// All sound of the file, of which nothing is missing.
fn samples(name: &str, file: &[u8]) -> Vec<f32> {
    let needs_file = extension(name) == "mp4";
    let (samples, incomplete) = sound(name, file, needs_file).unwrap();
    assert_eq!(incomplete, None, "{name}");
    samples
}

/// The number of samples at 16 kHz of some of another rate.
fn at_16000(samples: usize, rate: usize) -> usize {
    (samples * 16_000).div_ceil(rate)
}

/// Whether `found` has the samples of `base` in these ranges, of samples of `rate`, but for those at the ends of each.
fn has_ranges(found: &[f32], base: &[f32], ranges: &[Range<usize>], rate: usize) -> bool {
    let mut before = 0;
    for range in ranges {
        let (from, to) = (at_16000(range.start, rate), at_16000(before, rate));
        let length = at_16000(before + range.len(), rate) - to;
        if length > 2 * EDGE {
            let inside = EDGE..length - EDGE;
            if found[to..][inside.clone()] != base[from..][inside] {
                return false;
            }
        }
        before += range.len();
    }
    found.len() == at_16000(before, rate)
}

/// The content of the atom at `path`, replaced by that of `change`.
fn change_atom(file: &[u8], path: &[&[u8; 4]], change: &dyn Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let Some((first, rest)) = path.split_first() else { return change(file) };
    let (mut out, mut left) = (Vec::new(), file);
    while left.len() >= 8 {
        let size = u32::from_be_bytes(left[..4].try_into().unwrap()) as usize;
        let (atom, after) = left.split_at(size);
        if &atom[4..8] == *first {
            let content = change_atom(&atom[8..], rest, change);
            out.extend((content.len() as u32 + 8).to_be_bytes());
            out.extend(*first);
            out.extend(content);
        } else {
            out.extend(atom);
        }
        left = after;
    }
    out
}

const MOVIE: [&[u8; 4]; 2] = [b"moov", b"mvhd"];
const LIST: [&[u8; 4]; 4] = [b"moov", b"trak", b"edts", b"elst"];

/// An entry: duration in ticks of the movie, place in ticks of the track, and rate.
type Entry = (u64, i64, u32);

/// The file with this list, and this number of ticks in a second of the movie. The index must be at the end.
fn with_edits(file: &[u8], ticks: u32, entries: &[Entry], is_long: bool) -> Vec<u8> {
    let file = change_atom(file, &MOVIE, &|head| {
        [&head[..12], &ticks.to_be_bytes(), &head[16..]].concat()
    });
    change_atom(&file, &LIST, &|_| {
        let mut list = vec![u8::from(is_long), 0, 0, 0];
        list.extend((entries.len() as u32).to_be_bytes());
        for &(duration, start, rate) in entries {
            match is_long {
                true => list.extend([duration.to_be_bytes(), start.to_be_bytes()].concat()),
                false => list.extend(
                    [(duration as u32).to_be_bytes(), (start as i32).to_be_bytes()].concat(),
                ),
            }
            list.extend(rate.to_be_bytes());
        }
        list
    })
}

const USUAL: u32 = 1 << 16;

/// Files with an index at the end: the rate, the least number of samples of that rate for which there is a whole number at 16 kHz,
/// and all samples that the decoder gives.
const EDITED: [(&str, usize, usize); 4] = [
    ("alac.m4a", 8000, 1),
    ("aac.m4a", 44_100, 441),
    ("opus.mp4", 48_000, 3),
    ("mp3.mp4", 44_100, 441),
];

/// Lists of any number of times, in one or two versions, with and without a time before them.
#[test]
fn edits_of_mp4_say_what_is_heard() {
    let (mut numbers, mut count) = (Numbers(1), 0);
    for (name, rate, step) in EDITED {
        let file = whole(name);
        let all = samples(name, &with_edits(&file, 1000, &[(0, 0, USUAL)], false));
        // The last range may be longer: then the end is that of the sound.
        let most = all.len() * rate / 16_000 / step;
        for number in 0..cases(12, 150) {
            let mut cuts: Vec<usize> =
                (0..2 * (1 + number % 4)).map(|_| numbers.below(most)).collect();
            cuts.sort_unstable();
            let ranges: Vec<Range<usize>> = cuts
                .chunks_exact(2)
                .map(|pair| pair[0] * step..pair[1] * step)
                .filter(|range| !range.is_empty())
                .collect();
            if ranges.is_empty() {
                continue;
            }
            let mut entries: Vec<Entry> = ranges
                .iter()
                .map(|range| (range.len() as u64, range.start as i64, USUAL))
                .collect();
            if number % 3 == 0 {
                entries.insert(0, (1234, -1, USUAL));
            }
            let edited = with_edits(&file, rate as u32, &entries, number % 2 == 0);
            let found = samples(name, &edited);
            assert!(
                has_ranges(&found, &all, &ranges, rate),
                "{name}, {entries:?}: {} samples of {}",
                found.len(),
                all.len()
            );
            count += 1;
        }
    }
    assert!(count >= 40, "{count}");
}

/// Lists that no player needs, and that are wrong: all sound is heard.
#[test]
fn edits_that_cannot_be_followed_leave_out_nothing() {
    for (name, ..) in EDITED {
        let file = whole(name);
        let hidden = change_atom(&file, &[b"moov", b"trak", b"edts"], &|list| {
            [&list[..4], b"free", &list[8..]].concat()
        });
        let all = samples(name, &hidden);
        let lists: [&[Entry]; 6] = [
            &[(100, 3000, USUAL), (100, 0, USUAL)],
            &[(100, 0, USUAL), (100, 50, USUAL)],
            &[(500, 0, 2 * USUAL)],
            &[(500, 0, 0)],
            &[(500, -2, USUAL)],
            &[(0, 0, USUAL), (100, 4000, USUAL)],
        ];
        for list in lists {
            for is_long in [false, true] {
                let found = samples(name, &with_edits(&file, 1000, list, is_long));
                assert!(found == all, "{name}, {list:?}: {} of {}", found.len(), all.len());
            }
        }
        let empty = samples(name, &with_edits(&file, 1000, &[], false));
        assert!(empty == all, "{name}");
        // A list after all sound, and one that is cut.
        let error = sound(name, &with_edits(&file, 1000, &[(100, 1 << 30, USUAL)], true), true);
        assert!(
            error.as_ref().is_err_and(|error| error.contains("no samples")),
            "{name}: {error:?}"
        );
        let cut = change_atom(&file, &LIST, &|list| list[..list.len() - 4].to_vec());
        let error = sound(name, &cut, true);
        assert!(error.as_ref().is_err_and(|error| error.contains("elst")), "{name}: {error:?}");
    }
}

/// Files whose container says where the sound begins and ends have as many samples as the source: half a second.
#[test]
fn encoders_add_nothing_that_is_heard() {
    let names = [
        "aac.m4a",
        "aac-index-first.m4a",
        "alac.m4a",
        "flac.flac",
        "flac.ogg",
        "mp3.mp3",
        "mp3-8000.mp3",
        "mp3-mono-22050.mp3",
        "mp3.mp4",
        "opus.mp4",
        "opus.ogg",
        "opus-voice.ogg",
        "opus.webm",
        "opus-live.webm",
        "vorbis.ogg",
        "vorbis-8000.ogg",
        "vorbis-48000.ogg",
    ];
    for name in names {
        let found = samples(name, &whole(name)).len();
        assert!(found.abs_diff(8000) <= 1, "{name}: {found} samples");
    }
    // MP3 in Matroska has a padding, but no delay: 1105 samples of 48 kHz.
    let found = samples("mp3.mkv", &whole("mp3.mkv")).len();
    assert!(found.abs_diff(8000 + 1105 / 3) <= 1, "{found}");
}

/// The number of the element that begins here, and the places of its content and its end.
fn element(file: &[u8], at: usize) -> (u64, Range<usize>) {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
    let name = file[at].leading_zeros() as usize + 1;
    let length = file[at + name].leading_zeros() as usize + 1;
    let content = at + name + length;
    let mask = (1 << (7 * length)) - 1;
    let size = number(&file[at + name..content]) & mask;
    let end = if size == mask { content } else { content + size as usize };
    (number(&file[at..at + name]), content..end)
}

fn element_of(name: u64, content: &[u8]) -> Vec<u8> {
    let bytes = name.to_be_bytes();
    let first = bytes.iter().position(|&byte| byte != 0).unwrap();
    let length = (content.len() as u64 | 1 << 56).to_be_bytes();
    [&bytes[first..], &length, content].concat()
}

/// The file with segments and clusters without lengths, with this delay of its codec and these paddings of its packets, in nanoseconds.
/// `laced`: with two frames of one size in each block.
fn with_said(
    file: &[u8],
    delay: Option<u64>,
    padding: &dyn Fn(usize) -> Option<i64>,
    laced: bool,
) -> Vec<u8> {
    const OPEN: [u8; 8] = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let (mut out, mut at, mut packet) = (Vec::new(), 0, 0);
    while at < file.len() {
        let (name, content) = element(file, at);
        let inside = &file[content.clone()];
        match name {
            0x1853_8067 | 0x1f43_b675 | 0xa0 => {
                if name != 0xa0 {
                    out.extend([&(name as u32).to_be_bytes()[..], &OPEN].concat());
                }
                at = content.start;
                continue;
            }
            0x1654_ae6b => {
                let (mut tracks, mut at) = (Vec::new(), 0);
                while at < inside.len() {
                    let (name, parts) = element(inside, at);
                    at = parts.end;
                    // Not the checksum.
                    if name == 0xae {
                        let delay = delay.map(|delay| element_of(0x56aa, &delay.to_be_bytes()));
                        let parts = [&inside[parts], &delay.unwrap_or_default()].concat();
                        tracks.extend(element_of(name, &parts));
                    }
                }
                out.extend(element_of(name, &tracks));
            }
            0xa1 | 0xa3 => {
                let mut block = inside.to_vec();
                block[3] &= 0xf9;
                if laced {
                    // Of one size, and two frames.
                    block[3] |= 4;
                    block.insert(4, 1);
                }
                let mut group = element_of(0xa1, &block);
                if let Some(padding) = padding(packet) {
                    group.extend(element_of(0x75a2, &padding.to_be_bytes()));
                }
                out.extend(element_of(0xa0, &group));
                packet += 1;
            }
            // The duration of a block, and what was said.
            0x9b | 0x75a2 => (),
            _ => out.extend(&file[at..content.end]),
        }
        at = content.end;
    }
    out
}

/// Paddings of any block, at both ends, of any length, and delays of any codec.
#[test]
fn delays_and_paddings_of_matroska_are_not_heard() {
    // The rate, the samples of a packet, and a number of samples of which there is a whole number at 16 kHz.
    let files: [(&str, usize, usize, usize); 5] = [
        ("opus.webm", 48_000, 960, 3),
        ("opus-live.webm", 48_000, 960, 3),
        ("pcm-live.mkv", 8000, 0, 1),
        ("aac.mkv", 22_050, 1024, 441),
        ("mp3.mkv", 48_000, 1152, 3),
    ];
    let (mut numbers, mut count) = (Numbers(7), 0);
    for (name, rate, packet, step) in files {
        let file = whole(name);
        let all = samples(name, &with_said(&file, None, &|_| None, false));
        // The numbers of samples of PCM are in its blocks.
        let mut sizes = Vec::new();
        let mut at = 0;
        while at < file.len() {
            let (kind, content) = element(&file, at);
            at = match kind {
                0x1853_8067 | 0x1f43_b675 | 0xa0 => content.start,
                0xa1 | 0xa3 => {
                    sizes.push(if packet == 0 { (content.len() - 4) / 4 } else { packet });
                    content.end
                }
                _ => content.end,
            };
        }
        let native: usize = sizes.iter().sum();
        // What the codec's own delay leaves out.
        let own = native - all.len() * rate / 16_000;
        let nanoseconds = |samples: usize| (samples as u64 * 1_000_000_000).div_ceil(rate as u64);
        for number in 0..cases(8, 100) {
            let laced = packet == 0 && number % 2 == 0;
            let delay = (number % 3 == 0 && !name.starts_with("opus"))
                .then(|| (1 + numbers.below(4)) * step);
            let paddings: Vec<i64> = (0..sizes.len())
                .map(|i| {
                    // Those of the first packet meet the delay.
                    let first = i == 0 && number % 2 == 1;
                    let some = numbers.below(4) == 0 || first || i + 1 == sizes.len();
                    let length =
                        numbers.below(sizes[i] / step / if laced { 2 } else { 1 } + 1) * step;
                    let sign = if numbers.below(2) == 0 { -1 } else { 1 };
                    if some { sign * length as i64 } else { 0 }
                })
                .collect();
            let padding = |i: usize| {
                let samples: i64 = paddings[i];
                let time = nanoseconds(samples.unsigned_abs() as usize) as i64;
                (samples != 0 || i.is_multiple_of(2)).then_some(samples.signum() * time)
            };
            let edited = with_said(&file, delay.map(nanoseconds), &padding, laced);
            // The heard ranges, from the first sample of the decoder on. The delay counts these samples, too: RFC 9559, 5.1.4.1.28,
            // says that it is the number of codec samples that the decoder discards, and RFC 7845, 4.2, that it is taken from the
            // decoder's output.
            let delay_end = delay.unwrap_or(own);
            let (mut ranges, mut begin) = (Vec::new(), 0);
            for (size, padding) in sizes.iter().zip(&paddings) {
                let dropped = padding.unsigned_abs() as usize;
                let range = match padding < &0 {
                    true => begin + dropped..begin + size,
                    false => begin..begin + size - dropped,
                };
                ranges.push(range.start.max(delay_end).min(range.end)..range.end);
                begin += size;
            }
            let heard: usize = ranges.iter().map(Range::len).sum();
            let found = samples(name, &edited);
            assert!(
                found.len().abs_diff(at_16000(heard, rate)) <= 1,
                "{name}, {delay:?}, {paddings:?}: {} samples of {heard} at {rate} Hz",
                found.len()
            );
            // Lossless sound begins anywhere.
            if packet == 0 {
                ranges.retain(|range| !range.is_empty());
                assert!(has_ranges(&found, &all, &ranges, rate), "{name}, {delay:?}, {paddings:?}");
            }
            count += 1;
        }
    }
    assert!(count >= 40, "{count}");
}
