//! Drafters: the sources of drafts.

/// The state of a sentence for which a draft is requested.
#[derive(Clone, Copy, Debug, Default)]
pub struct DraftContext<'c> {
    /// Index of the source in its request.
    pub index: usize,
    /// Token ids of the source; empty for a source of features.
    pub source: &'c [u32],
    /// Whether source and target have the same vocabulary.
    pub shared: bool,
    /// The target so far: decoder start, prefix, chosen tokens.
    pub target: &'c [u32],
    /// Number of given tokens in the target (decoder start and prefix).
    pub prompt_len: usize,
    /// Number of active sentences, including this one.
    pub active: usize,
}

/// Proposes the next tokens of a sentence. A closure with the same arguments is a drafter too: for example a small
/// model in its own session, which [rewinds](crate::Session::rewind) to the actual target. A pair of drafters uses the
/// second one if the first returns no tokens.
///
/// ```
/// use simdformer::{DraftContext, Drafter, ReferenceDrafter, PromptLookup};
///
/// let target = [2, 30, 31, 9, 30];
/// let context = DraftContext { index: 0, source: &[], shared: false, target: &target, prompt_len: 1, active: 1 };
/// let mut draft = [0; 2];
/// // There is no reference for this source, but the target contains 30 followed by 31.
/// let mut drafter = (ReferenceDrafter(&[]), PromptLookup { shortest: 1 });
/// assert_eq!(drafter.draft(&context, &mut draft), 2);
/// assert_eq!(draft, [31, 9]);
/// ```
pub trait Drafter {
    /// Writes the proposed tokens after `context.target` to `draft`, in order. Returns their number, at most
    /// `draft.len()`; 0 for no draft. Called before every step that can verify a draft. An id outside the vocabulary is
    /// never accepted and ends the draft.
    fn draft(&mut self, context: &DraftContext<'_>, draft: &mut [u32]) -> usize;

    /// As [`Drafter::draft`] for several sentences of one request: the search calls it once per step. Writes the number
    /// of tokens to [`DraftRequest::found`]. The default calls [`Drafter::draft`] for each; an implementation can share
    /// work between them. It may change the order of the requests.
    fn draft_all(&mut self, requests: &mut [DraftRequest<'_>]) {
        for request in requests {
            request.found = self.draft(&request.context, request.draft);
        }
    }
}

/// A request for the draft of one sentence.
#[derive(Debug, Default)]
pub struct DraftRequest<'d> {
    /// The state of the sentence.
    pub context: DraftContext<'d>,
    /// Receives the draft. The search reads the memory of the slice that it passed in; tokens in another slice that a
    /// drafter stores here are not read.
    pub draft: &'d mut [u32],
    /// Number of tokens in the draft. A value above the length of the original slice counts as that length.
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

    fn draft_all(&mut self, requests: &mut [DraftRequest<'_>]) {
        self.0.draft_all(requests);
        // The order of the requests does not matter; an unstable sort does not allocate.
        requests.sort_unstable_by_key(|request| request.found > 0);
        let empty = requests.partition_point(|request| request.found == 0);
        if empty > 0 {
            self.1.draft_all(&mut requests[..empty]);
        }
    }
}

/// Drafts from expected targets, one for each source of the request: for example a match in a translation memory, the
/// last translation while a user types, or the source itself in a correction task. An expected target has no decoder
/// start and no prefix; it has an end token if that is to be drafted. There are no drafts for a missing or empty one.
///
/// If the target differs from the expected one, the draft continues after the longest match of the last tokens of the
/// target in the expected target. The very last token may differ in that match. Without a match, the draft continues
/// at the same position.
///
/// ```
/// use simdformer::{DraftContext, Drafter, ReferenceDrafter};
///
/// let mut expected = ReferenceDrafter(&[&[40, 41, 42, 43, 44]]);
/// let mut next = |target: &[u32]| {
///     let context = DraftContext { index: 0, source: &[], shared: false, target, prompt_len: 1, active: 1 };
///     let mut draft = [0; 2];
///     let found = expected.draft(&context, &mut draft);
///     draft[..found].to_vec()
/// };
/// assert_eq!(next(&[2]), [40, 41]);
/// assert_eq!(next(&[2, 40, 41]), [42, 43]);
/// // A token that differs, one that is inserted, one that is left out; then the end of the expected target.
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
        let at = continue_index(expected, generated);
        copy(expected.get(at..).unwrap_or_default(), draft)
    }
}

