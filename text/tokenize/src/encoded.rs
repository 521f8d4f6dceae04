//! An encoded text, and the truncation of two texts that are too long for one sequence.

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

impl Encoded {
    /// Ids that are not those of a text, of which at most `most` are kept; all of type 0.
    #[must_use]
    pub fn from_ids(ids: &[u32], most: Option<usize>) -> Self {
        let kept = ids.get(..most.unwrap_or(usize::MAX)).unwrap_or(ids);
        Self {
            ids: kept.to_vec(),
            types: vec![0; kept.len()],
            prefix: Vec::new(),
            forced_bos: None,
            truncated: kept.len() < ids.len(),
            tokens: ids.len(),
            blank: false,
        }
    }
}

/// The truncated lengths of two texts of `first` and `second` tokens, with a total of at most `most`. The longer text
/// is truncated, but not below the length of the other; if that is not enough, both are truncated to half. As
/// `longest_first` of transformers.
pub(crate) fn longest_first(first: usize, second: usize, most: usize) -> (usize, usize) {
    if first.saturating_add(second) <= most {
        return (first, second);
    }
    let (short, long) = (first.min(second), first.max(second));
    let (short, long) = match most.saturating_sub(short) {
        left if left >= short => (short, left.min(long)),
        _ => (most / 2, most - most / 2),
    };
    if first <= second { (short, long) } else { (long, short) }
}

#[cfg(test)]
mod tests {
    use super::longest_first;

    #[test]
    fn the_longer_is_cut() {
        for (first, second, most, expected) in [
            (3, 4, 7, (3, 4)),
            (3, 9, 8, (3, 5)),
            (9, 3, 8, (5, 3)),
            (9, 8, 7, (4, 3)),
            (8, 9, 7, (3, 4)),
            (8, 8, 7, (3, 4)),
            (0, 5, 3, (0, 3)),
            (5, 5, 0, (0, 0)),
        ] {
            assert_eq!(longest_first(first, second, most), expected, "{first} {second} {most}");
        }
    }
}
