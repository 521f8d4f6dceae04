//! The rules of one language, and how a word is looked up in them.

use super::rules::{Ordinals, Rules};
use super::{rules_europe, rules_world};
use std::sync::{LazyLock, OnceLock};

/// What may follow an abbreviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Abbreviation {
    Never,
    Numeric,
    Weak,
    Strong,
}

/// Titles of English that texts of every language have.
const TITLES: &str = "Mr Mrs Ms Dr Prof";

/// The rules of a language, sorted for look-ups.
#[derive(Debug)]
pub(super) struct Lexicon {
    abbreviations: Vec<(&'static str, Abbreviation)>,
    starters: Vec<&'static str>,
    speech: Vec<&'static str>,
    conjunctions: Vec<&'static str>,
    pub(super) ordinals: Ordinals,
    pub(super) marks: &'static str,
}

/// The tables of all languages, and last that of an unknown one. Each is sorted when it is first needed, and then kept: a
/// translator asks for one with every text.
static TABLES: LazyLock<Vec<(&Rules, OnceLock<Lexicon>)>> = LazyLock::new(|| {
    let tables = rules_europe::RULES.iter().chain(rules_world::RULES);
    tables.chain([&rules_europe::UNKNOWN]).map(|rules| (rules, OnceLock::new())).collect()
});

impl Lexicon {
    /// The rules of the language with this ISO 639 code, or those for texts of an unknown language.
    pub(super) fn for_language(code: Option<&str>) -> &'static Self {
        let named = |rules: &Rules| code.is_some_and(|code| words(rules.codes).any(|c| c == code));
        let at = TABLES.iter().position(|(rules, _)| named(rules)).unwrap_or(TABLES.len() - 1);
        let (rules, sorted) = &TABLES[at];
        sorted.get_or_init(|| Self::sort(rules))
    }

    fn sort(rules: &Rules) -> Self {
        let kinds = [
            (rules.never, Abbreviation::Never),
            (TITLES, Abbreviation::Never),
            (rules.numeric, Abbreviation::Numeric),
            (rules.weak, Abbreviation::Weak),
            (rules.strong, Abbreviation::Strong),
        ];
        let all = kinds.iter().flat_map(|&(list, kind)| words(list).map(move |word| (word, kind)));
        let mut abbreviations: Vec<_> = all.collect();
        abbreviations.sort_unstable();
        let sorted = |list: &'static str| {
            let mut all: Vec<&str> = words(list).collect();
            all.sort_unstable();
            all
        };
        Self {
            abbreviations,
            starters: sorted(rules.starters),
            speech: sorted(rules.speech),
            conjunctions: sorted(rules.conjunctions),
            ordinals: rules.ordinals,
            marks: rules.marks,
        }
    }

    /// What an abbreviation is, given without its last period.
    pub(super) fn abbreviation(&self, word: &str) -> Option<Abbreviation> {
        let exact = |word: &str| {
            let at = self.abbreviations.binary_search_by(|(entry, _)| (*entry).cmp(word));
            at.ok().map(|at| self.abbreviations[at].1)
        };
        let long = word.chars().nth(1).is_some();
        // A capital letter alone is an initial, also if the small one abbreviates a word.
        let small = || if long { exact(&word.to_lowercase()) } else { None };
        exact(word).or_else(small).or_else(|| {
            // `DR.` in a line of capitals.
            let capitals = long && word.chars().all(char::is_uppercase);
            let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
            if capitals { exact(&(first.to_owned() + &rest.to_lowercase())) } else { None }
        })
    }

    /// Words that begin sentences, for languages without spaces.
    pub(super) fn starters(&self) -> &[&'static str] {
        &self.starters
    }

    /// Whether the word, in lower case, often begins a sentence.
    pub(super) fn is_starter(&self, word: &str) -> bool {
        self.starters.binary_search(&word).is_ok()
    }

    /// Whether the word, in lower case, belongs to the clause after a quotation.
    pub(super) fn is_speech(&self, word: &str) -> bool {
        self.speech.binary_search(&word).is_ok()
    }

    /// Whether the word, in lower case, joins two clauses.
    pub(super) fn is_conjunction(&self, word: &str) -> bool {
        self.conjunctions.binary_search(&word).is_ok()
    }

    /// The conjunctions, for languages without spaces.
    pub(super) fn conjunctions(&self) -> &[&'static str] {
        &self.conjunctions
    }

    /// The words of the clause after a quotation, for languages without spaces.
    pub(super) fn speech(&self) -> &[&'static str] {
        &self.speech
    }
}

/// The abbreviations of a language, by its ISO 639-1 code, as a list that Moses reads: a word in each line without its last
/// period, and `#NUMERIC_ONLY#` after one that is an abbreviation only before a number. Capital letters are initials, and
/// numbers below 100 are abbreviations where they are ordinals with a period.
///
/// ```
/// let list = simdformer_documents::sentences::nonbreaking_prefixes(Some("en"));
/// assert!(list.lines().any(|line| line == "Dr"));
/// assert!(list.lines().any(|line| line == "No #NUMERIC_ONLY#"));
/// ```
#[must_use]
pub fn nonbreaking_prefixes(language: Option<&str>) -> String {
    let lexicon = Lexicon::for_language(language);
    let mut list = String::new();
    for (word, kind) in &lexicon.abbreviations {
        list.push_str(word);
        list.push_str(if *kind == Abbreviation::Numeric { " #NUMERIC_ONLY#\n" } else { "\n" });
    }
    for initial in ('A'..='Z').chain('А'..='Я') {
        list.extend([initial, '\n']);
    }
    if lexicon.ordinals != Ordinals::None {
        (1..100).for_each(|number| list.push_str(&format!("{number}\n")));
    }
    list
}

/// The words of a list.
pub(super) fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word that is in two lists, or in one list twice, hides a mistake in the data.
    #[test]
    fn an_abbreviation_has_one_kind_and_a_language_one_table() {
        let mut codes: Vec<&str> = Vec::new();
        for rules in rules_europe::RULES.iter().chain(rules_world::RULES) {
            codes.extend(words(rules.codes));
            let lists = [rules.never, rules.numeric, rules.weak, rules.strong];
            let mut all: Vec<&str> = lists.into_iter().flat_map(words).collect();
            let count = all.len();
            all.sort_unstable();
            let twice: Vec<&str> =
                all.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
            assert!(twice.is_empty(), "{}: {twice:?} of {count}", rules.codes);
            for list in [rules.starters, rules.speech, rules.conjunctions] {
                let capitals = words(list).find(|word| *word != word.to_lowercase());
                assert_eq!(capitals, None, "{}", rules.codes);
            }
            assert!(all.iter().all(|word| !word.ends_with('.')), "{}", rules.codes);
        }
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
        assert!(codes.len() >= 60, "{count} languages");
    }
}
