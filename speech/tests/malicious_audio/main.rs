//! Malicious WAV files and settings. Each is an error that names what is wrong, and takes at most 10 MB of
//! memory beside the file. Then thousands of files with random bytes changed.
//!
//! The time of each: `cargo test -p simdformer-speech --release --test malicious_audio -- --ignored
//! --nocapture`

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[cfg(feature = "files")]
mod files;
#[cfg(feature = "files")]
mod hostile;
mod transcriber_memory;

use counting::most_bytes;
use cpu_time::cpu_time;
use riff::{chunk, format, riff, wav};
use simdformer_speech::{Error, FeatureExtractor, Wav};
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_testing::{counting, cpu_time, riff};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Bytes beside those of the file.
const MEMORY: usize = 10 << 20;

/// Reads all samples and returns their number.
fn all<R: std::io::Read>(mut wav: Wav<R>) -> Result<usize, Error> {
    let mut samples = vec![0.0; 4096];
    let mut count = 0;
    loop {
        let read = wav.read(&mut samples)?;
        assert!(samples[..read].iter().all(|sample| sample.is_finite()));
        count += read;
        if read < samples.len() {
            return Ok(count);
        }
    }
}

/// A name, a file, and a part of the error.
type Attack = (&'static str, Vec<u8>, &'static str);

/// A file with one channel of four samples.
fn file() -> Vec<u8> {
    wav(&[1, -2, 3, -4])
}

/// `file` with other bytes at an offset.
fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// A file of this format with this data.
fn of(fields: &[u8], data: &[u8]) -> Vec<u8> {
    riff(&[chunk(b"fmt ", fields), chunk(b"data", data)])
}

fn cut_files() -> Vec<Attack> {
    let cut = |length: usize| file()[..length].to_vec();
    vec![
        ("empty", Vec::new(), "expected a WAV file, found an empty file"),
        ("RIFF and no more", cut(4), "found the beginning of a RIFF file, cut short"),
        ("cut before its kind", cut(11), "found the beginning of a RIFF file, cut short"),
        (
            "no chunks",
            cut(12),
            "chunks: expected `fmt ` and `data`, found the end of the file after 12 bytes",
        ),
        ("cut in the head of `fmt `", cut(17), "found the end of the file after 17 bytes"),
        (
            "cut in `fmt `",
            cut(30),
            "the chunk `fmt `: expected 16 bytes, found 10 to the end of the file",
        ),
        (
            "cut after `fmt `",
            cut(36),
            "chunks: expected `data`, found the end of the file after 36 bytes",
        ),
        ("cut in the head of `data`", cut(43), "found the end of the file after 43 bytes"),
        ("no sample of `data`", cut(44), "the file ends too early: expected 4 samples, found 0"),
        ("cut in `data`", cut(48), "the file ends too early: expected 4 samples, found 2"),
        ("cut in a sample", cut(51), "the file ends too early: expected 4 samples, found 3"),
        (
            "cut in a chunk of text",
            riff(&[chunk(b"LIST", &[b'x'; 100])])[..50].to_vec(),
            "the chunk `LIST`: expected 100 bytes, found 30 to the end of the file",
        ),
    ]
}

fn lengths_and_chunks() -> Vec<Attack> {
    let fields = format(1, 1, 16_000, 16);
    let huge = |name: &[u8; 4]| [name.as_slice(), &[0xfe, 0xff, 0xff, 0xff]].concat();
    let [fmt, data] = [chunk(b"fmt ", &fields), chunk(b"data", &[0; 8])];
    vec![
        (
            "`fmt ` of 4 GiB",
            with(16, &[0xff; 4]),
            "the chunk `fmt `: expected 4294967295 bytes, found 32 to the end of the file",
        ),
        (
            "`data` of 1 GiB",
            with(40, &[0xfe, 0xff, 0xff, 0x3f]),
            "the file ends too early: expected 536870911 samples, found 4",
        ),
        (
            "text of 4 GiB",
            riff(&[fmt.clone(), huge(b"LIST"), data.clone()]),
            "the chunk `LIST`: expected 4294967294 bytes, found 16 to the end of the file",
        ),
        (
            "a name that is none",
            riff(&[fmt.clone(), huge(b"\x00\xff`\n")]),
            "the chunk `\\x00\\xff`\\n`: expected 4294967294 bytes",
        ),
        ("half a sample", of(&fields, &[0; 7]), "`data`: expected a multiple of 2 bytes"),
        (
            "`data` before `fmt `",
            riff(&[data.clone(), fmt.clone()]),
            "expected `fmt ` before `data`",
        ),
        (
            "two `fmt `",
            riff(&[fmt.clone(), fmt.clone(), data.clone()]),
            "expected one `fmt `, found two",
        ),
        (
            "no `data`",
            riff(&[fmt.clone(), chunk(b"LIST", b"text")]),
            "chunks: expected `data`, found the end of the file after 48 bytes",
        ),
        ("no `fmt `", riff(&[chunk(b"LIST", b"text"), data]), "expected `fmt ` before `data`"),
        (
            "a million chunks of nothing",
            riff(&vec![chunk(b"junk", b""); 1_000_000]),
            "chunks: expected at most 1000 before the samples, found more",
        ),
    ]
}

