//! A text as a model wants it.

/// A text as a model wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encoded {
    /// The source's ids, special tokens included.
    pub ids: Vec<u32>,
    /// The type of each id: 1 for the second text of a pair where the family says so (BERT), otherwise 0.
    pub types: Vec<u32>,
    /// What the decoder begins with: its start token, or a prompt that begins with it. Empty if the
    /// directory does not say.
    pub prefix: Vec<u32>,
    /// The token that must come first: the target language of some families.
    pub forced_bos: Option<u32>,
    /// The text had more tokens than the model takes, and `ids` are the first of them.
    pub truncated: bool,
    /// How many tokens the whole text has, special ones included.
    pub tokens: usize,
    /// There is nothing in the text: its translation is nothing, whatever a model would make of it.
    pub blank: bool,
}