/// Drafts the tokens that followed an earlier occurrence of the last tokens of the target. It searches the target and,
/// with a shared vocabulary, the source. This helps for repetitive texts and for tasks that copy names, numbers and
/// markup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLookup {
    /// Minimum number of matching tokens. With 1, drafts are frequent and often wrong.
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
        let find = |text| after_longest_match(text, target, self.shortest.max(1), target.len());
        let (text, at) = match (find(target), find(source)) {
            (Some((at, len)), other) if other.is_none_or(|(_, other)| len >= other) => (target, at),
            (_, Some((at, _))) => (source, at),
            _ => return 0,
        };
        copy(&text[at..], draft)
    }
}

/// The index at which `expected` continues after `target`.
fn continue_index(expected: &[u32], target: &[u32]) -> usize {
    let Some((_, before)) = target.split_last() else { return 0 };
    // The match if the last token of the target replaces another token.
    let other =
        after_longest_match(expected, before, 1, before.len()).map(|(at, run)| (at + 1, run));
    let near = other.map_or(target.len(), |(at, _)| at);
    match (after_longest_match(expected, target, 1, near), other) {
        (Some((same, run)), Some((other, longer))) => {
            // Prefer the match with the last token also if the target only left out one token.
            if run >= longer || same == other + 1 { same } else { other }
        }
        (Some((at, _)), None) | (None, Some((at, _))) => at,
        (None, None) => target.len(),
    }
}

/// Maximum number of compared tokens.
const MAX_MATCH: usize = 16;

/// The index in `text` after the longest match of the last tokens of `target`, and the length of the match. The match
/// has at least `shortest` tokens and is not at the end of `text`. Among equal lengths, the index nearest to `near`
/// wins.
fn after_longest_match(
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
        let pairs = text[..at].iter().rev().zip(target.iter().rev()).take(MAX_MATCH);
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
        let find =
            |target: &[u32], shortest, near| after_longest_match(&text, target, shortest, near);
        // "7 8" occurs twice, "9 8" once.
        assert_eq!(find(&[7, 8], 1, 0), Some((2, 2)));
        assert_eq!(find(&[7, 8], 1, 9), Some((8, 2)));
        assert_eq!(find(&[4, 9, 8], 1, 9), Some((5, 2)));
        // A match at the end of the text does not count.
        assert_eq!(find(&[3, 8], 2, 0), None);
        assert_eq!(find(&[5, 8], 2, 0), None);
        assert_eq!(find(&[5, 8], 1, 0), Some((2, 1)));
        assert_eq!(find(&[], 1, 0), None);
        assert_eq!(after_longest_match(&[], &[1], 1, 0), None);
    }

    #[test]
    fn drafts_continue_after_a_difference() {
        let expected = [10, 11, 12, 13, 14, 15, 9, 16, 17, 18, 9, 19];
        let next = |target: &[u32]| expected.get(continue_index(&expected, target)).copied();
        assert_eq!(next(&[]), Some(10));
        assert_eq!(next(&[10, 11, 12]), Some(13));
        // A replaced token, also by one that occurs elsewhere; then the tokens after it.
        assert_eq!(next(&[10, 11, 99]), Some(13));
        assert_eq!(next(&[10, 11, 12, 18]), Some(14));
        assert_eq!(next(&[10, 11, 12, 18, 14]), Some(15));
        // An inserted token, and one that is left out.
        assert_eq!(next(&[10, 11, 12, 99, 13]), Some(14));
        assert_eq!(next(&[10, 11, 13]), Some(14));
        assert_eq!(next(&[10, 11, 13, 14, 15, 9]), Some(16));
        assert_eq!(next(&[99, 10]), Some(11));
        assert_eq!(next(&[99, 98]), Some(12));
    }

    #[test]
    fn the_source_is_searched_if_the_vocabulary_is_shared() {
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
                active: 1,
            };
            let found = PromptLookup { shortest }.draft(&context, &mut draft);
            assert_eq!(&draft[..found], expected);
        }
    }
}
