//! Sentences of subtitles that run over several cues: which cues are read as one text, and how its translation is divided
//! again.

use simdformer_documents::lines::{count_columns, ends_sentence, join_without_space};
use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText};
use simdformer_documents::sentences::SentenceSplitter;
use simdformer_documents::{Cue, Document};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// The most cues and bytes that are read as one text.
const CUES: usize = 16;
const BYTES: usize = 4096;
/// After a pause this long, a capital letter begins another text.
const PAUSE: Duration = Duration::from_secs(3);
/// Columns that a viewer reads in a second: 17 letters, the limit of many guides for subtitles; a wide character counts as two.
const SPEED: f32 = 17.0;
/// What one word more than a viewer can read costs, if a word at the side of a boundary where the alignment does not have it
/// costs 1.
const TOO_FAST: f32 = 1.5;
/// What a cue without a word costs.
const EMPTY: f32 = 1000.0;

/// Which segments of a document are read as one text.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Where the next runs end.
    ends: VecDeque<usize>,
}

impl Runs {
    /// The end of the run of segments that begins with segment `first`: one segment, but for subtitles whose sentences run
    /// over several. To be called with the end of the run before.
    pub(super) fn end(
        &mut self,
        document: &Document,
        first: usize,
        splitter: &SentenceSplitter,
    ) -> usize {
        if self.ends.front().is_none_or(|&end| end <= first) {
            self.ends = runs(document, first, splitter).into();
        }
        self.ends.pop_front().unwrap_or(first + 1)
    }
}

/// The ends of the runs that begin with segment `first`, up to the next end of a sentence.
fn runs(document: &Document, first: usize, splitter: &SentenceSplitter) -> Vec<usize> {
    let text = |index: usize| document.segments().get(index).map_or("", |one| one.text.as_str());
    let mut end = first + 1;
    let mut bytes = text(first).len();
    let mut sentence_ends = false;
    while end - first < CUES && may_continue(document, end) {
        bytes += text(end).len();
        sentence_ends = ends_between(text(end - 1), text(end), splitter);
        if sentence_ends || bytes > BYTES {
            break;
        }
        end += 1;
    }
    if end == first + 1 || sentence_ends || ends_sentence(text(end - 1)) {
        return vec![end];
    }
    // Without punctuation, only small letters after capital ones show what belongs together.
    let capitals = (first..end).any(|index| text(index).contains(char::is_uppercase));
    let small = |index: usize| letter(text(index)).is_some_and(char::is_lowercase);
    (first + 1..=end).filter(|&index| index == end || !(capitals && small(index))).collect()
}

fn letter(text: &str) -> Option<char> {
    text.chars().find(|c| c.is_alphanumeric())
}

/// Whether a sentence of the segment before `index` may go on in it.
fn may_continue(document: &Document, index: usize) -> bool {
    let cue = |index: usize| document.cue(index);
    let (Some(before), Some(next)) = (cue(index - 1), cue(index)) else { return false };
    let (Some(first), Some(second)) =
        (document.segments().get(index - 1), document.segments().get(index))
    else {
        return false;
    };
    let same_cue = before.begin == next.begin && before.end == next.end;
    // Of two texts that are shown at the same time, neither continues the other.
    let together = !same_cue && next.begin < before.begin + (before.end - before.begin) / 2;
    let pause = next.begin.saturating_sub(before.end) >= PAUSE
        && !letter(&second.text).is_some_and(char::is_lowercase);
    !next.new_speaker
        && !together
        && !pause
        && !is_note(&first.text)
        && !is_note(&second.text)
        && !has_label(&second.text)
}

/// Whether a text is a sound or a song: `[door closes]`, `♪ la la ♪`.
fn is_note(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(['♪', '♫', '#'])
        || text.starts_with('[') && text.ends_with(']')
        || text.starts_with('(') && text.ends_with(')')
}

/// Whether a text begins with the name of a speaker: `ANNE: yes`.
fn has_label(text: &str) -> bool {
    let Some((name, _)) = text.split_once(':') else { return false };
    name.len() <= 40 && name.contains(char::is_alphabetic) && !name.contains(char::is_lowercase)
}

