//! Converts text to ids and back for the demo model. Every word has one id, and users type plain text.
//!
//! The model was trained on lower-case words in which elisions, inversions and punctuation marks are separate: `j'
//! ai`, `parles -tu`, `où est -il ?`. [`Vocabulary::encode`] converts typed text to this form, [`Vocabulary::decode`]
//! joins it again. An unknown word is an error and never `<unk>`, because the translation of an unknown word would be
//! an arbitrary text.

#[path = "../../text/src/nearest_words.rs"]
#[allow(unreachable_pub)]
mod nearest_words;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The end token, on both sides.
const END: &str = "</s>";
/// Printed for an id outside the vocabulary.
const UNKNOWN: &str = "<unk>";
/// The decoder's start.
const PAD: &str = "<pad>";
/// The maximum word length in bytes: a longer word is unknown without a search.
const LONGEST: usize = 64;

/// The words of both languages with their ids; one map, as in Marian's `vocab.json`.
pub(crate) struct Vocabulary {
    /// The word of each id.
    words: Vec<String>,
    /// The ids of the words a source sentence may hold.
    source: BTreeMap<String, u32>,
    /// The id of `</s>`.
    end: u32,
}

/// Why a vocabulary could not be read.
#[derive(Debug)]
pub(crate) enum VocabularyError {
    /// The file cannot be read.
    Io {
        /// Which file.
        path: String,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The file is not a JSON object from words to ids.
    Json {
        /// The error of the parser.
        error: serde_json::Error,
    },
    /// The ids are not `0..len`, each exactly once.
    Ids {
        /// The number of words; ids must be below it.
        expected: usize,
        /// The first id that is too large or repeated.
        found: u32,
    },
    /// A special token is missing.
    Missing {
        /// The token.
        token: &'static str,
    },
    /// A source word is not in the shared vocabulary under the same id.
    Source {
        /// The word.
        word: String,
    },
}

impl fmt::Display for VocabularyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "cannot read {path}: {error}"),
            Self::Json { error } => write!(f, "expected a JSON object from words to ids: {error}"),
            Self::Ids { expected, found } => {
                write!(
                    f,
                    "expected each id below {expected} once, found id {found} again or too large"
                )
            }
            Self::Missing { token } => write!(f, "expected the token {token}, found none"),
            Self::Source { word } => {
                write!(
                    f,
                    "expected the source word \"{word}\" in the shared vocabulary with the same id, found none"
                )
            }
        }
    }
}

impl std::error::Error for VocabularyError {}

