//! Subtitles of a transcription: SubRip (SRT), WebVTT, and tables of tab-separated values.
//!
//! ```
//! use simdformer_speech::subtitles::{SubtitleFormat, SubtitleOptions, cues};
//! # use simdformer_speech::Transcription;
//!
//! # let transcription = Transcription::default();
//! let options = SubtitleOptions { max_line_width: Some(42), ..SubtitleOptions::default() };
//! let mut file = Vec::new();
//! SubtitleFormat::Vtt.write(&cues(&transcription.segments, &options), &mut file)?;
//! assert_eq!(file, b"WEBVTT\n");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A segment is a cue. With a maximum width it becomes as many cues as it needs, which end where a sentence or a clause ends, or
//! in a pause, where possible; the lines of a cue have similar lengths. The times are those of the words, if the segment has
//! them ([`TranscribeOptions::words`](super::transcriber::TranscribeOptions::words)), else shares of that of the segment.

use super::transcriber::Segment;
use std::io::{self, Write};

/// How segments become cues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubtitleOptions {
    /// The most characters of a line; `None`: a segment is one cue of one line.
    pub max_line_width: Option<usize>,
    /// The most lines of a cue, with a width (2).
    pub max_line_count: Option<usize>,
}

/// A text and when it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cue {
    /// The start, in milliseconds.
    pub start: u64,
    /// The end, in milliseconds, after the start, at most the start of the next cue of the channel, and at most the end of the
    /// last segment.
    pub end: u64,
    /// The lines, each without space at its ends; none is empty.
    pub lines: Vec<String>,
    /// The channel of the recording, if channels were transcribed separately.
    pub channel: Option<usize>,
}

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SubtitleFormat {
    /// SubRip: numbered cues. A channel is a prefix of the text.
    Srt,
    /// WebVTT. A channel is a voice.
    Vtt,
    /// A line for each cue, with its start and end in milliseconds and its text, after a line of names; as OpenAI's `whisper`
    /// writes it. A channel has a column.
    Tsv,
}

/// A word, or a part of one that is longer than a line.
struct Piece {
    /// With the space before it.
    text: String,
    start: f64,
    end: f64,
}

/// Pauses, in seconds, that a cue should not have, and that end a clause.
const LONG_PAUSE: f64 = 1.5;
const PAUSE: f64 = 0.3;
/// Costs: of a cue, of one that has a long pause, and of one that ends within a clause or at its end.
const CUE: f64 = 1.0;
const HOLDS_PAUSE: f64 = 20.0;
const WITHIN_CLAUSE: f64 = 0.6;
const CLAUSE: f64 = 0.2;

/// The cues of segments. The cues of a channel do not overlap, starts never go back, and no cue is longer than the segments
/// are. Each cue has a millisecond at least: segments without a length at the end of a recording begin as much earlier, and if
/// there are more cues than milliseconds, the first ones are one cue.
#[must_use]
pub fn cues(segments: &[Segment], options: &SubtitleOptions) -> Vec<Cue> {
    let mut found = Vec::new();
    for segment in segments {
        let pieces = pieces(segment, options.max_line_width);
        for range in divide(&pieces, options) {
            let (Some(first), Some(last)) = (range.first(), range.last()) else { continue };
            let (start, end) = (milliseconds(first.start), milliseconds(last.end));
            let lines = lines(range, options);
            if !lines.is_empty() {
                found.push(Cue { start, end, lines, channel: segment.channel });
            }
        }
    }
    found.sort_by_key(|cue| cue.start);
    let mut channels: Vec<Option<usize>> = found.iter().map(|cue| cue.channel).collect();
    channels.sort_unstable();
    channels.dedup();
    for channel in channels {
        let mut cues: Vec<&mut Cue> =
            found.iter_mut().filter(|cue| cue.channel == channel).collect();
        for i in 0..cues.len() {
            let next = cues.get(i + 1).map_or(u64::MAX, |next| next.start);
            let before = if i > 0 { cues[i - 1].end } else { 0 };
            let cue = &mut cues[i];
            cue.start = cue.start.max(before);
            if next > cue.start {
                cue.end = cue.end.min(next);
            }
            cue.end = cue.end.max(cue.start.saturating_add(1));
        }
        let inside = segments.iter().filter(|segment| segment.channel == channel);
        let last = inside.map(|segment| milliseconds(segment.end)).max();
        end_by(&mut cues, last.unwrap_or(0).max(1));
    }
    found.retain(|cue| !cue.lines.is_empty());
    found.sort_by_key(|cue| cue.start);
    found
}

