//! Finds a language by its code, and suggests similar codes.

use crate::error::Error;
use crate::languages::Language;

/// The language with exactly this code.
pub(crate) fn find<'l>(code: &str, languages: &'l [Language]) -> Result<&'l Language, Error> {
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
