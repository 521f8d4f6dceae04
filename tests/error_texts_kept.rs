//! The texts of errors before this crate had one error type. The new texts say everything that the old ones said.
//!
//! `golden/error_texts_before.tsv` has one line for each kind of text: the old text, a tab, and the new text, which
//! other tests compare with an error.

use crate::compare_texts::compare_texts;

/// Words that say nothing about a mistake, or whose meaning the form "operand: expected .., found .." has.
const EMPTY: &str = "a addressed all an and are as asked at be before begins but can cannot claims does ends for has have \
    holds in is it its larger limit may more must need needed needs no nor not of one ones only option \
    outside request requested stands stored such supported takes than that the there this was were which \
    wrong";

#[test]
fn no_text_has_lost_a_word() {
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
    let table = include_str!("golden/error_texts_before.tsv");
    let [kinds, compared] = compare_texts(table, &tests, EMPTY);
    assert!(kinds >= 140 && compared >= 1_100, "{kinds} texts, {compared} words");
}
