//! The KV caches of the decoder. Each layer has one for self-attention and one for cross-attention.
//!
//! Keys and values do not move. For self-attention, a hypothesis writes each key and value to a KV slot, and the slot
//! table of the session holds that slot for each position. For cross-attention, the keys and values of a source are
//! stored once, and all its hypotheses read them.
//!
//! # KV slots
//!
//! [`KvSlots`] has the slots of all hypotheses: which rows are active, how long they are, and which slot holds each key. It
//! works on `u32` words only and does not touch keys or values.
//!
//! A sentence has as many rows as the plan has beams, and the same number of KV slots. A row is the slot of a
//! hypothesis.
//! A KV slot has one cell per position. For position `j`, a hypothesis reads the cell of slot `ancestry[j]` at
//! position `j`. A fork copies slot numbers; it copies no key.
//!
//! # As many slots as hypotheses are enough
//!
//! The cell of a token is chosen when the token is fed, not when the hypothesis starts. At one position a hypothesis
//! reads one cell. The other hypotheses of the sentence are fewer than the slots, so they read fewer cells of this
//! position than exist. One cell is therefore always free, in any order of start, fork, release and feed. A released
//! hypothesis holds no cell.
//!
//! A hypothesis writes to the slot with its own row number if that cell is free. In a search it always is free, so the
//! keys of a hypothesis that shares none are in one slot.

use crate::config::{Config, Side, Stack};
use core::ops::{Deref, DerefMut};
use simdformer_kernels::{CacheMut, CacheShape, Dtype, Error as KernelError, Isa};

/// Dimensions of all caches of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachesShape {
    pub(crate) isa: Isa,
    pub(crate) layers: usize,
    /// Self-attention cache of one layer; slots are KV slots.
    pub(crate) own: CacheShape,
    /// Cross-attention cache of one layer; slots are sentences.
    pub(crate) cross: CacheShape,
}

impl CachesShape {
    /// The caches of a decoder of `config` for `hypotheses` of `target_tokens` and `sentences` of `source_tokens`.
    pub(crate) fn new(
        config: &Config,
        (isa, dtype): (Isa, Dtype),
        [hypotheses, target_tokens]: [usize; 2],
        [sentences, source_tokens]: [usize; 2],
    ) -> Self {
        let decoder = config.decoder.unwrap_or(Stack::new(0, 0, 0));
        let head_dim = config.head_dim(Side::Decoder);
        let shape = |slots, capacity| CacheShape {
            dtype,
            ..CacheShape::new(slots, capacity, decoder.heads, head_dim)
        };
        let (own, cross) = (shape(hypotheses, target_tokens), shape(sentences, source_tokens));
        Self { isa, layers: decoder.layers, own, cross }
    }

    /// Floats of the self-attention and the cross-attention caches of all layers.
    pub(crate) fn floats(&self) -> Result<(usize, usize), KernelError> {
        let all = |shape: CacheShape| {
            shape
                .buffer_len(self.isa)?
                .checked_mul(self.layers)
                .ok_or(KernelError::TooLarge { operand: "the KV caches" })
        };
        Ok((all(self.own)?, all(self.cross)?))
    }
}

/// The caches of a session.
pub(crate) struct Caches<'c> {
    pub(crate) shape: CachesShape,
    pub(crate) own: &'c mut [f32],
    pub(crate) cross: &'c mut [f32],
}

impl Caches<'_> {
    /// The self-attention keys and values of layer `layer`.
    pub(crate) fn own(&mut self, layer: usize) -> Result<CacheMut<'_>, KernelError> {
        let CachesShape { isa, own, .. } = self.shape;
        let len = own.buffer_len(isa)?;
        CacheMut::new(isa, own, &mut self.own[layer * len..][..len])
    }

    /// The cross-attention keys and values of layer `layer`.
    pub(crate) fn cross(&mut self, layer: usize) -> Result<CacheMut<'_>, KernelError> {
        let CachesShape { isa, cross, .. } = self.shape;
        let len = cross.buffer_len(isa)?;
        CacheMut::new(isa, cross, &mut self.cross[layer * len..][..len])
    }
}