/// Whether a sentence ends between two texts.
fn ends_between(before: &str, after: &str, splitter: &SentenceSplitter) -> bool {
    let (joined, at) = join([before, after]);
    let at = at.first().copied().unwrap_or_default();
    splitter.split(&joined).iter().any(|sentence| sentence.end == at)
}

/// The texts as one, and where each but the last ends.
fn join<'t>(texts: impl IntoIterator<Item = &'t str>) -> (String, Vec<usize>) {
    let (mut joined, mut ends) = (String::new(), Vec::new());
    for (index, text) in texts.into_iter().enumerate() {
        if index > 0 {
            ends.push(joined.len());
            let sides = joined.chars().next_back().zip(text.chars().next());
            if !sides.is_some_and(|(before, after)| join_without_space(before, after)) {
                joined.push(' ');
            }
        }
        joined.push_str(text);
    }
    (joined, ends)
}

/// A part of a cue.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// `None` without a time.
    seconds: Option<f32>,
    characters: usize,
}

/// Where the cues of a joined text meet.
#[derive(Clone, Debug, Default)]
pub(super) struct Boundaries {
    /// Bytes of the text.
    at: Vec<usize>,
    cues: Vec<Shown>,
    /// The number of the mark of the first boundary.
    first_id: usize,
    /// Boundaries at which a part of the text begins that the model reads, and the byte where it begins.
    outer: Vec<(usize, usize)>,
}

impl Boundaries {
    /// The text of the segments of one run, and where its cues meet.
    pub(super) fn join(document: &Document, run: Range<usize>) -> (MarkedText, Self) {
        let segments = document.segments().get(run.clone()).unwrap_or_default();
        let (text, at) = join(segments.iter().map(|segment| segment.text.as_str()));
        let mut marks = Vec::new();
        let starts = at.iter().map(|&end| {
            let rest = &text[end..];
            end + rest.len() - rest.trim_start().len()
        });
        for (segment, start) in segments.iter().zip(std::iter::once(0).chain(starts)) {
            for mark in &segment.marks {
                let range = start + mark.range.start..start + mark.range.end;
                marks.push(Mark { range, kind: mark.kind.clone(), id: marks.len() });
            }
        }
        let shown = |(segment, index): (&MarkedText, usize)| Shown {
            seconds: document.cue(index).map(|Cue { begin, end, .. }| (end - begin).as_secs_f32()),
            characters: segment.text.chars().count(),
        };
        let cues = segments.iter().zip(run).map(shown).collect();
        (MarkedText { text, marks }, Self { at, cues, ..Self::default() })
    }

    /// Adds a mark for each boundary, by which the alignment places it in the translation.
    pub(super) fn mark(&mut self, text: &mut MarkedText) {
        self.first_id = text.marks.iter().map(|mark| mark.id + 1).max().unwrap_or(0);
        for (number, &at) in self.at.iter().enumerate() {
            let keeps = text.marks.iter().filter(|mark| matches!(mark.kind, MarkKind::Keep { .. }));
            let mut around = keeps.filter(|mark| mark.range.start < at && at < mark.range.end);
            if around.next().is_none() {
                let index = text.marks.partition_point(|mark| mark.range.start < at);
                let kind = MarkKind::Point { source: String::new() };
                let id = self.first_id + number;
                text.marks.insert(index, Mark { range: at..at, kind, id });
            }
        }
    }

    /// Takes the boundaries at the ends of a part, which need no alignment.
    pub(super) fn take_outer(
        &mut self,
        translated: bool,
        range: &Range<usize>,
        part: &mut MarkedText,
    ) {
        if !translated || self.at.is_empty() {
            return;
        }
        let first = self.first_id;
        let outer = |mark: &Mark| mark.id >= first && mark.range.start == 0;
        self.outer.extend(
            part.marks.iter().filter(|mark| outer(mark)).map(|mark| (mark.id - first, range.start)),
        );
        part.marks.retain(|mark| !outer(mark));
    }

    /// The boundaries in the translation, none of which is known.
    pub(super) fn cuts(&self) -> Cuts<'_> {
        Cuts { boundaries: self, at: vec![None; self.at.len()] }
    }
}

/// Where a translation is divided.
#[derive(Debug)]
pub(super) struct Cuts<'b> {
    boundaries: &'b Boundaries,
    at: Vec<Option<usize>>,
}

