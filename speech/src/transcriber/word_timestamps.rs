//! Words with their times: from the times of tokens to those of words, which begin and end with sound.
//!
//! Attention says between which words a time is, but not to the frame: it lags behind the speech, and in a pause it is
//! anywhere. The loudness of the frames says where a pause begins and ends. So the lag is estimated from the words beside the
//! pauses of the window, and each word is then cut to the sound within it.

use super::alignment::{Aligner, AlignmentRequest};
use super::options::{TranscribeOptions, Windows};
use super::prompt::{FRAMES_PER_TIMESTAMP, Prompt};
use super::segments::{seconds_of, split, split_all};
use super::transcription::{TimedWord, Window, Word};
use super::word_split::split_words;
use crate::error::Error;
use core::ops::Range;
use simdformer::config::Config;
use simdformer::{Features, Limits, Plan, Session, SourceId};
use simdformer_tokenize::Tokenizer;

/// The frames by which attention lags without evidence: that of tiny.en, measured on synthetic and human speech.
const LAG: i32 = 8;
/// How many observations it counts as, and how far an observation may be from it.
const LAG_WEIGHT: usize = 4;
const LAG_REACH: i32 = 20;
/// The loudness between the quiet (10 % of the frames are below) and the loud (5 % are above) from which on a frame has sound.
const SOUND: f32 = 0.3;
/// In a window in which they are not farther apart (6 dB), every frame has sound.
const CONTRAST: f32 = 0.15;
/// Frames without sound that are a pause.
const PAUSE: usize = 10;
/// A word grows to the end of its sound if it is at most so many frames away, and no other word is there.
const GROWTH: i32 = 30;

/// What the times of words need.
pub(super) struct WordTimer {
    aligner: Aligner,
    loudness: Loudness,
    /// Those of the session.
    limits: Limits,
}

/// How loud the frames of the encoded windows are.
struct Loudness {
    /// `[slots, frames]`.
    values: Vec<f32>,
    frames: usize,
}

impl Loudness {
    fn new(slots: usize, frames: usize) -> Self {
        Self { values: vec![0.0; slots * frames], frames }
    }

    /// Keeps the mean of each frame of `features`.
    fn keep(&mut self, source: SourceId, features: Features<'_>) {
        let Features { values, bins } = features;
        let share = 1.0 / bins.max(1) as f32;
        let kept = self.values.iter_mut().skip(source.slot() as usize * self.frames);
        for (kept, frame) in kept.take(self.frames).zip(values.chunks_exact(bins.max(1))) {
            *kept = share * frame.iter().sum::<f32>();
        }
    }

    /// Of the first `count` frames.
    fn first_frames(&self, source: SourceId, count: usize) -> &[f32] {
        let at = source.slot() as usize * self.frames;
        self.values.get(at..at + count.min(self.frames)).unwrap_or(&[])
    }
}

impl WordTimer {
    pub(super) fn new(config: &Config, plan: &Plan) -> Result<Self, Error> {
        let limits = plan.limits();
        // Two frames are a position.
        let loudness = Loudness::new(limits.sentences, 2 * limits.source_tokens);
        Ok(Self { aligner: Aligner::new(config, plan)?, loudness, limits })
    }

    /// Whether it was made for sessions of this plan.
    pub(super) fn is_of(&self, plan: &Plan) -> bool {
        self.limits == plan.limits()
    }

    /// Keeps what it needs of the features of a window that was encoded.
    pub(super) fn keep(&mut self, source: SourceId, features: Features<'_>) {
        self.loudness.keep(source, features);
    }

