//! Who lives, how long, and where each key of each past lies: bookkeeping over words, nothing else.
//!
//! A sentence has as many rows as the plan has beams, and as many slots of keys and values. A row is a
//! hypothesis's name; a slot is a line of cells, one for each position. What a hypothesis sees at
//! position `j` is the cell of slot `ancestry[j]` at position `j`: a fork copies the names of its
//! cells, and no key moves.
//!
//! # As many slots as hypotheses suffice
//!
//! The cell for the next token is chosen when the token comes, and not when the hypothesis starts. At
//! one position a hypothesis sees one cell, so all others of its sentence, fewer than there are slots,
//! see fewer cells of this position than there are: one is always free, whatever was started, forked,
//! released and fed before, in whatever order. What the released have left pins nothing.
//!
//! A hypothesis writes to the slot of its own number where that is free, which in searches it always
//! is: so a past that nobody shares lies in one slot.

use core::ops::{Deref, DerefMut};

/// The pasts of all hypotheses of a session, in planned words.
pub(super) struct KvSlots<W> {
    /// Rows, and slots, of a sentence.
    pub(super) beams: usize,
    /// Positions of a slot.
    pub(super) capacity: usize,
    /// `[rows]`: 0 in a row that is free, else 1 and the tokens that the hypothesis has been fed.
    pub(super) lens: W,
    /// `[rows, capacity]`: the slot of each key.
    pub(super) ancestry: W,
}

impl<W: Deref<Target = [u32]>> KvSlots<W> {
    /// Whether there is a hypothesis in `row`.
    pub(super) fn lives(&self, row: usize) -> bool {
        self.lens.get(row).is_some_and(|&len| len > 0)
    }

    /// Tokens that the hypothesis in `row` has been fed; 0 if there is none.
    pub(super) fn len(&self, row: usize) -> usize {
        self.lens.get(row).map_or(0, |&len| len.saturating_sub(1) as usize)
    }

    /// The slot of each key of the hypothesis in `row`.
    pub(super) fn past(&self, row: usize) -> &[u32] {
        &self.ancestry[row * self.capacity..][..self.len(row)]
    }

    /// Rows of the sentence that `row` is about; the numbers of its slots as well.
    fn siblings(&self, row: usize) -> core::ops::Range<usize> {
        let first = row / self.beams * self.beams;
        first..first + self.beams
    }

    /// Whether another hypothesis than that in `row` sees the cell of `slot` at `position`.
    fn taken(&self, row: usize, slot: usize, position: usize) -> bool {
        let sees = |other: usize| {
            self.len(other) > position
                && self.ancestry[other * self.capacity + position] as usize == slot
        };
        self.siblings(row).any(|other| other != row && sees(other))
    }

    /// A row of the sentence of row `first` in which there is nobody: one whose slot nobody sees from
    /// position `from` on, if there is any.
    fn free(&self, first: usize, from: usize) -> Option<usize> {
        let rows = self.siblings(first);
        let seen = |slot: usize| {
            rows.clone()
                .any(|row| self.past(row).get(from..).unwrap_or_default().contains(&(slot as u32)))
        };
        let free = || rows.clone().filter(|&row| !self.lives(row));
        free().find(|&slot| !seen(slot)).or_else(|| free().next())
    }

    /// A slot that holds the whole past of `row` and whose next `count` cells nobody else sees.
    pub(super) fn line(&self, row: usize, count: usize) -> Option<usize> {
        let past = self.past(row);
        let goes_on = |slot: usize| {
            past.iter().all(|&other| other as usize == slot)
                && (past.len()..past.len() + count).all(|at| !self.taken(row, slot, at))
        };
        core::iter::once(row).chain(self.siblings(row)).find(|&slot| goes_on(slot))
    }
}

impl<W: DerefMut<Target = [u32]>> KvSlots<W> {
    /// Begins a hypothesis without a past in the sentence whose first row is `first`; `None` if all
    /// its rows are taken.
    pub(super) fn start(&mut self, first: usize) -> Option<usize> {
        let row = self.free(first, 0)?;
        self.lens[row] = 1;
        Some(row)
    }

    /// Begins a hypothesis with the past of the one in row `from`; `None` if all rows of the sentence
    /// are taken.
    pub(super) fn fork(&mut self, from: usize) -> Option<usize> {
        let len = self.len(from);
        let row = self.free(from, len)?;
        self.lens[row] = self.lens[from];
        let start = from * self.capacity;
        self.ancestry.copy_within(start..start + len, row * self.capacity);
        Some(row)
    }

