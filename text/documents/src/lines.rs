//! Lines of a text: their columns, how two of them are joined, and whether a sentence may end with one.

/// Whether a character takes two columns of a terminal or of a text in a fixed font.
pub(crate) fn is_wide(c: char) -> bool {
    matches!(u32::from(c),
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f
        | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1_f300..=0x1_faff | 0x2_0000..=0x3_fffd)
}

/// Whether a line break between two characters stands for no space: between ideographs, kana and their punctuation.
/// Korean has spaces.
#[must_use]
pub fn join_without_space(before: char, after: char) -> bool {
    fn no_spaces(c: char) -> bool {
        matches!(u32::from(c),
            0x2e80..=0x312f | 0x3190..=0xa4cf | 0xf900..=0xfaff | 0xfe30..=0xfe4f | 0xff00..=0xffef
            | 0x2_0000..=0x3_fffd)
    }
    no_spaces(before) && no_spaces(after)
}

/// The columns of a text in a fixed font: two for an ideograph or an emoji.
///
/// ```
/// use simdformer_documents::lines::count_columns;
/// assert_eq!(count_columns("a 漢字"), 6);
/// ```
#[must_use]
pub fn count_columns(text: &str) -> usize {
    text.chars().map(|c| if is_wide(c) { 2 } else { 1 }).sum()
}

/// Whether a sentence may end with a line of subtitles: a terminator is among its last signs, or it has no letter. Tags at the
/// end are passed over.
#[must_use]
pub fn ends_sentence(line: &str) -> bool {
    let mut line = line.trim_end();
    while let Some(tag) = line.strip_suffix('>').and_then(|line| line.rfind('<')) {
        line = line[..tag].trim_end();
    }
    let end = line.rfind(char::is_alphanumeric).unwrap_or(0);
    let signs = &line[end..];
    !line.contains(char::is_alphabetic)
        || signs.contains(['.', '!', '?', '…', '。', '！', '？', '؟', '۔', '।', '።', '։', '♪'])
}