    /// The words of the text of `window`, whose encoder output is still there.
    pub(super) fn words(
        &mut self,
        session: &mut Session<'_>,
        (options, prompt, tokenizer): (&TranscribeOptions, &Prompt, &Tokenizer),
        (source, window): (SourceId, &Window),
    ) -> Result<Vec<TimedWord>, Error> {
        let is_text = |i: &usize| prompt.timestamp(window.tokens[*i]).is_none();
        let places: Vec<usize> = (0..window.tokens.len()).filter(is_text).collect();
        if places.is_empty() || window.skipped {
            return Ok(Vec::new());
        }
        let language = prompt.language_of(&window.prompt);
        let before = prompt.without_timestamps(language);
        let text: Vec<u32> = places.iter().map(|&i| window.tokens[i]).collect();
        let end = options.search.eos.iter().min().copied().unwrap_or(u32::MAX);
        let positions = window.frames / FRAMES_PER_TIMESTAMP;
        // A text that ends at the limit of the decoder is longer than one pass takes. Then another one has the end of it, after
        // as much text as fits before it.
        let most = self.aligner.most_tokens().saturating_sub(before.len() + 1).max(1);
        let (mut starts, mut probabilities) = (Vec::new(), Vec::new());
        while probabilities.len() < text.len() {
            let done = probabilities.len();
            let to = text.len().min(done + most);
            let from = to.saturating_sub(most);
            let next = text.get(to).or(options.search.eos.first());
            let tokens: Vec<u32> =
                before.iter().chain(&text[from..to]).chain(next).copied().collect();
            let text = before.len()..before.len() + to - from;
            let request = AlignmentRequest { source, tokens: &tokens, text, positions, end };
            let (at, scores) = self.aligner.align(session, &request)?;
            // The end of the last token is the start of the next one.
            let earliest = starts.pop().unwrap_or(0);
            starts.extend(at[done - from..].iter().map(|&at| earliest.max(at)));
            probabilities.extend_from_slice(&scores[done - from..]);
        }
        let last = window.frames as i32;
        let time = |i: usize| (starts[i] as i32 * FRAMES_PER_TIMESTAMP as i32).min(last);
        // The next window begins at the limit.
        let (parts, limit) = match options.windows {
            Windows::Sequential => split(&window.tokens, prompt, 0, window.frames),
            _ => (split_all(&window.tokens, prompt, 0, window.frames), window.frames),
        };
        // Segments divide words, too.
        let part_of = |i: usize| parts.iter().position(|part| part.tokens.contains(&places[i]));
        let spaces = prompt.writes_spaces(language);
        let (mut found, mut spans) = (Vec::new(), Vec::new());
        let mut from = 0;
        while from < places.len() {
            let follows = |i: &usize| part_of(*i) == part_of(from);
            let to = (from + 1..places.len()).take_while(follows).last().map_or(from, |i| i) + 1;
            let (written, bytes) = tokenizer.decode_with_spans(&text[from..to]);
            for word in split_words(&written, &bytes, spaces) {
                let Range { start, end } = from + word.said.start..from + word.said.end;
                spans.push((time(start), time(end)));
                let scores = &probabilities[start..end];
                let probability = scores.iter().sum::<f32>() / scores.len() as f32;
                let token = places[from + word.tokens.start];
                let text = written[word.bytes].to_owned();
                let word = Word { start: 0.0, end: 0.0, text, probability };
                found.push(TimedWord { token, word });
            }
            from = to;
        }
        snap_to_sound(&mut spans, self.loudness.first_frames(source, window.frames));
        let second = |frame: i32| {
            seconds_of(window.first_frame + usize::try_from(frame).unwrap_or(0).min(limit))
        };
        for (TimedWord { word, .. }, (start, end)) in found.iter_mut().zip(spans) {
            (word.start, word.end) = (second(start), second(end));
        }
        Ok(found)
    }
}

/// Moves the starts and ends of words, in frames, to where sound begins and ends.
fn snap_to_sound(words: &mut [(i32, i32)], loudness: &[f32]) {
    let count = loudness.len() as i32;
    let sounds = sounds(loudness);
    let lag = lag(words, &sounds, count);
    for (start, end) in words.iter_mut() {
        *start = (*start - lag).max(0);
        *end = (*end - lag).max(*start);
    }
    let mut before = 0;
    for i in 0..words.len() {
        let next = words.get(i + 1).map_or(count, |&(start, _)| start);
        let (start, end) = words[i];
        let inside = |&(from, to): &(i32, i32)| to.min(end) - from.max(start);
        // The longest sound of the word; the earlier one of equal ones.
        let longest =
            sounds.iter().rev().filter(|sound| inside(sound) > 0).max_by_key(|s| inside(s));
        if let Some(&(from, to)) = longest {
            if from > start || from > 0 && from >= start - GROWTH {
                words[i].0 = from;
            }
            if to < end || to < count && to <= end + GROWTH {
                words[i].1 = to.min(next);
            }
        }
        // A word never begins before the end of the one before it.
        words[i].0 = words[i].0.max(before);
        words[i].1 = words[i].1.max(words[i].0);
        before = words[i].1;
    }
}

