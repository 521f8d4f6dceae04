//! Sound as it is recorded: files that were joined, tagged, cut, sent through a pipe, or not ended. `golden/audio_files.py` writes the
//! files; the variants of each are made here.

use simdformer_speech::{AudioReader, Error, Incomplete, InputOptions, Wav};
use simdformer_testing::directories::golden;
use simdformer_testing::effort::cases;
use simdformer_testing::riff::{chunk, format, riff};
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A file, and whether its index is at its end, so that it needs a file and not a pipe.
pub(crate) const FILES: [(&str, bool); 35] = [
    ("aac.m4a", true),
    ("aac-dash.m4a", false),
    ("aac-fragments.m4a", false),
    ("aac-index-first.m4a", false),
    ("aac-recorder.mp4", false),
    ("aac.mkv", false),
    ("adts.aac", false),
    ("adts-16000.aac", false),
    ("aiff.aiff", false),
    ("aiff-24.aiff", false),
    ("alac.m4a", true),
    ("alac-recorder.mp4", false),
    ("alaw.wav", false),
    ("flac.flac", false),
    ("flac.ogg", false),
    ("mp3.mp3", false),
    ("mp3-8000.mp3", false),
    ("mp3-mono-22050.mp3", false),
    ("mp3-no-header.mp3", false),
    ("mp3.mkv", false),
    ("mp3.mp4", true),
    ("mulaw.wav", false),
    ("opus.mp4", true),
    ("opus.ogg", false),
    ("opus.webm", false),
    ("opus-live.webm", false),
    ("opus-recorder.mp4", false),
    ("opus-voice.ogg", false),
    ("pcm-live.mkv", false),
    ("sowt.aiff", false),
    ("vorbis.ogg", false),
    ("vorbis.webm", false),
    ("vorbis-8000.ogg", false),
    ("vorbis-48000.ogg", false),
    ("wave64.w64", false),
];
/// Samples at the end that the filter of another rate computes with silence.
pub(crate) const EDGE: usize = 200;

/// A pipe that gives a few bytes at a time, and is interrupted.
struct Pipe<'b>(&'b [u8], usize);

impl Read for Pipe<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(7) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (now, rest) = self.0.split_at((1 + self.1 * 31 % 600).min(out.len()).min(self.0.len()));
        out[..now.len()].copy_from_slice(now);
        self.0 = rest;
        Ok(now.len())
    }
}

pub(crate) type Sound = (Vec<f32>, Option<Incomplete>);

/// All samples that there are, and where some are missing.
pub(crate) fn present(audio: Result<AudioReader<'_>, Error>) -> Result<Sound, Error> {
    let (mut audio, mut samples, mut next) = (audio?, Vec::new(), [0.0; 999]);
    loop {
        let read = audio.read_present(&mut next)?;
        samples.extend(&next[..read]);
        if read < next.len() {
            return Ok((samples, audio.incomplete().cloned()));
        }
    }
}

/// The first error of reading that accepts no missing sound.
fn strict(mut audio: AudioReader<'_>) -> Option<String> {
    let mut next = [0.0; 999];
    loop {
        match audio.read(&mut next) {
            Ok(read) if read < next.len() => return None,
            Ok(_) => (),
            Err(error) => return Some(error.to_string()),
        }
    }
}

pub(crate) fn of_pipe(bytes: &[u8]) -> Result<Sound, Error> {
    present(AudioReader::new(Pipe(bytes, 0), InputOptions::default()))
}

/// What a file and a pipe of these bytes give, which is the same.
pub(crate) fn sound(name: &str, bytes: &[u8], needs_file: bool) -> Result<Sound, String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = format!("simdformer-sound-{}-{number}-{name}", std::process::id());
    let path = std::env::temp_dir().join(path);
    fs::write(&path, bytes).unwrap();
    let open = || AudioReader::open(&path, InputOptions::default());
    let found = present(open()).map_err(|error| error.to_string());
    // By day every third one.
    if let (Ok((_, Some(incomplete))), 0) = (&found, number % cases(3, 1)) {
        assert_eq!(strict(open().unwrap()), Some(incomplete.to_string()), "{name}");
    }
    fs::remove_file(&path).unwrap();
    if !needs_file {
        let piped = of_pipe(bytes).map_err(|error| error.to_string());
        assert!(piped == found, "{name}: a pipe has other samples");
    }
    found
}

