//! Terms whose translation is required.

use crate::Error;
use core::fmt;
use std::collections::HashMap;

/// The bytes of a glossary that is read from text.
const BYTES: usize = 64 << 20;

/// Terms of the source language and the words that a translation must have for them.
///
/// A term is found in any case (`Konto`, `KONTO`), at the boundaries of words where the script has them. Of two terms at
/// one place the longer one counts.
///
/// ```
/// use simdformer_text::translator::Glossary;
///
/// let glossary = Glossary::from_tsv("account\tcompte\nsavings account\tlivret d'épargne\n")?;
/// assert_eq!(glossary.len(), 2);
/// # Ok::<(), simdformer_text::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Glossary {
    terms: Vec<Term>,
    /// The terms by their first character, in lower case; longest first.
    by_first: HashMap<char, Vec<usize>>,
}

/// A term and its translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The words of the source.
    pub source: String,
    /// The words that must be in the translation.
    pub target: String,
}

impl Glossary {
    /// Reads lines of a source term, a tab and a target term. Blank lines are skipped, spaces around terms are removed.
    ///
    /// # Errors
    /// A line has no tab or more than one, or an empty term; a source term has two different translations; more than
    /// 64 MB.
    pub fn from_tsv(text: &str) -> Result<Self, Error> {
        if text.len() > BYTES {
            let expected = format!("at most {BYTES} bytes");
            return Err(Error::invalid_input("glossary", expected, text.len()));
        }
        let mut glossary = Self::default();
        let mut known: HashMap<String, usize> = HashMap::new();
        for (line, content) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            if content.trim().is_empty() {
                continue;
            }
            let wrong = |expected: &str, found: &dyn fmt::Display| {
                Error::invalid_input(format!("glossary, line {line}"), expected, found)
            };
            let fields: Vec<&str> = content.split('\t').map(str::trim).collect();
            let [source, target] = fields[..] else {
                let found = format_args!("{} fields", fields.len());
                return Err(wrong("two terms and a tab", &found));
            };
            if source.is_empty() || target.is_empty() {
                return Err(wrong("two terms", &"an empty one"));
            }
            let number = glossary.terms.len();
            let before = *known.entry(source.to_lowercase()).or_insert(number);
            match glossary.terms.get(before) {
                Some(known) if known.target == target => (),
                Some(Term { target: other, .. }) => {
                    let expected = format!("one translation of {source:?}");
                    return Err(wrong(&expected, &format_args!("{other:?} and {target:?}")));
                }
                None => glossary.push(source, target),
            }
        }
        glossary.sort();
        Ok(glossary)
    }

    fn push(&mut self, source: &str, target: &str) {
        let first = source.chars().flat_map(char::to_lowercase).next();
        self.by_first.entry(first.unwrap_or_default()).or_default().push(self.terms.len());
        self.terms.push(Term { source: source.to_owned(), target: target.to_owned() });
    }

    fn sort(&mut self) {
        let terms = &self.terms;
        for list in self.by_first.values_mut() {
            list.sort_by_key(|&i| core::cmp::Reverse(terms[i].source.len()));
        }
    }

    /// The number of terms.
    #[must_use]
    pub fn len(&self) -> usize {
        self.terms.len()
    }

    /// Whether there are no terms.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The terms in `sentence`, in its order, each once, with the byte range of its first occurrence.
    pub(super) fn terms_in(&self, sentence: &str) -> Vec<(&Term, core::ops::Range<usize>)> {
        let mut found: Vec<(&Term, core::ops::Range<usize>)> = Vec::new();
        let mut at = 0;
        while let Some(next) = sentence.get(at..).and_then(|rest| rest.chars().next()) {
            let first = next.to_lowercase().next().unwrap_or(next);
            let listed = self.by_first.get(&first).into_iter().flatten();
            let term = listed
                .filter_map(|&i| self.terms.get(i))
                .find_map(|term| Some((term, match_at(sentence, at, &term.source)?)));
            match term {
                Some((term, end)) => {
                    if !found.iter().any(|(known, _)| *known == term) {
                        found.push((term, at..end));
                    }
                    at = end;
                }
                None => at += next.len_utf8(),
            }
        }
        found
    }
}

