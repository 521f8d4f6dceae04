//! What the rules of a language consist of, and how a word is looked up in them.

use super::{rules_europe, rules_world};

/// The data of one language or of several close ones. Every list is words with spaces between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// ISO 639-1 codes, or 639-3 codes of languages that have no shorter one.
    pub(super) codes: &'static str,
    /// Abbreviations before a name or in the middle of a sentence: no sentence ends after `Dr.` An entry in lower case
    /// stands for its capitalized form too, without the last period and with the inner ones: `e.g`.
    pub(super) never: &'static str,
    /// Abbreviations before a number or a letter: `No. 5`. Before anything else, they are words.
    pub(super) numeric: &'static str,
    /// Abbreviations that end a sentence only if the next word often begins one: `Inc.`, `U.S.`
    pub(super) weak: &'static str,
    /// Abbreviations that end a sentence if the next word is capitalized: `etc.`, `p.m.`
    pub(super) strong: &'static str,
    /// Words that often begin a sentence and that are no names, in lower case.
    pub(super) starters: &'static str,
    /// Words of a clause that follows a quotation: after `“Stop!”` and before `John said`, no sentence ends.
    pub(super) speech: &'static str,
    /// Words before which a long sentence is cut.
    pub(super) conjunctions: &'static str,
    /// What `3.` means.
    pub(super) ordinals: Ordinals,
    /// More characters that end a sentence: the Greek question mark is `;`
    pub(super) marks: &'static str,
}

/// What a period after a number of one or two digits means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ordinals {
    /// The end of a sentence.
    None,
    /// An ordinal, if the next word is not capitalized: `3. října`.
    Lowercase,
    /// An ordinal, unless the next word often begins a sentence: nouns are capitalized, `3. Oktober`.
    Capitalized,
}

impl Rules {
    /// A language without data.
    pub(super) const EMPTY: Self = Self {
        codes: "",
        never: "",
        numeric: "",
        weak: "",
        strong: "",
        starters: "",
        speech: "",
        conjunctions: "",
        ordinals: Ordinals::None,
        marks: "",
    };
}

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
#[derive(Clone, Debug)]
pub(super) struct Lexicon {
    abbreviations: Vec<(&'static str, Abbreviation)>,
    starters: Vec<&'static str>,
    speech: Vec<&'static str>,
    conjunctions: Vec<&'static str>,
    pub(super) ordinals: Ordinals,
    pub(super) marks: &'static str,
}

impl Lexicon {
    /// The rules of the language with this ISO 639 code, or those for texts of an unknown language.
    pub(super) fn of(code: Option<&str>) -> Self {
        let mut tables = rules_europe::RULES.iter().chain(rules_world::RULES);
        let named = |rules: &&Rules| code.is_some_and(|code| words(rules.codes).any(|c| c == code));
        let rules = tables.find(named).unwrap_or(&rules_europe::UNKNOWN);
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