/// The sound of one of the files, which is decoded once for all tests.
pub(crate) fn whole_sound(name: &str) -> &'static Sound {
    static FOUND: [OnceLock<Sound>; FILES.len()] = [const { OnceLock::new() }; FILES.len()];
    let place = FILES.iter().position(|&(file, _)| file == name).unwrap();
    FOUND[place].get_or_init(|| sound(name, &whole(name), FILES[place].1).unwrap())
}

pub(crate) fn whole(name: &str) -> Vec<u8> {
    fs::read(golden("audio").join(name)).unwrap()
}

pub(crate) fn id3v2() -> Vec<u8> {
    // A picture with bytes that look like frames.
    [b"ID3\x04\0\0\0\0\x07\x68".to_vec(), b"\xff\xfb\x90\x64".repeat(250)].concat()
}

pub(crate) fn ape() -> Vec<u8> {
    let part = |flags: u32| {
        [
            b"APETAGEX".to_vec(),
            2000u32.to_le_bytes().to_vec(),
            44u32.to_le_bytes().to_vec(),
            1u32.to_le_bytes().to_vec(),
            flags.to_le_bytes().to_vec(),
            vec![0; 8],
        ]
        .concat()
    };
    [part(0xa000_0000), b"\x03\0\0\0\0\0\0\0key\0".to_vec(), part(0x8000_0000)].concat()
}

pub(crate) fn id3v1() -> Vec<u8> {
    [b"TAG".to_vec(), vec![b'x'; 125]].concat()
}

pub(crate) fn extension(name: &str) -> &str {
    match name.rsplit('.').next().unwrap() {
        "m4a" => "mp4",
        "webm" => "mkv",
        extension => extension,
    }
}

/// The seconds of samples at 16 kHz.
pub(crate) fn seconds(samples: &[f32]) -> f64 {
    samples.len() as f64 / 16_000.0
}

#[test]
fn every_file_is_whole() {
    for (name, _) in FILES {
        let (samples, incomplete) = whole_sound(name);
        assert_eq!(*incomplete, None, "{name}");
        assert!((0.49..0.56).contains(&seconds(samples)), "{name}: {} s", seconds(samples));
    }
}

#[test]
fn tags_at_both_ends_are_no_sound() {
    for (name, _) in FILES {
        let bytes = whole(name);
        let expected = whole_sound(name);
        let tagged = match name.rsplit('.').next().unwrap() {
            "mp3" | "aac" => [id3v2(), id3v2(), bytes, ape(), id3v1()].concat(),
            "flac" => [id3v2(), bytes, id3v1()].concat(),
            "wav" | "aiff" | "w64" => [id3v2(), bytes].concat(),
            _ => continue,
        };
        assert!(sound(name, &tagged, false).unwrap() == *expected, "{name}");
    }
}

#[test]
fn a_file_that_is_cut_gives_what_there_is() {
    let (mut count, mut silent) = (0, Vec::new());
    for (name, needs_file) in FILES {
        let bytes = whole(name);
        let (expected, _) = whole_sound(name);
        for percent in cases(vec![48, 86], (30..100).collect::<Vec<usize>>()) {
            count += 1;
            let cut = &bytes[..bytes.len() * percent / 100];
            let (samples, incomplete) = match sound(name, cut, needs_file) {
                Ok(found) => found,
                // The index was at the end.
                Err(error) if needs_file => {
                    assert!(error.contains("it has no index"), "{name}, {percent} %: {error}");
                    continue;
                }
                // Not even the first packet is there, which follows long headers in Vorbis, or the first page, which has
                // half a second.
                Err(error) => {
                    let none = percent < 50
                        || name.ends_with(".ogg")
                        || name == "alac-recorder.mp4"
                        || (name == "vorbis.webm" && percent < 80);
                    assert!(none, "{name}, {percent} %: {error}");
                    continue;
                }
            };
            let same = samples.len().saturating_sub(EDGE).min(expected.len());
            assert!(samples[..same] == expected[..same], "{name}, {percent} %");
            let Some(incomplete) = incomplete else {
                silent.push((name, percent));
                continue;
            };
            // Times are those of what there is.
            let found = incomplete.seconds - seconds(&samples);
            assert!(found.abs() < 0.1, "{name}, {percent} %: {incomplete}");
            // The bytes of most of it are there; the headers of Vorbis are most of a short file.
            let headers = match name {
                // Its second packet, which is the first one with samples, ends at 80 %.
                "vorbis.webm" => 0.8,
                _ if name.starts_with("vorbis") => 0.65,
                _ => 0.4,
            };
            let least = expected.len() as f64 * (percent as f64 / 100.0 - headers);
            assert!(samples.len() as f64 > least, "{name}, {percent} %: {} samples", samples.len());
        }
    }
    // Cuts after the last sample, or between two frames or blocks of a file without a length.
    assert!(silent.len() * 20 < count, "{silent:?}");
}

