//! Audio of every format, rate and number of channels, as 16 kHz. `golden/audio_files.py` writes the files.

use simdformer_speech::{
    AudioReader, Channel, Error, InputOptions, RawEncoding, RawFormat, Resampler,
};
use simdformer_testing::directories::golden;
use simdformer_testing::riff::{chunk, format, riff, wav};
use std::f64::consts::TAU;
use std::fs;

/// The chirps of `audio_files.py` at a time in seconds.
fn left(t: f64) -> f64 {
    0.4 * (TAU * (300.0 * t + 1500.0 * t * t)).sin()
}

fn right(t: f64) -> f64 {
    0.3 * (TAU * (2000.0 * t - 1000.0 * t * t)).sin()
}

/// All samples, read `step` at a time.
fn all(mut audio: AudioReader<'_>, step: usize) -> Result<Vec<f32>, Error> {
    let (mut samples, mut next) = (Vec::new(), vec![0.0; step]);
    loop {
        let read = audio.read(&mut next)?;
        samples.extend(&next[..read]);
        if read < step {
            return Ok(samples);
        }
    }
}

/// The power of the expected samples over that of the differences, in dB, without the ends.
fn signal_to_noise(samples: &[f32], expected: impl Fn(f64) -> f64) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (i, &sample) in samples.iter().enumerate().take(7400).skip(600) {
        let value = expected(i as f64 / 16_000.0);
        signal += value * value;
        noise += (value - f64::from(sample)).powi(2);
    }
    10.0 * (signal / noise).log10()
}

fn of_channel(channel: Channel) -> InputOptions {
    InputOptions { channel, ..InputOptions::default() }
}

/// A file, its rate and channels, and the least signal-to-noise ratio in dB.
const FILES: [(&str, u32, usize, f64); 27] = [
    ("mp3.mp3", 44_100, 2, 24.0),
    ("mp3-mono-22050.mp3", 22_050, 1, 24.0),
    ("aac.m4a", 44_100, 2, 13.0),
    ("aac-index-first.m4a", 48_000, 1, 15.0),
    ("adts.aac", 44_100, 2, 13.0),
    ("alac.m4a", 8_000, 1, 85.0),
    ("flac.flac", 22_050, 2, 85.0),
    ("vorbis.ogg", 44_100, 2, 24.0),
    ("vorbis-48000.ogg", 48_000, 1, 30.0),
    ("aiff.aiff", 11_025, 2, 85.0),
    ("aiff-24.aiff", 8_000, 1, 85.0),
    ("sowt.aiff", 8_000, 1, 85.0),
    ("alaw.wav", 8_000, 1, 35.0),
    ("mulaw.wav", 8_000, 2, 35.0),
    ("wave64.w64", 8_000, 1, 85.0),
    ("mp3-8000.mp3", 8_000, 1, 15.0),
    ("mp3.mp4", 44_100, 1, 20.0),
    ("alac-recorder.mp4", 8_000, 1, 85.0),
    ("opus.mp4", 48_000, 2, 5.0),
    ("opus.ogg", 48_000, 2, 5.0),
    ("opus-voice.ogg", 48_000, 1, 5.0),
    ("vorbis-8000.ogg", 8_000, 1, 15.0),
    ("flac.ogg", 16_000, 1, 85.0),
    ("opus.webm", 48_000, 1, 5.0),
    ("opus-live.webm", 48_000, 2, 5.0),
    ("aac.mkv", 22_050, 1, 13.0),
    ("pcm-live.mkv", 8_000, 2, 85.0),
];

#[test]
fn every_format_has_its_samples() {
    for (name, rate, channels, least) in FILES {
        let path = golden("audio").join(name);
        let open = |channel| AudioReader::open(&path, of_channel(channel)).unwrap();
        let audio = open(Channel::Index(0));
        assert_eq!((audio.source_rate(), audio.channels(), audio.rate()), (rate, channels, 16_000));
        let expected = audio.samples();
        let first = all(audio, 1000).unwrap();
        if let Some(expected) = expected {
            assert_eq!(first.len() as u64, expected, "{name}");
        }
        // Encoders fill up their last block.
        assert!((8000..8900).contains(&first.len()), "{name}: {} samples", first.len());
        let found = signal_to_noise(&first, left);
        assert!(found > least, "{name}: {found:.1} dB");
        let mixed = all(open(Channel::Mix), 777).unwrap();
        assert_eq!(mixed.len(), first.len());
        if channels == 2 {
            let second = all(open(Channel::Index(1)), 8).unwrap();
            let found = signal_to_noise(&second, right);
            assert!(found > least, "{name}, the right channel: {found:.1} dB");
            for (mixed, (a, b)) in mixed.iter().zip(first.iter().zip(&second)) {
                assert!((mixed - (a + b) / 2.0).abs() < 1e-6, "{name}");
            }
        } else {
            assert_eq!(mixed, first, "{name}");
        }
        // A pipe has the same samples.
        let bytes = fs::read(&path).unwrap();
        let piped = AudioReader::new(&bytes[..], of_channel(Channel::Index(0)));
        match (name, piped) {
            ("aac.m4a" | "alac.m4a" | "opus.mp4" | "mp3.mp4", piped) => {
                let error = piped.unwrap_err().to_string();
                assert!(error.contains("needs a file"), "{error}");
            }
            (_, piped) => assert_eq!(all(piped.unwrap(), 4096).unwrap(), first, "{name}"),
        }
        let error = AudioReader::open(&path, of_channel(Channel::Index(channels))).unwrap_err();
        let message = format!("the channel: expected 0 to {}, found {channels}", channels - 1);
        assert_eq!(error.to_string(), message);
    }
}

