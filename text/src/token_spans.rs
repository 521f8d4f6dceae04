//! Where tokens stand in a text: the bytes of the source that each id reads, and of the output that each id writes.
//!
//! A `tokenizer.json` knows the bytes. A SentencePiece file segments the normalized text, which may have other
//! characters than the text itself; the two are then compared character by character.

use crate::encoding::Encoded;
use crate::error::TextError;
use crate::languages::Direction;
use crate::tokenizer::Tokenizer;
use crate::tokenizer_backend::Engine;
use std::ops::Range;

/// How far the comparison looks for the next equal characters after a difference.
const AHEAD: usize = 12;
/// The character that stands for a space in a vocabulary.
const SPACE: char = '\u{2581}';

impl Tokenizer {
    /// [`encode`](Self::encode), and for each id the bytes of `text` that it stands for, without spaces at the ends:
    /// `[ids]`, in the order of the text. Empty for special tokens and for a token of spaces.
    ///
    /// Where normalization replaced characters, the bytes are those of the nearest characters that it kept.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    ///
    /// ```
    /// use simdformer_text::{Direction, Tokenizer};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/doc");
    /// let tokenizer = Tokenizer::from_dir(directory)?;
    /// let text = "attention is all";
    /// let (encoded, spans) = tokenizer.encode_with_spans(text, &Direction::default())?;
    /// assert_eq!(spans.len(), encoded.ids.len());
    /// assert!(text[spans[0].clone()].starts_with('a'));
    /// # Ok(()) }
    /// ```
    pub fn encode_with_spans(
        &self,
        text: &str,
        direction: &Direction<'_>,
    ) -> Result<(Encoded, Vec<Range<usize>>), TextError> {
        let encoded = self.encode(text, direction)?;
        let mut spans = match self.engine() {
            Engine::Pieces(pieces) => {
                let (mut normalized, mut ends) = (Vec::new(), Vec::new());
                pieces.encode_each(text, false, &mut |_, surface| {
                    normalized.extend_from_slice(surface);
                    ends.push(normalized.len());
                })?;
                spans_of(text, &normalized, &ends)
            }
            #[cfg(feature = "json")]
            Engine::Json(json) => json.spans(text)?,
        };
        // The special tokens before the text; what follows it has no span either.
        let before = self.tokens_before(direction)?;
        spans.splice(..0, std::iter::repeat_n(0..0, before));
        spans.resize(encoded.ids.len(), text.len()..text.len());
        spans.iter_mut().for_each(|span| *span = trimmed(text, span.clone()));
        Ok((encoded, spans))
    }

    /// [`decode`](Self::decode), and for each id the bytes of the text that it wrote, without spaces at the ends:
    /// `[ids]`. Empty for special tokens, and for the first bytes of a character that several tokens write together.
    #[must_use]
    pub fn decode_with_spans(&self, ids: &[u32]) -> (String, Vec<Range<usize>>) {
        let mut stream = self.stream();
        let mut text = String::new();
        let mut spans = Vec::with_capacity(ids.len());
        for &id in ids {
            let start = text.len();
            text.extend(stream.push(id));
            spans.push(start..text.len());
        }
        let held = text.len();
        text.push_str(stream.finish());
        if held == 0 && !text.is_empty() {
            // A decoder that determines the text after all tokens.
            let (mut written, mut ends) = (Vec::new(), Vec::new());
            for &id in ids {
                written.extend(self.token(id).unwrap_or_default().bytes());
                ends.push(written.len());
            }
            spans = spans_of(&text, &written, &ends);
        }
        spans.iter_mut().for_each(|span| *span = trimmed(&text, span.clone()));
        (text, spans)
    }
}

/// `span` without spaces at its ends, at boundaries of characters.
fn trimmed(text: &str, span: Range<usize>) -> Range<usize> {
    let Some(part) = text.get(span.clone()) else { return span.start..span.start };
    let start = span.start + (part.len() - part.trim_start().len());
    start..start + part.trim().len()
}

