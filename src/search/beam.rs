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

use super::error::SearchError;
use super::options::{BeamOptions, EarlyStopping};
use super::parallel_rows::{Prepared, normalize, prepared};
use super::processor_order::{Hooks, Observation, Observer, OnToken, Outcome, Token};
use super::score_rows::{Shift, TopK, argmax, length_norm};
use super::search::{ACTIVE, Finish, NONE, Search};
use super::state::Memory;

impl Search<'_> {
    /// Advances every beam of sentence `s` by one token; `rows` holds their logits.
    pub(super) fn step_beams(
        &mut self,
        s: usize,
        beam: &BeamOptions,
        rows: &mut [f32],
        hooks: &mut Hooks<'_>,
        on_token: &mut Option<OnToken<'_>>,
    ) -> Result<(), SearchError> {
        self.process_beams(s, rows, hooks)?;
        let (groups, width) = (self.shape.groups, self.shape.group_width());
        self.memory.next_parent.fill(NONE);
        let mut open = false;
        for group in 0..groups {
            if self.memory.group_done[s * groups + group] == 1 {
                continue;
            }
            let count = match &beam.sample {
                None => self.best_candidates(s, group, rows),
                Some(sample) => self.draw_candidates(s, sample, rows)?,
            };
            let Some(count) = count else {
                self.end(s, Finish::NotFinite);
                self.stream(s, on_token);
                return Ok(());
            };
            self.split_candidates(s, group, beam, count, &mut hooks.observer);
            if self.group_is_done(s, group, beam) {
                self.memory.group_done[s * groups + group] = 1;
                self.memory.next_parent[group * width..][..width].fill(NONE);
            } else {
                open = true;
                self.penalize_later_groups(s, group, beam, rows);
            }
        }
        if open {
            self.commit(s);
        } else {
            let m = &self.memory;
            let none = m.finished_count[s * groups..][..groups].iter().all(|&count| count == 0);
            let finish = match none {
                true => Finish::Exhausted,
                false if m.len[s] + 1 == m.max_len[s] => Finish::Length,
                false => Finish::End,
            };
            self.end(s, finish);
        }
        self.stream(s, on_token);
        Ok(())
    }

    /// Applies log-softmax and processors to every row of the sentence.
    fn process_beams(
        &mut self,
        s: usize,
        rows: &mut [f32],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), SearchError> {
        let keep_logits = self.keeps_logits(s, hooks);
        let (width, vocabulary) = (self.shape.width, self.shape.vocabulary);
        let slots = s * width..(s + 1) * width;
        let first = self.memory.first_row[s];
        let mut satisfiable = false;
        for slot in slots.clone() {
            if !self.is_open(slot) {
                continue;
            }
            let start = (self.memory.row[slot] - first) as usize * vocabulary;
            let scores = &mut rows[start..start + vocabulary];
            let (max, log_sum) = normalize(keep_logits, scores);
            let b = slot - slots.start;
            (self.memory.row_max[b], self.memory.row_log_sum[b]) = (max, log_sum);
            let (view, scratch) = self.split();
            view.pipeline(s).restrict(&view.context(s, slot), scores, scratch, hooks)?;
            satisfiable |= hooks.allowed.is_none() || argmax(scores).is_some();
        }
        for slot in slots {
            if !self.is_open(slot) {
                continue;
            }
            let start = (self.memory.row[slot] - first) as usize * vocabulary;
            let scores = &mut rows[start..start + vocabulary];
            let (view, scratch) = self.split();
            let (context, pipeline) = (view.context(s, slot), view.pipeline(s));
            if !satisfiable {
                pipeline.restore_allowed(&context, scores, hooks)?;
            }
            pipeline.shape(&context, scores, scratch, hooks)?;
        }
        Ok(())
    }

    /// Whether the beam is active and [`super::parallel_rows`] has not prepared its row.
    fn is_open(&self, slot: usize) -> bool {
        let (m, options) = (&self.memory, self.options);
        let known = || prepared(self.prepared, self.results, &self.shape, options, m.row[slot]);
        m.alive[slot] == 1 && matches!(known(), Prepared::Open)
    }

    /// Whether the rows of sentence `s` can stay logits: rules that only ban have the same effect on logits as on
    /// log-probabilities. Forced tokens and diverse groups need log-probabilities.
    pub(super) fn keeps_logits(&self, s: usize, hooks: &Hooks<'_>) -> bool {
        self.rules_only_ban(hooks)
            && self.forced(s, self.memory.len[s]).is_none()
            && self.shape.groups == 1
            && self.options.drawn().is_none()
    }

    /// Writes the best continuations of a group's beams into `candidate`, best first. Returns their number, or
    /// `None` if a score is NaN or `+inf`.
    fn best_candidates(&mut self, s: usize, group: usize, rows: &[f32]) -> Option<usize> {
        let (width, vocabulary) = (self.shape.width, self.shape.vocabulary);
        let m = &mut self.memory;
        let mut best = TopK::new(m.candidate_score, m.candidate);
        // In the first step all groups share the row at the end of the prompt.
        let beams = if m.len[s] == m.prompt_len[s] {
            0..1
        } else {
            let width = self.shape.group_width();
            group * width..(group + 1) * width
        };
        for b in beams {
            let slot = s * width + b;
            if m.alive[slot] == 0 {
                continue;
            }
            let row = m.row[slot];
            let start = (row - m.first_row[s]) as usize * vocabulary;
            let finite = match prepared(self.prepared, self.results, &self.shape, self.options, row)
            {
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
                    let shift = Shift { max, log_sum, offset: m.score[slot] };
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
        s: usize,
        group: usize,
        beam: &BeamOptions,
        count: usize,
        observer: &mut Option<Observer<'_>>,
    ) {
        let (width, vocabulary) = (self.shape.group_width(), self.shape.vocabulary as u32);
        let len = self.memory.len[s];
        let reached = len + 1 == self.memory.max_len[s];
        let generated = (len + 1 - self.memory.prompt_len[s]) as usize;
        let norm = length_norm(generated, beam.length_penalty);
        let ends = |token| reached || self.options.eos.contains(&token);
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
                self.insert_finished(s, group, parent as usize, Some(token), score / norm);
                outcome = Outcome::Ends(score / norm);
            }
            self.observe(observer, s, (parent, token, score), outcome);
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
            self.observe(observer, s, (parent, token, score), outcome);
        }
    }

    fn observe(
        &self,
        observer: &mut Option<Observer<'_>>,
        s: usize,
        (parent, token, score): (u32, u32, f32),
        outcome: Outcome,
    ) {
        if let Some(observer) = observer {
            let context = self.view().context(s, s * self.shape.width + parent as usize);
            observer(Observation::Candidate { context, token, score, outcome });
        }
    }

    /// Stores the history of beam `parent`, followed by `token`, if its score is among the group's best. With equal
    /// scores the earlier one ranks first.
    fn insert_finished(
        &mut self,
        s: usize,
        group: usize,
        parent: usize,
        token: Option<u32>,
        score: f32,
    ) {
        let (width, target) = (self.shape.width, self.shape.target);
        let (groups, places) = (self.shape.groups, self.shape.group_width());
        let m = &mut self.memory;
        let scores = &mut m.finished_score[s * width..][..width];
        let order = &mut m.order[s * width + group * places..][..places];
        let count = &mut m.finished_count[s * groups + group];
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
        let from = (s * width + parent) * target;
        let to = (s * width + place) * target;
        m.finished[to..to + len].copy_from_slice(&m.history[from..from + len]);
        m.finished_len[s * width + place] = len as u32;
        if let Some(token) = token {
            m.finished[to + len] = token;
            m.finished_len[s * width + place] += 1;
        }
    }

    /// The condition of step 5 in the module documentation.
    fn group_is_done(&self, s: usize, group: usize, beam: &BeamOptions) -> bool {
        let (places, m) = (self.shape.group_width(), &self.memory);
        let (len, longest) = (m.len[s] + 1, m.max_len[s]);
        let best = group * places;
        if len == longest || m.next_parent[best] == NONE {
            return true;
        }
        if (m.finished_count[s * self.shape.groups + group] as usize) < places {
            return false;
        }
        let favors_long = beam.early_stopping == EarlyStopping::Never && beam.length_penalty > 0.0;
        let bound_length = if favors_long { longest } else { len } - m.prompt_len[s];
        let bound = m.next_score[best] / length_norm(bound_length as usize, beam.length_penalty);
        let sentence = s * self.shape.width;
        let worst = m.order[sentence + best + places - 1] as usize;
        beam.early_stopping == EarlyStopping::WhenFull
            || !(bound > m.finished_score[sentence + worst])
    }

    /// Subtracts the diversity penalty from the tokens that a group just chose, for the groups after it.
    fn penalize_later_groups(
        &mut self,
        s: usize,
        group: usize,
        beam: &BeamOptions,
        rows: &mut [f32],
    ) {
        let (width, vocabulary) = (self.shape.width, self.shape.vocabulary);
        let (places, m) = (self.shape.group_width(), &self.memory);
        let penalty = beam.diversity_penalty as f32;
        let later = if group + 1 == self.shape.groups {
            0..0
        } else if m.len[s] == m.prompt_len[s] {
            0..1
        } else {
            (group + 1) * places..width
        };
        for b in later.filter(|b| m.alive[s * width + b] == 1) {
            let row = (m.row[s * width + b] - m.first_row[s]) as usize;
            for chosen in group * places..(group + 1) * places {
                if m.next_parent[chosen] != NONE {
                    rows[row * vocabulary + m.next_token[chosen] as usize] -= penalty;
                }
            }
        }
    }

    /// Turns the chosen continuations into the beams of the next step.
    fn commit(&mut self, s: usize) {
        let (width, target) = (self.shape.width, self.shape.target);
        let m = &mut self.memory;
        let len = m.len[s] as usize;
        let moves = |b: usize, parent: u32| parent != NONE && parent as usize != b;
        for (b, &parent) in m.next_parent.iter().enumerate() {
            if moves(b, parent) {
                let from = (s * width + parent as usize) * target;
                m.next_history[b * target..][..len].copy_from_slice(&m.history[from..from + len]);
            }
        }
        for (b, &parent) in m.next_parent.iter().enumerate() {
            let slot = s * width + b;
            m.alive[slot] = u32::from(parent != NONE);
            if parent == NONE {
                continue;
            }
            let history = &mut m.history[slot * target..][..=len];
            if moves(b, parent) {
                history[..len].copy_from_slice(&m.next_history[b * target..][..len]);
            }
            history[len] = m.next_token[b];
            m.score[slot] = m.next_score[b];
            m.parent[slot] = m.row[s * width + parent as usize];
        }
        m.len[s] += 1;
    }

    /// Ranks the finished hypotheses of all groups, best first, and removes duplicates. If the sentence ended early
    /// or has no finished hypothesis, its open beams are added first.
    pub(super) fn end_beams(&mut self, s: usize, beam: &BeamOptions, finish: Finish) {
        let (width, target) = (self.shape.width, self.shape.target);
        let (groups, places) = (self.shape.groups, self.shape.group_width());
        if matches!(finish, Finish::Stopped | Finish::Exhausted | Finish::NotFinite) {
            let m = &self.memory;
            let generated = m.len[s].saturating_sub(m.prompt_len[s]);
            let norm = length_norm(generated as usize, beam.length_penalty);
            for b in 0..width {
                if self.memory.alive[s * width + b] == 1 {
                    let score = self.memory.score[s * width + b] / norm;
                    self.insert_finished(s, b / places, b, None, score);
                }
            }
        }
        let m = &mut self.memory;
        let order = &mut m.order[s * width..][..width];
        let counts = &mut m.finished_count[s * groups..][..groups];
        let scores = &m.finished_score[s * width..][..width];
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
            let slot = s * width + place as usize;
            &m.finished[slot * target..][..m.finished_len[slot] as usize]
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
    fn stream(&mut self, s: usize, on_token: &mut Option<OnToken<'_>>) {
        if on_token.is_none() {
            return;
        }
        let prompt = self.memory.prompt_len[s] as usize;
        let from = prompt + self.memory.emitted[s] as usize;
        let certain = self.certain(s, from).len();
        for place in from..from + certain {
            let token = Token {
                sequence: 0,
                index: (place - prompt) as u32,
                id: self.certain(s, from)[place - from],
                log_probability: None,
            };
            self.memory.emitted[s] += 1;
            if Self::emit(on_token, s, token) {
                if self.memory.phase[s] == ACTIVE {
                    self.end(s, Finish::Stopped);
                }
                return;
            }
        }
    }

    /// The tokens from position `from` on that no later step can change.
    fn certain(&self, s: usize, from: usize) -> &[u32] {
        let (width, target, m) = (self.shape.width, self.shape.target, &self.memory);
        let slots = s * width..(s + 1) * width;
        let finished = |place: u32| {
            let slot = s * width + place as usize;
            &m.finished[slot * target..][..m.finished_len[slot] as usize]
        };
        if m.phase[s] != ACTIVE {
            return finished(m.order[slots.start]).get(from..).unwrap_or_default();
        }
        let groups = self.shape.groups;
        let best = (0..groups)
            .filter(|g| m.finished_count[s * groups + g] > 0)
            .map(|g| m.order[slots.start + g * self.shape.group_width()])
            .reduce(|best, place| {
                let score = |place: u32| m.finished_score[slots.start + place as usize];
                if score(place) > score(best) { place } else { best }
            });
        let live = slots.filter(|&slot| m.alive[slot] == 1);
        let live = live.map(|slot| &m.history[slot * target..][..m.len[s] as usize]);
        live.chain(best.map(finished))
            .map(|text| text.get(from..).unwrap_or_default())
            .reduce(|common, text| {
                let same = common.iter().zip(text).take_while(|(a, b)| a == b).count();
                &common[..same]
            })
            .unwrap_or_default()
    }
}
