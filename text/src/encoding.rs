//! An encoded text.

/// A text, encoded for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encoded {
    /// The source ids, including special tokens.
    pub ids: Vec<u32>,
    /// The type of each id: 1 for the second text of a pair if the family uses types (BERT), otherwise 0.
    pub types: Vec<u32>,
    /// The first tokens of the decoder: its start token, or a prompt that begins with it. Empty if the directory does
    /// not define them.
    pub prefix: Vec<u32>,
    /// The forced first output token: the target language in some families.
    pub forced_bos: Option<u32>,
    /// Whether the text had more tokens than the model's limit, so that `ids` are only the first of them.
    pub truncated: bool,
    /// The number of tokens of the whole text, including special ones.
    pub tokens: usize,
    /// Whether the text is blank: its translation is empty, whatever the model would produce.
    pub blank: bool,
}
