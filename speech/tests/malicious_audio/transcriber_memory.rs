//! The memory of a transcription does not depend on the length of the recording.

use simdformer::Model;
use simdformer::config::Config;
use simdformer_speech::vad::VadOptions;
use simdformer_speech::{
    Error, FeatureExtractor, Recording, SampleSource, StreamingTranscriber, Tokenizer,
    TranscribeEvent, TranscribeOptions, Transcriber, Windows,
};
use simdformer_testing::counting::most_bytes;
use simdformer_testing::directories::golden;
use simdformer_testing::effort::cases;
use std::ops::ControlFlow;
use std::sync::Arc;

const CONFIG: &str = r#"{"model_type": "whisper", "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
    "vocab_size": 1458, "num_mel_bins": 80, "max_source_positions": 50, "max_target_positions": 24,
    "pad_token_id": 1295, "bos_token_id": 1295, "eos_token_id": 1295, "decoder_start_token_id": 1296}"#;
const GENERATION: &str =
    r#"{"decoder_start_token_id": 1296, "eos_token_id": 1295, "max_length": 6}"#;

/// A rising tone, made as it is read.
struct Tone {
    at: usize,
    samples: usize,
}

impl SampleSource for Tone {
    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        let count = out.len().min(self.samples - self.at);
        for (out, i) in out[..count].iter_mut().zip(self.at..) {
            *out = ((i % 16_000) as f32 * 1e-5 * i as f32).sin() * 0.5;
        }
        self.at += count;
        Ok(count)
    }
}

fn parts() -> (Arc<Model>, Arc<Tokenizer>) {
    parts_of(CONFIG, GENERATION)
}

fn parts_of(config: &str, generation: &str) -> (Arc<Model>, Arc<Tokenizer>) {
    let mut config = Config::from_hugging_face(config).unwrap();
    config.set_generation_config(generation).unwrap();
    let model = Model::from_fn(config, |_, _, _| Ok(())).unwrap();
    let tokenizer = Tokenizer::from_dir(golden("dirs/whisper")).unwrap();
    (Arc::new(model), Arc::new(tokenizer))
}

#[test]
fn a_long_recording_takes_the_memory_of_a_short_one() {
    let (model, tokenizer) = parts();
    // All chunks are speech, in spans that are cut after six seconds.
    let mut spans = VadOptions::default();
    (spans.threshold, spans.neg_threshold) = (0.0, Some(0.0));
    spans.max_speech = 6.0;
    let (sequential, batched) = (Windows::Sequential, Windows::Batched);
    for (windows, vad) in
        [(sequential, None), (batched, None), (sequential, Some(&spans)), (batched, Some(&spans))]
    {
        let mut options = TranscribeOptions::new(model.config()).without_fallback();
        (options.windows, options.vad) = (windows, vad.cloned());
        let extractor = FeatureExtractor::whisper(80, 1).unwrap();
        let tokenizer = Arc::clone(&tokenizer);
        let transcriber = Transcriber::new(&model, tokenizer, extractor, options).unwrap();
        let most = |seconds: usize| {
            let mut tone = Tone { at: 0, samples: seconds * 16_000 };
            let mut heard = 0;
            let (summary, bytes) = most_bytes(|| {
                transcriber.transcribe_recording(Recording::new(&mut tone), &mut |event| {
                    heard += usize::from(matches!(event, TranscribeEvent::Window(_)));
                    ControlFlow::Continue(())
                })
            });
            assert_eq!(summary.unwrap().windows, heard);
            assert!(heard >= seconds, "{heard}");
            bytes
        };
        most(2);
        let (short, long) = (most(20), most(cases(40, 80)));
        assert!(long <= short + short / 100, "{short} {long}");
    }
}

/// The prompt takes all positions of the decoder.
#[test]
fn a_prompt_that_leaves_no_position_is_an_error() {
    let config = CONFIG.replace(r#""max_target_positions": 24"#, r#""max_target_positions": 2"#);
    let generation = GENERATION.replace('{', r#"{"no_timestamps_token_id": 1306, "#);
    let (model, tokenizer) = parts_of(&config, &generation);
    for windows in [Windows::Sequential, Windows::Batched] {
        let mut options = TranscribeOptions::new(model.config()).without_fallback();
        (options.windows, options.timestamps) = (windows, false);
        options.condition_on_previous_text = false;
        let extractor = FeatureExtractor::whisper(80, 1).unwrap();
        let tokenizer = Arc::clone(&tokenizer);
        let transcriber = Transcriber::new(&model, tokenizer, extractor, options).unwrap();
        let error = transcriber.transcribe(&[0.5; 20_000]).unwrap_err().to_string();
        let expected = "max_target_positions: expected more positions than the 2 tokens of the prompt, found 2";
        assert_eq!(error, expected);
    }
}

#[test]
fn a_short_recording_is_opened_once() {
    let (model, tokenizer) = parts();
    let mut options = TranscribeOptions::new(model.config()).without_fallback();
    assert_eq!(options.single_pass_samples, 600 * 16_000);
    options.single_pass_samples = 5 * 16_000;
    let extractor = FeatureExtractor::whisper(80, 1).unwrap();
    let transcriber = Transcriber::new(&model, tokenizer, extractor, options).unwrap();
    for (seconds, times) in [(5, 1), (6, 2)] {
        let speech = [(seconds as f64 - 3.0, seconds as f64)];
        let (mut opened, mut found) = (0, Vec::new());
        let mut open = || {
            opened += 1;
            Ok(Tone { at: 0, samples: seconds * 16_000 })
        };
        let summary = transcriber.transcribe_reopened(&mut open, Some(&speech), &mut |event| {
            if let TranscribeEvent::Window(window) = event {
                found.push(window.clone());
            }
            ControlFlow::Continue(())
        });
        assert_eq!((summary.unwrap().windows, opened), (found.len(), times));
        // Two passes, as a caller makes them.
        let tone = || Tone { at: 0, samples: seconds * 16_000 };
        let maximum = Some(transcriber.maximum(&mut tone()).unwrap());
        let recording = Recording { source: &mut tone(), maximum, speech: Some(&speech) };
        let mut expected = Vec::new();
        let summary = transcriber.transcribe_recording(recording, &mut |event| {
            if let TranscribeEvent::Window(window) = event {
                expected.push(window.clone());
            }
            ControlFlow::Continue(())
        });
        assert_eq!(summary.unwrap().duration, seconds as f64);
        assert_eq!(found, expected);
    }
}

#[test]
fn a_long_stream_takes_the_memory_of_a_short_one() {
    let (model, tokenizer) = parts();
    let options = TranscribeOptions::new(model.config()).without_fallback();
    let extractor = FeatureExtractor::whisper(80, 1).unwrap();
    let transcriber = Transcriber::new(&model, tokenizer, extractor, options).unwrap();
    let mut stream = StreamingTranscriber::new(transcriber).unwrap();
    stream.set_delay(0.5).unwrap();
    let mut most = |seconds: usize| {
        let mut tone = Tone { at: 0, samples: seconds * 16_000 };
        let (mut chunk, mut heard) = (vec![0.0; 1_600], 0);
        let ((), bytes) = most_bytes(|| {
            while tone.read(&mut chunk).unwrap() > 0 {
                stream.push(&chunk, &mut |_| heard += 1).unwrap();
            }
            stream.finish(&mut |_| heard += 1).unwrap();
        });
        assert!(heard >= 2 * seconds, "{heard}");
        bytes
    };
    most(2);
    let (short, long) = (most(20), most(cases(40, 80)));
    assert!(long <= short + short / 100, "{short} {long}");
}