/// Moves cues, which do not overlap, so that the last one ends at `last` at the latest. Those for which there is no time leave
/// their lines to the first one after them.
fn end_by(cues: &mut [&mut Cue], last: u64) {
    let mut limit = last;
    let mut lines = Vec::new();
    for cue in cues.iter_mut().rev() {
        cue.end = cue.end.min(limit);
        cue.start = cue.start.min(cue.end.saturating_sub(1));
        limit = cue.start;
    }
    for cue in cues {
        if cue.end == 0 {
            lines.append(&mut cue.lines);
        } else if !lines.is_empty() {
            lines.append(&mut cue.lines);
            cue.lines = core::mem::take(&mut lines);
        }
    }
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1000.0).round() as u64
}

/// The words of a segment; without times of words, what spaces divide, each with its share of the time.
fn pieces(segment: &Segment, width: Option<usize>) -> Vec<Piece> {
    let mut words: Vec<Piece> = segment
        .words
        .iter()
        .map(|word| Piece { text: word.text.clone(), start: word.start, end: word.end })
        .collect();
    if words.is_empty() {
        let total = segment.text.chars().count().max(1) as f64;
        let seconds = (segment.end - segment.start) / total;
        let mut at = 0;
        for text in segment.text.split_inclusive(char::is_whitespace) {
            let from = at;
            at += text.chars().count();
            let (start, end) = (from as f64 * seconds, at as f64 * seconds);
            words.push(Piece {
                text: format!(" {}", text.trim_end()),
                start: segment.start + start,
                end: segment.start + end,
            });
        }
    }
    // A word that is longer than a line.
    let Some(width) = width.map(|width| width.max(1)) else { return words };
    let mut pieces = Vec::with_capacity(words.len());
    for word in words {
        let letters: Vec<char> = word.text.trim().chars().collect();
        if letters.len() <= width {
            pieces.push(word);
            continue;
        }
        let seconds = (word.end - word.start) / letters.len() as f64;
        for (i, part) in letters.chunks(width).enumerate() {
            let space = if i == 0 && word.text.starts_with(char::is_whitespace) { " " } else { "" };
            let start = word.start + (i * width) as f64 * seconds;
            pieces.push(Piece {
                text: format!("{space}{}", part.iter().collect::<String>()),
                start,
                end: start + part.len() as f64 * seconds,
            });
        }
    }
    pieces
}

/// One line of the words, without space at its ends.
fn line(pieces: &[Piece]) -> String {
    let all: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
    all.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn length(pieces: &[Piece]) -> usize {
    line(pieces).chars().count()
}

/// How badly a line or a cue ends after `pieces[..end]`, from 0.
fn break_cost(pieces: &[Piece], end: usize) -> f64 {
    const SENTENCE: &str = ".?!。？！…";
    const PARTS: &str = ",;:，、；：—–-)";
    let (Some(last), Some(next)) = (pieces.get(end.wrapping_sub(1)), pieces.get(end)) else {
        return 0.0;
    };
    let text = last.text.trim_end_matches(['"', '\'', '”', '’', '»', ' ']);
    if text.ends_with(|c| SENTENCE.contains(c)) || next.start - last.end >= 2.0 * PAUSE {
        0.0
    } else if text.ends_with(|c| PARTS.contains(c)) || next.start - last.end >= PAUSE {
        CLAUSE
    } else {
        WITHIN_CLAUSE
    }
}

/// Divides the words of a segment into cues of the lowest cost.
fn divide<'p>(pieces: &'p [Piece], options: &SubtitleOptions) -> Vec<&'p [Piece]> {
    let Some(width) = options.max_line_width.map(|width| width.max(1)) else { return vec![pieces] };
    let count = options.max_line_count.unwrap_or(2).max(1);
    let all = (width * count) as f64;
    let cost = |from: usize, to: usize| {
        let inside = &pieces[from..to];
        let fits = wrap(inside, width).is_some_and(|lines| lines.len() <= count);
        // One word always fits.
        if !fits && to - from > 1 {
            return None;
        }
        let pause = inside.windows(2).any(|pair| pair[1].start - pair[0].end >= LONG_PAUSE);
        let free = 1.0 - (length(inside) as f64 / all).min(1.0);
        let pause = if pause { HOLDS_PAUSE } else { 0.0 };
        Some(CUE + pause + free * free + break_cost(pieces, to))
    };
    cheapest(pieces.len(), cost).windows(2).map(|pair| &pieces[pair[0]..pair[1]]).collect()
}