impl Cuts<'_> {
    /// Takes the boundaries of a part of the source, which begins at byte `start` of it; its translation `target` begins at
    /// byte `begin` of the whole. `copy`: it is divided where the source is.
    pub(super) fn take(
        &mut self,
        (part, start): (&MarkedText, usize),
        copy: bool,
        begin: usize,
        target: &mut MarkedText,
    ) {
        let Boundaries { at, cues, first_id, outer } = self.boundaries;
        if at.is_empty() {
            return;
        }
        for &(number, _) in outer.iter().filter(|(_, of)| *of == start) {
            self.at[number] = Some(begin);
        }
        let source = points(part, *first_id);
        let placed = points(target, *first_id);
        target.marks.retain(|mark| mark.id < *first_id);
        let found: Vec<(usize, usize)> = match copy {
            true => source,
            false => {
                let shown = shown_parts(&part.text, &source, cues);
                let cuts = best_cuts(target, &placed, &shown);
                // A translation may have the words in another order than the cues; the cuts are in theirs.
                let mut numbers: Vec<usize> = placed.iter().map(|&(number, _)| number).collect();
                numbers.sort_unstable();
                numbers.into_iter().zip(cuts).collect()
            }
        };
        for (number, at) in found {
            if let Some(cut) = self.at.get_mut(number) {
                *cut = Some(begin + at);
            }
        }
    }
}

/// The marks without text whose number is `first_id` or more: how much more, and where they stand.
fn points(text: &MarkedText, first_id: usize) -> Vec<(usize, usize)> {
    let points = text.marks.iter().filter(|mark| mark.id >= first_id);
    points.map(|mark| (mark.id - first_id, mark.range.start)).collect()
}

/// How long each part between two boundaries of a sentence is shown: of a cue with other text, its share.
fn shown_parts(text: &str, boundaries: &[(usize, usize)], cues: &[Shown]) -> Vec<Shown> {
    let Some(&(first, _)) = boundaries.first() else { return Vec::new() };
    let ends = boundaries.iter().map(|&(_, at)| at).chain([text.len()]);
    let mut begin = 0;
    let mut parts = Vec::with_capacity(boundaries.len() + 1);
    for (end, cue) in ends.zip(cues.iter().skip(first)) {
        let part = text.get(begin..end).unwrap_or_default().trim();
        let characters = part.chars().count();
        let share = characters as f32 / cue.characters.max(1) as f32;
        parts.push(Shown { seconds: cue.seconds.map(|all| all * share.min(1.0)), characters });
        begin = end;
    }
    parts
}

/// Where a translation is cut into one part more than it has `boundaries`, which are where the alignment has them: at a gap
/// between words, near to the alignment, so that each part has a word and can be read in its time.
fn best_cuts(target: &MarkedText, boundaries: &[(usize, usize)], shown: &[Shown]) -> Vec<usize> {
    let (gaps, before) = gaps(target, boundaries);
    let total = count_columns(target.text.trim()) as f32;
    let words = (gaps.len() + 1) as f32;
    let word = (total / words).max(1.0);
    let seconds: Option<f32> = shown.iter().map(|part| part.seconds).sum();
    // If no division is slow enough, all parts are equally fast.
    let speed = seconds.filter(|&all| all > 0.0).map(|all| (total / all).max(SPEED));
    let most = |part: usize| {
        let seconds = shown.get(part).and_then(|part| part.seconds);
        speed.zip(seconds).map_or(f32::INFINITY, |(speed, seconds)| speed * seconds)
    };
    let part_cost = |part: usize, columns: f32| {
        let empty = if columns < 0.5 { EMPTY } else { 0.0 };
        empty + TOO_FAST * (columns - most(part)).max(0.0) / word
    };
    // For each gap, and the begin, the least cost of what is before it with the boundaries so far, and the gap before.
    let places: Vec<f32> = std::iter::once(0.0).chain(before.iter().copied()).collect();
    let wanted = |at: usize| count_columns(target.text.get(..at).unwrap_or_default()) as f32;
    let mut costs: Vec<f32> = vec![f32::INFINITY; places.len()];
    costs[0] = 0.0;
    let mut steps: Vec<Vec<usize>> = Vec::with_capacity(boundaries.len());
    for (part, &(_, at)) in boundaries.iter().enumerate() {
        let wanted = wanted(at);
        let mut next = vec![f32::INFINITY; places.len()];
        let mut from = vec![0; places.len()];
        for (to, &place) in places.iter().enumerate() {
            for (origin, &cost) in costs.iter().enumerate().take(to + 1) {
                let cost = cost + part_cost(part, place - places[origin]);
                if cost < next[to] {
                    (next[to], from[to]) = (cost, origin);
                }
            }
            next[to] += (place - wanted).abs() / word;
        }
        costs = next;
        steps.push(from);
    }
    let last = boundaries.len();
    let whole = |to: usize| costs[to] + part_cost(last, total - places[to]);
    let mut at = (0..places.len()).min_by(|&a, &b| whole(a).total_cmp(&whole(b))).unwrap_or(0);
    let mut cuts = Vec::with_capacity(boundaries.len());
    for from in steps.iter().rev() {
        cuts.push(at.checked_sub(1).and_then(|gap| gaps.get(gap)).copied().unwrap_or(0));
        at = from[at];
    }
    cuts.reverse();
    cuts
}

