//! The stages of a `tokenizer.json` that change texts, with a bound on the length of their output.
//!
//! The crate `tokenizers` runs its sequences without a limit: with 24 stages that replace `a` by `aa`, each stage
//! doubles the text. Here the length after each stage is computed or bounded before the stage runs. The crate stores
//! two positions of eight bytes for each byte of a normalized text, so a bound on the bytes bounds the memory.

use super::checks::RuleGrowth;
use crate::error::Error;
use crate::limits;
use core::fmt;
use std::sync::{Arc, OnceLock};
use tokenizers::decoders::DecoderWrapper;
use tokenizers::normalizers::{NormalizerWrapper, Replace};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::utils::SysRegex;
use tokenizers::{AddedToken, Decoder, NormalizedString, Normalizer};

/// Stages in one part of a file; ALBERT has seven normalizers.
const MOST: usize = 32;

/// The largest number of decoded bytes per byte of the tokens. The decoders of published files shorten the text.
const DECODED: usize = 16;

/// Bytes of text that are normalized at a time to predict the length of the result.
const CHUNK: usize = 1024;

fn few(what: &str, found: usize) -> Result<(), Error> {
    if found <= MOST {
        return Ok(());
    }
    Err(Error::corrupt("", format!("at most {MOST} {what}"), found))
}

/// The normalizers of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Normalizers {
    stages: Arc<[Stage]>,
    /// Whether texts are lowercased before the first stage.
    lower_case: bool,
}

#[derive(Debug)]
struct Stage {
    normalizer: NormalizerWrapper,
    growth: Growth,
}

/// By how much a stage can lengthen a text.
#[derive(Debug)]
enum Growth {
    /// At most this many bytes per byte.
    Times(usize),
    /// At most this many additional bytes.
    Plus(usize),
    /// This many bytes for each match.
    Matches(Pattern, usize),
}

impl Normalizers {
    /// Flattens sequences. Precompiled rules among the stages produce at most `rules` bytes per byte.
    pub(crate) fn new(whole: NormalizerWrapper, rules: RuleGrowth) -> Result<Self, Error> {
        let mut normalizers = Vec::new();
        let mut open = vec![whole];
        while let Some(next) = open.pop() {
            match next {
                // The last element of the stack is taken first.
                NormalizerWrapper::Sequence(several) => open.extend(several.into_iter().rev()),
                one => normalizers.push(one),
            }
        }
        few("normalizers", normalizers.len())?;
        let stage = |normalizer| {
            let growth = Growth::from_normalizer(&normalizer, rules)?;
            Ok(Stage { normalizer, growth })
        };
        let stages = normalizers.into_iter().map(stage).collect::<Result<_, Error>>()?;
        Ok(Self { stages, lower_case: false })
    }

    /// The same stages after one that lowercases, unless there is one already.
    pub(crate) fn with_lower_case(self) -> Self {
        let lowers = |stage: &Stage| matches!(stage.normalizer, NormalizerWrapper::Lowercase(_));
        Self { lower_case: !self.stages.iter().any(lowers), ..self }
    }
}

impl Growth {
    fn from_normalizer(normalizer: &NormalizerWrapper, rules: RuleGrowth) -> Result<Self, Error> {
        use NormalizerWrapper as N;
        Ok(match normalizer {
            N::StripNormalizer(_) | N::StripAccents(_) | N::Nmt(_) => Self::Times(1),
            // A character that represents a byte has two bytes. Lowercasing produces at most three bytes from two.
            N::ByteLevel(_) | N::Lowercase(_) => Self::Times(2),
            // The factors that Unicode states for UTF-8, for canonical and for compatibility decompositions.
            N::NFC(_) | N::NFD(_) => Self::Times(3),
            N::NFKC(_) | N::NFKD(_) => Self::Times(11),
            // Two spaces around a character of three bytes (2), its decomposition (3), and lowercasing (2).
            N::BertNormalizer(_) => Self::Times(12),
            N::Precompiled(_) => Self::Times(rules),
            N::Prepend(before) => Self::Plus(before.prepend.len()),
            N::Replace(replace) => {
                Self::Matches(Pattern::from_replace(replace)?, replace.content.len())
            }
            // `Normalizers::new` has replaced sequences by their stages.
            N::Sequence(_) => return Err(Error::corrupt("", "stages of a sequence", "another")),
        })
    }
}