/// The lines of a cue, as few as possible, of similar lengths.
fn lines(pieces: &[Piece], options: &SubtitleOptions) -> Vec<String> {
    let ends = match options.max_line_width {
        None => vec![0, pieces.len()],
        Some(width) => {
            let width = width.max(1);
            let fewest = wrap(pieces, width).map_or(1, |lines| lines.len());
            let even = length(pieces) as f64 / fewest.max(1) as f64;
            let cost = |from: usize, to: usize| {
                let length = length(&pieces[from..to]);
                if length > width && to - from > 1 {
                    return None;
                }
                let away = (length as f64 - even) / width as f64;
                // A further line costs more than any break.
                Some(10.0 + 4.0 * away * away + break_cost(pieces, to))
            };
            cheapest(pieces.len(), cost)
        }
    };
    let lines = ends.windows(2).map(|pair| line(&pieces[pair[0]..pair[1]]));
    lines.filter(|line| !line.is_empty()).collect()
}

/// The ends of lines that are filled one after the other; `None` if one word is longer than a line.
fn wrap(pieces: &[Piece], width: usize) -> Option<Vec<usize>> {
    let (mut ends, mut from) = (Vec::new(), 0);
    for to in 1..=pieces.len() {
        if length(&pieces[from..to]) > width {
            if to - from == 1 {
                return None;
            }
            ends.push(to - 1);
            from = to - 1;
        }
    }
    ends.push(pieces.len());
    Some(ends)
}

/// The bounds, from 0 to `count`, of consecutive ranges with the lowest sum of costs. A range without a cost is not possible,
/// and neither is a longer one from the same start.
fn cheapest(count: usize, cost: impl Fn(usize, usize) -> Option<f64>) -> Vec<usize> {
    let mut best = vec![(f64::INFINITY, 0); count + 1];
    best[0].0 = 0.0;
    for from in 0..count {
        for to in from + 1..=count {
            let Some(cost) = cost(from, to) else { break };
            if best[from].0 + cost < best[to].0 {
                best[to] = (best[from].0 + cost, from);
            }
        }
    }
    let mut bounds = vec![count];
    while let Some(&last) = bounds.last().filter(|&&last| last > 0) {
        bounds.push(best[last].1);
    }
    bounds.reverse();
    bounds
}

impl SubtitleFormat {
    /// The end of file names, without a dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Srt => "srt",
            Self::Vtt => "vtt",
            Self::Tsv => "tsv",
        }
    }

    /// The format of files with this [extension](Self::extension).
    #[must_use]
    pub fn from_extension(extension: &str) -> Option<Self> {
        let all = [Self::Srt, Self::Vtt, Self::Tsv];
        all.into_iter().find(|format| extension.eq_ignore_ascii_case(format.extension()))
    }

    /// Writes a file in UTF-8.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(self, cues: &[Cue], out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Srt => {
                for (number, cue) in (1..).zip(cues) {
                    let (start, end) = (clock(cue.start, ','), clock(cue.end, ','));
                    writeln!(out, "{number}\n{start} --> {end}")?;
                    let channel = cue.channel.map(|channel| format!("Channel {channel}: "));
                    // An arrow would be taken for times.
                    let text = cue.lines.join("\n").replace("-->", "->");
                    writeln!(out, "{}{text}\n", channel.unwrap_or_default())?;
                }
                Ok(())
            }
            Self::Vtt => {
                writeln!(out, "WEBVTT")?;
                for cue in cues {
                    let (start, end) = (clock(cue.start, '.'), clock(cue.end, '.'));
                    let voice = cue.channel.map(|channel| format!("<v Channel {channel}>"));
                    let text = cue.lines.join("\n");
                    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                    writeln!(out, "\n{start} --> {end}\n{}{text}", voice.unwrap_or_default())?;
                }
                Ok(())
            }
            Self::Tsv => {
                let channels = cues.iter().any(|cue| cue.channel.is_some());
                writeln!(out, "start\tend\t{}text", if channels { "channel\t" } else { "" })?;
                for cue in cues {
                    let channel = cue.channel.map(|channel| format!("{channel}\t"));
                    let (text, channel) = (cue.lines.join(" "), channel.unwrap_or_default());
                    writeln!(out, "{}\t{}\t{channel}{text}", cue.start, cue.end)?;
                }
                Ok(())
            }
        }
    }
}