/// Fragments with any sound before them: any of them is left out, and the file is cut after any of them.
#[test]
fn each_fragment_is_heard() {
    // The rate, the samples of a packet, and those before the first one that is heard.
    const FRAGMENTED: [(&str, usize, usize, usize); 4] = [
        ("aac-dash.m4a", 44_100, 1024, 1024),
        ("aac-fragments.m4a", 16_000, 1024, 1024),
        ("aac-recorder.mp4", 48_000, 1024, 1024),
        ("opus-recorder.mp4", 48_000, 960, 312),
    ];
    let mut count = 0;
    for (name, rate, packet, delay) in FRAGMENTED {
        let file = whole(name);
        let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        // The number of packets in a part of the index.
        let packets_of = |range: Range<usize>, kind: &[u8], skipped: usize| {
            let found = file[range.clone()].windows(4).position(|four| four == kind);
            found.map_or(0, |found| number(range.start + found + skipped))
        };
        // Places of `moof`, of the `mdat` after it and of its end; and packets.
        let (mut before, mut fragments, mut at) = (0, Vec::new(), 0);
        while at < file.len() {
            let end = at + number(at);
            match &file[at + 4..at + 8] {
                b"moov" => before = packets_of(at..end, b"stsz", 12),
                b"moof" => {
                    fragments.push((at, end, end + number(end), packets_of(at..end, b"trun", 8)));
                }
                _ => (),
            }
            at = end;
        }
        assert!(fragments.len() >= 4, "{name}: {fragments:?}");
        let all: u32 = 1 << fragments.len();
        let some = (0..fragments.len()).map(|i| 1 << i).chain([0, all / 2 - 1, all - 1]).collect();
        for kept in cases(some, (0..all).collect::<Vec<u32>>()) {
            let (mut edited, mut packets, mut last) = (file.clone(), before, fragments[0].0);
            for (place, &(moof, mdat, end, more)) in fragments.iter().enumerate() {
                if kept >> place & 1 == 1 {
                    (packets, last) = (packets + more, end);
                } else {
                    edited[moof + 4..moof + 8].copy_from_slice(b"free");
                    edited[mdat + 4..mdat + 8].copy_from_slice(b"free");
                }
            }
            let heard = (packets * packet).saturating_sub(delay);
            if heard == 0 {
                continue;
            }
            for length in [edited.len(), last] {
                count += 1;
                let (samples, _) = sound(name, &edited[..length], false).unwrap();
                let expected = (heard * 16_000).div_ceil(rate);
                let found = samples.len();
                assert!(
                    found.abs_diff(expected) <= 1,
                    "{name}, {kept:b}, {length} bytes: {found} of {expected}"
                );
            }
        }
    }
    assert!(count >= 40, "{count}");
}

