//! Arbitrary bytes as a WAV file, and arbitrary settings of features. The result must be an `Err`, or
//! samples that are the same from a file and from a pipe for every read size, and finite features.
//! Everything else is a bug.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use simdformer_speech::{Error, FeatureExtractor, Wav};
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A file, its settings, and how it is read.
#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    /// Samples that are read at a time, minus one.
    step: u8,
    /// The bytes of the chunks, if `file` is not a whole file.
    format: Option<[u8; 16]>,
    /// `preprocessor_config.json`.
    settings: &'a str,
    /// A file, or the contents of its `data` chunk.
    bytes: &'a [u8],
}

/// A directory of this process, in memory if the system has such a file system.
fn place() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let place = root.join(format!("simdformer-audio-files-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        place
    })
}

/// All samples, read at most `step` at a time.
fn all<R: Read>(mut wav: Wav<R>, step: usize) -> Result<Vec<f32>, Error> {
    let (mut samples, mut next) = (Vec::new(), vec![0.0; step]);
    loop {
        let read = wav.read(&mut next)?;
        samples.extend(&next[..read]);
        if read < step {
            return Ok(samples);
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let bytes = match input.format {
        None => input.bytes.to_vec(),
        Some(format) => {
            let length = input.bytes.len() as u32;
            [
                b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0".as_slice(),
                &format,
                b"data",
                &length.to_le_bytes(),
                input.bytes,
            ]
            .concat()
        }
    };
    let path = place().join("audio.wav");
    fs::write(&path, &bytes).expect("a file");
    let piped = Wav::new(&bytes[..]).and_then(|wav| all(wav, usize::from(input.step) + 1));
    let filed = Wav::open(&path).and_then(|wav| all(wav, 4096));
    // A pipe ends where the header of the file says that it will.
    assert_eq!(piped.is_ok(), filed.is_ok(), "{piped:?} {filed:?}");
    fs::write(place().join("preprocessor_config.json"), input.settings).expect("a file");
    let extractor = FeatureExtractor::from_dir(place());
    let Ok(samples) = piped else { return };
    assert_eq!(samples, filed.unwrap_or_default());
    let Ok(extractor) = extractor.or_else(|_| FeatureExtractor::whisper(3, 1).map_err(drop)) else {
        return;
    };
    let mut features = vec![f32::NAN; extractor.len()];
    let taken = extractor.extract(&samples, &mut features).expect("space for all");
    assert_eq!(taken, samples.len().min(extractor.samples()));
    assert!(features.iter().all(|value| value.is_finite()));
});
