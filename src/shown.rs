//! Text out of a file, as a person may see it: whoever quotes one in an error passes it through here.

/// At most `most` characters of `text`; those that would move the cursor or turn the line around are written out.
pub(crate) fn shown(text: &str, most: usize) -> String {
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

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(shown("modèle.名前", 400), "modèle.名前");
        assert_eq!(shown("a\u{1b}[31mb\u{202e}c\0", 400), "a\\u{1b}[31mb\\u{202e}c\\u{0}");
        assert_eq!(shown("abcdef", 3), "abc...");
    }
}
