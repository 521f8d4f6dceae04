//! The escapes in strings of JSON.

/// The error says where an escape is that stands for no character, and what was expected.
pub(super) fn check(string: &str) -> Result<(), (usize, &'static str)> {
    let mut at = 0;
    while let Some(length) = string.get(at..).and_then(|rest| rest.find('\\')) {
        at += length;
        let rest = &string[at..];
        let Some((_, length)) = decode(rest) else {
            let digits = rest.strip_prefix("\\u").and_then(|digits| digits.get(..4));
            let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
            let half = unit.is_some_and(|unit| (0xd800..0xe000).contains(&unit));
            return Err(match half {
                true => (at, "both halves of a surrogate pair (\\ud800 to \\udfff)"),
                false => (at, "an escape of JSON after the backslash"),
            });
        };
        at += length;
    }
    Ok(())
}

/// The character of the escape that `text` begins with, and the length of the escape.
pub(super) fn decode(text: &str) -> Option<(char, usize)> {
    let c = match text.as_bytes().get(1)? {
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => {
            let unit = |at: usize| {
                let digits =
                    text.get(at..at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
                u16::from_str_radix(digits, 16).ok()
            };
            let first = unit(2)?;
            if let Some(c) = char::from_u32(u32::from(first)) {
                return Some((c, 6));
            }
            let second = unit(8).filter(|_| text.get(6..8) == Some("\\u"))?;
            return Some((char::decode_utf16([first, second]).next()?.ok()?, 12));
        }
        byte @ (b'"' | b'\\' | b'/') => char::from(*byte),
        _ => return None,
    };
    Some((c, 2))
}
