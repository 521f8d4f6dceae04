//! What the rules of a language consist of.

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