/// The bytes at which a text may be cut, and the columns before each: before a space, between characters of a script without
/// spaces, and at a boundary of the alignment in such a script; not inside of a kept piece.
fn gaps(target: &MarkedText, boundaries: &[(usize, usize)]) -> (Vec<usize>, Vec<f32>) {
    let text = target.text.as_str();
    let keeps = target.marks.iter().filter(|mark| matches!(mark.kind, MarkKind::Keep { .. }));
    let mut keeps = keeps.map(|mark| &mark.range).peekable();
    let mut wanted = boundaries.iter().map(|&(_, at)| at).peekable();
    let (mut gaps, mut places) = (Vec::new(), Vec::new());
    let (mut before, mut width) = (None::<char>, 0);
    for (at, c) in text.char_indices() {
        while keeps.next_if(|range| range.end <= at).is_some() {}
        let is_wanted = wanted.next_if_eq(&at).is_some();
        while wanted.next_if(|&next| next <= at).is_some() {}
        let inside = keeps.peek().is_some_and(|range| range.start < at);
        if let Some(before) = before.filter(|c| !c.is_whitespace() && !inside) {
            let joined = join_without_space(before, c) || is_wanted && !before.is_ascii();
            if c.is_whitespace() || joined && c.is_alphanumeric() {
                gaps.push(at);
                places.push(width as f32);
            }
        }
        width += count_columns(c.encode_utf8(&mut [0; 4]));
        before = Some(c);
    }
    (gaps, places)
}

/// The parts of a translation for the cues, without the white space at their ends.
pub(super) fn divide(target: &MarkedText, cuts: &Cuts<'_>) -> Vec<MarkedText> {
    if cuts.at.is_empty() {
        return Vec::new();
    }
    let mut begin = 0;
    let mut pieces = Vec::with_capacity(cuts.at.len() + 1);
    // A boundary inside of a kept piece has no place: the piece is shown whole, in the first cue.
    for cut in cuts.at.iter().copied().chain([Some(target.text.len())]) {
        let end = cut.unwrap_or(begin).max(begin);
        pieces.push(piece(target, begin..end));
        begin = end;
    }
    pieces
}

/// A part of a text without the white space at its ends. A mark without text there moves to the end of the rest.
fn piece(target: &MarkedText, range: Range<usize>) -> MarkedText {
    let text = target.text.get(range.clone()).unwrap_or_default();
    let start = range.start + text.len() - text.trim_start().len();
    let text = text.trim();
    let end = start + text.len();
    let is_last = range.end == target.text.len();
    let marks = target.marks.iter().filter_map(|mark| {
        let Range { start: from, end: to } = mark.range;
        let kept = match mark.range.is_empty() {
            true => range.contains(&from) || is_last && from == range.end,
            false => from.max(start) < to.min(end),
        };
        let place = |at: usize| at.clamp(start, end) - start;
        kept.then(|| Mark { range: place(from)..place(to), ..mark.clone() })
    });
    MarkedText { text: text.to_owned(), marks: marks.collect() }
}
