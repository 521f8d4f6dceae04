//! Where drafts come from: what the caller knows, what the text repeats, or a model of the caller's.

/// What is known of a sentence when its next tokens are to be guessed.
#[derive(Clone, Copy, Debug, Default)]
pub struct DraftContext<'c> {
    /// Index of the source in its request.
    pub index: usize,
    /// Ids of the source; empty where there are features.
    pub source: &'c [u32],
    /// Whether the ids of source and target are those of one vocabulary.
    pub shared: bool,
    /// The target so far: decoder start, prefix, chosen tokens.
    pub target: &'c [u32],
    /// How many tokens of the target were given (decoder start and prefix).
    pub prompt_len: usize,
    /// Sentences that live, this one among them.
    pub living: usize,
}

/// Guesses what comes next. A closure of the same arguments is one as well: a small model in a session of its
/// own, for example, that [rewinds](crate::Session::rewind) to what the target turned out to be. Two in a
/// pair are the first, and the second where the first knows nothing.
///
/// ```
/// use simdformer::{DraftContext, Drafter, ReferenceDrafter, PromptLookup};
///
/// let target = [2, 30, 31, 9, 30];
/// let context = DraftContext { index: 0, source: &[], shared: false, target: &target, prompt_len: 1, living: 1 };
/// let mut draft = [0; 2];
/// // Nothing is known of this source, but that 30 was followed by 31.
/// let mut drafter = (ReferenceDrafter(&[]), PromptLookup { shortest: 1 });
/// assert_eq!(drafter.draft(&context, &mut draft), 2);
/// assert_eq!(draft, [31, 9]);
/// ```
pub trait Drafter {
    /// Writes what may come after `context.target` into `draft`, in order, and returns how many tokens these
    /// are, at most as many as there is room for; 0 where nothing is known. It is asked before every step
    /// that has room for a draft. An id outside the vocabulary is never right and ends the draft.
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> usize;

    /// As [`Drafter::draft`] of several sentences of one request, of which the search asks for all of a step
    /// at once: the number of tokens becomes [`DraftRequest::found`]. One after the other, unless a drafter has
    /// something that they can share. It may change their order.
    fn draft_all(&mut self, asked: &mut [DraftRequest<'_>]) {
        for asked in asked {
            asked.found = self.draft(&asked.context, asked.draft);
        }
    }
}

/// A sentence whose next tokens are to be guessed, and what is guessed.
#[derive(Debug, Default)]
pub struct DraftRequest<'d> {
    /// What is known of it.
    pub context: DraftContext<'d>,
    /// Where the guess goes. The search reads the memory that this slice refers to when it asks: what a drafter
    /// writes to another slice that it puts here is not read.
    pub draft: &'d mut [u32],
    /// How many tokens it has. More than the slice that was given holds count as that many.
    pub found: usize,
}

impl<F: FnMut(&DraftContext<'_>, &mut [u32]) -> usize> Drafter for F {
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> usize {
        self(context, draft)
    }
}

impl<A: Drafter, B: Drafter> Drafter for (A, B) {
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> usize {
        match self.0.draft(context, draft) {
            0 => self.1.draft(context, draft),
            found => found,
        }
    }

    fn draft_all(&mut self, asked: &mut [DraftRequest<'_>]) {
        self.0.draft_all(asked);
        // Sorting what is equal in place keeps no order, and needs no memory.
        asked.sort_unstable_by_key(|asked| asked.found > 0);
        let unknown = asked.partition_point(|asked| asked.found == 0);
        if unknown > 0 {
            self.1.draft_all(&mut asked[..unknown]);
        }
    }
}

/// Whole targets that the caller expects, one for each source of the request: a hit of a translation memory,
/// the last translation while somebody types, the source itself where it is to be corrected. Without
/// decoder start and prefix, with the end token if it is to be guessed. Where one is missing or empty,
/// nothing is guessed.
///
/// Where the target goes another way, the guess goes on behind the longest run of its last tokens that the
/// expected target has, be it that the very last is another; and where there is none, at the same place.
///
/// ```
/// use simdformer::{DraftContext, Drafter, ReferenceDrafter};
///
/// let mut expected = ReferenceDrafter(&[&[40, 41, 42, 43, 44]]);
/// let mut next = |target: &[u32]| {
///     let context = DraftContext { index: 0, source: &[], shared: false, target, prompt_len: 1, living: 1 };
///     let mut draft = [0; 2];
///     let found = expected.draft(&context, &mut draft);
///     draft[..found].to_vec()
/// };
/// assert_eq!(next(&[2]), [40, 41]);
/// assert_eq!(next(&[2, 40, 41]), [42, 43]);
/// // One token is another, one is new, one is left out; then it is at its end.
/// assert_eq!(next(&[2, 40, 99]), [42, 43]);
/// assert_eq!(next(&[2, 40, 99, 41]), [42, 43]);
/// assert_eq!(next(&[2, 40, 42]), [43, 44]);
/// assert!(next(&[2, 40, 41, 42, 43, 44]).is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceDrafter<'d>(pub &'d [&'d [u32]]);

impl Drafter for ReferenceDrafter<'_> {
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> usize {
        let expected = self.0.get(context.index).copied().unwrap_or_default();
        let generated = context.target.get(context.prompt_len..).unwrap_or_default();
        let at = goes_on(expected, generated);
        copy(expected.get(at..).unwrap_or_default(), draft)
    }
}