/// WAV of every sample format, rate and number of channels, whose writer could not seek back or was killed, and that is cut.
#[test]
fn wav_files_without_lengths_are_read_to_the_end() {
    const FORMATS: [(u16, u16); 8] =
        [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (6, 8), (7, 8)];
    // The length of the file and that of the samples.
    const LENGTHS: [(u32, u32); 12] = [
        (0, 0),
        (36, 0),
        (u32::MAX, 0),
        (0x7fff_ffff, 0),
        (u32::MAX, u32::MAX),
        (0, u32::MAX),
        (0x7fff_f024, 0x7fff_f000),
        (0x7fff_ffff, 0x7fff_ffdb),
        (0x8000_0024, 0x8000_0000),
        (u32::MAX, 0xffff_ffdb),
        (0x7fff_ff24, 0x7fff_ff00),
        (0xffff_f024, 0xffff_f000),
    ];
    let mut count = 0;
    let all = vec![8000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
    for rate in cases(vec![8000, 16_000, 44_100], all) {
        for channels in [1, 2] {
            for (tag, bits) in FORMATS {
                let frames = (rate as usize / 20) & !1;
                let block = usize::from(channels * bits / 8);
                let data: Vec<u8> = match tag {
                    3 if bits == 32 => (0..frames * usize::from(channels))
                        .flat_map(|i| (i as f32 * 0.01).sin().to_le_bytes())
                        .collect(),
                    3 => (0..frames * usize::from(channels))
                        .flat_map(|i| (i as f64 * 0.01).sin().to_le_bytes())
                        .collect(),
                    _ => (0..frames * block).map(|i| (i * 7 % 251) as u8).collect(),
                };
                let mut file = riff(&[
                    chunk(b"fmt ", &format(tag, channels, rate, bits)),
                    chunk(b"data", &data),
                ]);
                let what = format!("{rate} Hz, {channels} channels, format {tag} of {bits} bits");
                let expected = of_pipe(&file).unwrap();
                assert_eq!(expected.1, None);
                for (number, (all, samples)) in LENGTHS.into_iter().enumerate() {
                    // All of them for the usual files.
                    if cases((tag, bits) != (1, 16) && number != 1 && number != 6, false) {
                        continue;
                    }
                    count += 1;
                    file[4..8].copy_from_slice(&all.to_le_bytes());
                    file[40..44].copy_from_slice(&samples.to_le_bytes());
                    assert_eq!(
                        sound("open.wav", &file, false).unwrap(),
                        expected,
                        "{what}, {samples:x}"
                    );
                    // A part of a sample is none.
                    if block > 1 {
                        let more = [&file[..], &vec![0; block - 1]].concat();
                        assert!(of_pipe(&more).unwrap() == expected, "{what}, {samples:x}");
                    }
                }
                // A header with a length says that the file is cut.
                file[40..44].copy_from_slice(&(data.len() as u32).to_le_bytes());
                let (samples, incomplete) =
                    sound("cut.wav", &file[..44 + data.len() / 2], false).unwrap();
                let half = frames / 2;
                assert_eq!(samples.len(), (half * 16_000).div_ceil(rate as usize), "{what}");
                let message = incomplete.unwrap().to_string();
                let expected = format!(
                    "WAV, after 0.03 s: the file ends too early: expected {frames} samples, found {half}"
                );
                assert!(message.replace("0.02", "0.03") == expected, "{what}: {message}");
            }
        }
    }
    assert!(count >= 150, "{count}");
}

/// Files that really have no samples, and chunks after them.
#[test]
fn a_length_of_0_may_be_true() {
    let fields = chunk(b"fmt ", &format(1, 1, 16_000, 16));
    let text = chunk(b"LIST", b"INFOISFT\x04\0\0\0abcd");
    for chunks in
        [vec![fields.clone(), chunk(b"data", b"")], vec![fields, chunk(b"data", b""), text]]
    {
        let file = riff(&chunks);
        assert_eq!(of_pipe(&file).unwrap(), (Vec::new(), None));
        let mut wav = Wav::new(&file[..]).unwrap();
        assert_eq!((wav.samples(), wav.read(&mut [0.0; 9]).unwrap()), (Some(0), 0));
    }
}

/// Lengths of more than 32 bits that were not written.
#[test]
fn long_files_without_lengths_are_read_to_the_end() {
    let data: Vec<u8> = (0..64).collect();
    let samples =
        of_pipe(&riff(&[chunk(b"fmt ", &format(1, 1, 16_000, 16)), chunk(b"data", &data)]))
            .unwrap();
    for name in [b"RF64", b"BW64"] {
        for unknown in [0, u64::MAX, i64::MAX as u64] {
            let sizes = [&unknown.to_le_bytes()[..], &unknown.to_le_bytes(), &[0; 12]].concat();
            let mut file =
                riff(&[chunk(b"ds64", &sizes), chunk(b"fmt ", &format(1, 1, 16_000, 16))]);
            file[..8].copy_from_slice(&[&name[..], &[0xff; 4]].concat());
            file.extend(b"data\xff\xff\xff\xff");
            file.extend(&data);
            assert!(sound("rf64.wav", &file, false).unwrap() == samples, "{unknown:x}");
        }
    }
    let file = whole("wave64.w64");
    let expected = sound("wave64.w64", &file, false).unwrap();
    let at = file.windows(4).position(|bytes| bytes == b"data").unwrap() + 16;
    for unknown in [0, 24, u64::MAX, i64::MAX as u64] {
        let mut file = file.clone();
        file[at..at + 8].copy_from_slice(&unknown.to_le_bytes());
        assert!(sound("open.w64", &file, false).unwrap() == expected, "{unknown:x}");
    }
    let file = whole("aiff.aiff");
    let expected = sound("aiff.aiff", &file, false).unwrap();
    let frames = file.windows(4).position(|bytes| bytes == b"COMM").unwrap() + 10;
    let size = file.windows(4).position(|bytes| bytes == b"SSND").unwrap() + 4;
    for unknown in [0u32, u32::MAX, 0x7fff_ffff, 0x7fff_f000] {
        let mut file = file.clone();
        file[frames..frames + 4].copy_from_slice(&unknown.to_be_bytes());
        file[size..size + 4].copy_from_slice(&unknown.to_be_bytes());
        assert!(sound("open.aiff", &file, false).unwrap() == expected, "{unknown:x}");
    }
}

/// A FLAC file that was written into a pipe has neither a length nor a checksum of all samples.
#[test]
fn frames_of_flac_that_are_cut_or_damaged_are_noted() {
    let mut file = whole("flac.flac");
    let expected = sound("flac.flac", &file, false).unwrap();
    file[21] &= 0xf0;
    file[22..42].fill(0);
    assert!(sound("open.flac", &file, false).unwrap() == expected);
    for percent in [60, 80, 99] {
        let cut = &file[..file.len() * percent / 100];
        let (samples, incomplete) = sound("open.flac", cut, false).unwrap();
        assert!(incomplete.is_some() && samples.len() < expected.0.len(), "{percent} %");
        let mut damaged = file.clone();
        damaged[file.len() * percent / 100] ^= 0x55;
        assert!(sound("open.flac", &damaged, false).unwrap().1.is_some(), "{percent} %");
    }
}

/// A disk that fails is not the end of a recording.
#[test]
fn errors_of_reading_are_no_end() {
    struct Fails<'b>(&'b [u8]);
    impl Read for Fails<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::other("the disk failed"));
            }
            self.0.read(out)
        }
    }
    for (name, needs_file) in FILES {
        if needs_file {
            continue;
        }
        let bytes = whole(name);
        let bytes = &bytes[..bytes.len() * 3 / 4];
        let found = AudioReader::new(Fails(bytes), InputOptions::default());
        let found = found.and_then(|mut audio| {
            let mut next = [0.0; 999];
            while audio.read_present(&mut next)? == next.len() {}
            Ok(audio.incomplete().cloned())
        });
        assert!(matches!(found, Err(Error::Io { action: "read on", .. })), "{name}: {found:?}");
    }
}

