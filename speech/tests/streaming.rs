//! A stream of samples has the text of the same recording, for any division into chunks.

use simdformer::search::{BeamOptions, Strategy};
use simdformer::{Cancel, Model};
use simdformer_speech::{
    Error, FeatureExtractor, Recording, RecordingSummary, Segment, StreamingTranscriber, Tentative,
    Tokenizer, TranscribeEvent, TranscribeOptions, Transcriber, Window, Windows,
};
use simdformer_testing::effort::cases;
use simdformer_testing::published::{ONE_LANGUAGE, SEVERAL, whisper};
use simdformer_testing::sounds::audio;
use simdformer_testing::sounds::floats;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What was reported.
#[derive(Clone, Debug, Default, PartialEq)]
struct Heard {
    windows: Vec<Window>,
    segments: Vec<Segment>,
    tentative: Vec<Tentative>,
    summary: RecordingSummary,
}

impl Heard {
    fn take(&mut self, event: TranscribeEvent<'_>) {
        match event {
            TranscribeEvent::Window(window) => self.windows.push(window.clone()),
            TranscribeEvent::Segment(segment) => self.segments.push(segment.clone()),
            TranscribeEvent::Tentative(now) => self.tentative.push(now.clone()),
            _ => (),
        }
    }

    fn without_tentative(self) -> Self {
        Self { tentative: Vec::new(), ..self }
    }
}

/// The transcription of a recording that is read once.
fn offline(transcriber: &Transcriber, mut samples: &[f32]) -> Heard {
    let mut heard = Heard::default();
    let summary = transcriber.transcribe_recording(Recording::new(&mut samples), &mut |event| {
        heard.take(event);
        ControlFlow::Continue(())
    });
    heard.summary = summary.unwrap();
    heard
}

/// The transcription of a stream whose chunks have the sizes that `size` returns.
fn stream(
    transcriber: &mut StreamingTranscriber,
    mut samples: &[f32],
    mut size: impl FnMut() -> usize,
) -> Heard {
    let mut heard = Heard::default();
    while !samples.is_empty() {
        let (chunk, rest) = samples.split_at(size().min(samples.len()));
        transcriber.push(chunk, &mut |event| heard.take(event)).unwrap();
        samples = rest;
    }
    heard.summary = transcriber.finish(&mut |event| heard.take(event)).unwrap();
    heard
}

/// Noise that becomes louder, silence, a chirp: the scale changes within windows.
fn recording() -> Vec<f32> {
    let rising = floats(&audio("noise", 30_000)).into_iter().enumerate();
    let mut samples: Vec<f32> = rising.map(|(i, x)| x * i as f32 / 30_000.0).collect();
    samples.extend([0.0; 20_000]);
    samples.extend(floats(&audio("chirp", 30_321)));
    samples
}

