//! Known words whose spelling is close to that of another word.

/// The most words that are suggested.
const MOST: usize = 3;
/// The letters of a word that are compared.
const LONGEST: usize = 64;

/// The words of `known` that differ from `word` in at most a third of its letters and `more`: at most three, those that differ
/// least first, equal ones in the order of their letters. Words that have no letter in common are not close. Capitals are equal
/// to small letters.
///
/// ```
/// use simdformer_tokenize::nearest;
///
/// assert_eq!(nearest("etudiant", ["maison", "\u{e9}tudiante", "\u{e9}tudiant"], 1), ["\u{e9}tudiant", "\u{e9}tudiante"]);
/// ```
#[must_use]
pub fn nearest<'k>(
    word: &str,
    known: impl IntoIterator<Item = &'k str>,
    more: usize,
) -> Vec<String> {
    let letters: Vec<char> = word.chars().flat_map(char::to_lowercase).take(LONGEST).collect();
    let most = letters.len() / 3 + more;
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|known| (distance(&letters, known), known))
        .filter(|(far, _)| *far <= most && *far < letters.len())
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, known)| known.to_owned()).collect()
}

/// The Levenshtein distance from `a` to `b` in small letters: insertions, deletions and changes of a letter.
fn distance(a: &[char], b: &str) -> usize {
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, right) in b.chars().flat_map(char::to_lowercase).take(2 * LONGEST).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, left) in a.iter().enumerate() {
            let changed = diagonal + usize::from(*left != right);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[a.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_levenshteins() {
        let far = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!(far("", ""), 0);
        assert_eq!(far("kitten", "sitting"), 3);
        assert_eq!(far("chat", "chats"), 1);
        assert_eq!(far("", "chat"), 4);
        assert_eq!(far("\u{e9}tudiant", "\u{c9}TUDIANT"), 0);
    }
}
