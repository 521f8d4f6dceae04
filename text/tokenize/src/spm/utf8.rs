//! Characters and bytes of text that may be invalid UTF-8.

/// The length of the first character of `text`, from its first byte, at most the length of `text`.
pub(super) fn character_len(text: &[u8]) -> usize {
    let len = match text.first() {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    len.min(text.len())
}

/// The byte that `<0xNN>` represents.
pub(super) fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let upper = |digit: u8| digit.is_ascii_digit() || (b'A'..=b'F').contains(&digit);
    (digits.len() == 2 && digits.bytes().all(upper)).then(|| u8::from_str_radix(digits, 16).ok())?
}
