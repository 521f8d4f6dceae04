//! A corpus in memory: all ids concatenated, and all frames of sources that are features.

use crate::error::{Error, corrupt, no_sentences, unreadable};
use crate::features_file;
use crate::vocabulary_file::Words;
use serde::Deserialize;
use simdformer::Features;
use simdformer::config::{Config, Side};
use simdformer::train::Example;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// How a line of a corpus is converted.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'r> {
    /// The vocabulary for lines of words; `None` if all lines are ids.
    pub words: Option<&'r Words>,
    /// The end token that is appended to a sentence of words; none is appended if `None`.
    pub end: Option<u32>,
    /// Sources with more tokens, including the end token, are left out and counted.
    pub source_length: usize,
    /// The same limit for targets.
    pub target_length: usize,
    /// Vocabulary sizes, source and target: ids must be below them.
    pub vocabularies: [usize; 2],
}

impl<'r> Reading<'r> {
    /// For a model of `config`, with sentences of at most `length` tokens on each side.
    pub fn for_config(config: &Config, words: Option<&'r Words>, length: usize) -> Self {
        Self {
            words,
            end: config.tokens.eos.first().copied(),
            source_length: length,
            target_length: length,
            vocabularies: [config.vocab(Side::Encoder), config.vocab(Side::Decoder)],
        }
    }
}

/// Sentences and their targets. The number of a sentence is its index, from 0, among the sentences that were not left
/// out.
///
/// ```
/// use simdformer_train::{Corpus, Reading};
///
/// let lines = br#"{"source_ids": [5, 6, 7, 0], "target_ids": [8, 9, 0]}
/// {"source_ids": [5, 5, 5, 5, 5, 0], "target_ids": [9, 0]}
/// {"source_ids": [6, 0], "target_ids": [9, 8, 0], "comment": "other keys are left alone"}
/// "#;
/// let reading =
///     Reading { words: None, end: Some(0), source_length: 4, target_length: 4, vocabularies: [10, 10] };
/// let corpus = Corpus::from_lines(&lines[..], "lines", &reading)?;
/// assert_eq!((corpus.len(), corpus.too_long()), (2, 1));
/// assert_eq!(corpus.pair(1).map(|pair| pair.target), Some(&[9, 8, 0][..]));
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    /// Source and target ids of each sentence, concatenated.
    ids: Vec<u32>,
    /// Frames of each sentence, concatenated.
    features: Vec<f32>,
    ends: Vec<Ends>,
    /// Positions of all features.
    positions: usize,
    too_long: u64,
    longest: [usize; 2],
}

/// The ends of the parts of a sentence.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    source: usize,
    target: usize,
    features: usize,
    /// Values in a frame; 0 if the source is ids.
    bins: usize,
}

#[derive(Deserialize)]
struct Line<'l> {
    #[serde(borrow)]
    source: Option<Cow<'l, str>>,
    #[serde(borrow)]
    target: Option<Cow<'l, str>>,
    source_ids: Option<Vec<u32>>,
    target_ids: Option<Vec<u32>>,
}

impl Corpus {
    /// Reads the lines of a file: see [`Corpus::from_lines`].
    ///
    /// # Errors
    /// As [`Corpus::from_lines`]; also if the file cannot be read.
    pub fn read_file(file: &Path, reading: &Reading<'_>) -> Result<Self, Error> {
        let opened = File::open(file).map_err(unreadable(file))?;
        Self::from_lines(BufReader::new(opened), &file.display().to_string(), reading)
    }

    /// Reads lines of JSON: `{"source_ids": [...], "target_ids": [...]}` with the end token in both, or `{"source":
    /// "...", "target": "..."}` with tokens separated by spaces, to which the end token is appended. If a line has
    /// both, the ids are used. Blank lines are skipped. `name` is used in errors.
    ///
    /// # Errors
    /// A line has another format, an empty side, an id outside the vocabulary or an unknown word; or no line is left.
    pub fn from_lines(
        lines: impl BufRead,
        name: &str,
        reading: &Reading<'_>,
    ) -> Result<Self, Error> {
        Self::read_lines(lines, name, reading, None)
    }

