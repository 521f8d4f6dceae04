//! The texts of errors before this crate had one error type. The new texts say everything that the old ones said.
//!
//! `golden/error_texts_before.tsv` has one line for each kind of text: the old text, a tab, and the new text, which
//! other tests compare with an error.

/// Words that say nothing about a mistake, or whose meaning the form "operand: expected .., found .." has.
const EMPTY: [&str; 59] = [
    "a",
    "addressed",
    "all",
    "an",
    "and",
    "are",
    "as",
    "asked",
    "at",
    "be",
    "before",
    "begins",
    "but",
    "can",
    "cannot",
    "claims",
    "does",
    "ends",
    "for",
    "has",
    "have",
    "holds",
    "in",
    "is",
    "it",
    "its",
    "larger",
    "limit",
    "may",
    "more",
    "must",
    "need",
    "needed",
    "needs",
    "no",
    "nor",
    "not",
    "of",
    "one",
    "ones",
    "only",
    "option",
    "outside",
    "request",
    "requested",
    "stands",
    "stored",
    "such",
    "supported",
    "takes",
    "than",
    "that",
    "the",
    "there",
    "this",
    "was",
    "were",
    "which",
    "wrong",
];

/// The words, names and numbers of a text. A name keeps its points and underscores.
fn words(text: &str) -> impl Iterator<Item = String> {
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    let parts = text.split(move |c| !in_name(c));
    parts.map(|part| part.trim_matches(['.', '-']).to_lowercase()).filter(|part| !part.is_empty())
}

#[test]
fn no_text_has_lost_a_word() {
    let (mut kinds, mut compared) = (0, 0);
    let tests = [
        include_str!("broken_checkpoint.rs"),
        include_str!("cancel.rs"),
        include_str!("checkpoint.rs"),
        include_str!("config.rs"),
        include_str!("error_chains.rs"),
        include_str!("embedding_smoke/src/guarantees.rs"),
        include_str!("engine.rs"),
        include_str!("error_texts.rs"),
        include_str!("families.rs"),
        include_str!("features.rs"),
        include_str!("fingerprint.rs"),
        include_str!("giant_files.rs"),
        include_str!("loading.rs"),
        include_str!("mixed_options.rs"),
        include_str!("packed_files.rs"),
        include_str!("requests.rs"),
        include_str!("saving.rs"),
        include_str!("session_errors.rs"),
        include_str!("shared_weights.rs"),
        include_str!("speculative_verify.rs"),
        include_str!("task_heads.rs"),
        include_str!("torch_files.rs"),
        include_str!("trace.rs"),
        include_str!("train/traps.rs"),
        include_str!("weight_dtypes.rs"),
        include_str!("weights_in_memory.rs"),
    ];
    // Literals that continue on the next line, and quotation marks in them.
    let joined = tests.concat().replace("\\\"", "\"");
    let tests: String = joined.split("\\\n").map(|part| part.trim_start_matches(' ')).collect();
    for line in include_str!("golden/error_texts_before.tsv").lines() {
        let (old, new) = line.split_once('\t').expect("two texts");
        let lower = new.to_lowercase();
        for word in words(old) {
            let kept = EMPTY.contains(&&*word) || lower.contains(&word);
            assert!(kept, "{word:?} of {old:?} is not in {new:?}");
            compared += 1;
        }
        assert!(tests.contains(new), "no test expects {new:?}");
        kinds += 1;
    }
    assert!(kinds >= 140 && compared >= 1_100, "{kinds} texts, {compared} words");
}