/// The first frames of sounds, and those after them; shorter pauses are part of a sound.
fn sounds(loudness: &[f32]) -> Vec<(i32, i32)> {
    let count = loudness.len();
    let smooth = |i: usize| {
        let near = &loudness[i.saturating_sub(1)..(i + 2).min(count)];
        near.iter().sum::<f32>() / near.len() as f32
    };
    let smooth: Vec<f32> = (0..count).map(smooth).collect();
    let mut sorted = smooth.clone();
    sorted.sort_by(f32::total_cmp);
    let at = |hundredth: usize| sorted.get(count * hundredth / 100).copied().unwrap_or(0.0);
    let (quiet, loud) = (at(10), at(95));
    if loud - quiet < CONTRAST {
        return vec![(0, count as i32)];
    }
    let threshold = quiet + SOUND * (loud - quiet);
    let mut sounds: Vec<(usize, usize)> = Vec::new();
    for i in (0..count).filter(|&i| smooth[i] > threshold) {
        match sounds.last_mut() {
            Some((_, end)) if i - *end < PAUSE => *end = i + 1,
            _ => sounds.push((i, i + 1)),
        }
    }
    sounds.into_iter().map(|(start, end)| (start as i32, end as i32)).collect()
}

/// By how many frames words begin after sounds, and end after them: the median over the pauses.
fn lag(words: &[(i32, i32)], sounds: &[(i32, i32)], count: i32) -> i32 {
    let mut found = vec![LAG; LAG_WEIGHT];
    let mut observe = |at: i32, times: &mut dyn Iterator<Item = i32>| {
        let nearest = times.map(|time| time - at).min_by_key(|lag| (lag - LAG).abs());
        found.extend(nearest.filter(|lag| (lag - LAG).abs() <= LAG_REACH));
    };
    for &(start, end) in sounds {
        if start > 0 {
            observe(start, &mut words.iter().map(|word| word.0));
        }
        if end < count {
            observe(end, &mut words.iter().map(|word| word.1));
        }
    }
    found.sort_unstable();
    found[found.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loudness with sound in these frames.
    fn loudness(count: i32, sounds: &[(i32, i32)]) -> Vec<f32> {
        let loud = |i: i32| sounds.iter().any(|&(start, end)| (start..end).contains(&i));
        (0..count).map(|i| if loud(i) { 1.0 } else { 0.0 }).collect()
    }

    #[test]
    fn words_begin_and_end_with_sound() {
        // Two words, a pause, a word, a pause, a word that attention stretches over the pause.
        let sounds = [(20, 80), (120, 160), (300, 340)];
        let heard = loudness(400, &sounds);
        let mut words = [(30, 58), (58, 90), (132, 171), (171, 352)];
        snap_to_sound(&mut words, &heard);
        let near = |found: (i32, i32), (start, end): (i32, i32)| {
            (found.0 - start).abs() <= 1 && (found.1 - end).abs() <= 1
        };
        assert!(near((words[0].0, words[1].1), (20, 80)), "{words:?}");
        assert!(near(words[2], (120, 160)) && near(words[3], (300, 340)), "{words:?}");
        // Between two words without a pause only the lag counts: 9 here, 8 without evidence.
        assert_eq!(words[0].1, words[1].0);
        assert_eq!(words[0].1, 49);
        let mut words = [(30, 58), (58, 90)];
        snap_to_sound(&mut words, &[0.5; 100]);
        assert_eq!(words, [(22, 50), (50, 82)]);
    }

    #[test]
    fn times_never_go_back() {
        for seed in 0..200_u32 {
            let mut state = seed;
            let mut next = |most: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((state >> 8) % most) as i32
            };
            let heard: Vec<f32> = (0..100).map(|_| next(3) as f32).collect();
            let mut times: Vec<i32> = (0..12).map(|_| next(101)).collect();
            times.sort_unstable();
            let mut words: Vec<(i32, i32)> =
                times.chunks(2).map(|pair| (pair[0], pair[1])).collect();
            snap_to_sound(&mut words, &heard);
            let flat: Vec<i32> = words.iter().flat_map(|&(start, end)| [start, end]).collect();
            assert!(flat.is_sorted() && flat[0] >= 0 && flat[11] <= 100, "{flat:?}");
        }
    }
}