    /// Ends the hypothesis in `row`, if there is one.
    pub(super) fn release(&mut self, row: usize) {
        self.lens[row] = 0;
    }

    /// Ends all hypotheses of the sentence whose first row is `first`.
    pub(super) fn release_all(&mut self, first: usize) {
        let rows = self.siblings(first);
        self.lens[rows].fill(0);
    }

    /// Finds a cell for the next token of `row`, which lives and is below its capacity; returns its
    /// slot. The past has one token more.
    pub(super) fn extend(&mut self, row: usize) -> usize {
        let position = self.len(row);
        let free = |slot: &usize| !self.taken(row, *slot, position);
        // There always is one, see the module.
        let slot = core::iter::once(row).chain(self.siblings(row)).find(free).unwrap_or(row);
        self.ancestry[row * self.capacity + position] = slot as u32;
        self.lens[row] += 1;
        slot
    }

    /// Puts the next `count` tokens of `row` into `slot`, a [`KvSlots::line`] of as many.
    pub(super) fn extend_line(&mut self, row: usize, slot: usize, count: usize) {
        let start = row * self.capacity + self.len(row);
        self.ancestry[start..start + count].fill(slot as u32);
        self.lens[row] += count as u32;
    }

    /// Takes the last `count` tokens of `row` back. Nobody sees their cells, but they stay named until the
    /// next ones come.
    pub(super) fn shrink(&mut self, row: usize, count: usize) {
        self.lens[row] -= count as u32;
    }

