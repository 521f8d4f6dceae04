//! Splits the tokens of a pass by sequence.

use crate::model::pass::Rows;

/// Consecutive tokens of a pass that belong to one sequence.
#[derive(Clone, Copy)]
pub(super) struct SequenceSpan {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) sentence: u32,
    pub(super) row: Option<u32>,
    pub(super) position: usize,
}

/// The span that starts at token `start`; it has number `index` in `rows`.
fn span_at(rows: Rows<'_>, index: usize, start: usize) -> Option<SequenceSpan> {
    match rows {
        Rows::Source { lengths, slots } => Some(SequenceSpan {
            start,
            len: *lengths.get(index)? as usize,
            sentence: slots.map_or(Some(index as u32), |slots| slots.get(index).copied())?,
            row: None,
            position: 0,
        }),
        Rows::Target { hypotheses, sentences, positions } => {
            let row = *hypotheses.get(start)?;
            Some(SequenceSpan {
                start,
                len: hypotheses[start..].iter().take_while(|&&other| other == row).count(),
                sentence: *sentences.get(start)?,
                row: Some(row),
                position: *positions.get(start)? as usize,
            })
        }
    }
}

/// All spans in order.
pub(super) fn spans(rows: Rows<'_>) -> impl Iterator<Item = SequenceSpan> {
    let (mut index, mut start) = (0, 0);
    core::iter::from_fn(move || {
        let span = span_at(rows, index, start)?;
        index += 1;
        start += span.len;
        Some(span)
    })
}