/// Samples of a tone of half amplitude, `seconds` long.
fn tone(hertz: f64, rate: u32, seconds: f64) -> Vec<f32> {
    let count = (f64::from(rate) * seconds) as usize;
    (0..count).map(|i| (0.5 * (TAU * hertz * i as f64 / f64::from(rate)).sin()) as f32).collect()
}

/// The samples of `input` at another rate, given `step` at a time.
fn resampled(input: &[f32], from: u32, to: u32, step: usize) -> Vec<f32> {
    let mut resampler = Resampler::new(from, to).unwrap();
    let (mut out, mut next) = (Vec::new(), vec![0.0; step]);
    for part in input.chunks(step) {
        resampler.push(part);
        loop {
            let count = resampler.read(&mut next);
            out.extend(&next[..count]);
            if count < step {
                break;
            }
        }
    }
    resampler.finish();
    resampler.push(&[1.0]);
    loop {
        let count = resampler.read(&mut next);
        out.extend(&next[..count]);
        if count < step {
            return out;
        }
    }
}

/// The root of the mean of squares without the ends, in dB of that of a tone of half amplitude.
fn level(samples: &[f32]) -> f64 {
    let middle = &samples[samples.len() / 4..samples.len() * 3 / 4];
    let sum: f64 = middle.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    10.0 * (sum / middle.len() as f64 / 0.125).log10()
}

/// Rates that recorders, telephones and converters have, and two that have no common divisor with 16,000.
const RATES: [u32; 9] = [4000, 8000, 11_025, 22_050, 44_099, 44_100, 48_000, 96_000, 767_999];

#[test]
fn tones_pass_and_aliases_do_not() {
    for rate in RATES {
        let nyquist = f64::from(rate.min(16_000)) / 2.0;
        let seconds = if rate > 100_000 { 0.05 } else { 0.125 };
        for part in [0.05, 0.3, 0.7, 0.85, 0.9] {
            let found = resampled(&tone(nyquist * part, rate, seconds), rate, 16_000, 1000);
            let expected = tone(nyquist * part, 16_000, seconds);
            // Level and time are those of the input.
            let difference: Vec<f32> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
            let error = level(&difference);
            assert!(error < -80.0, "{rate} Hz, {part}: an error of {error:.1} dB");
        }
        for part in [1.0001, 1.1, 1.5, 1.9, 2.0, 2.7, 5.0] {
            let hertz = nyquist * part;
            if rate <= 16_000 || hertz >= f64::from(rate) / 2.0 {
                continue;
            }
            let found = level(&resampled(&tone(hertz, rate, seconds), rate, 16_000, 1000));
            assert!(found < -98.0, "{rate} Hz, alias of {hertz:.0} Hz: {found:.1} dB");
        }
    }
}

#[test]
fn resampling_keeps_constants_and_lengths() {
    for rate in RATES {
        for length in [0, 1, 2, 1000, 2001] {
            let found = resampled(&vec![0.25; length], rate, 16_000, 500);
            let expected = (length as u64 * 16_000).div_ceil(u64::from(rate));
            assert_eq!(found.len() as u64, expected, "{length} samples of {rate} Hz");
        }
        let found = resampled(&vec![0.25; rate as usize / 8], rate, 16_000, 500);
        assert!(found[500..1500].iter().all(|x| (x - 0.25).abs() < 1e-6), "{rate}");
        // The same bits for every partition.
        let input = tone(321.0, rate, 0.05);
        let whole = resampled(&input, rate, 16_000, usize::MAX >> 40);
        for step in [1, 7, 512] {
            assert_eq!(resampled(&input, rate, 16_000, step), whole, "{rate} Hz by {step}");
        }
    }
    for (from, to) in [(0, 16_000), (3999, 16_000), (768_001, 16_000), (16_000, 0)] {
        let error = Resampler::new(from, to).unwrap_err().to_string();
        assert!(error.starts_with("samples a second: expected 4000 to 768000, found "), "{error}");
    }
}