/// Hours, minutes, seconds and milliseconds.
fn clock(milliseconds: u64, point: char) -> String {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    let (minutes, hours) = (seconds / 60 % 60, seconds / 3600);
    format!("{hours:02}:{minutes:02}:{:02}{point}{rest:03}", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcriber::Word;

    /// A segment whose words take 0.4 s each; a number in place of a word is a pause.
    fn segment(start: f64, text: &str) -> Segment {
        let (mut at, mut words) = (start, Vec::new());
        for word in text.split_inclusive(' ').map(str::trim) {
            match word.parse::<f64>() {
                Ok(pause) => at += pause,
                Err(_) => {
                    let text = format!(" {word}");
                    words.push(Word { start: at, end: at + 0.4, text, probability: 1.0 });
                    at += 0.4;
                }
            }
        }
        let text = words.iter().map(|word| word.text.as_str()).collect();
        Segment { start, end: at, text, words, ..Segment::default() }
    }

    fn options(width: usize, count: usize) -> SubtitleOptions {
        SubtitleOptions { max_line_width: Some(width), max_line_count: Some(count) }
    }

    #[test]
    fn cues_end_at_sentences_and_pauses_and_fit() {
        let text = "It is late. We should go home, because the last train leaves soon and 2.0 no one waits.";
        let found = cues(&[segment(1.0, text)], &options(22, 2));
        let texts: Vec<String> = found.iter().map(|cue| cue.lines.join("/")).collect();
        let expected = [
            "It is late./We should go home,",
            "because the last/train leaves soon and",
            "no one waits.",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn no_width_breaks_the_rules() {
        let text =
            "Dear Martha, thank you for extraordinarily long letters and 1.6 for the pictures.";
        let without_times = Segment { words: Vec::new(), ..segment(0.5, text) };
        for segment in [segment(0.5, text), without_times] {
            for width in [1, 2, 5, 11, 23, 200] {
                for count in 1..4 {
                    let found = cues(core::slice::from_ref(&segment), &options(width, count));
                    let (mut said, mut last) = (String::new(), 0);
                    for cue in &found {
                        assert!(
                            cue.lines.len() <= count && last <= cue.start && cue.start < cue.end
                        );
                        last = cue.end;
                        for line in &cue.lines {
                            assert!(
                                (1..=width).contains(&line.chars().count()),
                                "{width}: {line:?}"
                            );
                            said += line;
                        }
                    }
                    let all = |text: &str| text.split_whitespace().collect::<String>();
                    assert_eq!(all(&said), all(&segment.text), "{width} {count}");
                    assert!(last <= 60_000);
                }
            }
        }
    }

    #[test]
    fn times_of_a_channel_do_not_overlap() {
        let mut segments = vec![segment(5.0, "c"), segment(0.0, "a b c d"), segment(1.0, "e")];
        segments.push(Segment { end: 0.0, words: Vec::new(), ..segment(1.2, "f") });
        let found = cues(&segments, &SubtitleOptions::default());
        let times: Vec<(u64, u64)> = found.iter().map(|cue| (cue.start, cue.end)).collect();
        assert_eq!(times, [(0, 1000), (1000, 1200), (1200, 1201), (5000, 5400)]);
        for (channel, segment) in segments.iter_mut().enumerate() {
            segment.channel = Some(channel);
        }
        let found = cues(&segments, &SubtitleOptions::default());
        assert_eq!((found[0].end, found[0].channel), (1600, Some(1)));
        assert!(found.is_sorted_by_key(|cue| cue.start));
    }

    #[test]
    fn files_are_those_of_the_formats() {
        let mut segments = vec![segment(0.0, "<i> & --> x"), segment(3661.5, "\"z\"")];
        let write = |format: SubtitleFormat, segments: &[Segment]| {
            let mut file = Vec::new();
            let written = format.write(&cues(segments, &SubtitleOptions::default()), &mut file);
            assert!(written.is_ok());
            String::from_utf8_lossy(&file).into_owned()
        };
        assert_eq!(
            write(SubtitleFormat::Srt, &segments),
            "1\n00:00:00,000 --> 00:00:01,600\n<i> & -> x\n\n2\n01:01:01,500 --> 01:01:01,900\n\"z\"\n\n"
        );
        segments[0].channel = Some(1);
        assert_eq!(
            write(SubtitleFormat::Vtt, &segments),
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.600\n<v Channel 1>&lt;i&gt; &amp; --&gt; x\n\n\
             01:01:01.500 --> 01:01:01.900\n\"z\"\n"
        );
        segments[1].channel = Some(0);
        assert_eq!(
            write(SubtitleFormat::Tsv, &segments),
            "start\tend\tchannel\ttext\n0\t1600\t1\t<i> & --> x\n3661500\t3661900\t0\t\"z\"\n"
        );
    }
}