/// A word that is not in the vocabulary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownWord {
    /// The word in lower case, without the elided part before it.
    pub(crate) word: String,
    /// The known words with the smallest edit distance, the most similar first; may be empty.
    pub(crate) nearest: Vec<String>,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model does not know the word \"{}\"", self.word)?;
        for (i, near) in self.nearest.iter().enumerate() {
            write!(f, "{}{near}", if i == 0 { "; near it: " } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownWord {}

impl Vocabulary {
    /// Reads `vocab.json` (both languages) and `source_vocab.json` (the words of a source sentence,
    /// same ids) in `folder`.
    pub(crate) fn read(folder: &Path) -> Result<Self, VocabularyError> {
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path)
                .map_err(|error| VocabularyError::Io { path: path.display().to_string(), error })
        };
        Self::from_json(&text("vocab.json")?, &text("source_vocab.json")?)
    }

    /// Parses the text of the two files. The pieces of a word-level SentencePiece model, such as `▁maison`, are words.
    pub(crate) fn from_json(shared: &str, source: &str) -> Result<Self, VocabularyError> {
        let parse = |text| {
            let pieces: BTreeMap<String, u32> =
                serde_json::from_str(text).map_err(|error| VocabularyError::Json { error })?;
            Ok(pieces.into_iter().map(|(piece, id)| (piece.replace('▁', ""), id)).collect())
        };
        let (shared, source): (BTreeMap<String, u32>, BTreeMap<String, u32>) =
            (parse(shared)?, parse(source)?);
        for token in [END, UNKNOWN, PAD] {
            if !shared.contains_key(token) {
                return Err(VocabularyError::Missing { token });
            }
        }
        if let Some(word) = source.iter().find(|(word, id)| shared.get(*word) != Some(*id)) {
            return Err(VocabularyError::Source { word: word.0.clone() });
        }
        let end = shared[END];
        let mut words = vec![None; shared.len()];
        for (word, id) in shared {
            let expected = words.len();
            match words.get_mut(id as usize) {
                Some(slot @ None) => *slot = Some(word),
                _ => {
                    return Err(VocabularyError::Ids { expected, found: id });
                }
            }
        }
        // The number of distinct ids below the length equals the number of words, so every entry is filled.
        Ok(Self { words: words.into_iter().flatten().collect(), source, end })
    }

    /// The ids of a typed sentence, ended by `</s>`.
    ///
    /// Case is ignored. Elisions (`J'ai`, straight or typographic), inversions (`parles-tu`, `a-t-il`) and marks are
    /// split; `soeur` becomes `sœur`; accents may be composed or combining. `!` and `…` become a full stop, other
    /// marks (commas, quotes, brackets) are removed. A text without words is `</s>` alone.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, UnknownWord> {
        let mut ids = Vec::new();
        let mut ended = false;
        for piece in normal(text).split_whitespace() {
            let mark = piece == "." || piece == "?";
            // "?!" and "..." are one mark, and a mark at the start of a sentence is skipped.
            if mark && (ended || ids.is_empty()) {
                continue;
            }
            self.split(piece, &mut ids)?;
            ended = mark;
        }
        ids.push(self.end);
        Ok(ids)
    }

    /// Encodes one piece without spaces: elided words, the word, and inverted words after it. The whole piece is
    /// tried first, because `aujourd'hui` and `est-ce` are words.
    fn split(&self, mut piece: &str, ids: &mut Vec<u32>) -> Result<(), UnknownWord> {
        loop {
            if let Some(id) = self.id(piece) {
                ids.push(id);
                return Ok(());
            }
            let (elided, rest) = piece.split_at(piece.find('\'').map_or(0, |at| at + 1));
            match self.id(elided) {
                Some(id) if !rest.is_empty() => ids.push(id),
                _ => break,
            }
            piece = rest;
        }
        // `-t-il` contains two hyphens, so the second-last hyphen is tried first.
        let mut cuts: Vec<usize> = piece.rmatch_indices('-').take(2).map(|(at, _)| at).collect();
        cuts.retain(|at| *at > 0);
        for at in cuts.into_iter().rev() {
            let (verb, subject) = piece.split_at(at);
            if let Some(subject) = self.id(subject) {
                let verb = self.id(verb).ok_or_else(|| self.unknown(verb))?;
                ids.extend([verb, subject]);
                return Ok(());
            }
        }
        Err(self.unknown(piece))
    }

    fn id(&self, word: &str) -> Option<u32> {
        if word.len() > LONGEST {
            return None;
        }
        let found = self.source.get(word);
        found.or_else(|| self.source.get(&word.replace("oe", "œ"))).copied()
    }

    /// The error for an unknown word, with at most three suggestions whose edit distance is at most a third of its
    /// letters plus one.
    fn unknown(&self, word: &str) -> UnknownWord {
        let known = self.source.keys().map(String::as_str);
        let known = known.filter(|known| known.contains(char::is_alphabetic));
        let nearest = nearest_words::nearest(word, known, 1);
        UnknownWord { word: word.to_string(), nearest }
    }

    /// The sentence of some ids, up to the first `</s>`, in lower case.
    ///
    /// Marks, `'s` and `-tu` are joined to the word before them, elided words to the word after them. Padding is
    /// omitted. An id outside the vocabulary is written as `<unk>`.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        for &id in ids {
            let word = self.words.get(id as usize).map_or(UNKNOWN, String::as_str);
            match word {
                END => break,
                PAD => continue,
                _ => {}
            }
            let joins = matches!(word, "." | "?") || word.starts_with(['\'', '-']);
            if !(text.is_empty() || joins || text.ends_with('\'')) {
                text.push(' ');
            }
            text.push_str(word);
        }
        text
    }
}

/// Converts to lower case, normalizes apostrophes, hyphens and accents, and puts spaces around marks.
fn normal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars().flat_map(char::to_lowercase) {
        match letter {
            '’' | '‘' | 'ʼ' | '´' | '`' | '′' => out.push('\''),
            '‐' | '‑' => out.push('-'),
            '.' | '!' | '…' => out.push_str(" . "),
            '?' => out.push_str(" ? "),
            ',' | ';' | ':' | '"' | '«' | '»' | '“' | '”' | '„' | '(' | ')' | '[' | ']' | '–'
            | '—' => out.push(' '),
            '\u{300}' | '\u{301}' | '\u{302}' | '\u{308}' | '\u{327}' => match out.pop() {
                Some(plain) => out.extend(composed(plain, letter)),
                None => out.push(letter),
            },
            other => out.push(other),
        }
    }
    out
}