    /// Reads the lines of `file`, each with its features of `features`: a safetensors file with the tensors `features.{i}`,
    /// F32 `[frames, bins]`, of line `i`, from 0; blank lines do not count. See [`Corpus::from_lines_of_features`].
    ///
    /// # Errors
    /// As [`Corpus::from_lines_of_features`]; also if a file cannot be read, or a tensor is missing or of another kind.
    pub fn read_with_features(
        file: &Path,
        features: &Path,
        reading: &Reading<'_>,
    ) -> Result<Self, Error> {
        let features = features_file::read_features(features)?;
        let features: Vec<_> =
            features.iter().map(|(values, bins)| Features::new(values, *bins)).collect();
        let opened = File::open(file).map_err(unreadable(file))?;
        let name = file.display().to_string();
        Self::from_lines_of_features(BufReader::new(opened), &name, reading, &features)
    }

    /// As [`Corpus::from_lines`], for a model whose encoder reads features. Lines have no source: `{"target_ids":
    /// [...]}` or `{"target": "..."}`. Each nonblank line takes the next element of `features`, which is copied.
    /// Features with more positions than [`Reading::source_length`] are left out and counted.
    ///
    /// # Errors
    /// As [`Corpus::from_lines`]; also if a line has a source, or if the numbers of lines and of features differ.
    ///
    /// ```
    /// use simdformer::Features;
    /// use simdformer_train::{Corpus, Reading};
    ///
    /// let reading =
    ///     Reading { words: None, end: Some(0), source_length: 4, target_length: 4, vocabularies: [0, 10] };
    /// let lines = br#"{"target_ids": [8, 9, 0]}"#;
    /// let frames = [0.5; 7 * 3];
    /// let corpus =
    ///     Corpus::from_lines_of_features(&lines[..], "lines", &reading, &[Features::new(&frames, 3)])?;
    /// assert_eq!(corpus.pair(0).map(|pair| pair.source_len()), Some(4));
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    pub fn from_lines_of_features(
        lines: impl BufRead,
        name: &str,
        reading: &Reading<'_>,
        features: &[Features<'_>],
    ) -> Result<Self, Error> {
        Self::read_lines(lines, name, reading, Some(features))
    }

    fn read_lines(
        mut lines: impl BufRead,
        name: &str,
        reading: &Reading<'_>,
        features: Option<&[Features<'_>]>,
    ) -> Result<Self, Error> {
        let mut corpus = Self::default();
        let mut sounds = features.unwrap_or(&[]).iter();
        let (mut text, mut line) = (Vec::new(), 0);
        let (mut source, mut target) = (Vec::new(), Vec::new());
        loop {
            text.clear();
            let read = lines.read_until(b'\n', &mut text).map_err(unreadable(Path::new(name)))?;
            if read == 0 {
                break;
            }
            line += 1;
            if text.trim_ascii().is_empty() {
                continue;
            }
            source.clear();
            target.clear();
            let of_ids = features.is_none();
            let sound = sounds.next();
            let read = match (of_ids, sound) {
                (false, None) => Err(wrong("features for each line", "more lines")),
                _ => read_line(&text, reading, of_ids.then_some(&mut source), &mut target),
            };
            read.map_err(|Wrong { expected, found }| {
                corrupt(format!("{name}, line {line}"), expected, found)
            })?;
            let positions = sound.map_or(source.len(), Features::positions);
            if positions > reading.source_length || target.len() > reading.target_length {
                corpus.too_long += 1;
                continue;
            }
            match sound {
                Some(features) => corpus.push_features(*features, &target),
                None => corpus.push(&source, &target),
            }
        }
        if sounds.next().is_some() {
            let operand = format!("{name}, line {}", line + 1);
            return Err(corrupt(operand, "a line for all features", "the end"));
        }
        if corpus.is_empty() {
            return Err(no_sentences(name, corpus.too_long));
        }
        Ok(corpus)
    }

    /// Appends a sentence, including end tokens. Nothing is checked here; the trainer checks.
    pub fn push(&mut self, source: &[u32], target: &[u32]) {
        self.ids.extend_from_slice(source);
        self.push_target(target, (source.len(), 0));
    }

    /// As [`Corpus::push`], with features, which are copied, and a target.
    pub fn push_features(&mut self, features: Features<'_>, target: &[u32]) {
        self.features.extend_from_slice(features.values);
        self.positions += features.positions();
        self.push_target(target, (features.positions(), features.bins));
    }

    fn push_target(&mut self, target: &[u32], (source_len, bins): (usize, usize)) {
        let source = self.ids.len();
        self.ids.extend_from_slice(target);
        let (target_len, features) = (target.len(), self.features.len());
        self.ends.push(Ends { source, target: self.ids.len(), features, bins });
        let [longest_source, longest_target] = self.longest;
        self.longest = [longest_source.max(source_len), longest_target.max(target_len)];
    }

    /// The number of sentences.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the corpus has no sentence.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The number of sentences that were left out as too long.
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Tokens of the longest source, or positions of its features, and tokens of the longest target.
    pub fn longest(&self) -> [usize; 2] {
        self.longest
    }

    /// Tokens of all sources and targets, plus positions of sources that are features.
    pub fn tokens(&self) -> usize {
        self.ids.len() + self.positions
    }

    /// Sentence `number`.
    pub fn pair(&self, number: usize) -> Option<Example<'_>> {
        let &Ends { source, target, features, bins } = self.ends.get(number)?;
        let start = match number {
            0 => Ends::default(),
            _ => self.ends[number - 1],
        };
        let (id, said) = (number as u32, &self.ids[source..target]);
        Some(match bins {
            0 => Example::new(&self.ids[start.target..source], said, id),
            _ => {
                let frames = &self.features[start.features..features];
                Example::of_features(Features::new(frames, bins), said, id)
            }
        })
    }

    /// All sentences in order.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = Example<'_>> {
        (0..self.len())
            .map(|number| self.pair(number).unwrap_or(Example::new(&[], &[], number as u32)))
    }

