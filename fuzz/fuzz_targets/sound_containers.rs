//! Files of every container of sound with changed bytes, and arbitrary bytes: from a file and from a pipe the result is an `Err`
//! or finite samples, in 10 MB of memory beyond the file. A panic of a decoder is a bug, too.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use simdformer_speech::{AudioReader, Channel, Error, InputOptions};
use simdformer_testing::counting::{CountingAllocator, most_bytes};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Bytes beside those of the file.
const MEMORY: usize = 10 << 20;
/// The samples that are read of a file.
const SAMPLES: u64 = 1 << 20;

const FILES: [&[u8]; 28] = [
    include_bytes!("../../text/tests/golden/audio/mp3.mp3"),
    include_bytes!("../../text/tests/golden/audio/mp3-mono-22050.mp3"),
    include_bytes!("../../text/tests/golden/audio/aac.m4a"),
    include_bytes!("../../text/tests/golden/audio/aac-index-first.m4a"),
    include_bytes!("../../text/tests/golden/audio/adts.aac"),
    include_bytes!("../../text/tests/golden/audio/alac.m4a"),
    include_bytes!("../../text/tests/golden/audio/flac.flac"),
    include_bytes!("../../text/tests/golden/audio/vorbis.ogg"),
    include_bytes!("../../text/tests/golden/audio/vorbis-48000.ogg"),
    include_bytes!("../../text/tests/golden/audio/aiff.aiff"),
    include_bytes!("../../text/tests/golden/audio/sowt.aiff"),
    include_bytes!("../../text/tests/golden/audio/alaw.wav"),
    include_bytes!("../../text/tests/golden/audio/mulaw.wav"),
    include_bytes!("../../text/tests/golden/audio/aac-dash.m4a"),
    include_bytes!("../../text/tests/golden/audio/aac-fragments.m4a"),
    include_bytes!("../../text/tests/golden/audio/aac-recorder.mp4"),
    include_bytes!("../../text/tests/golden/audio/aac.mkv"),
    include_bytes!("../../text/tests/golden/audio/alac-recorder.mp4"),
    include_bytes!("../../text/tests/golden/audio/flac.ogg"),
    include_bytes!("../../text/tests/golden/audio/mp3-no-header.mp3"),
    include_bytes!("../../text/tests/golden/audio/opus-live.webm"),
    include_bytes!("../../text/tests/golden/audio/opus-recorder.mp4"),
    include_bytes!("../../text/tests/golden/audio/opus-voice.ogg"),
    include_bytes!("../../text/tests/golden/audio/opus.mp4"),
    include_bytes!("../../text/tests/golden/audio/opus.webm"),
    include_bytes!("../../text/tests/golden/audio/pcm-live.mkv"),
    include_bytes!("../../text/tests/golden/audio/vorbis.webm"),
    include_bytes!("../../text/tests/golden/audio/wave64.w64"),
];

/// A change at a place: of the head, where sizes are, or of the whole file.
#[derive(Debug, arbitrary::Arbitrary)]
enum Change {
    Byte(u16, u8),
    Bit(u16, u8),
    Number(u16, u32),
    Delete(u16, u8),
    Insert(u16, u8),
    Repeat(u16, u8, u8),
    Cut(u16),
}

/// A file, the changes of it, and how it is read.
#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    /// Which file; none for `bytes` alone.
    file: Option<u8>,
    /// Whether changes are in the first 700 bytes.
    head: bool,
    changes: Vec<Change>,
    bytes: &'a [u8],
    second_channel: bool,
}

/// A path of this process, in memory if the system has such a file system.
fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
        root.join(format!("simdformer-sound-containers-{}", std::process::id()))
    })
}

fn change(file: &mut Vec<u8>, head: bool, change: &Change) {
    let most = if head { file.len().min(700) } else { file.len() };
    if most == 0 {
        return;
    }
    let place = |at: u16| usize::from(at) % most;
    match *change {
        Change::Byte(at, byte) => file[place(at)] = byte,
        Change::Bit(at, bit) => file[place(at)] ^= 1 << (bit % 8),
        Change::Number(at, number) => {
            let at = place(at);
            let end = (at + 4).min(file.len());
            file[at..end].copy_from_slice(&number.to_be_bytes()[..end - at]);
        }
        Change::Delete(at, count) => {
            let at = place(at);
            drop(file.drain(at..(at + usize::from(count)).min(file.len())));
        }
        Change::Insert(at, byte) => file.insert(place(at), byte),
        Change::Repeat(at, count, times) => {
            let at = place(at);
            let end = (at + usize::from(count)).min(file.len());
            let part = file[at..end].repeat(usize::from(times));
            file.splice(at..at, part);
        }
        Change::Cut(at) => file.truncate(place(at)),
    }
}

/// Sets the checksums of the pages of an Ogg file: else nothing but those is tested.
fn seal(file: &mut [u8]) {
    let mut at = 0;
    while file.len() - at >= 27 && file[at..].starts_with(b"OggS") {
        let segments = usize::from(file[at + 26]);
        let Some(table) = file.get(at + 27..at + 27 + segments) else { return };
        let length = 27 + segments + table.iter().map(|&n| usize::from(n)).sum::<usize>();
        let Some(page) = file.get_mut(at..at + length) else { return };
        page[22..26].fill(0);
        let sum = page.iter().fold(0_u32, |sum, &byte| {
            (0..8).fold(sum ^ u32::from(byte) << 24, |sum, _| {
                if sum >> 31 == 1 { sum << 1 ^ 0x04c1_1db7 } else { sum << 1 }
            })
        });
        page[22..26].copy_from_slice(&sum.to_le_bytes());
        at += length;
    }
}

/// Reads the samples, and returns their number.
fn count(audio: Result<AudioReader<'_>, Error>) -> Result<u64, Error> {
    let (mut audio, mut samples, mut count) = (audio?, vec![0.0; 4096], 0);
    loop {
        let read = audio.read(&mut samples)?;
        assert!(samples[..read].iter().all(|sample| sample.is_finite()));
        count += read as u64;
        if read < samples.len() || count > SAMPLES {
            return Ok(count);
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let mut file = match input.file {
        None => input.bytes.to_vec(),
        Some(which) => FILES[usize::from(which) % FILES.len()].to_vec(),
    };
    for one in input.changes.iter().take(16) {
        change(&mut file, input.head, one);
    }
    seal(&mut file);
    fs::write(path(), &file).expect("a file");
    let channel = if input.second_channel { Channel::Index(1) } else { Channel::Mix };
    let options = InputOptions { channel, ..InputOptions::default() };
    let (_, filed) = most_bytes(|| count(AudioReader::open(path(), options)));
    let (_, piped) = most_bytes(|| count(AudioReader::new(&file[..], options)));
    let most = MEMORY + file.len();
    assert!(filed <= most && piped <= most, "{filed} and {piped} bytes of {} more", file.len());
});
