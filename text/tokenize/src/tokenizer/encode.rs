//! Encodes texts.

use super::Tokenizer;
use super::spans::in_order;
use crate::directory::family::Family;
use crate::encoded::{Encoded, longest_first};
use crate::error::Error;
use crate::languages::Direction;
#[cfg(feature = "json")]
use crate::vocabulary::backend::Engine;
use crate::vocabulary::pieces::Reading;
use std::ops::Range;

impl Tokenizer {
    /// Encodes `text` for the encoder, with the first tokens of the decoder.
    ///
    /// The text of a special token, such as `</s>`, `<pad>` or `>>fra<<`, is encoded as that token, as in
    /// transformers. A model of tasks reads [their prefix](Self::with_prefix) first.
    ///
    /// # Errors
    /// The model does not have the language (the error lists the most similar ones), requires a language, or has no
    /// languages. [`Error::InvalidInput`] if the file's normalizers produce more than 32 bytes for each byte of the text.
    pub fn encode(&self, text: &str, direction: &Direction<'_>) -> Result<Encoded, Error> {
        self.encode_into(text, direction, false, None)
    }

    /// [`encode`](Self::encode) for a text that people have written: what a token that controls the model is written with,
    /// such as `</s>`, `<pad>` or the language `fra_Latn`, is text in it, and a byte order mark at its begin is left out.
    /// Masks, sentinels and the added tokens of a directory keep their meaning, and so does `>>fra<<` at the begin of a
    /// text for OPUS-MT.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_text(&self, text: &str, direction: &Direction<'_>) -> Result<Encoded, Error> {
        self.encode_into(without_byte_order_mark(text), direction, true, None)
    }

    /// [`encode_text`](Self::encode_text), with the bytes of `text` of each id, as
    /// [`encode_with_spans`](Self::encode_with_spans) gives them.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_text_with_spans(
        &self,
        text: &str,
        direction: &Direction<'_>,
    ) -> Result<(Encoded, Vec<Range<usize>>), Error> {
        let mut spans = Vec::new();
        let own = without_byte_order_mark(text);
        let encoded = self.encode_into(own, direction, true, Some(&mut spans))?;
        in_order(own, &mut spans);
        let before = text.len() - own.len();
        for span in &mut spans {
            *span = span.start + before..span.end + before;
        }
        Ok((encoded, spans))
    }

    /// [`encode`](Self::encode), with the bytes of `text` of each id, for an alignment.
    ///
    /// Starts and ends do not decrease. A span is the characters that became the token, without white space at its ends;
    /// normalization may have replaced or dropped some of them. Tokens that are bytes of one character share it. The span
    /// of a special token around the text, and of one that is white space, is empty.
    ///
    /// ```
    /// # use simdformer_tokenize::{Direction, Tokenizer};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/doc");
    /// let tokenizer = Tokenizer::from_dir(directory)?;
    /// let text = "attention is all";
    /// let (encoded, spans) = tokenizer.encode_with_spans(text, &Direction::default())?;
    /// assert_eq!(encoded.ids.len(), spans.len());
    /// let parts: Vec<&str> = spans.into_iter().map(|span| &text[span]).collect();
    /// assert_eq!(parts.concat(), "attentionisall");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_with_spans(
        &self,
        text: &str,
        direction: &Direction<'_>,
    ) -> Result<(Encoded, Vec<Range<usize>>), Error> {
        let mut spans = Vec::new();
        let encoded = self.encode_into(text, direction, false, Some(&mut spans))?;
        in_order(text, &mut spans);
        Ok((encoded, spans))
    }

    fn encode_into(
        &self,
        text: &str,
        direction: &Direction<'_>,
        plain: bool,
        mut spans: Option<&mut Vec<Range<usize>>>,
    ) -> Result<Encoded, Error> {
        let prefix = self.prefix(text, direction)?;
        if prefix.is_empty() {
            return self.encode_whole(text, direction, plain, spans);
        }
        // A text of control characters may have no tokens.
        let blank = !text.contains(char::is_alphanumeric)
            && self.encode_whole(text, direction, plain, None)?.blank;
        if blank {
            return self.encode_whole(text, direction, plain, spans);
        }
        let whole = format!("{prefix}{text}");
        let encoded = self.encode_whole(&whole, direction, plain, spans.as_deref_mut())?;
        // The tokens of the prefix stand for nothing in the text.
        for span in spans.into_iter().flatten() {
            *span = span.start.saturating_sub(prefix.len())..span.end.saturating_sub(prefix.len());
        }
        Ok(encoded)
    }

    /// Encodes a text that has its prefix.
    fn encode_whole(
        &self,
        text: &str,
        direction: &Direction<'_>,
        plain: bool,
        mut spans: Option<&mut Vec<Range<usize>>>,
    ) -> Result<Encoded, Error> {
        let prompt = self.prompt(direction)?;
        let mut content = Vec::new();
        #[cfg(feature = "json")]
        if let Engine::Json(json) = &self.parts.engine
            && json.has_template(self.parts.family)
        {
            return json.encode_whole(text, plain, self.max_tokens, prompt.decoder, spans);
        }
        let reading = Reading { target: false, plain };
        self.parts.engine.encode(text, reading, &mut content, spans.as_deref_mut())?;
        let blank = content.is_empty();
        let around = prompt.before.iter().chain(&prompt.after).count();
        let tokens = content.len() + around;
        let truncated = self.max_tokens.is_some_and(|most| tokens > most);
        if let Some(most) = self.max_tokens {
            content.truncate(most.saturating_sub(around));
        }
        if let Some(spans) = spans {
            spans.truncate(content.len());
            spans.splice(0..0, prompt.before.iter().map(|_| 0..0));
            spans.extend(prompt.after.iter().map(|_| 0..0));
        }
        let ids = [prompt.before, content, prompt.after].concat();
        let (prefix, forced_bos) = prompt.decoder;
        let types = vec![0; ids.len()];
        Ok(Encoded { ids, types, prefix, forced_bos, truncated, tokens, blank })
    }

    /// Encodes two texts for a cross-encoder: `[CLS] first [SEP] second [SEP]`, with types, or `<s> first </s></s>
    /// second </s>`. If both are too long together, the longer one is truncated.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tokenizer = simdformer_tokenize::Tokenizer::from_dir("ms-marco-MiniLM-L6-v2")?;
    /// let pair = tokenizer.encode_pair("how many people live in Berlin?", "3.5 million people")?;
    /// assert_eq!(pair.ids.len(), pair.types.len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the family encodes single texts only, or a text cannot be
    /// segmented.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Encoded, Error> {
        let family = self.parts.family;
        if !matches!(
            family,
            Family::WordPiece | Family::ByteLevel | Family::XlmRoberta | Family::Camembert
        ) {
            let expected = "a tokenizer of pairs (BERT, DistilBERT, MPNet, RoBERTa, XLM-R)";
            return Err(Error::invalid_input("", expected, format_args!("{family:?}")));
        }
        let prefix: Vec<u32> = self.parts.start.into_iter().collect();
        #[cfg(feature = "json")]
        if let Engine::Json(json) = &self.parts.engine {
            return json.encode_pair([first, second], self.max_tokens, prefix);
        }
        let (mut a, mut b) = (Vec::new(), Vec::new());
        self.parts.engine.encode(first, Reading::default(), &mut a, None)?;
        self.parts.engine.encode(second, Reading::default(), &mut b, None)?;
        let begin: Vec<u32> = self.parts.begin.into_iter().collect();
        let end: Vec<u32> = self.parts.end.into_iter().collect();
        let (blank, around) = (a.is_empty() && b.is_empty(), begin.len() + 3 * end.len());
        let tokens = a.len() + b.len() + around;
        if let Some(most) = self.max_tokens {
            let (first, second) = longest_first(a.len(), b.len(), most.saturating_sub(around));
            a.truncate(first);
            b.truncate(second);
        }
        let ids = [&begin[..], &a, &end, &end, &b, &end].concat();
        let (types, truncated) = (vec![0; ids.len()], ids.len() < tokens);
        Ok(Encoded { ids, types, prefix, forced_bos: None, truncated, tokens, blank })
    }

    /// The ids of a target, without special tokens around it: to score it, or to begin a translation with it. The text of a
    /// special token is encoded as that token.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the text cannot be segmented.
    pub fn encode_target(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        let reading = Reading { target: true, plain: false };
        self.parts.engine.encode(text, reading, &mut ids, None)?;
        Ok(ids)
    }

    /// [`encode_target`](Self::encode_target) for a text that people have written, as in
    /// [`encode_text`](Self::encode_text).
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the text cannot be segmented.
    pub fn encode_target_text(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        let reading = Reading { target: true, plain: true };
        self.parts.engine.encode(without_byte_order_mark(text), reading, &mut ids, None)?;
        Ok(ids)
    }

    /// The prefix of a text.
    fn prefix(&self, text: &str, direction: &Direction<'_>) -> Result<&str, Error> {
        let prefix = match &self.prefix {
            Some(prefix) => prefix,
            None => self.tasks.choose(direction)?.map_or("", |(prefix, _)| prefix),
        };
        Ok(if text.starts_with(prefix) || text.trim().is_empty() { "" } else { prefix })
    }
}

/// A text without the byte order mark at its begin, which is no part of it.
fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