    /// A checksum of all ids, features and sentence ends, in order.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = crate::checksummed_file::Hash::default();
        for pair in self.pairs() {
            hash.word(pair.source.len() as u64);
            hash.word(pair.target.len() as u64);
            for id in pair.source.iter().chain(pair.target) {
                hash.word(u64::from(*id));
            }
            if let Some(Features { values, bins }) = pair.features {
                hash.word(bins as u64);
                hash.word(values.len() as u64);
                values.iter().for_each(|x| hash.word(u64::from(x.to_bits())));
            }
        }
        hash.value()
    }
}

/// What is wrong with a line.
struct Wrong {
    expected: String,
    found: String,
}

fn wrong(expected: &str, found: impl Into<String>) -> Wrong {
    Wrong { expected: expected.to_owned(), found: found.into() }
}

fn read_line(
    text: &[u8],
    reading: &Reading<'_>,
    source: Option<&mut Vec<u32>>,
    target: &mut Vec<u32>,
) -> Result<(), Wrong> {
    const KINDS: &str =
        r#"{"source_ids": [...], "target_ids": [...]} or {"source": "...", "target": "..."}"#;
    let line: Line<'_> = serde_json::from_slice(text)
        .map_err(|error| wrong(KINDS, format!("another line: {error}")))?;
    let sides = [
        (Side::Encoder, line.source, line.source_ids, source),
        (Side::Decoder, line.target, line.target_ids, Some(target)),
    ];
    for (side, words, ids, to) in sides {
        let Some(to) = to else {
            if ids.is_some() || words.is_some() {
                return Err(wrong("no source beside its features", "one"));
            }
            continue;
        };
        let (name, index) = match side {
            Side::Encoder => ("source", 0),
            Side::Decoder => ("target", 1),
        };
        match (ids, words) {
            (Some(ids), _) => to.extend(ids),
            (None, Some(text)) => {
                let Some(known) = reading.words else {
                    let expected =
                        format!("\"{name}_ids\", because the model's directory has no vocab.json");
                    return Err(wrong(&expected, format!("\"{name}\", which is words")));
                };
                let unknown = match side {
                    Side::Encoder => known.source(&text, to),
                    Side::Decoder => known.target(&text, to),
                };
                unknown.map_err(|word| {
                    let expected = format!("words of the vocabulary in \"{name}\"");
                    wrong(&expected, format!("\"{}\", which is not in it", shortened(word)))
                })?;
                to.extend(reading.end);
            }
            (None, None) => {
                return Err(wrong(KINDS, format!("neither \"{name}_ids\" nor \"{name}\"")));
            }
        }
        let vocabulary = reading.vocabularies[index];
        if to.is_empty() {
            return Err(wrong("at least one token on each side", format!("no {name}")));
        }
        if let Some(id) = to.iter().find(|&&id| id as usize >= vocabulary) {
            let expected = format!("ids below {vocabulary} in the {name}");
            return Err(wrong(&expected, id.to_string()));
        }
    }
    Ok(())
}

/// At most 40 characters of a word, without control characters and characters that change the text direction.
fn shortened(word: &str) -> String {
    const MOST: usize = 40;
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut short = String::new();
    for c in word.chars().take(MOST) {
        if is_hidden(c) { short.extend(c.escape_unicode()) } else { short.push(c) }
    }
    if word.chars().nth(MOST).is_some() {
        short.push_str("...");
    }
    short
}