    /// The opposite of [`KvSlots::shrink`].
    pub(super) fn grow(&mut self, row: usize, count: usize) {
        self.lens[row] += count as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SplitMix64 (Steele, Lea and Flood 2014).
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) % n.max(1) as u64) as usize
        }
    }

    /// What each hypothesis must see, and the cells that are really written.
    struct Model {
        pasts: KvSlots<Vec<u32>>,
        /// `[slots, capacity]`: the number of the write that a cell holds.
        cells: Vec<u64>,
        /// By row: the writes that a living hypothesis was fed.
        expected: Vec<Option<Vec<u64>>>,
        writes: u64,
        /// By kind of operation, and how often a cell was found elsewhere than at home.
        done: [u64; 6],
        away: u64,
        broken_lines: u64,
    }

    impl Model {
        fn new(sentences: usize, beams: usize, capacity: usize) -> Self {
            let rows = sentences * beams;
            let (lens, ancestry) = (vec![0; rows], vec![u32::MAX; rows * capacity]);
            Self {
                pasts: KvSlots { beams, capacity, lens, ancestry },
                cells: vec![u64::MAX; rows * capacity],
                expected: vec![None; rows],
                writes: 0,
                done: [0; 6],
                away: 0,
                broken_lines: 0,
            }
        }

        fn write(&mut self, row: usize, slot: usize) {
            let past = self.expected[row].as_mut().expect("a living row");
            assert_eq!(slot / self.pasts.beams, row / self.pasts.beams, "another sentence's slot");
            self.cells[slot * self.pasts.capacity + past.len()] = self.writes;
            past.push(self.writes);
            self.writes += 1;
            self.away += u64::from(slot != row);
        }

        /// Whoever lives sees what it was fed.
        fn check(&self, sentence: usize) {
            let beams = self.pasts.beams;
            for row in sentence * beams..(sentence + 1) * beams {
                assert_eq!(self.pasts.lives(row), self.expected[row].is_some());
                let Some(expected) = &self.expected[row] else { continue };
                let seen = self.pasts.past(row).iter().enumerate();
                let seen =
                    seen.map(|(at, &slot)| self.cells[slot as usize * self.pasts.capacity + at]);
                assert!(seen.eq(expected.iter().copied()), "row {row}");
            }
        }

        fn operate(&mut self, random: &mut Random) {
            let (beams, capacity) = (self.pasts.beams, self.pasts.capacity);
            let sentence = random.below(self.expected.len() / beams);
            let rows = sentence * beams..(sentence + 1) * beams;
            let row = rows.start + random.below(beams);
            let living = self.expected[rows.clone()].iter().flatten().count();
            let kind = random.below(16);
            match (kind, self.expected[row].as_ref().map(Vec::len)) {
                (0..=2, _) => {
                    let started = self.pasts.start(rows.start);
                    assert_eq!(started.is_some(), living < beams, "a start with room");
                    if let Some(row) = started {
                        assert!(self.expected[row].replace(Vec::new()).is_none());
                        self.done[0] += 1;
                    }
                }
                (3..=5, Some(_)) => {
                    let forked = self.pasts.fork(row);
                    assert_eq!(forked.is_some(), living < beams, "a fork with room");
                    if let Some(child) = forked {
                        let past = self.expected[row].clone();
                        assert!(core::mem::replace(&mut self.expected[child], past).is_none());
                        self.done[1] += 1;
                    }
                }
                (6..=7, Some(_)) => {
                    self.pasts.release(row);
                    self.expected[row] = None;
                    self.done[2] += 1;
                }
                (8, _) if random.below(20) == 0 => {
                    self.pasts.release_all(rows.start);
                    self.expected[rows].fill(None);
                }
                // A prefill: in one line, or cell by cell.
                (9..=10, Some(len)) if len < capacity => {
                    let count = 1 + random.below(capacity - len);
                    if let Some(slot) = self.pasts.line(row, count) {
                        self.pasts.extend_line(row, slot, count);
                        (0..count).for_each(|_| self.write(row, slot));
                    } else {
                        for _ in 0..count {
                            let slot = self.pasts.extend(row);
                            self.write(row, slot);
                        }
                        self.broken_lines += 1;
                    }
                    self.done[3] += 1;
                }
                // A draft that was refused.
                (11, Some(len)) if len > 0 && random.below(3) == 0 => {
                    let count = 1 + random.below(len);
                    self.pasts.shrink(row, count);
                    let past = self.expected[row].as_mut().expect("a living row");
                    past.truncate(len - count);
                    self.done[5] += 1;
                }
                // A step of some rows together, in any order, as a session does it.
                (_, Some(_)) => {
                    let turn = random.below(beams);
                    let rows = (0..beams).map(|i| rows.start + (i + turn) % beams);
                    let stepped: Vec<usize> = rows
                        .filter(|&row| {
                            let len = self.expected[row].as_ref().map(Vec::len);
                            len.is_some_and(|len| len < capacity) && random.below(4) > 0
                        })
                        .collect();
                    let slots: Vec<usize> =
                        stepped.iter().map(|&row| self.pasts.extend(row)).collect();
                    stepped.iter().for_each(|&row| self.pasts.shrink(row, 1));
                    for (&row, &slot) in stepped.iter().zip(&slots) {
                        self.write(row, slot);
                        self.pasts.grow(row, 1);
                    }
                    self.done[4] += 1;
                }
                _ => {}
            }
            self.check(sentence);
        }
    }

    /// More than a million operations: nothing is refused while there is room, and nobody's past is written
    /// over.
    #[test]
    fn a_plan_holds_its_beams_in_any_order() {
        for (sentences, beams, capacity) in
            [(1, 1, 5), (1, 2, 4), (1, 2, 9), (2, 3, 6), (1, 4, 12), (3, 5, 7), (1, 8, 16)]
        {
            let mut model = Model::new(sentences, beams, capacity);
            let mut random = Random((beams * 100 + capacity) as u64);
            for _ in 0..160_000 {
                model.operate(&mut random);
            }
            assert!(model.done.iter().all(|&done| done > 2_000 || beams == 1), "{:?}", model.done);
            assert!(beams == 1 || model.away > 300, "{} writes away from home", model.away);
            assert!(beams < 3 || model.broken_lines > 30, "{} broken lines", model.broken_lines);
        }
    }

    /// The case that was refused: one lives, and what was released holds its past.
    #[test]
    fn what_was_released_pins_nothing() {
        let mut model = Model::new(1, 2, 8);
        let parent = model.pasts.start(0).expect("a row");
        model.expected[parent] = Some(Vec::new());
        let slot = model.pasts.extend(parent);
        model.write(parent, slot);
        let child = model.pasts.fork(parent).expect("a fork");
        model.expected[child] = model.expected[parent].take();
        model.pasts.release(parent);
        let other = model.pasts.start(0).expect("room for two");
        model.expected[other] = Some(Vec::new());
        assert_eq!(other, parent);
        for _ in 0..8 {
            let slot = model.pasts.extend(other);
            model.write(other, slot);
            model.check(0);
        }
    }
}
