//! Beam search.
//!
//! The algorithm of transformers 5, per sentence and, for diverse beam search, per group of beams (Vijayakumar
//! et al. 2016). One step:
//!
//! 1. Logits -> log-softmax -> processors -> plus the score of the beam, in f32.
//! 2. Select the best `max(2, 1 + end tokens) * beams` continuations of all beams, best first. With equal
//!    scores, the earlier beam and the lower token come first.
//! 3. The first `beams` continuations that neither end nor reach the maximum length become the beams of the
//!    next step.
//! 4. The continuations that end and rank within the first `beams` are finished, with the score
//!    `sum / generated^length_penalty`. The best `beams` finished hypotheses are stored. An end token at a
//!    lower rank is dropped.
//! 5. The sentence is done at the maximum length. It is also done if `beams` hypotheses are finished and either
//!    early stopping is `WhenFull`, or the best open beam, divided by `L^length_penalty`, does not exceed the
//!    worst finished hypothesis. `L` is the present number of generated tokens, or the largest possible one for
//!    `Never` with a positive penalty.
//!
//! Beam sampling differs in two steps. Step 2 [samples](super::beam_sampling) the same number of continuations,
//! which rank in the order of sampling. In step 3 the new beams are the `beams` best of those that continue.
//!
//! Continuations of score `-inf` are never used, so a sentence can have fewer active beams than `beams`. (The
//! reference fills them with copies of score -1e9, which can become hypotheses if a rule allows almost no
//! token.)

use super::hooks::{Hooks, Observation, Observer, OnToken, Outcome, Token};
use super::options::{BeamOptions, EarlyStopping};
use super::parallel_rows::{Prepared, normalize, prepared};
use super::score_rows::{Shift, TopK, argmax, length_norm};
use super::search::{ACTIVE, Finish, NONE, Search};
use super::state::Memory;
use super::state::Slot;
use crate::error::Error;