/// What followed the last tokens of the target where they came before, in the target or, with one vocabulary
/// for both sides, in the source: for texts that repeat themselves, and for those that keep names, numbers
/// and markup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLookup {
    /// The fewest tokens that must have come before. 1 guesses often and is often wrong.
    pub shortest: usize,
}

impl Default for PromptLookup {
    /// Two tokens.
    fn default() -> Self {
        Self { shortest: 2 }
    }
}

impl Drafter for PromptLookup {
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> usize {
        let DraftContext { source, target, shared, .. } = *context;
        let source = if shared { source } else { &[] };
        let find = |text| behind_longest(text, target, self.shortest.max(1), target.len());
        let (text, at) = match (find(target), find(source)) {
            (Some((at, len)), other) if other.is_none_or(|(_, other)| len >= other) => (target, at),
            (_, Some((at, _))) => (source, at),
            _ => return 0,
        };
        copy(&text[at..], draft)
    }
}

/// Where `expected` goes on after `target`.
fn goes_on(expected: &[u32], target: &[u32]) -> usize {
    let Some((_, before)) = target.split_last() else { return 0 };
    // As if the last token stood for another.
    let other = behind_longest(expected, before, 1, before.len()).map(|(at, run)| (at + 1, run));
    let near = other.map_or(target.len(), |(at, _)| at);
    match (behind_longest(expected, target, 1, near), other) {
        (Some((same, run)), Some((other, longer))) => {
            // Or the target left one out.
            if run >= longer || same == other + 1 { same } else { other }
        }
        (Some((at, _)), None) | (None, Some((at, _))) => at,
        (None, None) => target.len(),
    }
}

/// The most tokens that are compared.
const LONGEST: usize = 16;

/// The place in `text` behind the longest run of the last tokens of `target`, of at least `shortest`, and how
/// long it is; the one nearest to place `near` of several. Something must follow.
fn behind_longest(
    text: &[u32],
    target: &[u32],
    shortest: usize,
    near: usize,
) -> Option<(usize, usize)> {
    let last = target.last()?;
    let mut best: Option<(usize, usize)> = None;
    for at in 1..text.len() {
        if text[at - 1] != *last {
            continue;
        }
        let pairs = text[..at].iter().rev().zip(target.iter().rev()).take(LONGEST);
        let len = pairs.take_while(|(a, b)| a == b).count();
        let better = |(other, longest): (usize, usize)| {
            len > longest || len == longest && at.abs_diff(near) <= other.abs_diff(near)
        };
        if len >= shortest && best.is_none_or(better) {
            best = Some((at, len));
        }
    }
    best
}

fn copy(from: &[u32], to: &mut [u32]) -> usize {
    let count = from.len().min(to.len());
    to[..count].copy_from_slice(&from[..count]);
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_wins_then_the_nearest() {
        let text = [7, 8, 1, 9, 8, 2, 7, 8, 3, 8];
        let find = |target: &[u32], shortest, near| behind_longest(&text, target, shortest, near);
        // "7 8" at two places, "9 8" at one.
        assert_eq!(find(&[7, 8], 1, 0), Some((2, 2)));
        assert_eq!(find(&[7, 8], 1, 9), Some((8, 2)));
        assert_eq!(find(&[4, 9, 8], 1, 9), Some((5, 2)));
        // Nothing follows the last.
        assert_eq!(find(&[3, 8], 2, 0), None);
        assert_eq!(find(&[5, 8], 2, 0), None);
        assert_eq!(find(&[5, 8], 1, 0), Some((2, 1)));
        assert_eq!(find(&[], 1, 0), None);
        assert_eq!(behind_longest(&[], &[1], 1, 0), None);
    }

    #[test]
    fn a_target_that_differs_is_followed() {
        let expected = [10, 11, 12, 13, 14, 15, 9, 16, 17, 18, 9, 19];
        let next = |target: &[u32]| expected.get(goes_on(&expected, target)).copied();
        assert_eq!(next(&[]), Some(10));
        assert_eq!(next(&[10, 11, 12]), Some(13));
        // Another token, also one that stands elsewhere; then what follows.
        assert_eq!(next(&[10, 11, 99]), Some(13));
        assert_eq!(next(&[10, 11, 12, 18]), Some(14));
        assert_eq!(next(&[10, 11, 12, 18, 14]), Some(15));
        // One that is new, and one that is left out.
        assert_eq!(next(&[10, 11, 12, 99, 13]), Some(14));
        assert_eq!(next(&[10, 11, 13]), Some(14));
        assert_eq!(next(&[10, 11, 13, 14, 15, 9]), Some(16));
        assert_eq!(next(&[99, 10]), Some(11));
        assert_eq!(next(&[99, 98]), Some(12));
    }

    #[test]
    fn the_source_is_read_where_the_vocabulary_is_one() {
        let (source, target) = ([5, 6, 7, 8], [2, 9, 5, 6]);
        let mut draft = [0; 3];
        for (shared, shortest, expected) in
            [(true, 2, &[7, 8][..]), (true, 3, &[]), (false, 2, &[])]
        {
            let source = &source;
            let context = DraftContext {
                index: 0,
                source,
                shared,
                target: &target,
                prompt_len: 1,
                living: 1,
            };
            let found = PromptLookup { shortest }.draft(&context, &mut draft);
            assert_eq!(&draft[..found], expected);
        }
    }
}