#[test]
fn raw_samples_need_no_header() {
    let values = [0.5f64, -0.25, 0.125, 0.0, -1.0, 0.75];
    let scaled = |bits: u32| values.map(|x| (x * 2f64.powi(bits as i32 - 1)) as i32);
    let cases: [(&str, Vec<u8>); 6] = [
        ("u8", scaled(8).map(|x| (x + 128) as u8).to_vec()),
        ("s16le", scaled(16).iter().flat_map(|&x| (x as i16).to_le_bytes()).collect()),
        ("s24le", scaled(24).iter().flat_map(|x| x.to_le_bytes()[..3].to_vec()).collect()),
        ("s32le", scaled(32).iter().flat_map(|x| x.to_le_bytes()).collect()),
        ("f32le", values.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect()),
        ("f64le", values.iter().flat_map(|x| x.to_le_bytes()).collect()),
    ];
    for (name, bytes) in &cases {
        let encoding = RawEncoding::from_name(name).unwrap();
        let read = |bytes: &[u8], channels, channel, rate| {
            let raw = Some(RawFormat { encoding, rate, channels });
            let options = InputOptions { channel, raw, ..InputOptions::default() };
            AudioReader::new(bytes, options).and_then(|audio| all(audio, 4))
        };
        let floats = values.map(|x| x as f32);
        assert_eq!(read(bytes, 1, Channel::Mix, 16_000).unwrap(), floats, "{name}");
        let second = read(bytes, 2, Channel::Index(1), 16_000).unwrap();
        assert_eq!(second, [-0.25, 0.0, 0.75], "{name}");
        assert_eq!(read(bytes, 3, Channel::Index(2), 8000).unwrap().len(), 4, "{name}");
        if *name != "u8" {
            let error = read(&bytes[1..], 1, Channel::Mix, 16_000).unwrap_err().to_string();
            assert!(error.contains("a sample: expected "), "{name}: {error}");
        }
        for (channels, rate) in [(0, 16_000), (65, 16_000), (1, 0), (1, 3000), (1, 800_000)] {
            let error = read(bytes, channels, Channel::Mix, rate).unwrap_err().to_string();
            assert!(error.contains("expected ") && error.contains("found "), "{name}: {error}");
        }
    }
    assert_eq!(RawEncoding::from_name("s16be"), None);
}

/// An RF64 file: its lengths are 2^32 - 1, and the true ones are in `ds64`.
#[test]
fn files_of_more_than_four_gigabytes_have_long_lengths() {
    let samples: Vec<u8> = (0..64).collect();
    let rf64 = |length: u64, more: &[u8]| {
        let sizes = [&1u64.to_le_bytes()[..], &length.to_le_bytes(), &[0; 12]].concat();
        let mut file = riff(&[chunk(b"ds64", &sizes), chunk(b"fmt ", &format(1, 1, 16_000, 16))]);
        file[..8].copy_from_slice(b"RF64\xff\xff\xff\xff");
        file.extend(b"data\xff\xff\xff\xff");
        file.extend(&samples);
        file.extend(more);
        file
    };
    let read =
        |file: &[u8]| AudioReader::new(file, InputOptions::default()).and_then(|a| all(a, 9));
    let expected =
        read(&riff(&[chunk(b"fmt ", &format(1, 1, 16_000, 16)), chunk(b"data", &samples)]));
    assert_eq!(read(&rf64(64, b"")).unwrap(), expected.unwrap());
    // A chunk after the samples is none of them.
    assert_eq!(read(&rf64(64, b"LIST\x02\0\0\0ab")).unwrap().len(), 32);
    let error = read(&rf64(6_000_000_000, b"")).unwrap_err().to_string();
    let cut = "WAV, after 0.00 s: the file ends too early: expected 3000000000 samples, found 32";
    assert_eq!(error, cut);
}

/// `AudioReader` and `Wav` give the same samples of a file that both read.
#[test]
fn a_wav_file_is_read_as_it_is() {
    let samples: Vec<i16> = (0..10_000).map(|i| (i * 37 % 65_536 - 32_768) as i16).collect();
    let file = wav(&samples);
    let found = all(AudioReader::new(&file[..], InputOptions::default()).unwrap(), 999).unwrap();
    let expected: Vec<f32> = samples.iter().map(|&x| f32::from(x) / 32_768.0).collect();
    assert_eq!(found, expected);
}