/// How often `term` is in `text`, in any case, at the boundaries of words.
pub(super) fn occurrences(text: &str, term: &str) -> usize {
    text.char_indices().filter(|&(at, _)| match_at(text, at, term).is_some()).count()
}

/// The end of `term` if it begins at byte `at` of `text`.
fn match_at(text: &str, at: usize, term: &str) -> Option<usize> {
    let rest = text.get(at..)?;
    let before = text.get(..at)?.chars().next_back();
    let mut wanted = term.chars().flat_map(char::to_lowercase);
    let mut end = at;
    let mut last = None;
    let mut characters = rest.chars();
    let mut expected = wanted.next();
    while let Some(mut want) = expected {
        let found = characters.next()?;
        let mut lower = found.to_lowercase();
        // All of the lower case of one character, as of `İ`, must be in the term.
        loop {
            let one = lower.next()?;
            if one != want && !(one.is_whitespace() && want.is_whitespace()) {
                return None;
            }
            expected = wanted.next();
            if lower.len() == 0 {
                break;
            }
            want = expected?;
        }
        end += found.len_utf8();
        last = Some(found);
    }
    let joined = |a: Option<char>, b: Option<char>| match (a, b) {
        (Some(a), Some(b)) => spaced(a) && spaced(b),
        _ => false,
    };
    let after = text.get(end..)?.chars().next();
    (!joined(before, rest.chars().next()) && !joined(last, after)).then_some(end)
}

/// Whether the character is part of a word in a script that puts spaces between words.
fn spaced(c: char) -> bool {
    c.is_alphanumeric()
        && !matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
            | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms<'s>(glossary: &Glossary, sentence: &'s str) -> Vec<&'s str> {
        glossary.terms_in(sentence).into_iter().map(|(_, range)| &sentence[range]).collect()
    }

    #[test]
    fn the_longest_term_at_a_place_is_found() -> Result<(), Error> {
        let glossary = Glossary::from_tsv(
            "account\tcompte\r\nsavings account\tlivret\n\n Über\tsur\n銀行\tbanque",
        )?;
        assert_eq!(
            terms(&glossary, "My Savings Account, an account"),
            ["Savings Account", "account"]
        );
        assert_eq!(terms(&glossary, "accounts of ÜBER; subaccount"), ["ÜBER"]);
        assert_eq!(terms(&glossary, "日本銀行券"), ["銀行"]);
        assert_eq!(terms(&glossary, "account account"), ["account"]);
        assert!(terms(&glossary, "").is_empty());
        Ok(())
    }

    #[test]
    fn occurrences_are_counted_at_word_boundaries() {
        assert_eq!(occurrences("Compte, comptes et compte.", "compte"), 2);
        assert_eq!(occurrences("le livret d'épargne", "Livret d'épargne"), 1);
        assert_eq!(occurrences("", "x"), 0);
        assert_eq!(occurrences("İstanbul", "i̇stanbul"), 1);
    }

    #[test]
    fn wrong_lines_are_named() {
        let error = |text: &str| {
            let found = Glossary::from_tsv(text);
            found.map_or_else(|error| error.to_string(), |found| format!("{} terms", found.len()))
        };
        assert_eq!(
            error("a\tb\nword"),
            "glossary, line 2: expected two terms and a tab, found 1 fields"
        );
        assert_eq!(error("a\t "), "glossary, line 1: expected two terms, found an empty one");
        assert_eq!(
            error("a\tb\nA\tc"),
            "glossary, line 2: expected one translation of \"A\", found \"b\" and \"c\""
        );
        assert_eq!(error("a\tb\nA\tb"), "1 terms");
    }
}
