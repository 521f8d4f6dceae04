//! The transcriber as a library: prompts, events, spans of speech, sources that are read in order.

use simdformer::kernels::ThreadPool;
use simdformer::search::{BeamOptions, Strategy};
use simdformer::{Cancel, Engine, Model, Threads};
use simdformer_speech::vad::{SpeechDetector, SpeechFinder, VadOptions};
use simdformer_speech::{
    Error, FeatureExtractor, Recording, SampleSource, Tokenizer, TranscribeEvent,
    TranscribeOptions, Transcriber, Transcription, Windows,
};
use simdformer_testing::published::{ONE_LANGUAGE, SEVERAL, START, whisper};
use simdformer_testing::sounds::audio;
use simdformer_testing::sounds::floats;
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::ops::ControlFlow;
use std::sync::Arc;

const PREVIOUS: u32 = 1304;

struct Parts {
    place: TemporaryFolder,
    model: Arc<Model>,
    tokenizer: Arc<Tokenizer>,
    samples: Vec<f32>,
}

fn parts() -> Parts {
    parts_of(ONE_LANGUAGE)
}

fn parts_of(generation: &str) -> Parts {
    let place = whisper(&generation.replacen('{', r#"{"prev_sot_token_id": 1304, "#, 1));
    let model = Arc::new(Model::open(&place.0).unwrap());
    let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
    let samples = ["chirp", "noise", "chirp"].iter().flat_map(|kind| floats(&audio(kind, 24_000)));
    Parts { model, tokenizer, samples: samples.collect(), place }
}

impl Parts {
    fn transcriber(&self, change: impl FnOnce(&mut TranscribeOptions)) -> Transcriber {
        let extractor = FeatureExtractor::from_dir(&self.place.0).unwrap();
        let mut options = TranscribeOptions::new(self.model.config()).without_fallback();
        assert!(options.condition_on_previous_text);
        options.condition_on_previous_text = false;
        change(&mut options);
        self.made(extractor, options).unwrap()
    }

    fn made(
        &self,
        extractor: FeatureExtractor,
        options: TranscribeOptions,
    ) -> Result<Transcriber, Error> {
        Transcriber::new(&self.model, Arc::clone(&self.tokenizer), extractor, options)
    }
}

/// Counts what is read.
struct Counted<'c>(&'c [f32], usize);

impl SampleSource for Counted<'_> {
    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        let read = self.0.read(out)?;
        self.1 += read;
        Ok(read)
    }
}

#[test]
fn earlier_text_is_the_prompt_of_the_next_window() {
    let parts = parts();
    let transcriber = parts.transcriber(|options| options.condition_on_previous_text = true);
    let found = transcriber.transcribe(&parts.samples).unwrap();
    assert!(found.windows.len() > 1, "{found:?}");
    assert_eq!(found.windows[0].prompt, [START]);
    for window in &found.windows[1..] {
        let [first, earlier @ .., last] = &window.prompt[..] else { panic!("{window:?}") };
        assert_eq!((*first, *last), (PREVIOUS, START));
        // At most half of the 24 positions, less one.
        assert!((1..=11).contains(&earlier.len()), "{earlier:?}");
    }
    // All segments of the first window, without the second of two timestamps at the end.
    let first = &found.windows[0].tokens;
    let last = &found.windows[1].prompt;
    let earlier = &last[1..last.len() - 1];
    assert!(first.windows(earlier.len()).any(|part| part == earlier), "{first:?} {earlier:?}");
    // Without earlier text the prompt is the caller's, in each window.
    let transcriber =
        parts.transcriber(|options| options.initial_prompt = Some("attention is all ".to_owned()));
    let found = transcriber.transcribe(&parts.samples).unwrap();
    let given = parts.tokenizer.encode_target(" attention is all").unwrap();
    let expected = [&[PREVIOUS][..], &given, &[START]].concat();
    assert!(found.windows.iter().all(|window| window.prompt == expected), "{found:?}");
}

