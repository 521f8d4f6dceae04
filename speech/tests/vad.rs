//! Voice activity detection: onnxruntime's probabilities and faster-whisper's spans, which tests/real/silero_vad.py writes.

use serde_json::Value;
use simdformer::kernels::Isa;
use simdformer_speech::vad::{SpeechDetector, SpeechFinder, VadOptions, speech_spans};
use simdformer_speech::{AudioReader, InputOptions, RawEncoding, RawFormat};
use std::f64::consts::TAU;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../text/tests/golden/vad.json")).unwrap()
}

/// `voice` of silero_vad.py.
pub fn voice(seconds: usize) -> Vec<f32> {
    let mut phase = 0.0;
    let sample = |i: usize| {
        let time = i as f64 / 16_000.0;
        phase += (120.0 + 20.0 * (TAU * 1.5 * time).sin()) / 16_000.0 * TAU;
        let moved = 0.5 + 0.5 * (TAU * 2.2 * time).sin();
        let formants = [
            (1.0, 500.0 + 300.0 * moved, 120.0),
            (0.6, 2100.0 - 900.0 * moved, 180.0),
            (0.2, 2600.0, 250.0),
        ];
        let harmonic = |k: u32| {
            let k = f64::from(k);
            let weight = |(gain, center, width): (f64, f64, f64)| {
                gain / (1.0 + ((120.0 * k - center) / width).powi(2))
            };
            formants.map(weight).iter().sum::<f64>() * (k * phase).sin()
        };
        let sound: f64 = (1..30).map(harmonic).sum();
        let syllables = ((TAU * 3.1 * time).sin() + 0.6).clamp(0.0, 1.0);
        let speaks = (0.12 * time * time).sin() + 0.3 > 0.0;
        (sound * syllables * f64::from(u8::from(speaks)) * 0.125) as f32
    };
    (0..16_000 * seconds).map(sample).collect()
}

fn probabilities(detector: &mut SpeechDetector, samples: &[f32], piece: usize) -> Vec<f32> {
    let mut found = Vec::new();
    for piece in samples.chunks(piece) {
        detector.push(piece, &mut |probability| found.push(probability)).unwrap();
    }
    detector.finish(&mut |probability| found.push(probability)).unwrap();
    found
}

#[test]
fn probabilities_equal_those_of_onnxruntime() {
    let samples = voice(20);
    let expected = golden();
    let expected = expected["probabilities"].as_array().unwrap();
    let mut detector = SpeechDetector::new().unwrap();
    let found = probabilities(&mut detector, &samples, samples.len());
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = (f64::from(*found) - expected.as_f64().unwrap()).abs();
        assert!(difference < 1e-4, "chunk {i}: {found} {expected}");
    }
    // The bits depend on neither the pieces, nor what was heard before, nor the instruction set.
    let samples = &samples[..16_000];
    let few = probabilities(&mut detector, samples, samples.len());
    assert_eq!(few[..31], found[..31]);
    for isa in Isa::available() {
        let mut detector = SpeechDetector::with_isa(isa).unwrap();
        for piece in [1, 511, 700, 9_000] {
            if piece == 1 && isa == Isa::SCALAR {
                continue;
            }
            assert_eq!(probabilities(&mut detector, samples, piece), few, "{isa:?}, {piece}");
        }
    }
}

#[test]
fn spans_equal_those_of_faster_whisper() {
    let samples = voice(20);
    let detector = SpeechDetector::new().unwrap();
    for case in golden()["spans"].as_array().unwrap() {
        let given = |name: &str| case["options"][name].as_f64();
        let seconds = |name: &str, default: f64| given(name).map_or(default, |ms| ms / 1000.0);
        let mut options = VadOptions::default();
        options.threshold = given("threshold").map_or(options.threshold, |x| x as f32);
        options.neg_threshold = given("neg_threshold").map(|x| x as f32);
        options.min_speech = seconds("min_speech_duration_ms", options.min_speech);
        options.min_silence = seconds("min_silence_duration_ms", options.min_silence);
        options.speech_pad = seconds("speech_pad_ms", options.speech_pad);
        options.max_speech = given("max_speech_duration_s").unwrap_or(options.max_speech);
        let mut finder = SpeechFinder::new(detector.clone(), options.clone()).unwrap();
        let mut found = Vec::new();
        for piece in samples.chunks(1_000) {
            let known = finder.known_until();
            finder.push(piece).unwrap();
            while let Some(span) = finder.next_span() {
                assert!(span.0 >= known, "{span:?} {known}");
                found.push(span);
            }
        }
        finder.finish().unwrap();
        found.extend(std::iter::from_fn(|| finder.next_span()));
        let expected = case["spans"].as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{case}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            for (found, expected) in [(found.0, &expected[0]), (found.1, &expected[1])] {
                // There, samples are whole numbers.
                assert!((found - expected.as_f64().unwrap()).abs() < 2e-4, "{case}: {found}");
            }
        }
        let raw = RawFormat { encoding: RawEncoding::F32Le, rate: 16_000, channels: 1 };
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let input = InputOptions { raw: Some(raw), ..InputOptions::default() };
        let mut audio = AudioReader::new(&bytes[..], input).unwrap();
        assert_eq!(speech_spans(&mut audio, detector.clone(), options).unwrap(), found);
    }
}

#[test]
fn samples_and_settings_are_checked() {
    let mut detector = SpeechDetector::new().unwrap();
    let mut heard = 0;
    let error = detector.push(&[f32::NAN; 600], &mut |_| heard += 1).unwrap_err();
    assert_eq!(error.to_string(), "a sample: expected a finite number, found NaN");
    // Samples that no sound has.
    let found = probabilities(&mut detector, &[f32::MAX, f32::MIN, 0.0, 1e30].repeat(2_000), 8_000);
    assert!(heard == 0 && found.iter().all(|p| (0.0..=1.0).contains(p)), "{found:?}");
    let check = |change: fn(&mut VadOptions)| {
        let mut options = VadOptions::default();
        change(&mut options);
        options.check().map_err(|error| error.to_string())
    };
    assert_eq!(check(|_| ()), Ok(()));
    for (change, message) in [
        (
            (|o| o.threshold = f32::NAN) as fn(&mut VadOptions),
            "the threshold of speech: expected 0 to 1, found NaN",
        ),
        (
            |o| o.neg_threshold = Some(2.0),
            "the threshold of the end of speech: expected 0 to 1, found 2",
        ),
        (
            |o| o.min_silence = -1.0,
            "the shortest pause: expected a number of seconds from 0 on, found -1",
        ),
        (
            |o| o.max_speech = 0.5,
            "the longest speech: expected more than 0.86 s, its padding, found 0.5",
        ),
    ] {
        assert_eq!(check(change), Err(message.to_owned()));
    }
}
