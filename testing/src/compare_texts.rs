//! Compares the texts of errors before they became kinds of one error with those that tests expect now.

/// The words, names and numbers of a text. A name keeps its points and underscores.
fn words(text: &str) -> impl Iterator<Item = String> {
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    let parts = text.split(move |c| !in_name(c));
    parts.map(|part| part.trim_matches(['.', '-']).to_lowercase()).filter(|part| !part.is_empty())
}

/// Panics unless each new text of `table`, lines of an old and a new text, has the words of the old one, except those that are
/// `empty`, and stands in one of `tests`. Returns the number of texts and of words.
pub fn compare_texts(table: &str, tests: &[&str], empty: &str) -> [usize; 2] {
    let [mut texts, mut compared] = [0, 0];
    // Literals that continue on the next line, and quotation marks in them.
    let joined = tests.concat().replace("\\\"", "\"");
    let tests: String = joined.split("\\\n").map(|part| part.trim_start_matches(' ')).collect();
    for line in table.lines() {
        let (old, new) = line.split_once('\t').expect("two texts");
        let lower = new.to_lowercase();
        for word in words(old) {
            let kept = empty.split_whitespace().any(|one| one == word) || lower.contains(&word);
            assert!(kept, "{word:?} of {old:?} is not in {new:?}");
            compared += 1;
        }
        assert!(tests.contains(new), "no test expects {new:?}");
        texts += 1;
    }
    [texts, compared]
}