#[test]
fn a_source_is_read_only_as_far_as_needed_and_events_come_in_order() {
    let parts = parts();
    for windows in [Windows::Sequential, Windows::Batched] {
        let transcriber = parts.transcriber(|options| options.windows = windows);
        let whole = transcriber.transcribe(&parts.samples).unwrap();
        assert!(whole.segments.windows(2).all(|pair| pair[0].window <= pair[1].window));
        assert_eq!(whole.summary.duration, 4.5);
        assert_eq!(whole.summary.windows, whole.windows.len());
        let maximum = Some(transcriber.maximum(&mut &parts.samples[..]).unwrap());
        let mut source = Counted(&parts.samples, 0);
        let mut read = Vec::new();
        let recording = Recording { maximum, ..Recording::new(&mut source) };
        let (mut segments, mut count) = (Vec::new(), 0);
        let summary = transcriber.transcribe_recording(recording, &mut |event| {
            match event {
                TranscribeEvent::Window(window) => {
                    count += 1;
                    read.push(window.first_frame);
                }
                TranscribeEvent::Segment(segment) => {
                    assert_eq!(segment.window + 1, count);
                    segments.push(segment.clone());
                }
                _ => (),
            }
            ControlFlow::Continue(())
        });
        assert_eq!((segments, summary.unwrap()), (whole.segments.clone(), whole.summary.clone()));
        assert_eq!(source.1, parts.samples.len());
        assert!(read.windows(2).all(|pair| pair[0] < pair[1]), "{read:?}");
        // The caller ends it at the first segment.
        let mut source = Counted(&parts.samples, 0);
        let mut heard = 0;
        let recording = Recording { maximum, ..Recording::new(&mut source) };
        let stopped = transcriber.transcribe_recording(recording, &mut |event| {
            if matches!(event, TranscribeEvent::Segment(_)) {
                heard += 1;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        assert_eq!((heard, stopped.unwrap().windows < whole.windows.len()), (1, true));
        if windows == Windows::Sequential {
            assert!(source.1 < parts.samples.len(), "{}", source.1);
        }
    }
    // A pipe has the scale of what was read so far.
    let transcriber = parts.transcriber(|_| ());
    let quiet: Vec<f32> = parts.samples.iter().map(|x| x / 64.0).collect();
    let rising = [&quiet[..], &parts.samples[..]].concat();
    let starts = |samples: &[f32]| {
        let mut first = Vec::new();
        let mut samples = samples;
        let summary =
            transcriber.transcribe_recording(Recording::new(&mut samples), &mut |event| {
                if let TranscribeEvent::Window(window) = event {
                    first.push(window.clone());
                }
                ControlFlow::Continue(())
            });
        (first, summary.unwrap().duration)
    };
    let (alone, followed) = (starts(&quiet), starts(&rising));
    assert_eq!((alone.1, followed.1), (4.5, 9.0));
    assert_eq!(alone.0[0], followed.0[0], "what follows does not matter");
}

#[test]
fn only_spans_of_speech_are_read() {
    let parts = parts();
    let spans = [(0.5, 0.9), (1.0, 1.4), (2.25, 4.0)];
    for windows in [Windows::Sequential, Windows::Batched] {
        let transcriber = parts.transcriber(|options| options.windows = windows);
        let found = transcriber.transcribe_spans(&parts.samples, Some(&spans)).unwrap();
        let covered: Vec<(usize, usize)> =
            found.windows.iter().map(|w| (w.first_frame, w.first_frame + w.frames)).collect();
        match windows {
            // The first two fit into one window of a second.
            Windows::Batched => {
                assert_eq!((covered[0], covered[1].0), ((50, 140), 225));
                assert_eq!(covered[covered.len() - 1].1, 400);
            }
            _ => {
                let inside = |&(from, to): &(usize, usize)| {
                    [(50, 90), (100, 140), (225, 400)].iter().any(|&(a, b)| a <= from && to <= b)
                };
                assert!(covered.iter().all(inside), "{covered:?}");
            }
        }
        assert_eq!(found.summary.duration, 4.5);
        let none = transcriber.transcribe_spans(&parts.samples, Some(&[])).unwrap();
        assert_eq!(
            (none.text(), none.windows.len(), none.summary.duration),
            (String::new(), 0, 4.5)
        );
        for wrong in
            [&[(1.0, 0.5)][..], &[(0.0, 1.0), (0.5, 2.0)], &[(-1.0, 1.0)], &[(0.0, f64::NAN)]]
        {
            let error = transcriber.transcribe_spans(&parts.samples, Some(wrong)).unwrap_err();
            assert!(error.to_string().starts_with("speech: expected seconds that ascend from "));
        }
    }
}

#[test]
fn spans_of_speech_are_found_while_a_source_is_read() {
    let parts = parts();
    let spoken = &crate::vad::voice(3)[..];
    let samples = [spoken, &[0.0; 80_000], spoken, spoken, &[0.0; 40_000]].concat();
    let mut vad = VadOptions::default();
    (vad.threshold, vad.min_silence, vad.speech_pad) = (0.3, 1.0, 0.2);
    let detector = SpeechDetector::new().unwrap();
    let mut finder = SpeechFinder::new(detector, vad.clone()).unwrap();
    finder.push(&samples).unwrap();
    finder.finish().unwrap();
    let spans: Vec<_> = std::iter::from_fn(|| finder.next_span()).collect();
    assert!(spans.len() > 1, "{spans:?}");
    for windows in [Windows::Sequential, Windows::Batched] {
        let transcriber = parts.transcriber(|options| options.windows = windows);
        let expected = transcriber.transcribe_spans(&samples, Some(&spans)).unwrap();
        let transcriber = parts.transcriber(|options| {
            options.windows = windows;
            options.vad = Some(vad.clone());
        });
        assert_eq!(transcriber.transcribe(&samples).unwrap(), expected);
        // A second recording begins without what was heard before.
        assert_eq!(transcriber.transcribe(&samples).unwrap(), expected);
    }
}

#[test]
fn samples_and_options_are_checked() {
    let parts = parts();
    let mut samples = parts.samples.clone();
    samples[20_000] = f32::NAN;
    let error = parts.transcriber(|_| ()).transcribe(&samples).unwrap_err();
    assert_eq!(error.to_string(), "sample 20000: expected a finite number, found NaN");
    for (few, windows) in [(0, 0), (1, 0), (159, 0), (160, 1), (161, 1)] {
        let found = parts.transcriber(|_| ()).transcribe(&parts.samples[..few]).unwrap();
        assert_eq!(found.windows.len(), windows, "{few}");
    }
    for (temperatures, message) in [
        (&[0.0, 11.0][..], "temperatures: expected numbers from 0 to 10, found 11"),
        (&[f64::NAN], "temperatures: expected numbers from 0 to 10, found NaN"),
        (&[0.0, 0.2, 0.0], "temperatures: expected only the first one is 0, found another 0"),
    ] {
        let extractor = FeatureExtractor::from_dir(&parts.place.0).unwrap();
        let mut options = TranscribeOptions::new(parts.model.config());
        options.temperatures = temperatures.to_vec();
        let refused = parts.made(extractor, options);
        assert_eq!(refused.unwrap_err().to_string(), message);
    }
    assert_eq!(parts.transcriber(|_| ()).options().slots, 4);
}

#[test]
fn windows_without_sound_are_not_decoded() {
    let parts = parts();
    // A second of speech, three of silence with the rounding of 16 bits, then speech again.
    let hiss = |i: usize| if i.is_multiple_of(3) { 1.0 / 32768.0 } else { 0.0 };
    let silence: Vec<f32> = (0..3 * 16_000).map(hiss).collect();
    let speech = &parts.samples[..16_000];
    for windows in [Windows::Sequential, Windows::Batched] {
        let decoded = |threshold, samples: &[f32]| {
            let transcriber = parts.transcriber(|options| {
                (options.windows, options.timestamps) = (windows, false);
                options.no_speech_threshold = threshold;
            });
            let found = transcriber.transcribe(samples).unwrap();
            let attempts = found.windows.iter().map(|window| window.attempts).sum::<usize>();
            (found.text(), attempts, found.summary.duration)
        };
        assert_eq!(decoded(Some(0.6), &silence), (String::new(), 0, 3.0));
        assert!(decoded(None, &silence).1 > 2 && decoded(Some(1.0), &silence).1 > 2);
        let both = [speech, &silence, speech].concat();
        let (text, attempts, duration) = decoded(Some(0.6), &both);
        assert!(!text.is_empty() && (2..=4).contains(&attempts), "{attempts}");
        assert!(decoded(None, &both).1 > attempts);
        assert_eq!(duration, 5.0);
    }
}

/// The transcription without the times of words.
fn without_words(mut found: Transcription) -> Transcription {
    for segment in &mut found.segments {
        (segment.start, segment.end) = (0.0, 0.0);
        segment.words.clear();
    }
    found
}

#[test]
fn words_have_times_and_do_not_change_the_text() {
    let parts = parts();
    for windows in [Windows::Sequential, Windows::Batched] {
        for beams in [1, 2] {
            let found = |words: bool, slots: usize, threads: usize| {
                let mut transcriber = parts.transcriber(|options| {
                    (options.windows, options.words, options.slots) = (windows, words, slots);
                    if beams > 1 {
                        options.search.strategy =
                            Strategy::Beam(BeamOptions { beams, ..BeamOptions::default() });
                    }
                });
                let pool = Arc::new(ThreadPool::new(threads).unwrap());
                let engine =
                    Engine::builder(Arc::clone(&parts.model)).threads(Threads::Shared(pool));
                transcriber.set_engine(engine.build().unwrap());
                transcriber.transcribe(&parts.samples).unwrap()
            };
            let whole = found(true, 1, 1);
            assert_eq!(whole, found(true, 3, 2));
            assert!(!whole.segments.is_empty());
            let mut last = 0.0;
            for segment in &whole.segments {
                let text: String = segment.words.iter().map(|word| word.text.as_str()).collect();
                assert_eq!(text, segment.text);
                for word in &segment.words {
                    assert!(last <= word.start && word.start <= word.end, "{segment:?}");
                    assert!((0.0..=1.0).contains(&word.probability), "{word:?}");
                    last = word.end;
                }
                assert_eq!((segment.start, segment.end), (segment.words[0].start, last));
            }
            let (plain, timed) = (without_words(found(false, 2, 1)), without_words(whole));
            assert_eq!(plain.segments, timed.segments);
        }
    }
    let wrong = ONE_LANGUAGE.replacen('{', r#"{"alignment_heads": [[0, 2]], "#, 1);
    let parts = parts_of(&wrong);
    let extractor = FeatureExtractor::from_dir(&parts.place.0).unwrap();
    let mut options = TranscribeOptions::new(parts.model.config());
    options.words = true;
    let error = parts.made(extractor, options).unwrap_err();
    let expected =
        "alignment_heads: expected layers below 1 and heads below 2, found layer 0, head 2";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_language_is_detected_once_or_in_each_window() {
    let parts = parts_of(SEVERAL);
    for windows in [Windows::Sequential, Windows::Batched] {
        let found = |each: bool, language: Option<&str>| {
            let transcriber = parts.transcriber(|options| {
                (options.windows, options.detect_each_window) = (windows, each);
                options.language = language.map(str::to_owned);
            });
            let mut found = transcriber.transcribe(&parts.samples).unwrap();
            for (number, window) in found.windows.iter_mut().enumerate() {
                let probability = window.language_probability.take();
                let detected = language.is_none() && (each || number == 0);
                assert_eq!(probability.is_some(), detected, "{each}, {language:?}, {number}");
                assert!(probability.is_none_or(|probability| (0.0..=1.0).contains(&probability)));
            }
            found
        };
        let once = found(false, None);
        let first = once.summary.language.clone().unwrap();
        assert_eq!(once, found(false, Some(&first)), "detection changes nothing else");
        let each = found(true, None);
        assert_eq!(each.summary.language.as_ref(), Some(&first));
        assert_eq!(each.windows[0], once.windows[0]);
        // A window in another language than that of its prompt is decoded as with this one.
        for window in &each.windows {
            let given = found(false, window.language.as_deref());
            let same = given.windows.iter().find(|other| other.first_frame == window.first_frame);
            assert!(same.is_none_or(|same| same == window), "{same:?} {window:?}");
        }
        assert_eq!(found(true, Some("de")), found(false, Some("de")), "a given language stays");
    }
}

#[test]
fn hotwords_precede_the_text_of_every_window() {
    let parts = parts();
    let hotwords = parts.tokenizer.encode_target(" attention is").unwrap();
    for condition in [false, true] {
        let transcriber = parts.transcriber(|options| {
            options.hotwords = Some(" attention is ".to_owned());
            options.condition_on_previous_text = condition;
        });
        let found = transcriber.transcribe(&parts.samples).unwrap();
        for (i, window) in found.windows.iter().enumerate() {
            let [first, given @ .., last] = &window.prompt[..] else { panic!("{window:?}") };
            assert_eq!((*first, *last), (PREVIOUS, START));
            assert!(given.starts_with(&hotwords) && given.len() <= 11, "{given:?}");
            assert_eq!(given.len() > hotwords.len(), condition && i > 0);
        }
    }
}

#[test]
fn a_cancelled_recording_ends_and_comes_again() {
    let parts = parts();
    for windows in [Windows::Sequential, Windows::Batched] {
        let planned = |slots| {
            let with = |options: &mut TranscribeOptions| {
                (options.windows, options.slots) = (windows, slots);
            };
            let transcriber = parts.transcriber(with);
            (transcriber.plan().unwrap().bytes(), transcriber)
        };
        assert_eq!(planned(4).0 > planned(1).0, windows == Windows::Batched);
        let mut transcriber = planned(1).1;
        let expected = transcriber.transcribe(&parts.samples).unwrap();
        let cancel = Cancel::new();
        transcriber.set_cancel(cancel.clone());
        let mut heard = Vec::new();
        let mut source = &parts.samples[..];
        let recording = Recording::new(&mut source);
        let ended = transcriber.transcribe_recording(recording, &mut |event| {
            if let TranscribeEvent::Window(window) = event {
                heard.push(window.first_frame);
                cancel.cancel();
            }
            ControlFlow::Continue(())
        });
        let ended = ended.unwrap_err();
        assert!(matches!(ended, Error::Cancelled), "{ended:?}");
        assert_eq!(heard.len(), 1);
        transcriber.set_cancel(Cancel::new());
        assert_eq!(transcriber.transcribe(&parts.samples).unwrap(), expected);
    }
}

/// Zeros, which set a flag with the read number `CANCELLED` and would go on for long.
struct Zeros<'c> {
    reads: usize,
    cancel: &'c Cancel,
}

const CANCELLED: usize = 20;

impl SampleSource for Zeros<'_> {
    fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        self.reads += 1;
        assert!(out.len() <= 16_000, "{}", out.len());
        if self.reads == CANCELLED {
            self.cancel.cancel();
        }
        let count = if self.reads < 10 * CANCELLED { out.len() } else { 0 };
        out[..count].fill(0.0);
        Ok(count)
    }
}

/// Nothing of silence reaches the engine.
#[test]
fn a_silent_recording_is_cancelled_while_it_is_read() {
    let parts = parts();
    let spans = [(0.0, 1.0)];
    for windows in [Windows::Sequential, Windows::Batched] {
        for (vad, speech) in [(true, None), (false, None), (false, Some(&spans[..]))] {
            let case = format!("{windows:?}, {vad}, {speech:?}");
            let mut transcriber = parts.transcriber(|options| {
                (options.windows, options.single_pass_samples) = (windows, 100_000);
                options.vad = vad.then(VadOptions::default);
            });
            type Call<'c> = &'c dyn Fn(&Transcriber, &mut Zeros<'_>) -> Result<(), Error>;
            let calls: [Call<'_>; 3] = [
                &|transcriber, source| transcriber.maximum(source).map(drop),
                &|transcriber, source| {
                    let recording = Recording { speech, ..Recording::new(source) };
                    let go_on = &mut |_: TranscribeEvent<'_>| ControlFlow::Continue(());
                    transcriber.transcribe_recording(recording, go_on).map(drop)
                },
                &|transcriber, source| {
                    let mut source = Some(source);
                    let mut open = || Ok(source.take().unwrap());
                    let go_on = &mut |_: TranscribeEvent<'_>| ControlFlow::Continue(());
                    transcriber.transcribe_reopened(&mut open, speech, go_on).map(drop)
                },
            ];
            for (number, call) in calls.into_iter().enumerate() {
                let cancel = Cancel::new();
                transcriber.set_cancel(cancel.clone());
                let mut source = Zeros { reads: 0, cancel: &cancel };
                let ended = call(&transcriber, &mut source);
                assert!(matches!(ended, Err(Error::Cancelled)), "{case}, {number}: {ended:?}");
                assert_eq!(source.reads, CANCELLED, "{case}, {number}");
            }
        }
    }
}
