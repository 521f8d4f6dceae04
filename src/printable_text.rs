//! Makes text from a file safe to print in an error message.

/// At most `most` characters of `text`. Control characters and characters that change the text direction are escaped.
pub(crate) fn sanitized(text: &str, most: usize) -> String {
    let mut short = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == most {
            short.push_str("...");
            break;
        }
        // Direction marks and invisible characters.
        let hidden = matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if character.is_control() || hidden {
            short.extend(character.escape_unicode());
        } else {
            short.push(character);
        }
    }
    short
}

/// At most `most` characters of `text` in quotation marks, as a Rust literal. Control characters and invisible
/// characters are escaped once.
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
    fn control_characters_are_escaped() {
        assert_eq!(sanitized("modèle.名前", 400), "modèle.名前");
        assert_eq!(sanitized("a\u{1b}[31mb\u{202e}c\0", 400), "a\\u{1b}[31mb\\u{202e}c\\u{0}");
        assert_eq!(sanitized("abcdef", 3), "abc...");
    }

    #[test]
    fn quoted_text_is_escaped_once() {
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