/// The pattern of a replacement stage.
#[derive(Debug)]
enum Pattern {
    Text(String),
    Regex(SysRegex),
}

impl Pattern {
    /// The pattern of a stage. The field is private, but serialization writes it.
    fn from_replace(replace: &Replace) -> Result<Self, Error> {
        let value = serde_json::to_value(replace).map_err(|error| no_tokenizer(&error))?;
        match (value["pattern"]["String"].as_str(), value["pattern"]["Regex"].as_str()) {
            (Some(text), _) => Ok(Self::Text(text.to_owned())),
            (_, Some(pattern)) => {
                SysRegex::new(pattern).map(Self::Regex).map_err(|error| no_tokenizer(&error))
            }
            _ => Err(Error::corrupt("", "a pattern", &value["pattern"])),
        }
    }

    /// The length of a text after each match is replaced by `each` bytes, or a number above `most`.
    fn replaced(&self, text: &str, each: usize, most: usize) -> usize {
        let mut len = text.len();
        let mut replace = |(start, end): (usize, usize)| {
            len = (len - (end - start)).saturating_add(each);
            // Later matches remove at most the remaining bytes.
            len.saturating_sub(text.len() - end) > most
        };
        match self {
            Self::Text(pattern) => {
                text.match_indices(pattern).any(|(at, of)| replace((at, at + of.len())))
            }
            Self::Regex(pattern) => pattern.find_iter(text).any(replace),
        };
        len
    }
}

impl Stage {
    /// The length of `text` after this stage, or an upper bound that is at most `most`.
    fn predicted(&self, text: &str, most: usize) -> usize {
        let len = text.len();
        let bound = match &self.growth {
            Growth::Times(times) => len.saturating_mul(*times),
            Growth::Plus(more) => len.saturating_add(*more),
            // As many matches as there are positions between characters.
            Growth::Matches(_, each) => (len + 1).saturating_mul(*each).saturating_add(len),
        };
        if bound <= most {
            return bound;
        }
        match &self.growth {
            Growth::Plus(_) => bound,
            Growth::Matches(pattern, each) => pattern.replaced(text, *each, most),
            Growth::Times(_) => {
                let (mut predicted, mut rest) = (0, text);
                while !rest.is_empty() && predicted <= most {
                    let (chunk, after) = rest.split_at(rest.floor_char_boundary(CHUNK));
                    let mut chunk = NormalizedString::from(chunk);
                    // An error here occurs again when the whole text is normalized, and is returned there.
                    let _ = self.normalizer.normalize(&mut chunk);
                    predicted += chunk.len();
                    rest = after;
                }
                predicted
            }
        }
    }
}

impl Normalizer for Normalizers {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        let most = limits::normalized(text.len());
        if self.lower_case {
            // It produces at most three bytes from two.
            text.lowercase();
        }
        for stage in self.stages.iter() {
            let predicted = stage.predicted(text.get(), most);
            if predicted > most {
                return Err(too_long(most, predicted).into());
            }
            stage.normalizer.normalize(text)?;
            // The whole may be longer than its chunks, because a chunk may end inside a character with accents.
            if text.len() > most {
                return Err(too_long(most, text.len()).into());
            }
        }
        Ok(())
    }
}

