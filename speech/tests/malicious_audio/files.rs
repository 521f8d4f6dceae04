//! Broken files of every format that [`AudioReader`] reads: each is an error within 100 ms and 10 MB.

use super::cpu_time::cpu_time;
use super::{MEMORY, most_bytes};
use simdformer_speech::{AudioReader, Channel, Error, InputOptions};
use simdformer_testing::riff::{chunk, format, riff};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_testing::{directories, effort};
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

/// An optimized build needs less than a tenth of it.
const TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 100 });

/// A name and a file.
type Broken = (String, Vec<u8>);

fn file(name: &str) -> Vec<u8> {
    fs::read(directories::golden("audio").join(name)).unwrap()
}

/// `file` with `bytes` at an offset.
fn with(mut file: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// Reads all samples of a source.
type Reading<'r> = &'r dyn Fn() -> Result<u64, Error>;

/// The place after the first `name`.
fn after(file: &[u8], name: &[u8]) -> usize {
    file.windows(name.len()).position(|bytes| bytes == name).unwrap() + name.len()
}

/// Files that declare their length are cut at many places, those that do not (AAC in ADTS) in the first frame.
fn cut_files() -> Vec<Broken> {
    let mut all = Vec::new();
    for name in [
        "mp3.mp3",
        "mp3-mono-22050.mp3",
        "aac.m4a",
        "aac-index-first.m4a",
        "alac.m4a",
        "flac.flac",
        "vorbis.ogg",
        "vorbis-48000.ogg",
        "aiff.aiff",
        "alaw.wav",
        "mulaw.wav",
        "aiff-24.aiff",
        "sowt.aiff",
    ] {
        let whole = file(name);
        for percent in [1, 10, 40, 70, 95] {
            let bytes = whole[..whole.len() * percent / 100].to_vec();
            all.push((format!("{name}, {percent} %"), bytes));
        }
        all.push((format!("{name}, 3 bytes"), whole[..3].to_vec()));
    }
    for bytes in [5, 9, 100] {
        all.push((format!("adts.aac, {bytes} bytes"), file("adts.aac")[..bytes].to_vec()));
    }
    all
}

fn flac() -> Vec<Broken> {
    let whole = file("flac.flac");
    // STREAMINFO begins at byte 8: block sizes, frame sizes, then 20 bits of rate, 3 of channels, 5 of bits, 36 of samples.
    let packed = |rate: u64, samples: u64| {
        let bits = rate << 44 | 1 << 41 | 15 << 36 | samples;
        with(whole.clone(), 18, &bits.to_be_bytes())
    };
    let mut all = vec![
        ("flac, a rate of 0".into(), packed(0, 11_025)),
        ("flac, a billion samples".into(), packed(22_050, 1_000_000_000)),
        ("flac, 2^36 samples".into(), packed(22_050, (1 << 36) - 1)),
        ("flac, another checksum".into(), with(whole.clone(), 26, &[0x55; 16])),
        ("flac, blocks of 0".into(), with(whole.clone(), 8, &[0; 4])),
        (
            "flac, smallest block above the largest".into(),
            with(whole.clone(), 8, &[0xff, 0xff, 0, 16]),
        ),
        ("flac, no STREAMINFO".into(), with(whole.clone(), 4, &[0x84])),
        ("flac, metadata of 16 MB".into(), with(whole.clone(), 5, &[0xff; 3])),
        ("flac, STREAMINFO of 0 bytes".into(), with(whole.clone(), 5, &[0; 3])),
    ];
    for part in [4, 5, 7, 9] {
        let at = whole.len() * part / 10;
        all.push((format!("flac, flipped at {part}0 %"), with(whole.clone(), at, &[!whole[at]])));
    }
    all
}

fn ogg() -> Vec<Broken> {
    let whole = file("vorbis.ogg");
    let ident = after(&whole, b"\x01vorbis");
    let mut all = vec![
        ("ogg, no first page".into(), whole[after(&whole, b"OggS")..].to_vec()),
        ("ogg, another version".into(), with(whole.clone(), 4, &[7])),
        ("ogg, no channels".into(), with(whole.clone(), ident + 4, &[0])),
        ("ogg, 255 channels".into(), with(whole.clone(), ident + 4, &[255])),
        ("ogg, a rate of 0".into(), with(whole.clone(), ident + 5, &[0; 4])),
        ("ogg, a rate of 4 GHz".into(), with(whole.clone(), ident + 5, &[0xff; 4])),
        ("ogg, blocks of 2^15".into(), with(whole.clone(), ident + 21, &[0xff])),
        ("ogg, opus that is vorbis".into(), with(whole.clone(), ident - 7, b"OpusHead")),
        ("ogg, pages without segments".into(), [&whole[..26], &[0; 4000]].concat()),
        (
            "ogg, text behind the first page".into(),
            [&whole[..58], &b"text".repeat(99)[..]].concat(),
        ),
    ];
    for part in [2, 4, 6, 8] {
        let at = whole.len() * part / 10;
        all.push((format!("ogg, flipped at {part}0 %"), with(whole.clone(), at, &[!whole[at]])));
    }
    all
}

fn mp4() -> Vec<Broken> {
    let whole = file("aac-index-first.m4a");
    let at = |name: &[u8], more: usize| after(&whole, name) + more;
    let put = |name: &[u8], more, bytes: &[u8]| with(whole.clone(), at(name, more), bytes);
    let billion = 1_000_000_000u32.to_be_bytes();
    vec![
        ("m4a, a billion sizes".into(), put(b"stsz", 8, &billion)),
        ("m4a, 2^32 - 1 sizes".into(), put(b"stsz", 8, &[0xff; 4])),
        ("m4a, a billion times".into(), put(b"stts", 4, &billion)),
        ("m4a, a billion chunks".into(), put(b"stco", 4, &billion)),
        ("m4a, a billion runs of chunks".into(), put(b"stsc", 4, &billion)),
        ("m4a, chunks of nothing".into(), put(b"stsc", 12, &[0; 4])),
        ("m4a, chunks behind the end".into(), put(b"stco", 8, &[0x7f; 4])),
        ("m4a, a packet of 2 GB".into(), put(b"stsz", 12, &[0x7f, 0xff, 0xff, 0xff])),
        ("m4a, an index of 0 bytes".into(), with(whole.clone(), at(b"moov", 0) - 8, &[0; 4])),
        ("m4a, an index of 1 byte".into(), with(whole.clone(), at(b"moov", 0) - 8, &[0, 0, 0, 1])),
        ("m4a, an index of 4 GB".into(), with(whole.clone(), at(b"moov", 0) - 8, &[0xff; 4])),
        ("m4a, a track of 3 bytes".into(), with(whole.clone(), at(b"trak", 0) - 8, &[0, 0, 0, 3])),
        ("m4a, no index".into(), with(whole.clone(), at(b"moov", 0) - 4, b"free")),
        ("m4a, no track".into(), with(whole.clone(), at(b"trak", 0) - 4, b"free")),
        ("m4a, no sizes".into(), with(whole.clone(), at(b"stsz", 0) - 4, b"free")),
        ("m4a, another codec".into(), with(whole.clone(), at(b"mp4a", 0) - 4, b"xxxx")),
        ("m4a, no descriptor".into(), with(whole.clone(), at(b"esds", 0) - 4, b"free")),
        ("m4a, a descriptor of 255 bytes".into(), put(b"esds", 5, &[0xff; 4])),
        ("m4a, a time scale of 0".into(), put(b"mdhd", 12, &[0; 4])),
        ("m4a, only a beginning".into(), b"\0\0\0\x18ftypM4A \0\0\0\0isomM4A ".to_vec()),
    ]
}

fn aiff() -> Vec<Broken> {
    let whole = file("aiff.aiff");
    let common = after(&whole, b"COMM") + 4;
    let put = |at: usize, bytes: &[u8]| with(whole.clone(), common + at, bytes);
    vec![
        ("aiff, no channels".into(), put(0, &[0; 2])),
        ("aiff, 65535 channels".into(), put(0, &[0xff; 2])),
        ("aiff, 2^32 - 1 samples".into(), put(2, &[0xff; 4])),
        ("aiff, 0 bits".into(), put(6, &[0; 2])),
        ("aiff, 65535 bits".into(), put(6, &[0xff; 2])),
        ("aiff, a rate of 0".into(), put(8, &[0; 10])),
        ("aiff, an infinite rate".into(), put(8, b"\x7f\xff\x80\0\0\0\0\0\0\0")),
        ("aiff, a rate that is NaN".into(), put(8, &[0xff; 10])),
        ("aiff, `COMM` of 4 GB".into(), with(whole.clone(), common - 4, &[0xff; 4])),
        ("aiff, no `COMM`".into(), with(whole.clone(), common - 8, b"NONE")),
        ("aiff, no `SSND`".into(), with(whole.clone(), after(&whole, b"SSND") - 4, b"NONE")),
        ("aiff, another kind".into(), with(whole.clone(), 8, b"8SVX")),
    ]
}

fn mp3_and_aac() -> Vec<Broken> {
    let (mp3, adts) = (file("mp3.mp3"), file("adts.aac"));
    let count =
        after(&mp3, if mp3.windows(4).any(|b| b == b"Xing") { b"Xing" } else { b"Info" }) + 4;
    let tag = |size: &[u8; 4]| [b"ID3\x04\0\0", &size[..], &mp3].concat();
    vec![
        ("mp3, a billion frames".into(), with(mp3.clone(), count, &1_000_000_000u32.to_be_bytes())),
        ("mp3, a tag of 256 MB".into(), tag(&[0x7f; 4])),
        ("mp3, a tag and no more".into(), tag(&[0, 0, 0, 0])[..10].to_vec()),
        ("mp3, only its first frame".into(), mp3[..count + 200].to_vec()),
        ("aac, frames of 0 bytes".into(), adts.iter().map(|_| 0xff).collect()),
        ("aac, frames of 7 bytes".into(), [0xff, 0xf1, 0x50, 0x80, 0, 0xff, 0xfc, 0].repeat(9)),
    ]
}

fn wav() -> Vec<Broken> {
    let of = |tag, channels, rate, bits, bytes: usize| {
        riff(&[chunk(b"fmt ", &format(tag, channels, rate, bits)), chunk(b"data", &vec![0; bytes])])
    };
    vec![
        ("wav, ADPCM without its table".into(), of(2, 1, 16_000, 4, 512)),
        ("wav, A-law of no channels".into(), of(6, 0, 16_000, 8, 512)),
        ("wav, A-law of 65535 channels".into(), of(6, 0xffff, 16_000, 0, 512)),
        ("wav, mu-law at 0 Hz".into(), of(7, 1, 0, 8, 512)),
        ("wav, mu-law at 1 Hz".into(), of(7, 1, 1, 8, 512)),
        ("wav, PCM at 1 Hz".into(), of(1, 1, 1, 16, 512)),
        ("wav, A-law of 4 bits".into(), of(6, 1, 16_000, 4, 512)),
        ("rf64, no lengths".into(), b"RF64\xff\xff\xff\xffWAVEds64\0\0\0\0".to_vec()),
    ]
}

fn other_kinds() -> Vec<Broken> {
    let begins = |begin: &[u8]| [begin, &[0x55; 64]].concat();
    [
        ("empty", Vec::new()),
        ("one byte", vec![0xff]),
        ("zeros", vec![0; 100_000]),
        ("ones", vec![0xff; 100_000]),
        ("text", b"hello, world\n".repeat(500)),
        ("a web page", begins(b"<!DOCTYPE html>")),
        ("a pointer", begins(b"version https://git-lfs")),
        ("zip", begins(b"PK\x03\x04")),
        ("WebM", begins(b"\x1a\x45\xdf\xa3")),
        ("WMA", begins(b"\x30\x26\xb2\x75")),
        ("AMR", begins(b"#!AMR\n")),
        ("CAF", begins(b"caff\0\x01")),
        ("AU", begins(b".snd\0\0\0\x18")),
        ("RIFX", begins(b"RIFX\0\0\0\0WAVE")),
        ("Wave64", begins(b"riff\x2e\x91\xcf\x11")),
        ("AVI", begins(b"RIFF\0\0\0\0AVI ")),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

fn all_broken() -> Vec<Broken> {
    let parts = [cut_files(), flac(), ogg(), mp4(), aiff(), mp3_and_aac(), wav(), other_kinds()];
    parts.concat()
}

/// Reads all samples and returns their number.
fn count(audio: Result<AudioReader<'_>, Error>) -> Result<u64, Error> {
    let (mut audio, mut samples, mut count) = (audio?, vec![0.0; 4096], 0);
    loop {
        let read = audio.read(&mut samples)?;
        assert!(samples[..read].iter().all(|sample| sample.is_finite()));
        count += read as u64;
        if read < samples.len() {
            return Ok(count);
        }
    }
}

/// Runs all cases. Calls `each` with the name and the time of each.
pub fn run_all(each: &mut dyn FnMut(&str, Duration)) {
    let place = TemporaryFolder::new("compressed");
    let path = place.0.join("broken");
    let mut failures = Vec::new();
    let mut names = std::collections::HashSet::new();
    for (name, bytes) in all_broken() {
        assert!(names.insert(name.clone()), "{name} comes twice");
        fs::write(&path, &bytes).unwrap();
        let sources: [(&str, Reading<'_>); 2] = [
            ("a file", &|| count(AudioReader::open(&path, InputOptions::default()))),
            ("a pipe", &|| count(AudioReader::new(&bytes[..], InputOptions::default()))),
        ];
        for (source, read) in sources {
            let started = cpu_time();
            let (read, most) = most_bytes(read);
            let time = cpu_time() - started;
            each(&name, time);
            match read {
                Ok(count) => failures.push(format!("{name}, from {source}: {count} samples")),
                Err(error) if error.to_string().len() < 400 => (),
                Err(error) => failures.push(format!("{name}: {error}")),
            }
            if most > MEMORY || time > TIME {
                failures.push(format!("{name}, from {source}: {most} bytes, {time:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(names.len() >= 150, "{}", names.len());
}

#[test]
fn broken_files_are_errors() {
    run_all(&mut |_, _| ());
}

/// A pipe that never ends: a header without samples, a chunk, pages or frames for ever.
/// Bytes that are repeated for ever.
struct Endless {
    bytes: Vec<u8>,
    at: usize,
}

impl Endless {
    fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), at: 0 }
    }
}

impl Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.bytes[self.at..];
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.at = (self.at + count) % self.bytes.len();
        Ok(count)
    }
}

#[test]
fn endless_pipes_are_errors() {
    let zeros = || std::io::repeat(0);
    let junk = [b"RIFF\0\0\0\0WAVE", b"LIST\xfe\xff\xff\xff".as_slice()].concat();
    let chunks =
        std::iter::repeat_n(b"junk\0\0\0\0", 10_000).flatten().copied().collect::<Vec<u8>>();
    let index = b"\0\0\0\x18ftypM4A \0\0\0\0isomM4A \xff\xff\xff\xffmoov".to_vec();
    let page = file("vorbis.ogg")[..58].to_vec();
    let damaged = [&page[..57], b"!"].concat();
    let mut tag = b"TAG".to_vec();
    tag.resize(128, b' ');
    let segment = b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\x01\xff\xff\xff\xff\xff\xff\xff".to_vec();
    let after =
        |name: &str, more: &[u8]| std::io::Cursor::new(file(name)).chain(Endless::new(more));
    let readers: [(&str, Box<dyn Read + Send>); 13] = [
        ("zeros", Box::new(zeros())),
        ("ones", Box::new(std::io::repeat(0xff))),
        ("a chunk", Box::new(std::io::Cursor::new(junk).chain(zeros()))),
        ("chunks", Box::new(std::io::Cursor::new([b"RIFF\0\0\0\0WAVE", &chunks[..]].concat()))),
        ("an index", Box::new(std::io::Cursor::new(index).chain(zeros()))),
        ("a page", Box::new(std::io::Cursor::new(page).chain(zeros()))),
        ("damaged pages", Box::new(Endless::new(&damaged))),
        ("tags", Box::new(std::io::Cursor::new(file("mp3.mp3")).chain(Endless::new(&tag)))),
        ("void elements", Box::new(std::io::Cursor::new(segment).chain(Endless::new(b"\xec\x80")))),
        ("chunks after samples", Box::new(after("alaw.wav", b"LIST\0\0\0\0"))),
        ("recordings", Box::new(Endless::new(&simdformer_testing::riff::wav(&[1, -2])))),
        ("atoms", Box::new(after("aac-index-first.m4a", b"\0\0\0\x18ftypM4A \0\0\0\0isomM4A "))),
        ("frames", Box::new(std::io::Cursor::new(file("mp3.mp3")).chain(zeros()))),
    ];
    for (name, reader) in readers {
        let started = cpu_time();
        let (read, most) = most_bytes(|| count(AudioReader::new(reader, InputOptions::default())));
        assert!(read.is_err(), "{name}: {read:?}");
        assert!(
            most <= MEMORY && (cpu_time() - started) < 10 * TIME,
            "{name}: {:?}",
            cpu_time() - started
        );
    }
}

#[cfg(unix)]
#[test]
fn named_pipes_and_directories() {
    let place = TemporaryFolder::new("special");
    let open = |path: PathBuf| count(AudioReader::open(path, InputOptions::default()));
    assert!(open(place.0.clone()).unwrap_err().to_string().contains("is a directory"));
    assert!(open(place.0.join("none")).unwrap_err().to_string().contains("none: cannot be read: "));
    let pipe = place.0.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (bytes, expected) in [(b"no audio".to_vec(), None), (file("alaw.wav"), Some(8000))] {
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::write(pipe, bytes)
        });
        assert_eq!(open(pipe.clone()).ok(), expected);
        let _ = writer.join();
    }
}

/// One to four bytes changed, deleted or doubled in files of every format: an error or samples, in bounded memory and time,
/// and no panic.
#[test]
fn changed_files_are_errors_or_are_read() {
    let mut state = 1u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % limit.max(1)
    };
    let files = [
        "mp3.mp3",
        "mp3-mono-22050.mp3",
        "aac-index-first.m4a",
        "adts.aac",
        "alac.m4a",
        "flac.flac",
        "vorbis.ogg",
        "vorbis-48000.ogg",
        "aiff.aiff",
        "alaw.wav",
        "mulaw.wav",
        "sowt.aiff",
    ]
    .map(file);
    let rounds: usize =
        std::env::var("AUDIO_MUTATIONS").map_or(effort::cases(72, 180), |n| n.parse().unwrap());
    let (mut readable, mut most_of_all) = (0, 0);
    for number in 0..rounds {
        let mut bytes = files[number % files.len()].clone();
        // Most changes in the head, where the lengths are.
        let head = if below(3) > 0 { bytes.len().min(700) } else { bytes.len() };
        for _ in 0..1 + below(4) {
            let at = below(head.min(bytes.len()));
            match below(6) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << below(8),
                1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0xff][below(4)],
                2 => drop(bytes.drain(at..(at + 1 + below(8)).min(bytes.len()))),
                3 => bytes.insert(at, below(256) as u8),
                4 if at + 4 <= bytes.len() => bytes[at..at + 4].fill(0xff),
                5 if at + 4 <= bytes.len() => bytes[at..at + 4].fill(0),
                _ => (),
            }
        }
        let channel = [Channel::Mix, Channel::Index(0)][below(2)];
        let options = InputOptions { channel, ..InputOptions::default() };
        let started = cpu_time();
        let (read, most) = most_bytes(|| {
            std::panic::catch_unwind(|| {
                count(AudioReader::new(std::io::Cursor::new(&bytes), options))
            })
        });
        most_of_all = most_of_all.max(most);
        if read.is_err() || most > MEMORY || (cpu_time() - started) > 10 * TIME {
            fs::write(std::env::temp_dir().join(format!("audio-{number}")), &bytes).unwrap();
        }
        let read = read.unwrap_or_else(|_| panic!("{number}: a panic"));
        assert!(most <= MEMORY, "{number}: {most} bytes");
        assert!((cpu_time() - started) < 10 * TIME, "{number}: {:?}", cpu_time() - started);
        readable += usize::from(read.is_ok());
    }
    assert!(readable > rounds / 20 && readable < rounds, "{readable} of {rounds}");
}
