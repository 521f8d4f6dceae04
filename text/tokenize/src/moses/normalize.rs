//! Punctuation as Moses normalizes it before it divides a text into words: typographic quotes and dashes become those of
//! ASCII, spaces beside parentheses and punctuation are removed.

use super::classes::{is_digit, is_space};
use super::letters::{Letter, Letters};

/// Before the space rules of `)` and `%`.
const PARENTHESES: [(&str, &str); 3] = [("\r", ""), ("(", " ("), (")", ") ")];
const SPACES: [(&str, &str); 2] = [("( ", "("), (" )", ")")];
/// In this order: a later rule reads what an earlier one has written.
const QUOTES: [(&str, &str); 9] = [
    (" :", ":"),
    (" ;", ";"),
    ("`", "'"),
    ("''", " \" "),
    ("„", "\""),
    ("“", "\""),
    ("”", "\""),
    ("–", "-"),
    ("—", " - "),
];
const MARKS: [(&str, &str); 21] = [
    ("´", "'"),
    ("‘", "'"),
    ("‚", "'"),
    ("’", "'"),
    ("''", "\""),
    ("…", "..."),
    ("\u{a0}«\u{a0}", "\""),
    ("«\u{a0}", "\""),
    ("«", "\""),
    ("\u{a0}»\u{a0}", "\""),
    ("\u{a0}»", "\""),
    ("»", "\""),
    ("\u{a0}%", "%"),
    ("nº\u{a0}", "nº "),
    ("\u{a0}:", ":"),
    ("\u{a0}ºC", " ºC"),
    ("\u{a0}cm", " cm"),
    ("\u{a0}?", "?"),
    ("\u{a0}!", "!"),
    ("\u{a0};", ";"),
    (",\u{a0}", ", "),
];

/// Normalizes a text of the language `code`.
pub(super) fn normalize(text: &mut Letters, code: &str) {
    let all = |text: &mut Letters, rules: &[(&str, &str)]| {
        rules.iter().for_each(|(from, to)| text.replace(from, to));
    };
    let squeeze = |text: &mut Letters| text.join(|char| char == ' ');
    all(text, &PARENTHESES);
    squeeze(text);
    text.rewrite(|rest, out| match rest {
        [close, space, mark, ..]
            if close.char == ')' && space.char == ' ' && ".!:?;,".contains(mark.char) =>
        {
            out.extend([*close, *mark]);
            3
        }
        _ => 0,
    });
    all(text, &SPACES);
    text.rewrite(|rest, out| match rest {
        [digit, space, percent, ..]
            if is_digit(digit.char) && space.char == ' ' && percent.char == '%' =>
        {
            out.extend([*digit, *percent]);
            3
        }
        _ => 0,
    });
    all(text, &QUOTES);
    squeeze(text);
    all(text, &MARKS);
    squeeze(text);
    match code {
        "en" => commas_before_quotes(text),
        "de" | "es" | "fr" => {
            text.replace(",\"", "\",");
            periods_after_quotes(text);
        }
        _ => (),
    }
    let separator = if matches!(code, "de" | "es" | "cz" | "cs" | "fr") { ',' } else { '.' };
    text.rewrite(|rest, out| match rest {
        [a, space, b, ..] if is_digit(a.char) && space.char == '\u{a0}' && is_digit(b.char) => {
            out.extend([*a, space.with(separator), *b]);
            3
        }
        _ => 0,
    });
}

/// English: `",` becomes `,"`.
fn commas_before_quotes(text: &mut Letters) {
    text.rewrite(|rest, out| {
        let Some((quote, after)) = rest.split_first().filter(|(quote, _)| quote.char == '"') else {
            return 0;
        };
        let marks = after.iter().take_while(|letter| matches!(letter.char, ',' | '.')).count();
        if marks == 0 {
            return 0;
        }
        out.extend_from_slice(&after[..marks]);
        out.push(*quote);
        marks + 1
    });
}

/// German, Spanish and French: `."` becomes `".`, but not at the end of the text and not before `<`.
fn periods_after_quotes(text: &mut Letters) {
    text.rewrite(|rest, out: &mut Vec<Letter>| {
        let periods = rest.iter().take_while(|letter| letter.char == '.').count();
        if periods == 0 {
            return 0;
        }
        let (before, after) = rest.split_at(periods);
        let quote = after.first().filter(|letter| letter.char == '"');
        let (Some(quote), Some(next)) = (quote, after.get(1).filter(|next| next.char != '<'))
        else {
            out.extend_from_slice(before);
            return periods;
        };
        out.push(*quote);
        out.extend_from_slice(before);
        // What follows is part of the match, so that it begins no other one.
        let spaces = after[1..].iter().take_while(|letter| is_space(letter.char)).count();
        let ends = after.get(1 + spaces).is_some_and(|letter| letter.char != '<');
        let kept = if is_space(next.char) { spaces + usize::from(ends) } else { 1 };
        out.extend_from_slice(&after[1..1 + kept]);
        periods + 1 + kept
    });
}
