//! Properties of transcriptions with random models: spans of speech of any kind lose no frame, and no time is outside of the
//! recording.

use simdformer::Model;
use simdformer::config::Config;
use simdformer::search::{BeamOptions, Strategy};
use simdformer_speech::subtitles::{SubtitleOptions, cues};
use simdformer_speech::{
    Error, FeatureExtractor, Segment, StreamingTranscriber, Tokenizer, TranscribeEvent,
    TranscribeOptions, Transcriber, Transcription, Windows,
};
use simdformer_testing::effort::cases;
use simdformer_testing::published::{ONE_LANGUAGE, whisper};
use simdformer_testing::sounds::audio;
use simdformer_testing::sounds::floats;
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;
use std::sync::Arc;

/// The first timestamp of the models.
const FIRST_TIME: u32 = 1307;
/// Samples of a frame.
const HOP: usize = 160;

/// Random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// A model whose weights are random, and whose end token is frequent: texts have several lengths.
fn model(place: &TemporaryFolder, seed: u64) -> Arc<Model> {
    let read = |name: &str| fs::read_to_string(place.0.join(name)).unwrap();
    let mut config = Config::from_hugging_face(&read("config.json")).unwrap();
    config.set_generation_config(&read("generation_config.json")).unwrap();
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let end = random.of(&[1.5, 2.0, 3.0]);
    let range = random.of(&[2.0, 4.0, 8.0]);
    let model = Model::from_fn(config, |_, shape, out: &mut [f32]| {
        out.fill_with(|| (random.next() as f32 / (1u32 << 31) as f32 - 0.5) * range);
        if let [1458, width] = *shape {
            out[1295 * width..1296 * width].iter_mut().for_each(|x| *x *= end);
        }
        Ok(())
    });
    Arc::new(model.unwrap())
}

fn transcriber(
    (model, tokenizer, place): (&Arc<Model>, &Arc<Tokenizer>, &TemporaryFolder),
    change: impl FnOnce(&mut TranscribeOptions),
) -> Transcriber {
    let extractor = FeatureExtractor::from_dir(&place.0).unwrap();
    let mut options = TranscribeOptions::new(model.config()).without_fallback();
    change(&mut options);
    Transcriber::new(model, Arc::clone(tokenizer), extractor, options).unwrap()
}

/// Spans: empty, shorter than a frame, two that begin in one frame, adjacent, longer than a window, beyond the end.
fn ascending_spans(random: &mut Random, seconds: f64) -> Vec<(f64, f64)> {
    let (mut spans, mut at) = (Vec::new(), random.of(&[0.0, 0.004, 0.7]));
    while at < seconds + 2.0 && spans.len() < 30 {
        let length = random.of(&[0.0, 0.0, 0.002, 0.003, 0.3, 0.55, 1.0, 1.7, 2.5]);
        spans.push((at, at + length));
        at += length + random.of(&[0.0, 0.001, 0.002, 0.01, 0.09, 0.5, 1.3]);
        if random.below(12) == 0 {
            at += 3.0;
        }
    }
    spans
}

/// The frames of the windows; checks that windows follow each other.
fn covered(found: &Transcription, frames: usize) -> Vec<bool> {
    let (mut all, mut last) = (vec![false; frames], 0);
    for window in &found.windows {
        let end = window.first_frame + window.frames;
        assert!(last <= window.first_frame && window.frames > 0 && end <= frames, "{found:?}");
        assert!(window.frames <= 100, "{window:?}");
        all[window.first_frame..end].fill(true);
        last = end;
    }
    all
}