/// A model, and options: what the test changes.
fn each_kind(mut check: impl FnMut(Transcriber, &str)) {
    let prompted = ONE_LANGUAGE.replacen('{', r#"{"prev_sot_token_id": 1304, "#, 1);
    for generation in [&prompted, SEVERAL] {
        let place = whisper(generation);
        let model = Arc::new(Model::open(&place.0).unwrap());
        let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
        for kind in ["default", "once", "beams", "no timestamps"] {
            let mut options = TranscribeOptions::new(model.config());
            options.vad = None;
            match kind {
                "once" => options = options.without_fallback(),
                "no timestamps" => options.timestamps = false,
                "beams" => {
                    options = options.without_fallback();
                    let beams = BeamOptions { beams: 2, ..BeamOptions::default() };
                    options.search.strategy = Strategy::Beam(beams);
                }
                _ => (),
            }
            let extractor = FeatureExtractor::from_dir(&place.0).unwrap();
            let tokenizer = Arc::clone(&tokenizer);
            check(Transcriber::new(&model, tokenizer, extractor, options).unwrap(), kind);
        }
    }
}

/// Random numbers, the same in each run.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

#[test]
fn the_final_text_is_that_of_the_recording() {
    let samples = recording();
    let mut state = 1;
    each_kind(|transcriber, kind| {
        let expected = offline(&transcriber, &samples);
        assert!(expected.windows.len() > 1, "{expected:?}");
        assert_eq!(expected.summary.duration, samples.len() as f64 / 16_000.0);
        // Also after the first window, which decides the language.
        assert!(expected.windows[1..].iter().any(|window| window.attempts > 0), "{kind}");
        let mut streamed = StreamingTranscriber::new(transcriber).unwrap();
        let chunks = [(0.25, 9_000), (f64::INFINITY, 100), (0.5, 2_000), (0.0, 40_000)];
        for (delay, most) in chunks.into_iter().cycle().take(cases(2, 100)) {
            streamed.set_delay(delay).unwrap();
            let heard = stream(&mut streamed, &samples, || random(&mut state) % most);
            assert_eq!(heard.without_tentative(), expected, "{kind}, delay {delay}, {most}");
        }
        // All at once. What is transcribed in between does not matter.
        let all = stream(&mut streamed, &samples, || samples.len());
        assert_eq!(all.without_tentative(), expected);
        let mut heard = Heard::default();
        streamed.push(&samples[..30_000], &mut |event| heard.take(event)).unwrap();
        assert_eq!(offline(streamed.transcriber(), &samples), expected);
        streamed.push(&samples[30_000..], &mut |event| heard.take(event)).unwrap();
        heard.summary = streamed.finish(&mut |event| heard.take(event)).unwrap();
        assert_eq!(heard.without_tentative(), expected);
    });
}

#[test]
fn the_stable_prefix_is_what_two_decodings_agree_on() {
    let samples = recording();
    each_kind(|transcriber, kind| {
        let mut streamed = StreamingTranscriber::new(transcriber).unwrap();
        streamed.set_delay(0.25).unwrap();
        let heard = stream(&mut streamed, &samples, || 1_000);
        let (mut before, mut stable) = (Tentative::default(), 0);
        let letters = |text: &str| text.split_whitespace().collect::<String>();
        for now in &heard.tentative {
            // A new window may begin with what the last one said at its end.
            assert!(now.end >= before.end && now.start >= before.start, "{now:?}");
            assert!(now.end - now.start <= 1.0 + 1e-9 && now.text.is_char_boundary(now.stable));
            if now.start == before.start {
                assert!(letters(&before.text).starts_with(&letters(now.stable_text())), "{now:?}");
                // Equal texts agree to their ends.
                assert!(now.text != before.text || now.stable == now.text.trim_end().len());
            }
            stable += now.stable;
            before = now.clone();
        }
        assert!(stable > 0, "{kind}: {heard:?}");
    });
}

#[test]
fn errors_leave_a_stream_that_goes_on_or_begins_again() {
    let samples = recording();
    each_kind(|transcriber, kind| {
        // Timestamps of random weights may lie after the last frame.
        if kind != "no timestamps" {
            return;
        }
        let mut streamed = StreamingTranscriber::new(transcriber).unwrap();
        assert_eq!((streamed.delay(), streamed.behind()), (1.0, 0.0));
        streamed.set_delay(0.25).unwrap();
        let of_parts = stream(&mut streamed, &samples, || 9_000);
        assert_eq!(of_parts.tentative[0].stable, 0);
        assert!(!of_parts.tentative[0].text.is_empty());
        let expected = stream(&mut streamed, &samples, || 30_000);
        let mut heard = Heard::default();
        streamed.push(&samples[..30_000], &mut |event| heard.take(event)).unwrap();
        assert_eq!(streamed.received(), 1.875);
        // The last frame needs samples after its middle.
        assert!((0.0..0.03).contains(&streamed.behind()), "{}", streamed.behind());
        streamed.push(&samples[30_000..32_000], &mut |event| heard.take(event)).unwrap();
        assert!((0.125..0.15).contains(&streamed.behind()), "{}", streamed.behind());
        let error = streamed.push(&[0.5, f32::NAN], &mut |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "sample 32001: expected a finite number, found NaN");
        streamed.push(&samples[32_000..], &mut |event| heard.take(event)).unwrap();
        heard.summary = streamed.finish(&mut |event| heard.take(event)).unwrap();
        assert_eq!(heard.without_tentative(), expected.clone().without_tentative());
        streamed.push(&samples[..50_000], &mut |_| ()).unwrap();
        streamed.reset();
        assert_eq!(streamed.received(), 0.0);
        assert_eq!(stream(&mut streamed, &samples, || 30_000), expected);
        // Nothing is stable because an earlier stream said it, too.
        streamed.push(&samples[..9_000], &mut |_| ()).unwrap();
        streamed.reset();
        assert_eq!(stream(&mut streamed, &samples, || 9_000), of_parts);
        for wrong in [-1.0, f64::NAN] {
            let error = streamed.set_delay(wrong).unwrap_err().to_string();
            assert_eq!(error, format!("delay: expected seconds, at least 0, found {wrong}"));
        }
        let none = streamed.finish(&mut |_| panic!("an event")).unwrap();
        assert_eq!(none.duration, 0.0);
    });
    let place = whisper(ONE_LANGUAGE);
    let model = Model::open(&place.0).unwrap();
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let mut options = TranscribeOptions::new(model.config());
    options.windows = Windows::Batched;
    let extractor = FeatureExtractor::from_dir(&place.0).unwrap();
    let transcriber = Transcriber::new(model, tokenizer, extractor, options).unwrap();
    let error = StreamingTranscriber::new(transcriber).unwrap_err().to_string();
    assert_eq!(error, "windows: expected Sequential for a stream, found Batched");
}

/// Nothing of silence reaches the engine.
#[test]
fn a_silent_stream_is_cancelled() {
    each_kind(|transcriber, kind| {
        let mut streamed = StreamingTranscriber::new(transcriber).unwrap();
        let cancel = Cancel::new();
        streamed.transcriber().set_cancel(cancel.clone());
        let mut windows = 0;
        let ended = streamed.push(&vec![0.0; 1_000_000], &mut |event| {
            if let TranscribeEvent::Window(_) = event {
                windows += 1;
                cancel.cancel();
            }
        });
        assert!(matches!(ended, Err(Error::Cancelled)), "{kind}: {ended:?}");
        assert_eq!((windows, streamed.received()), (1, 0.0), "{kind}");
        streamed.transcriber().set_cancel(Cancel::new());
        streamed.push(&[0.0; 100], &mut |_| ()).unwrap();
    });
}