fn formats() -> Vec<Attack> {
    let fields = |tag, channels, rate, bits| of(&format(tag, channels, rate, bits), &[0; 16]);
    let tag = |tag| fields(tag, 1, 16_000, 16);
    let extensible = |tag: u16, rest: u8, length: usize| {
        let mut fields = format(0xfffe, 1, 16_000, 16);
        fields.extend([22, 0, 16, 0, 0, 0, 0, 0]);
        fields.extend(tag.to_le_bytes());
        fields.extend(b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b");
        fields.push(rest);
        of(&fields[..length], &[0; 16])
    };
    vec![
        ("`fmt ` of nothing", of(&[], &[0; 8]), "`fmt `: expected at least 16 bytes, found 0"),
        (
            "`fmt ` of 14 bytes",
            of(&[0; 14], &[0; 8]),
            "`fmt `: expected at least 16 bytes, found 14",
        ),
        ("no channels", with(22, &[0, 0]), "channels: expected 1 to 64, found 0"),
        ("65535 channels", with(22, &[0xff, 0xff]), "channels: expected 1 to 64, found 65535"),
        ("a rate of 0", with(24, &[0; 4]), "samples a second: expected 1 to 768000, found 0"),
        ("a rate of 4 GHz", with(24, &[0xff; 4]), "expected 1 to 768000, found 4294967295"),
        ("7 bits", with(34, &[7, 0]), "bits of a sample: expected 8, 16, 24 or 32, found 7"),
        ("no bits", with(34, &[0, 0]), "bits of a sample: expected 8, 16, 24 or 32, found 0"),
        ("65535 bits", with(34, &[0xff, 0xff]), "expected 8, 16, 24 or 32, found 65535"),
        ("64 bits", fields(1, 1, 16_000, 64), "expected 8, 16, 24 or 32, found 64"),
        ("floats of 16 bits", tag(3), "bits of a float: expected 32 or 64, found 16"),
        (
            "blocks of nothing",
            with(32, &[0, 0]),
            "bytes of a block: expected 2, 1 channels of 16 bits, found 0",
        ),
        (
            "blocks of 64 KiB",
            with(32, &[0xff, 0xff]),
            "expected 2, 1 channels of 16 bits, found 65535",
        ),
        (
            "ADPCM",
            tag(2),
            "the format: expected PCM (1), floats (3), A-law (6) or mu-law (7), found 2 (ADPCM)",
        ),
        ("A-law of 16 bits", tag(6), "bits of A-law or mu-law: expected 8, found 16"),
        ("MP3 in a WAV file", tag(0x55), "found 85 (MP3)"),
        ("format 0", tag(0), "expected PCM (1), floats (3), A-law (6) or mu-law (7), found 0"),
        (
            "format 65535",
            tag(0xffff),
            "expected PCM (1), floats (3), A-law (6) or mu-law (7), found 65535",
        ),
        ("half of an extension", extensible(1, 0x71, 24), "expected 40 bytes, found 24"),
        (
            "an extension that is another's",
            extensible(1, 0x72, 40),
            "expected PCM (1), floats (3), A-law (6) or mu-law (7), found ",
        ),
        (
            "an extension of an extension",
            extensible(0xfffe, 0x71, 40),
            "found 65534 (extensible twice)",
        ),
        ("ADPCM in an extension", extensible(2, 0x71, 40), "found 2 (ADPCM)"),
    ]
}

fn other_kinds() -> Vec<Attack> {
    let begins = |begin: &[u8]| [begin, &[0x55; 64]].concat();
    let kind = |kind: &[u8; 4]| with(8, kind);
    vec![
        ("RIFX", with(0, b"RIFX"), "found a RIFX file"),
        ("BW64", begins(b"BW64\xff\xff\xff\xffAIFC"), "found an RF64 file of another kind"),
        ("Wave64", begins(b"riff\x2e\x91\xcf\x11"), "found a Wave64 file"),
        ("AVI", kind(b"AVI "), "found an AVI file"),
        ("another RIFF", kind(b"WEBP"), "found a RIFF file of another kind"),
        (
            "MP3 with a title",
            begins(b"ID3\x04"),
            "found an MP3 file; `ffmpeg -i FILE -ac 1 OUT.wav`",
        ),
        ("MP3", begins(b"\xff\xfb\x90\x64"), "found an MP3 file"),
        ("AAC", begins(b"\xff\xf1\x50\x80"), "found an AAC file"),
        ("FLAC", begins(b"fLaC\0\0\0\x22"), "found a FLAC file"),
        ("Ogg", begins(b"OggS\0\x02"), "found an Ogg file (Vorbis or Opus)"),
        ("M4A", begins(b"\0\0\0\x20ftypM4A "), "found an MP4 or M4A file"),
        ("AIFF", begins(b"FORM\0\0\x10\0AIFF"), "found an AIFF file"),
        ("CAF", begins(b"caff\0\x01"), "found a CAF file"),
        ("AU", begins(b".snd\0\0\0\x18"), "found an AU file"),
        ("WebM", begins(b"\x1a\x45\xdf\xa3"), "found a WebM or Matroska file"),
        ("WMA", begins(b"\x30\x26\xb2\x75"), "found a WMA file"),
        ("AMR", begins(b"#!AMR\n"), "found an AMR file"),
        ("zip", begins(b"PK\x03\x04"), "found a compressed archive"),
        ("a pointer", begins(b"version https://git-lfs"), "found a Git-LFS pointer"),
        ("a web page", begins(b"<!DOCTYPE html>"), "found a web page or XML"),
        ("text", begins(b"hello, world"), "expected a WAV file, found something else"),
        ("zeros", vec![0; 4096], "expected a WAV file, found something else"),
    ]
}

fn samples() -> Vec<Attack> {
    let floats = |channels, values: &[f32]| {
        let data: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        of(&format(3, channels, 16_000, 32), &data)
    };
    let doubles = |values: &[f64]| {
        let data: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        of(&format(3, 1, 16_000, 64), &data)
    };
    vec![
        ("NaN", floats(1, &[0.0, 1.0, f32::NAN]), "sample 2: expected a finite number, found NaN"),
        ("infinity", floats(1, &[f32::INFINITY]), "sample 0: expected a finite number, found inf"),
        (
            "one channel's",
            floats(2, &[0.0, 0.0, 0.5, f32::NEG_INFINITY]),
            "sample 1: expected a finite number, found -inf",
        ),
        (
            "two that cancel",
            floats(2, &[f32::INFINITY, f32::NEG_INFINITY]),
            "sample 0: expected a finite number, found NaN",
        ),
        (
            "a double NaN",
            doubles(&[0.0, f64::NAN]),
            "sample 1: expected a finite number, found NaN",
        ),
        ("beyond floats", doubles(&[1e300]), "sample 0: expected a finite number, found inf"),
    ]
}

fn attacks() -> Vec<Attack> {
    [cut_files(), lengths_and_chunks(), formats(), other_kinds(), samples()].concat()
}

/// Runs all cases. Calls `each` with the name and the time of each.
fn run_all(each: &mut dyn FnMut(&str, Duration)) {
    let place = TemporaryFolder::new("files");
    let path = place.0.join("attack.wav");
    let mut failures = Vec::new();
    let mut names = std::collections::HashSet::new();
    for (name, bytes, message) in attacks() {
        assert!(names.insert(name), "{name} comes twice");
        fs::write(&path, &bytes).unwrap();
        let started = cpu_time();
        let (read, most) = most_bytes(|| Wav::open(&path).and_then(all));
        each(name, cpu_time() - started);
        match read {
            Ok(count) => failures.push(format!("{name}: {count} samples")),
            Err(error) if error.to_string().contains(message) => (),
            Err(error) => failures.push(format!("{name}: {error}")),
        }
        assert!(most <= MEMORY, "{name}: {most} bytes");
        // From a pipe, whose length is not known.
        let (read, most) = most_bytes(|| Wav::new(&bytes[..]).and_then(all));
        assert!(most <= MEMORY, "{name} from a pipe: {most} bytes");
        if read.is_ok() {
            failures.push(format!("{name}: read from a pipe"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(names.len() >= 70, "{}", names.len());
}

#[test]
fn malicious_files_are_errors() {
    assert_eq!(Wav::new(&file()[..]).and_then(all).unwrap(), 4);
    run_all(&mut |_, _| ());
}

#[test]
#[ignore = "prints times"]
fn times() {
    let mut times = Vec::new();
    run_all(&mut |name, time| times.push((time, name.to_owned())));
    settings(&mut |name, time| times.push((time, name.to_owned())));
    #[cfg(feature = "files")]
    files::run_all(&mut |name, time| times.push((time, name.to_owned())));
    times.sort();
    let (all, last) = (times.len(), &times[times.len().saturating_sub(5)..]);
    writeln!(std::io::stderr(), "the slowest of {all}: {last:?}").unwrap();
}

/// Runs the cases of settings. Calls `each` with the name and the time of each.
fn settings(each: &mut dyn FnMut(&str, Duration)) {
    let place = TemporaryFolder::new("settings");
    let mut refused = |file: &str, name: &str, text: &[u8], message: &str| {
        fs::write(place.0.join(file), text).unwrap();
        let started = cpu_time();
        let (read, most) = most_bytes(|| FeatureExtractor::from_dir(&place.0));
        each(name, cpu_time() - started);
        let error = read.err().unwrap_or_else(|| panic!("{name} was read")).to_string();
        assert!(error.contains(message) && error.contains(file), "{name}: {error}");
        assert!(most <= MEMORY, "{name}: {most} bytes");
        fs::remove_file(place.0.join(file)).unwrap();
    };
    const FILE: &str = "preprocessor_config.json";
    let long = [b"[", "0,".repeat(200_000).as_bytes(), b"0]"].concat();
    for (name, text, message) in [
        ("nothing", &b""[..], "expected JSON, found an error: EOF"),
        ("half of it", b"{\"feature_size\": 8", "expected JSON, found an error: EOF"),
        ("a list", b"[80]", "expected a JSON object"),
        ("brackets", &[b'['; 100_000], "expected JSON, found an error: recursion limit exceeded"),
        ("no text", b"\xff\xfe\x00", "expected JSON"),
        ("much", &long, "expected at most 262144 bytes, found 400003"),
        ("a pointer", b"version https://git-lfs.github.com/spec/v1\n", "a Git-LFS pointer"),
        ("a web page", b"<html></html>", "a web page"),
    ] {
        refused(FILE, name, text, message);
    }
    for (text, message) in [
        (r#""feature_size": 0"#, "feature_size: expected a number from 1 to 256, found 0"),
        (r#""feature_size": -80"#, "feature_size: expected a number from 1 to 256, found -80"),
        (r#""feature_size": 80.5"#, "feature_size: expected a number from 1 to 256, found 80.5"),
        (r#""feature_size": "80""#, "feature_size: expected a number from 1 to 256, found \"80\""),
        (r#""feature_size": 4000000000"#, "from 1 to 256, found 4000000000"),
        (r#""feature_size": 18446744073709551615"#, "found 18446744073709551615"),
        (r#""feature_size": [80]"#, "feature_size: expected a number from 1 to 256, found [80]"),
        (r#""chunk_length": 0"#, "chunk_length: expected a number from 1 to 60, found 0"),
        (r#""chunk_length": 4000000000"#, "from 1 to 60, found 4000000000"),
        (r#""sampling_rate": 44100"#, "sampling_rate: expected 16000, found 44100"),
        (r#""n_fft": 512"#, "n_fft: expected 400, found 512"),
        (r#""n_fft": 0"#, "n_fft: expected 400, found 0"),
        (r#""hop_length": 0"#, "hop_length: expected 160, found 0"),
        (r#""hop_length": true"#, "hop_length: expected 160, found true"),
        (r#""n_samples": 480001"#, "n_samples: expected 480000, found 480001"),
        (r#""chunk_length": 20, "n_samples": 480000"#, "n_samples: expected 320000, found 480000"),
        (r#""nb_max_frames": 1500"#, "nb_max_frames: expected 3000, found 1500"),
        (r#""padding_value": 1.0"#, "padding_value: expected 0, found 1.0"),
        (r#""padding_value": "0""#, "padding_value: expected 0, found \"0\""),
        (r#""dither": 0.0001"#, "dither: expected 0, found 0.0001"),
        (r#""padding_side": "left""#, "padding_side: expected \"right\", found \"left\""),
        (r#""do_normalize": true"#, "do_normalize: expected false, found true"),
        (r#""feature_extractor_type": 3"#, "feature_extractor_type: expected a text, found 3"),
        (
            r#""feature_extractor_type": "Speech2TextFeatureExtractor""#,
            "expected \"WhisperFeatureExtractor\", found \"Speech2TextFeatureExtractor\"",
        ),
    ] {
        refused(FILE, text, format!("{{{text}}}").as_bytes(), message);
    }
    for (text, message) in [
        ("{}", "feature_extractor: expected an object of settings, found null"),
        (
            r#"{"feature_extractor": []}"#,
            "feature_extractor: expected an object of settings, found []",
        ),
        (r#"{"feature_extractor": {"n_fft": 1}}"#, "n_fft: expected 400, found 1"),
    ] {
        refused("processor_config.json", text, text.as_bytes(), message);
    }
}

#[test]
fn settings_of_other_models_are_errors() {
    settings(&mut |_, _| ());
}

#[test]
fn directories_in_place_of_files_and_files_in_place_of_directories() {
    let place = TemporaryFolder::new("turned");
    let error = |path: &Path| Wav::open(path).unwrap_err().to_string();
    assert!(error(&place.0).contains("is a directory"), "{}", error(&place.0));
    assert!(error(&place.0.join("none.wav")).contains("none.wav: cannot be read: "));
    fs::create_dir(place.0.join("preprocessor_config.json")).unwrap();
    assert!(FeatureExtractor::from_dir(&place.0).is_err());
    for (bins, seconds, message) in [
        (0, 30, "mel bins: expected 1 to 256, found 0"),
        (usize::MAX, 30, "mel bins: expected 1 to 256, found "),
        (80, 0, "seconds: expected 1 to 60, found 0"),
        (80, usize::MAX, "seconds: expected 1 to 60, found "),
    ] {
        let error = FeatureExtractor::whisper(bins, seconds).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// One to four bytes changed, deleted or doubled, in files of every format: an error or samples, in bounded
/// memory.
#[test]
fn changed_files_are_errors_or_are_read() {
    let list = chunk(b"LIST", b"INFO, odd");
    let files = [(1, 2, 16), (3, 1, 32), (1, 1, 24), (3, 2, 64)].map(|(tag, channels, bits)| {
        let data: Vec<u8> = (0..96).collect();
        riff(&[
            list.clone(),
            chunk(b"fmt ", &format(tag, channels, 16_000, bits)),
            chunk(b"data", &data),
        ])
    });
    let mut state = 1u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % limit.max(1)
    };
    let mut readable = 0;
    let count = 40_000;
    for number in 0..count {
        let mut bytes = files[number % files.len()].clone();
        for _ in 0..1 + below(4) {
            let at = below(bytes.len());
            match below(6) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << below(8),
                1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0xff][below(4)],
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..(at + 1 + below(8)).min(bytes.len()))),
                4 => bytes.insert(at, below(256) as u8),
                _ if at + 4 <= bytes.len() => bytes[at..at + 4].fill(0xff),
                _ => (),
            }
        }
        let (read, most) = most_bytes(|| Wav::new(&bytes[..]).and_then(all));
        assert!(most <= MEMORY, "{number}: {most} bytes");
        match read {
            Ok(samples) => {
                assert!(samples <= bytes.len(), "{number}: {samples}");
                readable += 1;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(readable > count / 100 && readable < count, "{readable} of {count}");
}
