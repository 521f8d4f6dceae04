//! Limits of a checkpoint's files. A small file must not use gigabytes of memory or minutes of time, so each limit is
//! checked before the memory that it bounds is allocated. Each limit is well above the values of published
//! checkpoints.

/// The most bytes and JSON values of a file. Bytes alone do not bound memory: a value of a tree takes 32 bytes, but `0,`
/// in the file takes two.
#[derive(Clone, Copy, Debug)]
pub struct FileLimit {
    /// Bytes of the file.
    pub bytes: u64,
    /// Values in it: texts, numbers, lists, objects.
    pub values: usize,
}

impl FileLimit {
    /// That of `config.json`: 2 MiB and 65,536 values, as in the model's own reader. The config of a classifier with 20,000
    /// labels has 2 MiB.
    pub const CONFIG: Self = Self { bytes: 2 << 20, values: 1 << 16 };
}

/// `modules.json`, as in the model's own reader: published ones have a hundredth of it.
pub(crate) const MODULES: FileLimit = FileLimit { bytes: 1 << 16, values: 1 << 12 };

/// `tokenizer_config.json`: an added token has seven values, and [`ADDED_TOKENS`] of them are allowed. Whisper has
/// 1,600 in 280 kB.
pub(crate) const SETTINGS: FileLimit = FileLimit { bytes: 16 << 20, values: 1 << 19 };

/// `vocab.json`: M2M100 has 128,000 entries in 4 MB.
pub(crate) const VOCABULARY: FileLimit = FileLimit { bytes: 64 << 20, values: 1 << 20 };

/// `tokenizer.json`: NLLB has 32 MB; a million pieces of three values each fit.
#[cfg(feature = "json")]
pub(crate) const TOKENIZER: FileLimit = FileLimit { bytes: 128 << 20, values: 1 << 22 };

/// Lines of `vocab.txt` and `merges.txt`: LaBSE has 501,153.
#[cfg(feature = "json")]
pub(crate) const LINES: usize = 1 << 20;

/// Bytes of a SentencePiece file: that of mT5 has 4 MB, that of XLM-V 18 MB.
pub(crate) const MODEL_BYTES: u64 = 128 << 20;

/// Bytes of a list of abbreviations: the longest of Moses has 10 kB.
pub(crate) const ABBREVIATIONS: u64 = 1 << 20;

/// Bytes of a token's text. Every position of a text is compared with the longest token, and each id is decoded to up
/// to that many bytes. The longest published tokens are runs of 128 spaces, of two bytes each.
pub(crate) const TOKEN_BYTES: usize = 1024;

/// Tokens that a file adds to the vocabulary: NLLB adds 204, Whisper 1,600.
pub(crate) const ADDED_TOKENS: usize = 1 << 16;

/// Bytes of the texts of all added tokens of a `tokenizer.json`, after normalization: sixteen for each. The automaton
/// that finds them takes about a hundred bytes per byte.
#[cfg(feature = "json")]
pub(crate) const ADDED_BYTES: usize = 1 << 20;

/// Ids of added tokens must be below this limit. No table is indexed by them.
pub(crate) const ADDED_ID: u32 = 1 << 24;

/// Output bytes per input byte of normalization, over all stages. NFKC produces 11 per byte of U+FDFA, and replacing
/// its spaces by `▁` increases that to 13.
const GROWTH: usize = 32;

/// Bytes that are added to the length of a text before the multiplication, so that a short text with a prefix fits.
const SHORT: usize = 8;

/// The maximum number of bytes of the normalized form of a text of `bytes` bytes.
pub(crate) fn normalized(bytes: usize) -> usize {
    bytes.saturating_add(SHORT).saturating_mul(GROWTH)
}

/// An upper bound on the number of values in a JSON text: one, plus one for each `[`, `{` and `,` outside strings.
/// Each value of a list follows `[` or `,`, and each value of an object follows a key that follows `{` or `,`.
/// Allocates nothing.
pub(crate) fn values(text: &[u8]) -> usize {
    let (mut count, mut inside, mut escaped) = (1, false, false);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b'[' | b'{' | b',' if !inside => count += 1,
            _ => (),
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::values;

    #[test]
    fn counts_no_less_than_there_are() {
        for (text, least, most) in [
            ("", 0, 1),
            ("1", 1, 1),
            ("[1, 2, 3]", 4, 4),
            (r#"{"a": 1, "b": [2, {"c": 3}]}"#, 6, 7),
            (r#"{"[,{\"\\": "{,,[\\\"", "b": 2}"#, 3, 3),
            (r#""\\", 1"#, 2, 2),
        ] {
            let found = values(text.as_bytes());
            assert!((least..=most).contains(&found), "{text}: {found}");
        }
    }
}
