//! The languages of a model: finds one by its code, and suggests similar codes.

pub mod lists;
pub(crate) mod task_prefixes;

use crate::error::Error;

/// The languages of the source and of the target. Codes are those of the checkpoint, as
/// [`Tokenizer::languages`](crate::Tokenizer::languages) lists them.
///
/// ```
/// use simdformer_tokenize::Direction;
/// let direction = Direction { source: Some("eng_Latn"), target: Some("fra_Latn") };
/// assert_ne!(direction, Direction::default()); // what a model of one direction takes
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction<'c> {
    /// The language of the text; `None` for the checkpoint's default.
    pub source: Option<&'c str>,
    /// The language of the output.
    pub target: Option<&'c str>,
}

/// A language of a model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Language {
    code: String,
    id: u32,
}

impl Language {
    pub(crate) fn new(code: &str, id: u32) -> Self {
        Self { code: code.to_owned(), id }
    }

    /// Its code: `eng_Latn`, `en_XX`, `en`.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The token id of the language.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// The language with exactly this code.
pub(crate) fn find_language<'l>(
    code: &str,
    languages: &'l [Language],
) -> Result<&'l Language, Error> {
    if languages.is_empty() {
        return Err(Error::no_languages(code));
    }
    let at = languages.binary_search_by(|language| language.code().cmp(code));
    at.map(|at| &languages[at]).map_err(|_| Error::no_language(code, nearest(code, languages)))
}

/// The languages whose codes are the most similar to `code`, the most similar first.
fn nearest(code: &str, languages: &[Language]) -> Vec<String> {
    let wanted = simple(code);
    let mut ranked: Vec<(usize, &str)> = languages
        .iter()
        .map(|language| (distance(&wanted, &simple(language.code())), language.code()))
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().take(3).map(|(_, code)| code.to_owned()).collect()
}

fn simple(code: &str) -> Vec<char> {
    code.chars()
        .take(32)
        .flat_map(char::to_lowercase)
        .map(|c| if c == '-' { '_' } else { c })
        .collect()
}

/// Twice the edit distance in characters, except that a missing character at the end costs 1 instead of 2: `en` is a
/// prefix of `en_XX`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).map(|j| 2 * j).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = 2 * (i + 1);
        for (j, y) in b.iter().enumerate() {
            let insert = if i + 1 == a.len() { 1 } else { 2 };
            let best =
                (diagonal + 2 * usize::from(x != y)).min(row[j + 1] + 2).min(row[j] + insert);
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_codes_come_first() {
        let codes = ["eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant", "deu_Latn"];
        let languages: Vec<Language> = codes.iter().map(|code| Language::new(code, 0)).collect();
        for (code, first) in [
            ("en", "eng_Latn"),
            ("fr", "fra_Latn"),
            ("zh", "zho_Hans"),
            ("deu-latn", "deu_Latn"),
            ("ENG_LATN", "eng_Latn"),
        ] {
            assert_eq!(nearest(code, &languages)[0], first, "{code}");
        }
    }
}