/// The files of `golden/sound_matrix.py`: as long as is expected, which the script says, and those that are cut say so.
#[test]
#[ignore = "needs the files that `golden/sound_matrix.py` writes with ffmpeg"]
#[allow(clippy::print_stdout, reason = "the table is the result of this test")]
fn matrix_of_ffmpeg() {
    let place = std::path::PathBuf::from(std::env::var("SOUND_MATRIX").unwrap());
    let list = fs::read_to_string(place.join("list.tsv")).unwrap();
    let (mut others, mut kinds) = (Vec::new(), std::collections::BTreeMap::new());
    for row in list.lines() {
        let [name, ffmpeg, expected, kind] = row.split('\t').collect::<Vec<&str>>()[..] else {
            panic!("{row}")
        };
        let [ffmpeg, expected] = [ffmpeg, expected].map(|text| text.parse::<f64>().unwrap());
        let is_cut = kind == "cut";
        let (found, missing, error) = match sound(name, &fs::read(place.join(name)).unwrap(), true)
        {
            Ok((samples, missing)) => (seconds(&samples), missing.is_some(), String::new()),
            // Without its index at the end no program reads it.
            Err(error) => (0.0, is_cut, error),
        };
        let start = name.split('-').next().unwrap();
        let row = format!("{start}.{} {kind}", name.rsplit('.').next().unwrap());
        let sums: &mut (usize, [f64; 3]) = kinds.entry(row).or_default();
        sums.0 += 1;
        for (sum, more) in sums.1.iter_mut().zip([expected, ffmpeg, found]) {
            *sum += more;
        }
        // A file that is cut may be read further than ffmpeg reads it: up to the cut, which is after two thirds of the file.
        let longer = is_cut && found > expected && found < 1.9;
        // Each of two recordings may differ, for example by the first frame of AAC.
        let parts = if kind.starts_with("joined") { 2.0 } else { 1.0 };
        if missing != is_cut || (found - expected).abs() >= 0.1 * parts && !longer {
            others.push(format!("{name}: {found:.3} s of {expected}, {missing}, {error}"));
        }
    }
    println!("kind, files, mean seconds: expected, of ffmpeg, found");
    for (kind, (count, sums)) in kinds {
        let [expected, ffmpeg, found] = sums.map(|sum| sum / count as f64);
        println!("{kind}: {count}, {expected:.3}, {ffmpeg:.3}, {found:.3}");
    }
    assert!(others.is_empty(), "{others:#?}");
}