/// The KV slots of all hypotheses of a session, in planned words.
pub(crate) struct KvSlots<W> {
    /// Rows, and KV slots, of a sentence.
    pub(crate) beams: usize,
    /// Positions of a slot.
    pub(crate) capacity: usize,
    /// `[rows]`: 0 for a free row, else 1 plus the number of tokens fed to the hypothesis.
    pub(crate) lens: W,
    /// `[rows, capacity]`: the slot of each key.
    pub(crate) ancestry: W,
}

impl<W: Deref<Target = [u32]>> KvSlots<W> {
    /// Whether `row` has a hypothesis.
    pub(crate) fn is_active(&self, row: usize) -> bool {
        self.lens.get(row).is_some_and(|&len| len > 0)
    }

    /// Number of tokens fed to the hypothesis in `row`; 0 if there is none.
    pub(crate) fn len(&self, row: usize) -> usize {
        self.lens.get(row).map_or(0, |&len| len.saturating_sub(1) as usize)
    }

    /// The slot of each key of the hypothesis in `row`.
    pub(crate) fn slots_of(&self, row: usize) -> &[u32] {
        &self.ancestry[row * self.capacity..][..self.len(row)]
    }

    /// The rows of the sentence of `row`; its slots have the same numbers.
    fn siblings(&self, row: usize) -> core::ops::Range<usize> {
        let first = row / self.beams * self.beams;
        first..first + self.beams
    }

    /// Whether a hypothesis other than the one in `row` reads the cell of `slot` at `position`.
    fn taken(&self, row: usize, slot: usize, position: usize) -> bool {
        let sees = |other: usize| {
            self.len(other) > position
                && self.ancestry[other * self.capacity + position] as usize == slot
        };
        self.siblings(row).any(|other| other != row && sees(other))
    }

    /// A free row of the sentence whose first row is `first`. Prefers a row whose slot no hypothesis reads from
    /// position `from` on.
    fn free(&self, first: usize, from: usize) -> Option<usize> {
        let rows = self.siblings(first);
        let seen = |slot: usize| {
            rows.clone().any(|row| {
                self.slots_of(row).get(from..).unwrap_or_default().contains(&(slot as u32))
            })
        };
        let free = || rows.clone().filter(|&row| !self.is_active(row));
        free().find(|&slot| !seen(slot)).or_else(|| free().next())
    }

    /// A slot that holds all keys of `row` and whose next `count` cells no other hypothesis reads.
    pub(crate) fn contiguous_slot(&self, row: usize, count: usize) -> Option<usize> {
        let slots = self.slots_of(row);
        let fits = |slot: usize| {
            slots.iter().all(|&other| other as usize == slot)
                && (slots.len()..slots.len() + count).all(|at| !self.taken(row, slot, at))
        };
        core::iter::once(row).chain(self.siblings(row)).find(|&slot| fits(slot))
    }
}

impl<W: DerefMut<Target = [u32]>> KvSlots<W> {
    /// Starts an empty hypothesis in the sentence whose first row is `first`; `None` if all its rows are taken.
    pub(crate) fn start(&mut self, first: usize) -> Option<usize> {
        let row = self.free(first, 0)?;
        self.lens[row] = 1;
        Some(row)
    }

    /// Starts a hypothesis with the slots of the hypothesis in row `from`; `None` if all rows of the sentence are
    /// taken.
    pub(crate) fn fork(&mut self, from: usize) -> Option<usize> {
        let len = self.len(from);
        let row = self.free(from, len)?;
        self.lens[row] = self.lens[from];
        let start = from * self.capacity;
        self.ancestry.copy_within(start..start + len, row * self.capacity);
        Some(row)
    }

    /// Ends the hypothesis in `row`, if there is one.
    pub(crate) fn release(&mut self, row: usize) {
        self.lens[row] = 0;
    }

    /// Ends all hypotheses of the sentence whose first row is `first`.
    pub(crate) fn release_all(&mut self, first: usize) {
        let rows = self.siblings(first);
        self.lens[rows].fill(0);
    }