impl Search<'_> {
    /// Advances every beam of a sentence by one token; `rows` holds their logits.
    pub(super) fn step_beams(
        &mut self,
        slot: Slot<'_>,
        beam: &BeamOptions,
        rows: &mut [f32],
        hooks: &mut Hooks<'_>,
        on_token: &mut Option<OnToken<'_>>,
    ) -> Result<(), Error> {
        self.process_beams(slot, rows, hooks)?;
        let (s, groups, width) = (slot.s, slot.groups, slot.group_width());
        self.memory.next_parent.fill(NONE);
        let mut open = false;
        for group in 0..groups {
            if self.memory.group_done[slot.first + group] == 1 {
                continue;
            }
            let count = match &beam.sample {
                None => self.best_candidates(slot, group, rows),
                Some(sample) => self.draw_candidates(slot, sample, rows),
            };
            let Some(count) = count else {
                self.end(slot, Finish::NotFinite);
                self.stream(slot, on_token);
                return Ok(());
            };
            self.split_candidates((slot, group), beam, count, &mut hooks.observer);
            if self.group_is_done(slot, group, beam) {
                self.memory.group_done[slot.first + group] = 1;
                self.memory.next_parent[group * width..][..width].fill(NONE);
            } else {
                open = true;
                self.penalize_later_groups(slot, group, beam, rows);
            }
        }
        if open {
            self.commit(slot);
        } else {
            let m = &self.memory;
            let none = m.finished_count[slot.first..][..groups].iter().all(|&count| count == 0);
            let finish = match none {
                true => Finish::Exhausted,
                false if m.len[s] + 1 == m.max_len[s] => Finish::Length,
                false => Finish::End,
            };
            self.end(slot, finish);
        }
        self.stream(slot, on_token);
        Ok(())
    }

    /// Applies log-softmax and processors to every row of the sentence.
    fn process_beams(
        &mut self,
        slot: Slot<'_>,
        rows: &mut [f32],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), Error> {
        let keep_logits = self.keeps_logits(slot, hooks);
        let vocabulary = self.limits.vocabulary;
        let first = self.memory.first_row[slot.s];
        let mut satisfiable = false;
        for place in slot.sequences() {
            if !self.is_open(slot, place) {
                continue;
            }
            let start = (self.memory.row[place] - first) as usize * vocabulary;
            let scores = &mut rows[start..start + vocabulary];
            let (max, log_sum) = normalize(keep_logits, scores);
            let b = place - slot.first;
            (self.memory.row_max[b], self.memory.row_log_sum[b]) = (max, log_sum);
            let (view, scratch) = self.split(slot);
            view.pipeline().restrict(&view.context(place), scores, scratch, hooks)?;
            satisfiable |= hooks.allowed.is_none() || argmax(scores).is_some();
        }
        for place in slot.sequences() {
            if !self.is_open(slot, place) {
                continue;
            }
            let start = (self.memory.row[place] - first) as usize * vocabulary;
            let scores = &mut rows[start..start + vocabulary];
            let (view, scratch) = self.split(slot);
            let (context, pipeline) = (view.context(place), view.pipeline());
            if !satisfiable {
                pipeline.restore_allowed(&context, scores, hooks)?;
            }
            pipeline.shape(&context, scores, scratch, hooks)?;
        }
        Ok(())
    }

    /// Whether the beam is active and [`super::parallel_rows`] has not prepared its row.
    fn is_open(&self, slot: Slot<'_>, place: usize) -> bool {
        let m = &self.memory;
        let known =
            || prepared(self.prepared, self.results, &self.limits, slot.options, m.row[place]);
        m.alive[place] == 1 && matches!(known(), Prepared::Open)
    }

    /// Whether the rows of a sentence can stay logits: rules that only ban have the same effect on logits as on
    /// log-probabilities. Forced tokens and diverse groups need log-probabilities.
    pub(super) fn keeps_logits(&self, slot: Slot<'_>, hooks: &Hooks<'_>) -> bool {
        slot.options.only_ban()
            && hooks.is_empty()
            && self.forced(slot, self.memory.len[slot.s]).is_none()
            && slot.groups == 1
            && slot.options.drawn().is_none()
    }

    /// Writes the best continuations of a group's beams into `candidate`, best first. Returns their number, or
    /// `None` if a score is NaN or `+inf`.
    fn best_candidates(&mut self, slot: Slot<'_>, group: usize, rows: &[f32]) -> Option<usize> {
        let (s, vocabulary, count) = (slot.s, self.limits.vocabulary, slot.candidates());
        let m = &mut self.memory;
        let mut best = TopK::new(&mut m.candidate_score[..count], &mut m.candidate[..count]);
        // In the first step all groups share the row at the end of the prompt.
        let beams = if m.len[s] == m.prompt_len[s] {
            0..1
        } else {
            let width = slot.group_width();
            group * width..(group + 1) * width
        };
        for b in beams {
            let place = slot.first + b;
            if m.alive[place] == 0 {
                continue;
            }
            let row = m.row[place];
            let start = (row - m.first_row[s]) as usize * vocabulary;
            let known = prepared(self.prepared, self.results, &self.limits, slot.options, row);
            let finite = match known {
                Prepared::Best(scores, ids) => {
                    best.merge(scores, ids);
                    true
                }
                Prepared::NotFinite => false,
                known => {
                    let (max, log_sum) = match known {
                        Prepared::Open => (m.row_max[b], m.row_log_sum[b]),
                        _ => (0.0, 0.0),
                    };
                    let shift = Shift { max, log_sum, offset: m.score[place] };
                    best.scan(&rows[start..start + vocabulary], shift, (b * vocabulary) as u32)
                }
            };
            if !finite {
                return None;
            }
        }
        Some(best.sort())
    }

    /// Sorts the `count` candidates into the next step and the finished hypotheses; drops the others.
    fn split_candidates(
        &mut self,
        (slot, group): (Slot<'_>, usize),
        beam: &BeamOptions,
        count: usize,
        observer: &mut Option<Observer<'_>>,
    ) {
        let (s, width, vocabulary) = (slot.s, slot.group_width(), self.limits.vocabulary as u32);
        let len = self.memory.len[s];
        let reached = len + 1 == self.memory.max_len[s];
        let generated = (len + 1 - self.memory.prompt_len[s]) as usize;
        let norm = length_norm(generated, beam.length_penalty);
        let ends = |token| reached || slot.options.eos.contains(&token);
        // Large biases can sum to infinity; an infinite score would make all later scores equal.
        let split = |m: &Memory<'_>, rank: usize| {
            let candidate = m.candidate[rank];
            let score = m.candidate_score[rank].min(f32::MAX);
            (candidate / vocabulary, candidate % vocabulary, score)
        };
        for rank in 0..count {
            let (parent, token, score) = split(&self.memory, rank);
            if !ends(token) {
                continue;
            }
            let mut outcome = Outcome::Dropped;
            if rank < width {
                self.insert_finished(slot, group, parent as usize, (Some(token), score / norm));
                outcome = Outcome::Ends(score / norm);
            }
            self.observe(observer, slot, (parent, token, score), outcome);
        }
        if beam.sample.is_some() {
            self.rank_candidates(count);
        }
        let mut beams = group * width..(group + 1) * width;
        for rank in 0..count {
            let (parent, token, score) = split(&self.memory, rank);
            if ends(token) {
                continue;
            }
            let outcome = match beams.next() {
                Some(b) => {
                    let m = &mut self.memory;
                    (m.next_parent[b], m.next_token[b], m.next_score[b]) = (parent, token, score);
                    Outcome::Continues
                }
                None => Outcome::Dropped,
            };
            self.observe(observer, slot, (parent, token, score), outcome);
        }
    }

    fn observe(
        &self,
        observer: &mut Option<Observer<'_>>,
        slot: Slot<'_>,
        (parent, token, score): (u32, u32, f32),
        outcome: Outcome,
    ) {
        if let Some(observer) = observer {
            let context = self.view(slot).context(slot.first + parent as usize);
            observer(Observation::Candidate { context, token, score, outcome });
        }
    }

    /// Stores the history of beam `parent`, followed by `token`, if its score is among the group's best. With equal
    /// scores the earlier one ranks first.
    fn insert_finished(
        &mut self,
        slot: Slot<'_>,
        group: usize,
        parent: usize,
        (token, score): (Option<u32>, f32),
    ) {
        let Slot { s, first, width, .. } = slot;
        let (target, places) = (self.limits.max_target_length, slot.group_width());
        let m = &mut self.memory;
        let scores = &mut m.finished_score[first..][..width];
        let order = &mut m.order[first + group * places..][..places];
        let count = &mut m.finished_count[slot.first + group];
        let place = if (*count as usize) < places {
            *count += 1;
            group * places + *count as usize - 1
        } else {
            let worst = order[places - 1] as usize;
            if !(score > scores[worst]) {
                return;
            }
            worst
        };
        let mut rank = *count as usize - 1;
        while rank > 0 && score > scores[order[rank - 1] as usize] {
            order[rank] = order[rank - 1];
            rank -= 1;
        }
        order[rank] = place as u32;
        scores[place] = score;
        // The caller can stop a sentence before its prompt has been fed completely.
        let len = m.len[s].max(m.prompt_len[s]) as usize;
        let from = (first + parent) * target;
        let to = (first + place) * target;
        m.finished[to..to + len].copy_from_slice(&m.history[from..from + len]);
        m.finished_len[first + place] = len as u32;
        if let Some(token) = token {
            m.finished[to + len] = token;
            m.finished_len[first + place] += 1;
        }
    }

    /// The condition of step 5 in the module documentation.
    fn group_is_done(&self, slot: Slot<'_>, group: usize, beam: &BeamOptions) -> bool {
        let (s, places, m) = (slot.s, slot.group_width(), &self.memory);
        let (len, longest) = (m.len[s] + 1, m.max_len[s]);
        let best = group * places;
        if len == longest || m.next_parent[best] == NONE {
            return true;
        }
        if (m.finished_count[slot.first + group] as usize) < places {
            return false;
        }
        let favors_long = beam.early_stopping == EarlyStopping::Never && beam.length_penalty > 0.0;
        let bound_length = if favors_long { longest } else { len } - m.prompt_len[s];
        let bound = m.next_score[best] / length_norm(bound_length as usize, beam.length_penalty);
        let worst = m.order[slot.first + best + places - 1] as usize;
        beam.early_stopping == EarlyStopping::WhenFull
            || !(bound > m.finished_score[slot.first + worst])
    }

    /// Subtracts the diversity penalty from the tokens that a group just chose, for the groups after it.
    fn penalize_later_groups(
        &mut self,
        slot: Slot<'_>,
        group: usize,
        beam: &BeamOptions,
        rows: &mut [f32],
    ) {
        let Slot { s, first, width, groups, .. } = slot;
        let (vocabulary, places, m) = (self.limits.vocabulary, slot.group_width(), &self.memory);
        let penalty = beam.diversity_penalty as f32;
        let later = if group + 1 == groups {
            0..0
        } else if m.len[s] == m.prompt_len[s] {
            0..1
        } else {
            (group + 1) * places..width
        };
        for b in later.filter(|b| m.alive[first + b] == 1) {
            let row = (m.row[first + b] - m.first_row[s]) as usize;
            for chosen in group * places..(group + 1) * places {
                if m.next_parent[chosen] != NONE {
                    rows[row * vocabulary + m.next_token[chosen] as usize] -= penalty;
                }
            }
        }
    }

    /// Turns the chosen continuations into the beams of the next step.
    fn commit(&mut self, slot: Slot<'_>) {
        let Slot { s, first, width, .. } = slot;
        let target = self.limits.max_target_length;
        let m = &mut self.memory;
        let len = m.len[s] as usize;
        let moves = |b: usize, parent: u32| parent != NONE && parent as usize != b;
        for (b, &parent) in m.next_parent[..width].iter().enumerate() {
            if moves(b, parent) {
                let from = (first + parent as usize) * target;
                m.next_history[b * target..][..len].copy_from_slice(&m.history[from..from + len]);
            }
        }
        for (b, &parent) in m.next_parent[..width].iter().enumerate() {
            let place = first + b;
            m.alive[place] = u32::from(parent != NONE);
            if parent == NONE {
                continue;
            }
            let history = &mut m.history[place * target..][..=len];
            if moves(b, parent) {
                history[..len].copy_from_slice(&m.next_history[b * target..][..len]);
            }
            history[len] = m.next_token[b];
            m.score[place] = m.next_score[b];
            m.parent[place] = m.row[first + parent as usize];
        }
        m.len[s] += 1;
    }

    /// Ranks the finished hypotheses of all groups, best first, and removes duplicates. If the sentence ended early
    /// or has no finished hypothesis, its open beams are added first.
    pub(super) fn end_beams(&mut self, slot: Slot<'_>, beam: &BeamOptions, finish: Finish) {
        let Slot { s, first, width, groups, .. } = slot;
        let (target, places) = (self.limits.max_target_length, slot.group_width());
        if matches!(finish, Finish::Stopped | Finish::Exhausted | Finish::NotFinite) {
            let m = &self.memory;
            let generated = m.len[s].saturating_sub(m.prompt_len[s]);
            let norm = length_norm(generated as usize, beam.length_penalty);
            for b in 0..width {
                if self.memory.alive[first + b] == 1 {
                    let score = self.memory.score[first + b] / norm;
                    self.insert_finished(slot, b / places, b, (None, score));
                }
            }
        }
        let m = &mut self.memory;
        let order = &mut m.order[first..][..width];
        let counts = &mut m.finished_count[slot.first..][..groups];
        let scores = &m.finished_score[first..][..width];
        let mut total = 0;
        for (group, &count) in counts.iter().enumerate() {
            let start = group * places;
            for from in start..start + count as usize {
                let place = order[from];
                let mut rank = total;
                while rank > 0 && scores[place as usize] > scores[order[rank - 1] as usize] {
                    order[rank] = order[rank - 1];
                    rank -= 1;
                }
                order[rank] = place;
                total += 1;
            }
        }
        let text = |place: u32| {
            let place = first + place as usize;
            &m.finished[place * target..][..m.finished_len[place] as usize]
        };
        let mut kept = 0;
        for rank in 0..total {
            let place = order[rank];
            if !order[..kept].iter().any(|&earlier| text(earlier) == text(place)) {
                order[kept] = place;
                kept += 1;
            }
        }
        counts[0] = kept as u32;
    }

    /// Streams the tokens that all active beams and the best finished hypothesis share. The final best hypothesis
    /// is one of these or continues one, because the rank of a finished hypothesis can only fall.
    fn stream(&mut self, slot: Slot<'_>, on_token: &mut Option<OnToken<'_>>) {
        if on_token.is_none() {
            return;
        }
        let s = slot.s;
        let prompt = self.memory.prompt_len[s] as usize;
        let from = prompt + self.memory.emitted[s] as usize;
        let certain = self.certain(slot, from).len();
        for place in from..from + certain {
            let token = Token {
                sequence: 0,
                index: (place - prompt) as u32,
                id: self.certain(slot, from)[place - from],
                log_probability: None,
            };
            self.memory.emitted[s] += 1;
            if Self::emit(on_token, s, token) {
                if self.memory.phase[s] == ACTIVE {
                    self.end(slot, Finish::Stopped);
                }
                return;
            }
        }
    }

    /// The tokens from position `from` on that no later step can change.
    fn certain(&self, slot: Slot<'_>, from: usize) -> &[u32] {
        let Slot { s, first, groups, .. } = slot;
        let (target, m) = (self.limits.max_target_length, &self.memory);
        let finished = |place: u32| {
            let place = first + place as usize;
            &m.finished[place * target..][..m.finished_len[place] as usize]
        };
        if m.phase[s] != ACTIVE {
            return finished(m.order[first]).get(from..).unwrap_or_default();
        }
        let best = (0..groups)
            .filter(|g| m.finished_count[slot.first + g] > 0)
            .map(|g| m.order[first + g * slot.group_width()])
            .reduce(|best, place| {
                let score = |place: u32| m.finished_score[first + place as usize];
                if score(place) > score(best) { place } else { best }
            });
        let live = slot.sequences().filter(|&place| m.alive[place] == 1);
        let live = live.map(|place| &m.history[place * target..][..m.len[s] as usize]);
        live.chain(best.map(finished))
            .map(|text| text.get(from..).unwrap_or_default())
            .reduce(|common, text| {
                let same = common.iter().zip(text).take_while(|(a, b)| a == b).count();
                &common[..same]
            })
            .unwrap_or_default()
    }
}
