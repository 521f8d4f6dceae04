//! Thai has no full stop: sentences end at spaces, and so do phrases. The words around a space and the lengths of the
//! phrases decide.

use super::characters::is_thai;
use super::lexicon::Lexicon;

/// After fewer characters no sentence ends without a particle.
const SENTENCE: usize = 18;
/// A phrase of fewer characters does not begin a sentence unless its first word often does.
const PHRASE: usize = 8;
/// After fewer characters, such a word does not begin a sentence.
const BEFORE_STARTER: usize = 12;
/// How many characters of the first phrase of a sentence are read.
const LONGEST: usize = 400;
/// How many characters of the next phrase are read.
const AHEAD: usize = 48;

/// Polite particles and particles of questions, which end a sentence.
const FINAL: [&str; 9] = ["ครับ", "ค่ะ", "คะ", "นะ", "ไหม", "มั้ย", "หรือยัง", "หรือเปล่า", "จ้ะ"];
/// What introduces the next phrase: `such as`, `that is`, `that`, `and`, `or`, `but`.
const INTRODUCING: [&str; 7] = ["เช่น", "คือ", "ว่า", "ได้แก่", "และ", "หรือ", "แต่"];
/// What a clause begins with that the main clause follows: `if`, `when`, `although`, `for`, `after`, `because`.
const SUBORDINATE: [&str; 9] = ["หาก", "ถ้า", "เมื่อ", "แม้", "สำหรับ", "ตาม", "หลัง", "ก่อน", "เนื่องจาก"];

/// Whether a sentence, of which `before` is the text so far, ends at the space before `rest`.
pub(super) fn ends_at_space(before: &str, rest: &str, lexicon: &Lexicon) -> bool {
    let thai = |c: Option<char>| c.is_some_and(is_thai);
    if !thai(before.chars().next_back()) || !thai(rest.chars().next()) {
        return false;
    }
    let starts = |words: &[&str]| words.iter().any(|word| rest.starts_with(word));
    let ends = |words: &[&str]| words.iter().any(|word| before.ends_with(word));
    let length = |count: usize| before.chars().nth(count).is_some();
    // A mark of repetition or of an abbreviation.
    if before.ends_with(['ๆ', 'ฯ']) && !length(SENTENCE) || ends(&INTRODUCING) {
        return false;
    }
    if ends(&FINAL) {
        return true;
    }
    if starts(lexicon.conjunctions()) || rest.starts_with(['ๆ', 'ฯ']) {
        return false;
    }
    let subordinate = SUBORDINATE.iter().any(|word| before.starts_with(word));
    // A phrase is not longer than this.
    if subordinate && !before.chars().take(LONGEST).any(char::is_whitespace) {
        return false;
    }
    // `he said` after a quotation.
    let until = rest.char_indices().nth(AHEAD).map_or(rest.len(), |(at, _)| at);
    let phrase = rest[..until].split_whitespace().next().unwrap_or("");
    if phrase.contains("กล่าว") {
        return false;
    }
    length(BEFORE_STARTER) && starts(lexicon.starters())
        || length(SENTENCE) && phrase.chars().nth(PHRASE - 1).is_some()
}
