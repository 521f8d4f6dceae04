//! The spelling of a sentence. Phrases consist of plain words; changes between neighboring words are applied here,
//! once.

use super::lexicon::starts_with_vowel;

const ELIDED: [&str; 8] = ["je", "me", "te", "le", "la", "ne", "de", "que"];

/// `de le`: `du`.
fn contracted(one: &str, two: &str) -> Option<&'static str> {
    match (one, two) {
        ("de", "le") => Some("du"),
        ("de", "les") => Some("des"),
        ("à", "le") => Some("au"),
        ("à", "les") => Some("aux"),
        _ => None,
    }
}

/// French with its elisions (`le ami`: `l' ami`) and contractions, one space between words.
pub(super) fn french(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let word = |i: usize| words.get(i).copied().unwrap_or(".");
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut i = 0;
    while i < words.len() {
        let (this, after, beyond) = (word(i), word(i + 1), word(i + 2));
        let kept = after == "le" && starts_with_vowel(beyond);
        if let Some(one) = contracted(this, after).filter(|_| !kept) {
            out.push(one.to_string());
            i += 2;
            continue;
        }
        let mut this = this.to_string();
        if ELIDED.contains(&this.as_str()) && starts_with_vowel(after) {
            this.pop();
            this.push('\'');
        }
        out.push(this);
        i += 1;
    }
    out.join(" ")
}

/// English with `an` before vowels, one space between words.
pub(super) fn english(text: &str) -> String {
    let mut words: Vec<_> = text.split_whitespace().collect();
    for i in 1..words.len() {
        let after = words[i];
        if words[i - 1] == "a"
            && after.starts_with(['a', 'e', 'i', 'o', 'u'])
            && after != "university"
        {
            words[i - 1] = "an";
        }
    }
    words.join(" ")
}
