//! Whether a translation has the marks of its source.

use super::{Mark, MarkKind, MarkedText};
use core::fmt;
use std::collections::BTreeMap;
use std::ops::Range;

/// The marks that a translation does not have as its source has them, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Kept pieces and points that are missing.
    pub missing: Vec<usize>,
    /// Kept pieces and points that occur more often than in the source, and marks that the source does not have. A copy of
    /// a piece that is not marked counts if the piece has more than letters and digits: `ls` may be a word of the text.
    pub repeated: Vec<usize>,
    /// Kept pieces whose text differs, and marks of another kind.
    pub changed: Vec<usize>,
    /// Marks that are out of order, outside of the text, or that cross another mark: they cannot be written as markup.
    pub crossing: Vec<usize>,
    /// Wraps that are missing.
    pub wraps: Vec<usize>,
}

impl Lost {
    /// Whether only wraps are missing: then the text is complete, and a wrap is around words without a counterpart.
    #[must_use]
    pub fn only_wraps(&self) -> bool {
        [&self.missing, &self.repeated, &self.changed, &self.crossing]
            .iter()
            .all(|ids| ids.is_empty())
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("missing", &self.missing),
            ("repeated", &self.repeated),
            ("changed", &self.changed),
            ("crossing", &self.crossing),
            ("missing wraps", &self.wraps),
        ];
        f.write_str("expected each mark of the source once, found")?;
        let mut separator = " ";
        for (what, ids) in all.into_iter().filter(|(_, ids)| !ids.is_empty()) {
            write!(f, "{separator}{what} {ids:?}")?;
            separator = ", ";
        }
        Ok(())
    }
}

impl core::error::Error for Lost {}

/// Whether `target` has the marks of `source`: each kept piece and each point as often as the source (once), kept pieces
/// unchanged, each wrap at least once, and all of them nested or disjoint.
///
/// ```
/// use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText, check};
///
/// let kind = MarkKind::Keep { source: None };
/// let mark = |range| vec![Mark { range, kind: kind.clone(), id: 0 }];
/// let source = MarkedText { text: "Bonjour %s !".into(), marks: mark(8..10) };
/// let target = MarkedText { text: "Hello %s !".into(), marks: mark(6..8) };
/// assert_eq!(check(&source, &target), Ok(()));
/// let target = MarkedText { text: "Hello !".into(), marks: Vec::new() };
/// assert_eq!(check(&source, &target).unwrap_err().missing, [0]);
/// ```
///
/// # Errors
/// The marks that are lost, repeated, changed or crossing.
pub fn check(source: &MarkedText, target: &MarkedText) -> Result<(), Lost> {
    let mut lost = Lost { crossing: crossing(target), ..Lost::default() };
    let mut expected: BTreeMap<usize, (&Mark, usize)> = BTreeMap::new();
    for mark in &source.marks {
        expected.entry(mark.id).or_insert((mark, 0)).1 += 1;
    }
    let mut found: BTreeMap<usize, usize> = BTreeMap::new();
    for mark in &target.marks {
        *found.entry(mark.id).or_default() += 1;
        let Some((own, _)) = expected.get(&mark.id) else { continue };
        let kept = matches!(mark.kind, MarkKind::Keep { .. });
        let text =
            |text: &MarkedText, mark: &Mark| text.text.get(mark.range.clone()).map(str::to_owned);
        if own.kind != mark.kind || (kept && text(source, own) != text(target, mark)) {
            lost.changed.push(mark.id);
        }
    }
    for (&id, &(mark, count)) in &expected {
        let found = found.remove(&id).unwrap_or_default();
        match mark.kind {
            MarkKind::Wrap { .. } if found == 0 => lost.wraps.push(id),
            MarkKind::Wrap { .. } => (),
            _ if found < count => lost.missing.push(id),
            _ if found > count => lost.repeated.push(id),
            _ => (),
        }
    }
    lost.repeated.extend(found.into_keys());
    lost.repeated.extend(copies(source, target));
    for ids in [&mut lost.repeated, &mut lost.changed, &mut lost.crossing] {
        ids.sort_unstable();
        ids.dedup();
    }
    if lost == Lost::default() { Ok(()) } else { Err(lost) }
}

/// The kept pieces whose text occurs more often in the target than in the source, marked or not.
fn copies(source: &MarkedText, target: &MarkedText) -> Vec<usize> {
    let mut texts: BTreeMap<&str, usize> = BTreeMap::new();
    for mark in source.keeps() {
        let text = source.text.get(mark.range.clone()).unwrap_or_default();
        if text.chars().any(|letter| !letter.is_alphanumeric() && !letter.is_whitespace()) {
            texts.entry(text).or_insert(mark.id);
        }
    }
    let count = |text: &str, piece: &str| text.matches(piece).count();
    let more = |&(text, _): &(&str, usize)| count(&target.text, text) > count(&source.text, text);
    texts.into_iter().filter(more).map(|(_, id)| id).collect()
}

/// The marks that are out of order, outside of the text or inside a character, or that end after the mark around them.
fn crossing(text: &MarkedText) -> Vec<usize> {
    let mut found = Vec::new();
    let mut around: Vec<usize> = Vec::new();
    let mut last = 0;
    for mark in &text.marks {
        let Range { start, end } = mark.range.clone();
        while around.last().is_some_and(|&outer| outer <= start) {
            around.pop();
        }
        let fits = around.last().is_none_or(|&outer| end <= outer);
        if text.text.get(start..end).is_none() || start < last || !fits {
            found.push(mark.id);
            continue;
        }
        last = start;
        if start < end {
            around.push(end);
        }
    }
    found
}