    /// Adds a token to `row` and returns the slot of its cell. The hypothesis must be active and below its capacity.
    pub(crate) fn extend(&mut self, row: usize) -> usize {
        let position = self.len(row);
        let free = |slot: &usize| !self.taken(row, *slot, position);
        // One is always free, see the module documentation.
        let slot = core::iter::once(row).chain(self.siblings(row)).find(free).unwrap_or(row);
        self.ancestry[row * self.capacity + position] = slot as u32;
        self.lens[row] += 1;
        slot
    }

    /// Adds a token to `row` in `slot`, which [`KvSlots::contiguous_slot`] returned, and returns the slot.
    pub(crate) fn extend_contiguous(&mut self, row: usize, slot: usize) -> usize {
        let position = self.len(row);
        self.ancestry[row * self.capacity + position] = slot as u32;
        self.lens[row] += 1;
        slot
    }

    /// Removes the last `count` tokens of `row`. Their cells become free. Their slot numbers stay in the table until
    /// they are overwritten, so [`KvSlots::grow`] can restore them.
    pub(crate) fn shrink(&mut self, row: usize, count: usize) {
        self.lens[row] -= count as u32;
    }

    /// Restores `count` tokens that [`KvSlots::shrink`] removed.
    pub(crate) fn grow(&mut self, row: usize, count: usize) {
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

    /// The expected keys of each hypothesis, and the cells that were written.
    struct Model {
        kv_slots: KvSlots<Vec<u32>>,
        /// `[slots, capacity]`: the number of the write that a cell holds.
        cells: Vec<u64>,
        /// By row: the numbers of the writes of an active hypothesis.
        expected: Vec<Option<Vec<u64>>>,
        writes: u64,
        /// Number of operations by kind; number of writes to a slot with another number than the row.
        done: [u64; 6],
        other_slot_writes: u64,
        split_prefills: u64,
    }

    impl Model {
        fn new(sentences: usize, beams: usize, capacity: usize) -> Self {
            let rows = sentences * beams;
            let (lens, ancestry) = (vec![0; rows], vec![u32::MAX; rows * capacity]);
            Self {
                kv_slots: KvSlots { beams, capacity, lens, ancestry },
                cells: vec![u64::MAX; rows * capacity],
                expected: vec![None; rows],
                writes: 0,
                done: [0; 6],
                other_slot_writes: 0,
                split_prefills: 0,
            }
        }

        fn write(&mut self, row: usize, slot: usize) {
            let written = self.expected[row].as_mut().expect("an active row");
            assert_eq!(
                slot / self.kv_slots.beams,
                row / self.kv_slots.beams,
                "another sentence's slot"
            );
            self.cells[slot * self.kv_slots.capacity + written.len()] = self.writes;
            written.push(self.writes);
            self.writes += 1;
            self.other_slot_writes += u64::from(slot != row);
        }

        /// Checks that each active hypothesis reads the keys that it wrote.
        fn check(&self, sentence: usize) {
            let beams = self.kv_slots.beams;
            for row in sentence * beams..(sentence + 1) * beams {
                assert_eq!(self.kv_slots.is_active(row), self.expected[row].is_some());
                let Some(expected) = &self.expected[row] else { continue };
                let seen = self.kv_slots.slots_of(row).iter().enumerate();
                let seen =
                    seen.map(|(at, &slot)| self.cells[slot as usize * self.kv_slots.capacity + at]);
                assert!(seen.eq(expected.iter().copied()), "row {row}");
            }
        }

        fn operate(&mut self, random: &mut Random) {
            let (beams, capacity) = (self.kv_slots.beams, self.kv_slots.capacity);
            let sentence = random.below(self.expected.len() / beams);
            let rows = sentence * beams..(sentence + 1) * beams;
            let row = rows.start + random.below(beams);
            let active = self.expected[rows.clone()].iter().flatten().count();
            let kind = random.below(16);
            match (kind, self.expected[row].as_ref().map(Vec::len)) {
                (0..=2, _) => {
                    let started = self.kv_slots.start(rows.start);
                    assert_eq!(started.is_some(), active < beams, "a start with a free row");
                    if let Some(row) = started {
                        assert!(self.expected[row].replace(Vec::new()).is_none());
                        self.done[0] += 1;
                    }
                }
                (3..=5, Some(_)) => {
                    let forked = self.kv_slots.fork(row);
                    assert_eq!(forked.is_some(), active < beams, "a fork with a free row");
                    if let Some(child) = forked {
                        let written = self.expected[row].clone();
                        assert!(core::mem::replace(&mut self.expected[child], written).is_none());
                        self.done[1] += 1;
                    }
                }
                (6..=7, Some(_)) => {
                    self.kv_slots.release(row);
                    self.expected[row] = None;
                    self.done[2] += 1;
                }
                (8, _) if random.below(20) == 0 => {
                    self.kv_slots.release_all(rows.start);
                    self.expected[rows].fill(None);
                }
                // A prefill: into one slot, or cell by cell.
                (9..=10, Some(len)) if len < capacity => {
                    let count = 1 + random.below(capacity - len);
                    if let Some(slot) = self.kv_slots.contiguous_slot(row, count) {
                        for _ in 0..count {
                            self.kv_slots.extend_contiguous(row, slot);
                            self.write(row, slot);
                        }
                    } else {
                        for _ in 0..count {
                            let slot = self.kv_slots.extend(row);
                            self.write(row, slot);
                        }
                        self.split_prefills += 1;
                    }
                    self.done[3] += 1;
                }
                // A rejected draft.
                (11, Some(len)) if len > 0 && random.below(3) == 0 => {
                    let count = 1 + random.below(len);
                    self.kv_slots.shrink(row, count);
                    let written = self.expected[row].as_mut().expect("an active row");
                    written.truncate(len - count);
                    self.done[5] += 1;
                }
                // A step of several rows in any order, as in a session.
                (_, Some(_)) => {
                    let shift = random.below(beams);
                    let rows = (0..beams).map(|i| rows.start + (i + shift) % beams);
                    let stepped: Vec<usize> = rows
                        .filter(|&row| {
                            let len = self.expected[row].as_ref().map(Vec::len);
                            len.is_some_and(|len| len < capacity) && random.below(4) > 0
                        })
                        .collect();
                    let slots: Vec<usize> =
                        stepped.iter().map(|&row| self.kv_slots.extend(row)).collect();
                    stepped.iter().for_each(|&row| self.kv_slots.shrink(row, 1));
                    for (&row, &slot) in stepped.iter().zip(&slots) {
                        self.write(row, slot);
                        self.kv_slots.grow(row, 1);
                    }
                    self.done[4] += 1;
                }
                _ => {}
            }
            self.check(sentence);
        }
    }

    /// More than a million operations: no start or fork fails while a row is free, and no cell in use is overwritten.
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
            assert!(
                beams == 1 || model.other_slot_writes > 300,
                "{} writes",
                model.other_slot_writes
            );
            assert!(beams < 3 || model.split_prefills > 30, "{} prefills", model.split_prefills);
        }
    }

    /// A case that once failed: one hypothesis is active, and it reads keys of a released one.
    #[test]
    fn released_hypotheses_hold_no_cells() {
        let mut model = Model::new(1, 2, 8);
        let parent = model.kv_slots.start(0).expect("a row");
        model.expected[parent] = Some(Vec::new());
        let slot = model.kv_slots.extend(parent);
        model.write(parent, slot);
        let child = model.kv_slots.fork(parent).expect("a fork");
        model.expected[child] = model.expected[parent].take();
        model.kv_slots.release(parent);
        let other = model.kv_slots.start(0).expect("two rows");
        model.expected[other] = Some(Vec::new());
        assert_eq!(other, parent);
        for _ in 0..8 {
            let slot = model.kv_slots.extend(other);
            model.write(other, slot);
            model.check(0);
        }
    }
}
