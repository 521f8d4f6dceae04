//! What is known of a translated sentence, and the counts of a translator.

use core::fmt;
use core::ops::Range;
use simdformer::Error;
use simdformer::search::Finish;
use simdformer_documents::marked_text::MarkedText;

/// A translated sentence.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Translation {
    /// The best text; that of the sentence if it has no letters; empty if there is a [`failure`](Self::failure).
    pub text: String,
    /// Its tokens, with the end token if there is one.
    pub tokens: Vec<u32>,
    /// The score of the search, see [`Hypothesis::score`](simdformer::search::Hypothesis::score). NaN in greedy search
    /// without [`SearchOptions::scores`](simdformer::search::SearchOptions::scores).
    pub score: f32,
    /// The natural logarithm of the probability of each token. Empty if the search does not compute it: with beams, and
    /// in greedy search without scores.
    pub token_scores: Vec<f32>,
    /// Why the text ended; `None` if the model was not run, because the sentence has no letters, or no word that the model
    /// knows, or is refused.
    pub finish: Option<Finish>,
    /// Further sequences, best first, if
    /// [`num_return_sequences`](simdformer::search::SearchOptions::num_return_sequences) asks for more than one.
    pub alternatives: Vec<Alternative>,
    /// The number of tokens of the whole sentence, special ones included.
    pub source_tokens: usize,
    /// Whether only the first tokens of the sentence were translated.
    pub truncated: bool,
    /// Why there is no text.
    pub failure: Option<Failure>,
    /// Which words stand for which, if [`TranslateOptions::alignment`](super::TranslateOptions::alignment) asks for it.
    pub alignment: Option<AlignedWords>,
    /// How often the sentence was translated again: because it repeated itself, or lacked a term or a placeholder.
    pub retries: usize,
    /// What was done beside the translation, and what is wrong with it.
    pub notes: Vec<Note>,
    /// The words that the model does not know, in their order. Symbols that it does not know are copied to their places, and
    /// are not here.
    pub unknown: Vec<UnknownWord>,
}

/// The words of a sentence and of its translation, and which stand for which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlignedWords {
    /// The words and the punctuation that the model read.
    pub source: Vec<String>,
    /// Those that it wrote, before marks were placed.
    pub target: Vec<String>,
    /// Pairs of indices, of `source` and of `target`; sorted by the second.
    pub links: Vec<(usize, usize)>,
}

/// What is to be known about a translation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// It is that of a part of a sentence which is longer than the model takes.
    Cut,
    /// The parts between its placeholders were translated alone, because one of them was lost.
    Split,
    /// It repeats itself, also when made again.
    Repetition,
    /// A placeholder is missing or repeated.
    Lost,
    /// The sentence is in capitals, was read in small letters, and its translation was put into capitals.
    SmallLetters,
    /// The model knows no word of the sentence, so it is copied.
    NoKnownWord,
    /// It lacks a term of the glossary.
    MissingTerm {
        /// The term in the sentence.
        source: String,
        /// What the translation should have for it.
        target: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("part of a sentence that is too long"),
            Self::Split => f.write_str("translated between its placeholders"),
            Self::Repetition => f.write_str("repeats itself"),
            Self::Lost => f.write_str("a placeholder is missing or repeated"),
            Self::SmallLetters => f.write_str("read in small letters"),
            Self::NoKnownWord => f.write_str("copied, because the model knows no word of it"),
            Self::MissingTerm { source, target } => write!(f, "lacks {target:?} for {source:?}"),
        }
    }
}

/// A sentence of a text, and its translation.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TranslatedSentence {
    /// Bytes of the text.
    pub range: Range<usize>,
    /// The sentence.
    pub source: String,
    /// Its translation.
    pub translation: Translation,
}

/// A translated text of any number of sentences.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TextTranslation {
    /// The translation, with the marks of the text. A sentence without a translation is copied.
    pub target: MarkedText,
    /// The sentences that the model read, in order.
    pub sentences: Vec<TranslatedSentence>,
    /// The language, if it was detected.
    pub language: Option<String>,
}

impl TextTranslation {
    /// The translation, in which a sentence without one is copied: see [`failure`](Self::failure).
    #[must_use]
    pub fn text(&self) -> &str {
        &self.target.text
    }

