//! Recordings that follow each other in a file or in a pipe, of any two formats, and what else may follow one.

use crate::recorded_sound::{
    EDGE, FILES, ape, extension, id3v1, id3v2, of_pipe, present, seconds, sound, whole, whole_sound,
};
use simdformer_speech::{AudioReader, Error, InputOptions};
use simdformer_testing::effort::cases;
use simdformer_testing::riff::{chunk, format, riff};
use std::io::{self, Read};

#[test]
fn joined_files_of_packets_have_the_sound_of_all() {
    let mut count = 0;
    for (file, (name, _)) in FILES.into_iter().enumerate() {
        let extension = extension(name);
        if !is_chain(name) {
            continue;
        }
        let bytes = whole(name);
        let (one, _) = whole_sound(name);
        let mut joined = vec![(2.0, bytes.repeat(2)), (3.0, bytes.repeat(3))];
        if extension != "ogg" {
            let tagged = [id3v2(), bytes.clone(), ape(), id3v1()].concat();
            joined.extend([(2.0, tagged.repeat(2)), (2.0, [&bytes[..], &tagged].concat())]);
        }
        for (number, (times, joined)) in joined.into_iter().enumerate() {
            // By day one or two of each file.
            if cases((number + file) % 3 > 0, false) {
                continue;
            }
            count += 1;
            let (samples, incomplete) = sound(name, &joined, false).unwrap();
            assert_eq!(incomplete, None, "{name}, {number}");
            let (found, expected) = (seconds(&samples), times * seconds(one));
            // Each part of MP3 has the delay of its encoder and its last frame.
            let most = if extension == "mp3" { 0.2 } else { 0.05 } * times;
            assert!(
                (-0.01..most).contains(&(found - expected)),
                "{name}, {number}: {found} of {expected} s"
            );
            let same = one.len() - EDGE;
            assert!(samples[..same] == one[..same], "{name}, {number}");
        }
    }
    assert!(count >= cases(10, 30), "{count}");
}

/// The formats that are read on in a file of the same format: other recordings are packets of it.
fn is_chain(name: &str) -> bool {
    matches!(extension(name), "mp3" | "aac" | "ogg")
}

/// A file of any format after one of any format gives the samples of both, bit for bit.
#[test]
fn joined_files_have_the_samples_of_each() {
    let files =
        FILES.map(|(name, needs_file)| (name, needs_file, whole(name), &whole_sound(name).0[..]));
    let mut count = 0;
    for (number, (first, needs_first, bytes, one)) in files.iter().enumerate() {
        for (other, (second, needs_second, more, two)) in files.iter().enumerate() {
            let same = extension(first) == extension(second);
            let by_day = number == other || (number * 5 + other * 3) % 29 == 0;
            if same && is_chain(first) || cases(!by_day, false) {
                continue;
            }
            count += 1;
            // Before frames is a tag, as encoders write it; after FLAC only one. After packets there may be none.
            let packets = matches!(extension(first), "mp4" | "mkv" | "ogg");
            let is_tagged = more.starts_with(b"ID3") || extension(second) == "ogg" || packets;
            let tag = if is_chain(second) && !is_tagged { id3v2() } else { vec![] };
            let joined = [&bytes[..], &tag, more].concat();
            let (samples, incomplete) =
                sound("joined", &joined, *needs_first || *needs_second).unwrap();
            assert_eq!(incomplete, None, "{first}, {second}");
            assert!(
                samples.len() == one.len() + two.len()
                    && samples.starts_with(one)
                    && samples.ends_with(two),
                "{first}, {second}: {} samples of {} and {}",
                samples.len(),
                one.len(),
                two.len()
            );
        }
    }
    assert!(count >= 35, "{count}");
}

/// Tags between files, chunks after the samples, more samples in the same file, a third file; and what cannot be read.
#[test]
fn what_follows_is_read_or_noted() {
    let [wav, flac] = [whole("mulaw.wav"), whole("flac.flac")];
    let samples = |bytes: &[u8]| sound("parts", bytes, false).unwrap();
    let [one, two] = [&wav, &flac].map(|bytes| samples(bytes).0);
    let list = chunk(b"LIST", b"INFOISFT\x05\0\0\0abcd\0");
    for between in [vec![], list.clone(), id3v2(), [list.clone(), id3v2(), id3v2()].concat()] {
        let joined = [&wav[..], &between, &flac, &id3v1(), &between, &wav].concat();
        // A chunk of RIFF is no tag after FLAC.
        if between.starts_with(b"LIST") {
            assert!(
                samples(&[&wav[..], &between, &flac].concat()) == ([&one[..], &two].concat(), None)
            );
            continue;
        }
        assert!(samples(&joined) == ([&one[..], &two, &one].concat(), None), "{between:?}");
    }
    let fields = chunk(b"fmt ", &format(1, 1, 16_000, 8));
    let parts = [&b"abc"[..], b"", b"defgh", b"i"].map(|data| chunk(b"data", data));
    let [all, none] = [b"abcdefghi".to_vec(), vec![]].map(|data| chunk(b"data", &data));
    let expected = samples(&riff(&[fields.clone(), all]));
    assert!(samples(&riff(&[&[fields.clone()][..], &parts].concat())) == expected);
    // No end, no sound, and a format that is not read.
    let cut = [&wav[..], &flac[..flac.len() / 2]].concat();
    let (found, incomplete) = samples(&cut);
    assert!(found.starts_with(&one) && found.len() > one.len(), "{}", found.len());
    let seconds = incomplete.unwrap().seconds;
    assert!((seconds - self::seconds(&found)).abs() < 0.1, "{seconds}");
    let broken = riff(&[chunk(b"fmt ", &format(2, 1, 16_000, 4)), none]);
    let (found, incomplete) = samples(&[&wav[..], &broken].concat());
    assert_eq!(found.len(), one.len());
    let message = incomplete.unwrap().message;
    assert!(message.contains("what follows cannot be read: the format"), "{message}");
    // Many are hostile.
    let tiny = riff(&[fields, chunk(b"data", b"ab")]);
    assert_eq!(samples(&tiny.repeat(1000)).0.len(), 2000);
    let (found, incomplete) = samples(&tiny.repeat(1001));
    let message = incomplete.unwrap().message;
    assert_eq!(
        (found.len(), message.contains("at most 1000, found more")),
        (2000, true),
        "{message}"
    );
}

