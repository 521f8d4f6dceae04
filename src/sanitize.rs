//! Text out of a file, as a person may see it: whoever quotes one in an error passes it through here.

/// At most `most` characters of `text`; those that would move the cursor or turn the line around are written out.
pub(crate) fn sanitized(text: &str, most: usize) -> String {
    let mut short = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == most {
            short.push_str("...");
            break;
        }
        // Marks of direction, and what is not seen at all.
        let hidden = matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if character.is_control() || hidden {
            short.extend(character.escape_unicode());
        } else {
            short.push(character);
        }
    }
    short
}

/// At most `most` characters of `text` in quotation marks, as a literal of Rust writes them: every character that a
/// terminal would obey, or that is not seen, is escaped once.
pub(crate) fn quoted(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::{quoted, sanitized};

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(sanitized("modèle.名前", 400), "modèle.名前");
        assert_eq!(sanitized("a\u{1b}[31mb\u{202e}c\0", 400), "a\\u{1b}[31mb\\u{202e}c\\u{0}");
        assert_eq!(sanitized("abcdef", 3), "abc...");
    }

    #[test]
    fn what_is_quoted_is_escaped_once() {
        assert_eq!(quoted("modèle.名前", 400), "\"modèle.名前\"");
        assert_eq!(
            quoted("a\u{1b}[31mb\u{202e}\"c\\\0\n", 400),
            r#""a\u{1b}[31mb\u{202e}\"c\\\0\n""#
        );
        assert_eq!(
            (quoted("abcdef", 3), quoted("abc", 3)),
            ("\"abc...\"".to_owned(), "\"abc\"".to_owned())
        );
        for hidden in ['\u{200b}', '\u{200f}', '\u{2066}', '\u{feff}', '\u{7f}', '\u{9b}'] {
            assert!(quoted(&hidden.to_string(), 9).is_ascii(), "{:x}", u32::from(hidden));
        }
    }
}