/// Rejects added tokens of too many bytes in total, because the crate builds an automaton from them. A normalized
/// token counts with its length after normalization.
pub(crate) fn check_added(
    tokens: &[AddedToken],
    normalizers: Option<&Normalizers>,
) -> Result<(), Error> {
    let mut bytes = 0;
    for token in tokens {
        bytes += match normalizers.filter(|_| token.normalized) {
            Some(normalizers) => {
                let mut text = NormalizedString::from(token.content.as_str());
                normalizers.normalize(&mut text).map_err(in_added_tokens)?;
                text.len()
            }
            None => token.content.len(),
        };
        let most = limits::ADDED_BYTES;
        if bytes > most {
            return Err(Error::corrupt(
                "",
                format!("added_tokens of at most {most} bytes"),
                "more",
            ));
        }
    }
    Ok(())
}

fn too_long(most: usize, found: usize) -> Error {
    Error::too_long(most, format_args!("at least {found}"))
}

/// What the crate `tokenizers` says of a file.
pub(crate) fn no_tokenizer(error: &dyn fmt::Display) -> Error {
    Error::corrupt("", "a tokenizer", format_args!("an error: {error}"))
}

/// Why a text is not segmented: the limit of this module, or what the crate says.
pub(crate) fn not_segmented(error: tokenizers::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(error) => Error::invalid_input("text", "one that can be segmented", error),
    }
}

/// The same for the text of an added token, which is the fault of the file.
fn in_added_tokens(error: tokenizers::Error) -> Error {
    match not_segmented(error) {
        Error::InvalidInput { expected, found, .. } => {
            Error::corrupt("added_tokens", expected, found)
        }
        error => error,
    }
}

/// Normalizers that store their first error, because `AddedVocabulary::extract_and_normalize` drops it.
pub(crate) struct LimitedNormalizer<'n> {
    normalizers: &'n Normalizers,
    error: OnceLock<tokenizers::Error>,
}

impl<'n> LimitedNormalizer<'n> {
    pub(crate) fn new(normalizers: &'n Normalizers) -> Self {
        Self { normalizers, error: OnceLock::new() }
    }

    /// The first error, if any.
    pub(crate) fn done(self) -> tokenizers::Result<()> {
        self.error.into_inner().map_or(Ok(()), Err)
    }
}

impl Normalizer for LimitedNormalizer<'_> {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        if self.error.get().is_none()
            && let Err(error) = self.normalizers.normalize(text)
        {
            // One thread normalizes all parts of a text, so no other error was set since the check.
            let _ = self.error.set(error);
        }
        Ok(())
    }
}

/// Rejects pre-tokenizers that would lengthen a text repeatedly, or panic. `ByteLevel` produces two bytes from one,
/// and `Metaspace` replaces a space by a character of up to four bytes.
pub(crate) fn check_pre_tokenizer(whole: &PreTokenizerWrapper) -> Result<(), Error> {
    let (mut all, mut byte_level, mut spaces) = (0, 0, 0);
    let mut open = vec![whole];
    while let Some(next) = open.pop() {
        all += 1;
        match next {
            PreTokenizerWrapper::Sequence(several) => {
                all -= 1;
                open.extend(several.as_ref());
            }
            PreTokenizerWrapper::ByteLevel(_) => byte_level += 1,
            PreTokenizerWrapper::Metaspace(_) => spaces += 1,
            PreTokenizerWrapper::FixedLength(pieces) if pieces.length == 0 => {
                return Err(Error::corrupt("", "pieces of at least one letter", "a length of 0"));
            }
            _ => (),
        }
    }
    few("pre-tokenizers", all)?;
    for (what, found) in [("ByteLevel", byte_level), ("Metaspace", spaces)] {
        if found > 1 {
            return Err(Error::corrupt("", format!("at most one {what} pre-tokenizer"), found));
        }
    }
    Ok(())
}

/// The decoders of a file, which together produce at most [`DECODED`] bytes per byte. Decoding returns no error, so a
/// file whose decoders could produce more, or could fail, is rejected when it is read.
#[derive(Debug)]
pub(crate) struct Decoders {
    stages: Vec<DecoderWrapper>,
}