/// The bytes of `text` for each token, where token `i` is the bytes of `normalized` before `ends[i]` and after the token
/// before it.
fn spans_of(text: &str, normalized: &[u8], ends: &[usize]) -> Vec<Range<usize>> {
    let normalized = String::from_utf8_lossy(normalized);
    let visible = |c: char| !c.is_whitespace() && c != SPACE;
    let theirs: Vec<(usize, char)> =
        normalized.char_indices().filter(|&(_, c)| visible(c)).collect();
    let ours: Vec<(usize, char)> = text.char_indices().filter(|&(_, c)| visible(c)).collect();
    let mut spans: Vec<Option<Range<usize>>> = vec![None; ends.len()];
    let mut token = 0;
    let mut put = |(at, _): (usize, char), range: Range<usize>| {
        while ends.get(token).is_some_and(|&end| end <= at) {
            token += 1;
        }
        if let Some(span) = spans.get_mut(token) {
            let start = span.as_ref().map_or(range.start, |span| span.start);
            *span = Some(start..range.end);
        }
    };
    let bytes = |from: usize, to: usize| match (ours.get(from), ours.get(to.max(from + 1) - 1)) {
        (Some(&(start, _)), Some(&(last, c))) => start..last + c.len_utf8(),
        _ => text.len()..text.len(),
    };
    let same = |a: char, b: char| a == b || a.to_lowercase().eq(b.to_lowercase());
    let (mut i, mut j) = (0, 0);
    while i < theirs.len() {
        if j < ours.len() && same(theirs[i].1, ours[j].1) {
            put(theirs[i], bytes(j, j + 1));
            (i, j) = (i + 1, j + 1);
            continue;
        }
        // The nearest place where both go on alike: `a` characters were put in place of `b`.
        let next = (1..=AHEAD).flat_map(|sum| (0..=sum).map(move |a| (a, sum - a)));
        let alike = next.into_iter().find(|&(a, b)| {
            let pair = theirs.get(i + a).zip(ours.get(j + b));
            pair.is_some_and(|(x, y)| same(x.1, y.1))
        });
        let (rest, ours_left) = (theirs.len() - i, ours.len() - j);
        let short = rest <= AHEAD && ours_left <= AHEAD;
        let (a, b) = alike.unwrap_or(if short { (rest, ours_left) } else { (1, ours_left.min(1)) });
        let range = bytes(j, j + b);
        theirs[i..(i + a).min(theirs.len())].iter().for_each(|&c| put(c, range.clone()));
        (i, j) = (i + a, j + b);
    }
    // A token without visible characters has an empty range, after that of the token before it.
    let mut last = 0;
    spans
        .into_iter()
        .map(|span| {
            let span = span.unwrap_or(last..last);
            last = span.end;
            span
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, tokens: &[&str]) -> Vec<String> {
        let (mut normalized, mut ends) = (Vec::new(), Vec::new());
        for token in tokens {
            normalized.extend(token.bytes());
            ends.push(normalized.len());
        }
        let spans = spans_of(text, &normalized, &ends);
        spans.into_iter().map(|span| text[span].to_owned()).collect()
    }

    #[test]
    fn equal_characters_are_found() {
        let tokens = ["▁the", "▁wh", "ite", "▁", "tower"];
        assert_eq!(found("the  white tower", &tokens), ["the", "wh", "ite", "", "tower"]);
        assert_eq!(found("The WHITE tower", &tokens), ["The", "WH", "ITE", "", "tower"]);
    }

    #[test]
    fn normalized_characters_have_the_bytes_of_their_source() {
        // One character becomes two, two become one, one is dropped.
        assert_eq!(found("ﬁn du", &["▁f", "in", "▁du"]), ["ﬁ", "ﬁn", "du"]);
        assert_eq!(found("e\u{301}te\u{301}", &["▁é", "té"]), ["e\u{301}", "te\u{301}"]);
        assert_eq!(found("a\u{ad}b c", &["▁ab", "▁c"]), ["a\u{ad}b", "c"]);
        assert_eq!(found("…", &["▁..."]), ["…"]);
    }

    #[test]
    fn text_that_has_nothing_in_common_ends() {
        assert_eq!(found("abc", &["▁xyzxyzxyzxyzxyz", "q"]).len(), 2);
        assert_eq!(found("", &["▁x"]), [""]);
        assert!(found("abc", &[]).is_empty());
    }
}
