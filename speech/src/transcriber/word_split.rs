//! Which tokens of a text are a word.

use core::ops::Range;

/// A word of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WordTokens {
    /// Its tokens.
    pub(super) tokens: Range<usize>,
    /// Its tokens without punctuation at the ends, which is said in no time; all, if it has nothing else.
    pub(super) said: Range<usize>,
    /// Its bytes in the text, with the space before it. Those of all words are the whole text.
    pub(super) bytes: Range<usize>,
}

/// The words of `text`, of which each token has a span without space at its ends. They are divided by spaces, or, in a
/// language without, before each token that begins a character and is not punctuation. A word of punctuation alone belongs to
/// the one before it, and at the start to the one after it.
pub(super) fn split_words(text: &str, spans: &[Range<usize>], spaces: bool) -> Vec<WordTokens> {
    let letters = |range: &Range<usize>| {
        text.get(range.clone()).is_some_and(|part| part.contains(char::is_alphanumeric))
    };
    let mut words: Vec<WordTokens> = Vec::new();
    for (i, span) in spans.iter().enumerate() {
        let before = text.get(..span.start).unwrap_or_default();
        let after_space = before.ends_with(char::is_whitespace);
        let begins = match words.last() {
            None => true,
            // Part of a character, or only space.
            Some(_) if span.is_empty() => false,
            Some(word) => {
                let divided = after_space || !spaces && span.start >= word.bytes.end;
                let ready = letters(&word.bytes);
                divided && ready && (letters(span) || after_space && !is_mark(text, span))
            }
        };
        match words.last_mut() {
            Some(word) if !begins => {
                word.tokens.end = i + 1;
                if !span.is_empty() {
                    word.bytes.end = word.bytes.end.max(span.end);
                }
            }
            last => {
                let start = last.map_or(0, |word| word.bytes.end);
                words.push(WordTokens {
                    tokens: i..i + 1,
                    said: 0..0,
                    bytes: start..span.end.max(start),
                });
            }
        }
    }
    if let Some(word) = words.last_mut() {
        word.bytes.end = text.len();
    }
    for word in &mut words {
        let mut said = word.tokens.clone().filter(|&i| letters(&spans[i]));
        word.said = match (said.next(), said.next_back()) {
            (None, _) => word.tokens.clone(),
            (Some(first), last) => first..last.unwrap_or(first) + 1,
        };
    }
    words
}

/// Whether a token after a space is only punctuation that does not open what follows: `-`, not `"` or `(`.
fn is_mark(text: &str, span: &Range<usize>) -> bool {
    const OPENING: &str = "\"'“‘«¿¡([{";
    let part = text.get(span.clone()).unwrap_or_default();
    !part.contains(|c: char| c.is_alphanumeric() || OPENING.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a text that is given token by token, each with what is said of it.
    fn words(tokens: &[&str], spaces: bool) -> Vec<(String, String)> {
        let text = tokens.concat();
        let mut at = 0;
        let spans: Vec<Range<usize>> = tokens
            .iter()
            .map(|token| {
                let start = at + token.len() - token.trim_start().len();
                at += token.len();
                start..at.max(start)
            })
            .collect();
        let found = split_words(&text, &spans, spaces);
        let parts: Vec<&str> = found.iter().map(|word| &text[word.bytes.clone()]).collect();
        assert_eq!(parts.concat(), text);
        let counted: usize = found.iter().map(|word| word.tokens.len()).sum();
        assert_eq!(counted, tokens.len());
        let said = |word: &WordTokens| tokens[word.said.clone()].concat();
        parts.iter().map(|part| part.to_string()).zip(found.iter().map(said)).collect()
    }

    #[test]
    fn words_end_at_spaces_and_keep_their_punctuation() {
        for (tokens, expected) in [
            (
                &[" Hell", "o", ",", " twenty", "-", "five", "."][..],
                &[(" Hello,", " Hello"), (" twenty-five.", " twenty-five")][..],
            ),
            (&[" \"", "Go", "!\"", " -", " he"], &[(" \"Go!\" -", "Go"), (" he", " he")]),
            (&["...", " And", " (", "so", ")"], &[("... And", " And"), (" (so)", "so")]),
            (&[" don", "'t", " ", "x"], &[(" don't", " don't"), (" x", "x")]),
            (&[" ♪"], &[(" ♪", " ♪")]),
            (&[], &[]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|&(text, said)| (text.to_owned(), said.to_owned())).collect();
            assert_eq!(words(tokens, true), expected, "{tokens:?}");
        }
    }

    #[test]
    fn without_spaces_each_token_is_a_word() {
        let found = words(&["今", "日", "は", "、", "「", "晴れ", "」", "。"], false);
        let texts: Vec<&str> = found.iter().map(|(text, _)| &**text).collect();
        assert_eq!(texts, ["今", "日", "は、「", "晴れ」。"]);
        assert_eq!(found[3].1, "晴れ");
        // A character of two tokens: both have its span.
        let split = split_words("日本", &[0..3, 0..3, 3..6], false);
        assert_eq!(split.iter().map(|word| word.tokens.clone()).collect::<Vec<_>>(), [0..2, 2..3]);
    }
}