    /// The first sentence that has no translation, its index among [`sentences`](Self::sentences), and why.
    #[must_use]
    pub fn failure(&self) -> Option<(usize, &TranslatedSentence, Failure)> {
        let sentences = self.sentences.iter().enumerate();
        let mut failed = sentences.filter_map(|(i, one)| Some((i, one, one.translation.failure?)));
        failed.next()
    }

    /// Why the text ended: what one sentence lacks the text lacks. `None` if the model was not run.
    #[must_use]
    pub fn finish(&self) -> Option<Finish> {
        let finishes = self.sentences.iter().map(|one| one.translation.finish);
        finishes.max_by_key(|finish| severity(*finish)).flatten()
    }
}

/// How much a text lacks that ended so.
fn severity(finish: Option<Finish>) -> u8 {
    match finish {
        None => 0,
        Some(Finish::End) => 1,
        Some(Finish::Length) => 2,
        Some(Finish::Exhausted) => 3,
        Some(Finish::Stopped) => 4,
        Some(Finish::NotFinite) => 5,
    }
}

/// A sequence that is not the best one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alternative {
    /// The text.
    pub text: String,
    /// Its tokens, with the end token if there is one.
    pub tokens: Vec<u32>,
    /// The score of the search.
    pub score: f32,
}

/// Why a sentence has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// It has more tokens than the model accepts.
    TooLong {
        /// The tokens of the sentence, special ones included.
        tokens: usize,
        /// The tokens that the model accepts.
        most: usize,
    },
    /// The tokenizer gave it a token that the model does not have.
    UnknownToken {
        /// The token.
        token: u32,
        /// The size of the source vocabulary; valid tokens are smaller.
        vocabulary: usize,
    },
    /// The scores of the model are NaN or infinite.
    NotFinite,
    /// The tokenizer cannot segment it: its file makes more than 32 bytes of each byte, or it has gigabytes.
    NotSegmented,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { tokens, most } => write!(f, "{tokens} tokens, the model takes {most}"),
            Self::UnknownToken { token, vocabulary } => {
                write!(f, "token {token} is outside the vocabulary of {vocabulary}")
            }
            Self::NotFinite => f.write_str("the model's scores are NaN or infinite"),
            Self::NotSegmented => f.write_str("the tokenizer cannot segment it"),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Why a session has refused a source; `None` if the error is one of the options.
    pub(super) fn of_refused(error: &Error) -> Option<Self> {
        match error {
            Error::Token { operand: "token", vocabulary, found, .. } => {
                Some(Self::UnknownToken { token: *found, vocabulary: *vocabulary })
            }
            _ => None,
        }
    }
}

impl Translation {
    /// The mean of [`token_scores`](Self::token_scores); `None` if there are none.
    #[must_use]
    pub fn mean_log_probability(&self) -> Option<f32> {
        let sum: f64 = self.token_scores.iter().map(|&score| f64::from(score)).sum();
        let count = self.token_scores.len();
        (count > 0).then(|| (sum / count as f64) as f32)
    }

    /// The text, or why there is none.
    ///
    /// # Errors
    /// The [`failure`](Self::failure).
    pub fn result(&self) -> Result<&str, Failure> {
        self.failure.map_or(Ok(&self.text), Err)
    }

    /// Whether the text may lack its end, because the maximum length was reached or no token was allowed to come next.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        matches!(self.finish, Some(Finish::Length | Finish::Exhausted))
    }

    /// Adds the tokens of the next part of a sentence.
    pub(super) fn append(&mut self, mut part: Self) {
        self.tokens.append(&mut part.tokens);
        self.token_scores.append(&mut part.token_scores);
        self.notes.append(&mut part.notes);
        self.unknown.append(&mut part.unknown);
        self.score += part.score;
        self.source_tokens += part.source_tokens;
        self.truncated |= part.truncated;
        self.retries += part.retries;
        // What one part lacks the sentence lacks.
        self.finish =
            if severity(part.finish) > severity(self.finish) { part.finish } else { self.finish };
        self.failure = self.failure.or(part.failure);
    }

    /// The lowest of [`token_scores`](Self::token_scores): how sure the model is of the word it is least sure of.
    #[must_use]
    pub fn min_log_probability(&self) -> Option<f32> {
        self.token_scores.iter().copied().reduce(f32::min)
    }
}

