//! WAV files, and features compared with those of transformers, which `golden/features.py` computes.

use safetensors::SafeTensors;
use simdformer_speech::{Error, FeatureExtractor, Wav};
use simdformer_testing::directories::golden;
use simdformer_testing::effort::full;
use simdformer_testing::riff::{chunk, format, riff, wav};
use simdformer_testing::sounds::audio;
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;

/// The frames that `features.py` stores.
const FRAMES: [usize; 24] = [
    0, 1, 2, 3, 28, 29, 30, 31, 32, 98, 99, 100, 101, 102, 777, 1234, 1499, 1500, 2222, 2801, 2996,
    2997, 2998, 2999,
];
/// All samples of a file, read `step` at a time.
fn read(bytes: &[u8], step: usize) -> Result<Vec<f32>, Error> {
    let mut wav = Wav::new(bytes)?;
    let mut samples = Vec::new();
    loop {
        let mut next = vec![0.0; step];
        let read = wav.read(&mut next)?;
        samples.extend(&next[..read]);
        if read < step {
            assert_eq!(wav.read(&mut next)?, 0);
            return Ok(samples);
        }
    }
}

#[test]
fn features_match_transformers() {
    let bytes = fs::read(golden("features.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let cases = [
        ("nothing", "noise", 0),
        ("one", "chirp", 1),
        ("short", "noise", 4_800),
        ("second", "tone", 16_000),
        ("whole", "chirp", 480_000),
        ("long", "tone", 560_000),
    ];
    for bins in [80, 128] {
        let extractor = FeatureExtractor::whisper(bins, 30).unwrap();
        assert_eq!(
            (extractor.bins(), extractor.frames(), extractor.samples()),
            (bins, 3000, 480_000)
        );
        for (index, (name, kind, length)) in cases.into_iter().enumerate() {
            // Each case with one number of bins; in a full run each with both.
            if !full() && index.is_multiple_of(2) != (bins == 80) {
                continue;
            }
            let samples = read(&wav(&audio(kind, length)), 100_000).unwrap();
            assert_eq!(samples.len(), length);
            let mut features = vec![f32::NAN; extractor.len()];
            let taken = extractor.extract(&samples, &mut features).unwrap();
            assert_eq!(taken, length.min(480_000), "what was left out is said");
            let values = expected.tensor(&format!("{bins}.{name}.values")).unwrap();
            let means = expected.tensor(&format!("{bins}.{name}.means")).unwrap();
            assert_eq!(values.shape(), [bins, FRAMES.len()]);
            let values = values.data().chunks_exact(4);
            let mut values = values.map(|x| f32::from_le_bytes(x.try_into().unwrap()));
            let means = means.data().chunks_exact(8);
            let means = means.map(|x| f64::from_le_bytes(x.try_into().unwrap()));
            for (bin, mean) in means.enumerate() {
                let row: Vec<f32> = features.iter().skip(bin).step_by(bins).copied().collect();
                for frame in FRAMES {
                    let error = f64::from(row[frame]) - f64::from(values.next().unwrap());
                    assert!(error.abs() <= 1e-5, "{bins} {name}, frame {frame}: {error:e}");
                }
                let found = row.iter().map(|&x| f64::from(x)).sum::<f64>() / 3000.0;
                assert!((found - mean).abs() <= 1e-6, "{bins} {name}: mean {found}, {mean}");
            }
        }
    }
}

#[test]
fn samples_of_every_format() {
    let signal = audio("chirp", 1001);
    let expected: Vec<f32> = signal.iter().map(|&x| f32::from(x) / 32768.0).collect();
    let float = |x: &i16| f32::from(*x) / 32768.0;
    // The same values in 24 bits, in 32 bits, and as floats.
    let forms: [(u16, u16, Vec<u8>); 5] = [
        (1, 16, signal.iter().flat_map(|x| x.to_le_bytes()).collect()),
        (1, 24, signal.iter().flat_map(|x| [[0].as_slice(), &x.to_le_bytes()].concat()).collect()),
        (1, 32, signal.iter().flat_map(|x| (i32::from(*x) << 16).to_le_bytes()).collect()),
        (3, 32, signal.iter().flat_map(|x| float(x).to_le_bytes()).collect()),
        (3, 64, signal.iter().flat_map(|x| f64::from(float(x)).to_le_bytes()).collect()),
    ];
    for (tag, bits, data) in forms {
        // Chunks without samples, one of odd length, `fmt ` chunks of other lengths.
        let list = chunk(b"LIST", b"an odd one!");
        let short = format(tag, 1, 16_000, bits);
        let mut extensible = format(0xfffe, 1, 16_000, bits);
        extensible.extend([22, 0, bits as u8, 0, 0, 0, 0, 0]);
        extensible.extend(tag.to_le_bytes());
        extensible.extend(b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71");
        let long = [short.clone(), vec![0, 0]].concat();
        for fields in [short, long, extensible] {
            let chunks =
                [list.clone(), chunk(b"fmt ", &fields), list.clone(), chunk(b"data", &data)];
            let file = riff(&[&chunks[..], std::slice::from_ref(&list)].concat());
            for step in [1, 7, 1000, 5000] {
                assert_eq!(read(&file, step).unwrap(), expected, "{tag} {bits} {step}");
            }
        }
    }
    let eight: Vec<u8> = (0..=255).collect();
    let file = riff(&[chunk(b"fmt ", &format(1, 1, 8_000, 8)), chunk(b"data", &eight)]);
    let expected: Vec<f32> = (0..256).map(|x| (x - 128) as f32 / 128.0).collect();
    assert_eq!(read(&file, 100).unwrap(), expected);
    assert_eq!(Wav::new(&file[..]).unwrap().rate(), 8_000);
}

#[test]
fn channels_become_their_mean() {
    let (left, right) = (audio("chirp", 70_000), audio("noise", 70_000));
    let both = left.iter().zip(&right);
    let data: Vec<u8> =
        both.clone().flat_map(|(l, r)| [l.to_le_bytes(), r.to_le_bytes()].concat()).collect();
    let file = riff(&[chunk(b"fmt ", &format(1, 2, 44_100, 16)), chunk(b"data", &data)]);
    let expected: Vec<f32> =
        both.map(|(&l, &r)| (i32::from(l) + i32::from(r)) as f32 / 65536.0).collect();
    assert_eq!(read(&file, 9_999).unwrap(), expected);
    let opened = Wav::new(&file[..]).unwrap();
    assert_eq!((opened.channels(), opened.samples()), (2, Some(70_000)));
    // A sampling rate of which the model was not trained is an error that names the remedy.
    let error = FeatureExtractor::whisper(80, 30).unwrap().takes(&opened).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the sample rate: expected 16000 samples a second, found 44100; `ffmpeg -i FILE -ac 1 -ar 16000 OUT.wav` converts it"
    );
}

/// ffmpeg cannot seek in a pipe to write the length, so the header has none.
#[test]
fn lengths_that_a_pipe_did_not_write() {
    let signal = audio("noise", 40_000);
    let expected: Vec<f32> = signal.iter().map(|&x| f32::from(x) / 32768.0).collect();
    let mut file = wav(&signal);
    for unknown in [0, u32::MAX] {
        file[4..8].copy_from_slice(&unknown.to_le_bytes());
        file[40..44].copy_from_slice(&unknown.to_le_bytes());
        assert_eq!(Wav::new(&file[..]).unwrap().samples(), None);
        assert_eq!(read(&file, 1234).unwrap(), expected);
        let place = TemporaryFolder::new("pipe");
        place.write("pipe.wav", &file);
        let mut wav = Wav::open(place.0.join("pipe.wav")).unwrap();
        assert_eq!(wav.samples(), Some(40_000));
        let mut samples = vec![0.0; 50_000];
        assert_eq!(wav.read(&mut samples).unwrap(), 40_000);
        assert_eq!(samples[..40_000], expected);
    }
}

#[test]
fn settings_of_a_directory() {
    let place = TemporaryFolder::new("settings");
    let error = FeatureExtractor::from_dir(&place.0).unwrap_err().to_string();
    assert!(
        error.ends_with("expected preprocessor_config.json or processor_config.json, found none"),
        "{error}"
    );
    // As transformers 5 writes it.
    place.write(
        "processor_config.json",
        r#"{"feature_extractor": {"chunk_length": 2, "dither": 0.0, "feature_extractor_type":
        "WhisperFeatureExtractor", "feature_size": 128, "hop_length": 160, "n_fft": 400, "n_samples": 32000,
        "nb_max_frames": 200, "padding_side": "right", "padding_value": 0.0, "return_attention_mask": false,
        "sampling_rate": 16000}, "processor_class": "WhisperProcessor"}"#,
    );
    let extractor = FeatureExtractor::from_dir(&place.0).unwrap();
    assert_eq!((extractor.bins(), extractor.frames(), extractor.samples()), (128, 200, 32_000));
    // As published, with the filters, which are always the same.
    place.write(
        "preprocessor_config.json",
        r#"{"chunk_length": 30, "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80,
        "hop_length": 160, "mel_filters": [[0.0, 0.02486259490251541]], "n_fft": 400, "n_samples": 480000,
        "nb_max_frames": 3000, "padding_side": "right", "padding_value": 0.0,
        "processor_class": "WhisperProcessor", "return_attention_mask": false, "sampling_rate": 16000}"#,
    );
    let extractor = FeatureExtractor::from_dir(&place.0).unwrap();
    assert_eq!((extractor.bins(), extractor.len(), extractor.rate()), (80, 240_000, 16_000));
    let error = extractor.extract(&[], &mut [0.0; 7]).unwrap_err().to_string();
    assert_eq!(error, "space: expected 240000 numbers, [3000, 80], found 7");
}