impl Decoders {
    /// Flattens sequences.
    pub(crate) fn new(whole: DecoderWrapper) -> Result<Self, Error> {
        let mut stages = Vec::new();
        let mut open = vec![whole];
        while let Some(next) = open.pop() {
            match next {
                DecoderWrapper::Sequence(several) => {
                    open.extend(several.get_decoders().iter().rev().cloned());
                }
                one => stages.push(one),
            }
        }
        few("decoders", stages.len())?;
        stages.iter().try_for_each(never_fails)?;
        let growth = stages.iter().fold(1, |all: usize, one| all.saturating_mul(decoded(one)));
        if growth > DECODED {
            return Err(Error::corrupt(
                "",
                format!("decoders that make at most {DECODED} bytes of one"),
                format!("some that may make {growth}"),
            ));
        }
        Ok(Self { stages })
    }
}

/// Rejects a decoder that may fail: a pattern that is found by backtracking, of which the steps are limited. All others have
/// no error.
fn never_fails(decoder: &DecoderWrapper) -> Result<(), Error> {
    let DecoderWrapper::Replace(replace) = decoder else { return Ok(()) };
    let value = serde_json::to_value(replace).map_err(|error| no_tokenizer(&error))?;
    let Some(pattern) = value["pattern"]["Regex"].as_str() else { return Ok(()) };
    // What this crate accepts takes linear time, but for possessive repetitions, which it reads as others.
    let possessive = ["++", "*+", "?+", "}+"].iter().any(|sign| pattern.contains(sign));
    match regex::Regex::new(pattern) {
        Ok(_) if !possessive => Ok(()),
        _ => Err(Error::corrupt(
            "",
            "a decoder's pattern without look-around, references and possessive repetitions",
            format!("{pattern:?}"),
        )),
    }
}

/// The largest number of output bytes per input byte of a decoder.
fn decoded(decoder: &DecoderWrapper) -> usize {
    use DecoderWrapper as D;
    match decoder {
        // An invalid byte becomes `U+FFFD`.
        D::ByteLevel(_) => 3,
        // A space before each token.
        D::WordPiece(_) => 2,
        // An empty suffix matches between all characters, and each match becomes a space.
        D::BPE(words) if words.suffix.is_empty() => 3,
        D::CTC(_) => 3,
        D::Replace(replace) => {
            let content = replace.content.len();
            match Pattern::from_replace(replace) {
                Ok(Pattern::Text(text)) if !text.is_empty() => content.div_ceil(text.len()).max(1),
                // The pattern may match between all characters, and at the end.
                _ => content.saturating_mul(2).saturating_add(1),
            }
        }
        _ => 1,
    }
}

impl Decoder for Decoders {
    fn decode_chain(&self, mut tokens: Vec<String>) -> tokenizers::Result<Vec<String>> {
        for stage in &self.stages {
            tokens = match stage {
                // This decoder subtracts one from the number of tokens.
                DecoderWrapper::BPE(_) if tokens.is_empty() => tokens,
                // The crate's own decoder underflows if fewer than `stop` characters are left.
                DecoderWrapper::Strip(strip) => tokens
                    .iter()
                    .map(|token| stripped(token, strip.content, strip.start, strip.stop))
                    .collect(),
                stage => stage.decode_chain(tokens)?,
            };
        }
        Ok(tokens)
    }
}

/// `token` without up to `start` leading and up to `stop` trailing characters `content`.
fn stripped(token: &str, content: char, start: usize, stop: usize) -> String {
    let mut rest = token;
    for _ in 0..start {
        let Some(after) = rest.strip_prefix(content) else { break };
        rest = after;
    }
    for _ in 0..stop {
        let Some(before) = rest.strip_suffix(content) else { break };
        rest = before;
    }
    rest.to_owned()
}