#[test]
fn spans_of_any_kind_lose_no_frame() {
    let place = whisper(ONE_LANGUAGE);
    let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
    let mut random = Random(1);
    let kinds = ["chirp", "noise", "chirp"];
    let all: Vec<f32> = kinds.iter().flat_map(|kind| floats(&audio(kind, 32_000))).collect();
    let (mut differ, mut gaps, mut refused) = (0, 0, 0);
    for number in 0..cases(30, 1500) {
        let model = model(&place, number / 2);
        let from = (&model, &tokenizer, &place);
        let samples = &all[..random.of(&[8_000, 30_000, 47_777, 61_234])];
        let frames = samples.len() / HOP;
        let spans = ascending_spans(&mut random, samples.len() as f64 / 16_000.0);
        let timestamps = random.below(2) == 0;
        let run = |windows: Windows, slots: usize, timestamps: bool| {
            let transcriber = transcriber(from, |options| {
                (options.windows, options.slots) = (windows, slots);
                options.timestamps = timestamps;
                options.words = number % 3 == 0;
            });
            transcriber.transcribe_spans(samples, Some(&spans)).unwrap()
        };
        let one = run(Windows::Batched, 1, timestamps);
        let slots = 2 + random.below(4);
        assert_eq!(run(Windows::Batched, slots, timestamps), one, "{slots} slots, {spans:?}");
        // Without timestamps a window has all of its frames, and the next one begins after it.
        let sequential = covered(&run(Windows::Sequential, 1, false), frames);
        let batched = covered(&one, frames);
        differ += usize::from(one.windows.windows(2).any(|two| two[0].tokens != two[1].tokens));
        let mut expected = vec![false; frames];
        for &(start, end) in spans.iter().filter(|(start, end)| start < end) {
            let (start, end) = ((start / 0.01).floor() as usize, (end / 0.01).ceil() as usize);
            expected[start.min(frames)..end.min(frames)].fill(true);
        }
        assert!(sequential == expected, "{spans:?}");
        for frame in 0..frames {
            assert!(batched[frame] || !expected[frame], "frame {frame} is lost: {spans:?}");
            // A pause within a window is read, too.
            gaps += usize::from(batched[frame] && !expected[frame]);
        }
        // Any other order is an error.
        let mut shuffled = spans.clone();
        let (a, b) = (random.below(spans.len()), random.below(spans.len()));
        shuffled.swap(a, b);
        let ascends = shuffled.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        for windows in [Windows::Sequential, Windows::Batched] {
            let transcriber = transcriber(from, |options| options.windows = windows);
            match transcriber.transcribe_spans(samples, Some(&shuffled)) {
                Ok(_) => assert!(ascends, "{shuffled:?}"),
                Err(error) => {
                    assert!(error.to_string().starts_with("speech: expected seconds that ascend"));
                    assert!(!ascends, "{shuffled:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(differ > 4 && gaps > 40 && refused > 6, "{differ} {gaps} {refused}");
}

/// Checks that segments and words follow each other within `seconds`.
fn check_times(segments: &[Segment], seconds: f64) {
    let mut last = 0.0;
    for segment in segments {
        assert!(last <= segment.start && segment.start <= segment.end, "{last} {segment:?}");
        assert!(segment.end <= seconds, "{segment:?} in {seconds} s");
        for word in &segment.words {
            assert!(last <= word.start && word.start <= word.end, "{last} {segment:?}");
            assert!(word.end <= segment.end, "{segment:?}");
            last = word.end;
        }
        last = segment.end;
    }
    for (max_line_width, max_line_count) in [(None, None), (Some(8), Some(1)), (Some(30), None)] {
        let cues = cues(segments, &SubtitleOptions { max_line_width, max_line_count });
        let mut last = 0;
        let mut said = String::new();
        for cue in &cues {
            assert!(last <= cue.start && cue.start < cue.end, "{cues:?}");
            assert!(cue.end as f64 <= seconds * 1000.0, "{cue:?} in {seconds} s");
            last = cue.end;
            said.extend(cue.lines.iter().flat_map(|line| line.split_whitespace()));
        }
        let all = segments.iter().flat_map(|segment| segment.text.split_whitespace());
        assert_eq!(said, all.collect::<String>());
    }
}

#[test]
fn no_time_is_outside_of_the_recording() {
    let place = whisper(&ONE_LANGUAGE.replacen('{', r#"{"prev_sot_token_id": 1304, "#, 1));
    let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
    let mut random = Random(2);
    let noise = floats(&audio("noise", 60_000));
    let (mut beyond, mut segments, mut words, mut tentative) = (0, 0, 0, 0);
    for number in 0..cases(150, 4000) {
        let model = model(&place, 1000 + number / 4);
        let from = (&model, &tokenizer, &place);
        let length = random.of(&[160, 170, 1_000, 5_600, 9_123, 20_000, 33_333, 50_000]);
        let mut samples = noise[..length].to_vec();
        if random.below(2) == 0 {
            // It ends in silence.
            samples[length / 4..].fill(0.0);
        }
        let seconds = length as f64 / 16_000.0;
        let spans = ascending_spans(&mut random, seconds);
        let streams = number % 4 == 0;
        let transcriber = transcriber(from, |options| {
            options.timestamps = random.below(4) > 0;
            options.words = random.below(2) == 0;
            options.condition_on_previous_text = random.below(2) == 0;
            if !streams {
                options.windows = random.of(&[Windows::Sequential, Windows::Batched]);
            }
            if random.below(3) == 0 {
                (options.temperatures, options.sample.seed) = (vec![1.0], number);
            }
        });
        let mut found = Transcription::default();
        if streams {
            let mut stream = StreamingTranscriber::new(transcriber).unwrap();
            stream.set_delay(0.25).unwrap();
            let (mut received, mut last) = (0, 0.0);
            let mut hear = |event: TranscribeEvent<'_>, received: usize| match event {
                TranscribeEvent::Window(window) => found.windows.push(window.clone()),
                TranscribeEvent::Segment(segment) => {
                    assert!(segment.end <= received as f64 / 16_000.0, "{segment:?}");
                    last = segment.end;
                    found.segments.push(segment.clone());
                }
                TranscribeEvent::Tentative(now) => {
                    assert!(last <= now.start && now.start <= now.end, "{last} {now:?}");
                    assert!(now.end <= received as f64 / 16_000.0, "{now:?}");
                    tentative += 1;
                }
                _ => (),
            };
            for chunk in samples.chunks(3_001) {
                received += chunk.len();
                stream.push(chunk, &mut |event| hear(event, received)).unwrap();
            }
            found.summary = stream.finish(&mut |event| hear(event, received)).unwrap();
        } else {
            let speech = (random.below(2) == 0).then_some(&spans[..]);
            found = transcriber.transcribe_spans(&samples, speech).unwrap();
        }
        assert_eq!(found.summary.duration, seconds);
        check_times(&found.segments, seconds);
        for window in &found.windows {
            let latest = window.tokens.iter().filter_map(|id| id.checked_sub(FIRST_TIME)).max();
            beyond += usize::from(latest.is_some_and(|time| time as usize * 2 > window.frames));
        }
        segments += found.segments.len();
        words += found.segments.iter().map(|segment| segment.words.len()).sum::<usize>();
    }
    // The models do write times after the end of their windows.
    assert!(beyond > 20, "{beyond}");
    assert!(segments > 200 && words > 200 && tentative > 20, "{segments} {words} {tentative}");
}

/// A text that ends at the limit of the decoder has times and probabilities up to its last word.
#[test]
fn words_at_the_limit_of_the_decoder_have_probabilities() {
    let place = whisper(&ONE_LANGUAGE.replace("14", "24"));
    let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
    let samples = floats(&audio("noise", 40_000));
    let read = |name: &str| fs::read_to_string(place.0.join(name)).unwrap();
    let mut config = Config::from_hugging_face(&read("config.json")).unwrap();
    config.set_generation_config(&read("generation_config.json")).unwrap();
    let (mut full, mut words) = (0, 0);
    for number in 0..cases(12, 200) {
        let mut random = Random(number);
        let endless = Model::from_fn(config.clone(), |_, shape, out: &mut [f32]| {
            out.fill_with(|| random.next() as f32 / (1u32 << 31) as f32 - 0.5);
            if let [1458, width] = *shape {
                out[1295 * width..1296 * width].fill(0.0);
            }
            Ok(())
        });
        let endless = Arc::new(endless.unwrap());
        let transcriber = transcriber((&endless, &tokenizer, &place), |options| {
            (options.words, options.timestamps) = (true, number % 3 == 0);
            options.windows = [Windows::Sequential, Windows::Batched][number as usize / 2 % 2];
        });
        let found = transcriber.transcribe(&samples).unwrap();
        for window in &found.windows {
            // The decoder has 24 positions.
            full += usize::from(window.prompt.len() + window.tokens.len() >= 23);
        }
        for word in found.segments.iter().flat_map(|segment| &segment.words) {
            assert!(word.probability > 0.0 && word.probability <= 1.0, "{number}: {word:?}");
            words += 1;
        }
        check_times(&found.segments, 2.5);
    }
    assert!(full > 10 && words > 50, "{full} {words}");
}

/// Scores that are not finite are an error in every mode, and never a text without a note.
#[test]
fn scores_that_are_not_finite_are_errors() {
    let place = whisper(ONE_LANGUAGE);
    let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
    let samples = floats(&audio("noise", 20_000));
    let read = |name: &str| fs::read_to_string(place.0.join(name)).unwrap();
    let mut config = Config::from_hugging_face(&read("config.json")).unwrap();
    config.set_generation_config(&read("generation_config.json")).unwrap();
    let mut count = 0;
    for every in [1, 2, 7, 97] {
        let mut random = Random(3);
        let broken = Model::from_fn(config.clone(), |_, shape, out: &mut [f32]| {
            let range = if shape.len() == 1 { 100.0 } else { 1.0 };
            out.fill_with(|| (random.next() as f32 / (1u32 << 31) as f32 - 0.5) * range);
            if let [1458, width] = *shape {
                // Products with them overflow.
                for row in out.chunks_exact_mut(width).step_by(every) {
                    row.fill_with(|| if random.below(2) == 0 { 3e38 } else { -3e38 });
                }
            }
            Ok(())
        });
        let broken = Arc::new(broken.unwrap());
        for (number, temperatures) in (0..16).flat_map(|number| [(number, 0.0), (number, 1.0)]) {
            let transcriber = transcriber((&broken, &tokenizer, &place), |options| {
                options.windows = [Windows::Sequential, Windows::Batched][number % 2];
                options.words = number / 2 % 2 == 0;
                options.timestamps = number / 4 % 2 == 0;
                options.temperatures = vec![temperatures];
                if number / 8 == 1 {
                    let beams = BeamOptions { beams: 3, ..BeamOptions::default() };
                    options.search.strategy = Strategy::Beam(beams);
                }
            });
            let found = transcriber.transcribe(&samples);
            assert!(
                matches!(found, Err(Error::Model(simdformer::Error::NotFinite { .. }))),
                "{every}, {number}, {temperatures}: {found:?}"
            );
            count += 1;
        }
    }
    assert_eq!(count, 128);
}

/// Attempts at one window run beside the other windows, each with its temperature. A window is what it is alone, and what it
/// was when each attempt was a search of its own: `DIGEST`.
#[test]
fn attempts_in_a_batch_change_no_window() {
    const DIGEST: u64 = 0xfdc4_0092_a543_013f;
    let place = whisper(ONE_LANGUAGE);
    let tokenizer = Arc::new(Tokenizer::from_dir(&place.0).unwrap());
    let samples = floats(&audio("noise", 60_000));
    let (mut digest, mut counts) = (0xcbf2_9ce4_8422_2325_u64, [0; 5]);
    for number in 0..cases(24, 400) {
        let model = model(&place, 5000 + number / 6);
        let with = |slots: usize| {
            let transcriber = transcriber((&model, &tokenizer, &place), |options| {
                options.windows = Windows::Batched;
                options.slots = slots;
                options.words = number % 4 == 1;
                options.timestamps = number % 3 > 0;
                options.sample.seed = number;
                options.sample.top_k = [None, Some(40)][number as usize / 2 % 2];
                options.temperatures = match number % 5 {
                    0 => vec![0.3, 1.0],
                    1 => vec![0.8],
                    _ => vec![0.0, 0.4, 0.7, 1.0],
                };
                options.logprob_threshold = Some([-3.0, -1.0, -0.4][number as usize % 3]);
                options.compression_ratio_threshold = Some(2.4);
                options.no_speech_threshold = [None, Some(0.5)][number as usize / 3 % 2];
                if number % 2 == 0 {
                    let beams = BeamOptions { beams: 3, ..BeamOptions::default() };
                    options.search.strategy = Strategy::Beam(beams);
                }
            });
            transcriber.transcribe(&samples).unwrap()
        };
        let alone = with(1);
        for slots in [2, 5] {
            assert_eq!(with(slots), alone, "{number}, {slots} slots");
        }
        for window in &alone.windows {
            counts[window.attempts.min(4)] += 1;
        }
        if number < 24 {
            for window in &alone.windows {
                let about = (window.attempts, window.avg_logprob.to_bits(), &window.tokens);
                for byte in format!("{about:?}").bytes() {
                    digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
    }
    assert!(counts[1..].iter().all(|&count| count > 0), "{counts:?}");
    assert_eq!(digest, DIGEST, "{digest:#x}");
}