/// Composes a French letter with the accent that follows it; returns both unchanged if there is no composed letter.
fn composed(plain: char, accent: char) -> impl Iterator<Item = char> {
    const ACCENTS: [(char, &str, &str); 5] = [
        ('\u{300}', "aeu", "àèù"),
        ('\u{301}', "e", "é"),
        ('\u{302}', "aeiou", "âêîôû"),
        ('\u{308}', "eiu", "ëïü"),
        ('\u{327}', "c", "ç"),
    ];
    let one = ACCENTS.iter().filter(|row| row.0 == accent).find_map(|row| {
        let at = row.1.chars().position(|letter| letter == plain)?;
        row.2.chars().nth(at)
    });
    let two = if one.is_none() { Some(accent) } else { None };
    [Some(one.unwrap_or(plain)), two].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 26] = [
        END,
        UNKNOWN,
        "j'",
        "l'",
        "qu'",
        "d'",
        "ai",
        "a",
        "étudiant",
        "est-ce",
        "est",
        "que",
        "où",
        "mange",
        "-tu",
        "-t-il",
        "-il",
        "aujourd'hui",
        "sœur",
        "ma",
        ".",
        "?",
        "teacher",
        "'s",
        "book",
        PAD,
    ];

    /// A map from words to ids that start at `first`.
    fn json(words: &[&str], first: usize) -> String {
        let entry = |(i, word)| format!("{}:{}", serde_json::json!(word), first + i);
        let entries: Vec<String> = words.iter().enumerate().map(entry).collect();
        format!("{{{}}}", entries.join(","))
    }

    fn small() -> Vocabulary {
        Vocabulary::from_json(&json(&WORDS, 0), &json(&WORDS[2..22], 2)).unwrap()
    }

    fn tokens(text: &str) -> Vec<&'static str> {
        small().encode(text).unwrap().into_iter().map(|id| WORDS[id as usize]).collect()
    }

    #[test]
    fn splits_what_people_type() {
        let cases: &[(&str, &[&str])] = &[
            ("J'ai", &["j'", "ai"]),
            ("J’AI.", &["j'", "ai", "."]),
            ("j' ai", &["j'", "ai"]),
            ("L'étudiant", &["l'", "étudiant"]),
            ("l\u{2018}e\u{301}tudiant", &["l'", "étudiant"]),
            ("L'E\u{301}TUDIANT", &["l'", "étudiant"]),
            ("Où\u{a0}est-il\u{202f}?", &["où", "est", "-il", "?"]),
            ("Qu'est-ce que?!", &["qu'", "est-ce", "que", "?"]),
            ("a\u{2011}t\u{2011}il mange-tu", &["a", "-t-il", "mange", "-tu"]),
            ("mange -t-il", &["mange", "-t-il"]),
            ("d'aujourd'hui...", &["d'", "aujourd'hui", "."]),
            ("« Ma soeur », ma sœur !", &["ma", "sœur", "ma", "sœur", "."]),
            ("", &[]),
            (" ?! . ", &[]),
        ];
        for (text, expected) in cases {
            let mut expected = expected.to_vec();
            expected.push(END);
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    #[test]
    fn names_the_unknown_word_and_its_neighbors() {
        let error = small().encode("l'etudient").unwrap_err();
        assert_eq!(
            error,
            UnknownWord { word: "etudient".into(), nearest: vec!["étudiant".into()] }
        );
        assert_eq!(
            error.to_string(),
            "the model does not know the word \"etudient\"; near it: étudiant"
        );
        // Words of the other side and special tokens are not source words.
        for text in
            ["teacher", "<pad>", "<unk>x", "xyzzyxyzzy", "'", "-", "j'x", "</s>", "-tu-x", "123"]
        {
            let error = small().encode(text).unwrap_err();
            assert!(
                !error.word.is_empty() && !error.nearest.iter().any(|n| n.starts_with('<')),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn long_nonsense_is_an_error() {
        for piece in ["j'", "-tu", "-", "'", "oe", "é\u{301}", "x"] {
            let text = piece.repeat(100_000) + "zq";
            assert!(small().encode(&text).is_err(), "{piece}");
        }
        // A verb is inverted once; the error names the unknown part.
        assert_eq!(small().encode("mange-tu-tu").unwrap_err().word, "mange-tu");
        assert_eq!(small().encode("mangue-t-il").unwrap_err().nearest, ["mange"]);
    }

    #[test]
    fn joins_again() {
        let id = |word: &str| WORDS.iter().position(|w| *w == word).unwrap() as u32;
        let join =
            |words: &[&str]| small().decode(&words.iter().map(|w| id(w)).collect::<Vec<_>>());
        assert_eq!(join(&["a", "teacher", "'s", "book", "?", END, "book"]), "a teacher's book?");
        assert_eq!(
            join(&[PAD, "qu'", "est-ce", "que", "mange", "-t-il", "?"]),
            "qu'est-ce que mange-t-il?"
        );
        assert_eq!(small().decode(&[id("book"), 26, u32::MAX]), "book <unk> <unk>");
        assert_eq!(small().decode(&[]), "");
    }

    #[test]
    fn refuses_a_broken_vocabulary() {
        let broken = |shared: &str, source: &str| {
            Vocabulary::from_json(shared, source).err().unwrap().to_string()
        };
        assert!(broken("[1]", "{}").starts_with("expected a JSON object"));
        assert!(broken(r#"{"a":-1}"#, "{}").starts_with("expected a JSON object"));
        assert_eq!(broken(&json(&WORDS[..25], 0), "{}"), "expected the token <pad>, found none");
        let gap = json(&WORDS, 0).replace("\"book\":24", "\"book\":26");
        assert_eq!(
            broken(&gap, "{}"),
            "expected each id below 26 once, found id 26 again or too large"
        );
        let twice = json(&WORDS, 0).replace("\"book\":24", "\"book\":3");
        assert!(broken(&twice, "{}").contains("found id 3"));
        assert!(broken(&json(&WORDS, 0), r#"{"maison":3}"#).contains("\"maison\""));
        assert!(Vocabulary::read(Path::new("no/such/folder")).is_err());
    }
}