/// A tag, and what is no recording, after formats of packets.
#[test]
fn what_follows_packets_is_read_or_noted() {
    let wav = whole("mulaw.wav");
    let (two, _) = whole_sound("mulaw.wav");
    for name in
        ["opus-recorder.mp4", "aac-index-first.m4a", "opus.webm", "pcm-live.mkv", "flac.ogg"]
    {
        let bytes = whole(name);
        let (one, _) = whole_sound(name);
        let found = sound(name, &[&bytes[..], &id3v2()].concat(), false).unwrap();
        assert!(found == (one.clone(), None), "{name}, a tag: {:?}", found.1);
        let joined = [&bytes[..], &id3v2(), &wav].concat();
        let found = sound(name, &joined, false).unwrap();
        assert!(found == ([&one[..], two].concat(), None), "{name}, a tag and WAV: {:?}", found.1);
        // What begins as a recording and is none, and a format that is not read.
        for other in [
            &wav[..20],
            b"RIFF\xff\0\0\0AVI LIST and more of it than a head",
            b"ID3\x04\0\0\x7f\x7f\x7f\x7f",
        ] {
            let joined = [&bytes[..], other].concat();
            for found in [sound(name, &joined, true).unwrap(), of_pipe(&joined).unwrap()] {
                let (samples, incomplete) = found;
                assert!(samples == *one, "{name}");
                assert!(incomplete.is_some(), "{name}, {}", other.escape_ascii());
            }
        }
    }
}

/// A writer that keeps a pipe open after a recording of known length is not waited for, if this is asked for.
#[test]
fn a_single_recording_ends_where_its_header_says() {
    struct Open<'b>(&'b [u8]);
    impl Read for Open<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::other("it would wait"));
            }
            self.0.read(out)
        }
    }
    let mut files: Vec<Vec<u8>> =
        ["aiff.aiff", "aiff-24.aiff", "sowt.aiff", "alaw.wav", "mulaw.wav", "wave64.w64"]
            .map(whole)
            .into();
    for rate in [8000, 11_025, 16_000, 44_100, 48_000] {
        for (tag, bits) in [(1, 8), (1, 16), (1, 24), (1, 32), (6, 8)] {
            // The first 64 bytes decide the format.
            for frames in [20, 799, 4000] {
                let data = (0..frames * usize::from(bits) / 8).map(|i| (i * 7 % 251) as u8);
                let data = chunk(b"data", &data.collect::<Vec<u8>>());
                files.push(riff(&[chunk(b"fmt ", &format(tag, 1, rate, bits)), data]));
            }
        }
    }
    for (number, file) in files.iter().enumerate() {
        let expected = of_pipe(file).unwrap();
        let single = InputOptions { single: true, ..InputOptions::default() };
        // A padding byte after the samples need not be there.
        let found = present(AudioReader::new(Open(file), single)).unwrap();
        assert!(found == expected, "{number}");
        let joined = file.repeat(2);
        assert!(present(AudioReader::new(&joined[..], single)).unwrap() == expected, "{number}");
        let waits = present(AudioReader::new(Open(file), InputOptions::default()));
        assert!(matches!(waits, Err(Error::Io { action: "read on", .. })), "{number}");
    }
}

/// Recordings of other rates and channels, one after the other.
#[test]
fn joined_files_may_have_other_rates() {
    let names = ["mp3.mp3", "mp3-8000.mp3", "mp3-mono-22050.mp3", "mp3-no-header.mp3"];
    let ogg = ["vorbis.ogg", "opus-voice.ogg", "vorbis-8000.ogg", "flac.ogg", "opus.ogg"];
    for names in [&names[..], &ogg] {
        for (number, first) in names.iter().enumerate() {
            for (other, second) in names.iter().enumerate() {
                // All pairs in nightly runs.
                if cases((number + 1) % names.len() != other, false) {
                    continue;
                }
                let joined = [whole(first), whole(second)].concat();
                let (samples, incomplete) = sound("joined", &joined, false).unwrap();
                assert_eq!(incomplete, None, "{first}, {second}");
                let found = seconds(&samples);
                assert!((0.99..1.35).contains(&found), "{first}, {second}: {found} s");
            }
        }
    }
}