/// What a sentence adds to the [`Report`] beside its translation, once, however often it is translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SentenceCounts {
    /// Whether a translation repeated itself.
    pub(super) repeated: bool,
    /// Terms of the glossary in the sentence.
    pub(super) terms: u64,
    /// Those that a first translation lacked.
    pub(super) lacked: u64,
}

impl SentenceCounts {
    /// The counts of a sentence that was translated again, with `again` for its new translation.
    pub(super) fn merge(self, again: Self) -> Self {
        Self {
            repeated: self.repeated || again.repeated,
            terms: self.terms.max(again.terms),
            lacked: self.lacked.max(again.lacked),
        }
    }

    /// The counts of a sentence that was divided, with `part` for its next part.
    pub(super) fn append(self, part: Self) -> Self {
        Self {
            repeated: self.repeated || part.repeated,
            terms: self.terms + part.terms,
            lacked: self.lacked + part.lacked,
        }
    }
}

/// What a [`Translator`](super::Translator) did so far. A sentence that is translated again is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Sentences, blank ones and failed ones included.
    pub sentences: u64,
    /// Source tokens that the model read.
    pub source_tokens: u64,
    /// Tokens that the model wrote, those of the best sequences.
    pub target_tokens: u64,
    /// Sentences of which only the first tokens were translated.
    pub truncated: u64,
    /// Sentences without a translation.
    pub failed: u64,
    /// Sentences whose translation may lack its end: [`Translation::is_unfinished`].
    pub unfinished: u64,
    /// Texts, or paragraphs of documents.
    pub texts: u64,
    /// Texts that were copied because they are in the target language.
    pub copied: u64,
    /// Sentences that have more tokens than the model takes, and were translated in parts.
    pub cut: u64,
    /// Sentences of which a translation repeated itself, and was made again.
    pub repetitions: u64,
    /// Those of them that still do.
    pub repetitions_left: u64,
    /// Terms of the glossary in the sentences.
    pub terms: u64,
    /// Those that the first translation lacked.
    pub terms_again: u64,
    /// Those that the last one lacks.
    pub terms_missing: u64,
    /// Placeholders and other pieces that are kept.
    pub kept: u64,
    /// Sentences that were translated again because a piece was lost.
    pub kept_again: u64,
    /// Sentences that were split at their pieces.
    pub split: u64,
    /// Sentences with a piece that is missing or repeated.
    pub lost: u64,
    /// Words that the model does not know.
    pub unknown_words: u64,
    /// Sentences that were copied because the model knows no word of them.
    pub without_known_words: u64,
    /// Sentences in capitals that were read in small letters.
    pub small_letters: u64,
    /// Sessions that were planned.
    pub plans: u64,
}

impl Report {
    /// Adds a translated sentence.
    pub(super) fn add(&mut self, translation: &Translation) {
        self.sentences += 1;
        self.truncated += u64::from(translation.truncated);
        self.failed += u64::from(translation.failure.is_some());
        self.unfinished += u64::from(translation.is_unfinished());
        self.unknown_words += translation.unknown.len() as u64;
        for note in &translation.notes {
            match note {
                Note::Split => self.split += 1,
                Note::Repetition => self.repetitions_left += 1,
                Note::Lost => self.lost += 1,
                Note::MissingTerm { .. } => self.terms_missing += 1,
                Note::SmallLetters => self.small_letters += 1,
                Note::NoKnownWord => self.without_known_words += 1,
                Note::Cut => (),
            }
        }
        if translation.finish.is_some() {
            self.source_tokens += translation.source_tokens as u64;
            self.target_tokens += translation.tokens.len() as u64;
        }
    }
}

/// A word of a sentence that the vocabulary does not have, so that the model did not read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownWord {
    /// The word, or the symbol, as it is in the sentence.
    pub text: String,
    /// Known words of close spelling, the closest first, if the vocabulary is one of words.
    pub nearest: Vec<String>,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)?;
        for (i, near) in self.nearest.iter().enumerate() {
            write!(f, "{}{near:?}", if i == 0 { " (near it: " } else { ", " })?;
        }
        f.write_str(if self.nearest.is_empty() { "" } else { ")" })
    }
}
