//! The tokens of a pass, sequence by sequence.

use crate::model::pass::Rows;

/// Tokens of a pass that follow each other in one sequence.
#[derive(Clone, Copy)]
pub(super) struct SequenceSpan {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) sentence: u32,
    pub(super) row: Option<u32>,
    pub(super) position: usize,
}

/// The stretch that starts at token `start`, number `index` of `rows`.
fn stretch_at(rows: Rows<'_>, index: usize, start: usize) -> Option<SequenceSpan> {
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

/// All stretches in order.
pub(super) fn stretches(rows: Rows<'_>) -> impl Iterator<Item = SequenceSpan> {
    let (mut index, mut start) = (0, 0);
    core::iter::from_fn(move || {
        let stretch = stretch_at(rows, index, start)?;
        index += 1;
        start += stretch.len;
        Some(stretch)
    })
}
