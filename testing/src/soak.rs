//! Continuous batching as in a service, at random: when sentences are admitted, which rows are stepped
//! together, when hypotheses fork and end.
//!
//! The number of a sentence determines its whole result: a tree of hypotheses in which each hypothesis
//! chooses its tokens by the bits of its logits. A single wrong bit changes the result, which is compared
//! with that of the same sentence in a session of its own. Nothing here allocates after it has been
//! created.

use simdformer::{Error, HypothesisId, Session, SourceId, StepRow};

/// SplitMix64 of two words.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(b ^ 0xD1B5_4A32_D192_ED03);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The largest number of source tokens of a sentence.
pub const SOURCE: usize = 24;
/// The largest number of target tokens of a hypothesis.
pub const TARGET: usize = 20;
/// Hypotheses of a sentence that start without a prefix.
const ROOTS: usize = 2;
/// Forks of each of them.
const CHILDREN: usize = 3;
/// All hypotheses of a sentence.
const HYPOTHESES: usize = ROOTS * (1 + CHILDREN);

/// The state of a hypothesis.
#[derive(Clone, Copy)]
struct Hypothesis {
    /// Determines its tokens, its length and its forks.
    stream: u64,
    tokens: [u32; TARGET],
    /// Tokens chosen so far. The last of them has not been fed.
    len: usize,
    /// Tokens of the parent, which are fed before its own.
    inherited: usize,
    end: usize,
    /// The digest of all logits since the fork.
    digest: u64,
    /// `None` while it waits for a hypothesis slot.
    row: Option<HypothesisId>,
    done: bool,
}

/// A sentence in a session.
#[derive(Clone, Copy)]
struct Active {
    number: u64,
    sentence: SourceId,
    hypotheses: [Option<Hypothesis>; HYPOTHESES],
    digest: u64,
}

/// Counts of what was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub sentences: usize,
    pub steps: usize,
    pub rows: usize,
    pub forks: usize,
    pub refills: usize,
    pub most_together: usize,
}

impl Hypothesis {
    fn new(stream: u64, vocabulary: usize) -> Self {
        let mut tokens = [0; TARGET];
        tokens[0] = (mix(stream, 1) % vocabulary as u64) as u32;
        let end = 1 + (mix(stream, 2) % (TARGET as u64 - 1)) as usize;
        Self { stream, tokens, len: 1, inherited: 0, end, digest: 0, row: None, done: false }
    }

    /// A fork that has the tokens which `self` was fed.
    fn child(&self, vocabulary: usize) -> Self {
        let stream = mix(self.stream, 100 + self.len as u64);
        let mut child = Self::new(stream, vocabulary);
        child.tokens = self.tokens;
        child.inherited = self.len;
        child.tokens[self.len] = (mix(stream, 1) % vocabulary as u64) as u32;
        child.len = self.len + 1;
        child.end = child.end.max(child.len);
        child
    }

    /// Records the logits after its last token. Returns whether it forks now.
    fn take(&mut self, logits: &[f32]) -> bool {
        let mut digest = self.digest;
        for logit in logits {
            digest = mix(digest, u64::from(logit.to_bits()));
        }
        self.digest = digest;
        if self.len == self.end {
            self.done = true;
            return false;
        }
        self.tokens[self.len] = (mix(digest, self.stream) % logits.len() as u64) as u32;
        self.fork().is_multiple_of(4)
    }

    fn fork(&self) -> u64 {
        mix(self.stream, 1000 + self.len as u64)
    }

    /// The index of the child that hypothesis `index` forks now. Only roots fork, and each has its own
    /// indices, so that the index does not depend on the scheduler.
    fn place(&self, index: usize) -> Option<usize> {
        let place = ROOTS + index * CHILDREN + (self.fork() / 4 % CHILDREN as u64) as usize;
        (index < ROOTS).then_some(place)
    }
}

impl Active {
    /// Gives hypothesis slots to waiting hypotheses while there are free ones.
    fn seat(&mut self, session: &mut Session, totals: &mut Totals) -> Result<(), Error> {
        for hypothesis in self.hypotheses.iter_mut().flatten() {
            if hypothesis.done || hypothesis.row.is_some() {
                continue;
            }
            let row = match session.start(self.sentence) {
                Ok(row) => row,
                Err(Error::BeyondLimit { operand: "beams", .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            session.prefill(row, &hypothesis.tokens[..hypothesis.inherited], None)?;
            totals.refills += usize::from(hypothesis.inherited > 0);
            hypothesis.row = Some(row);
        }
        Ok(())
    }

    /// Records the logits of hypothesis `index`, which was fed its last token.
    fn take(
        &mut self,
        index: usize,
        logits: &[f32],
        session: &mut Session,
        totals: &mut Totals,
    ) -> Result<(), Error> {
        let Some(hypothesis) = &mut self.hypotheses[index] else { return Ok(()) };
        let forks = hypothesis.take(logits);
        let (row, parent) = (hypothesis.row, *hypothesis);
        if !parent.done {
            hypothesis.len += 1;
        }
        if parent.done {
            self.digest = self.digest.wrapping_add(mix(parent.stream, parent.digest));
            if let Some(row) = row {
                session.release(row)?;
            }
        } else if forks
            && let Some(place) = parent.place(index)
            && self.hypotheses[place].is_none()
        {
            let mut child = parent.child(logits.len());
            child.row = match row.map(|row| session.fork(row)) {
                Some(Ok(row)) => {
                    totals.forks += 1;
                    Some(row)
                }
                // It is fed its prefix again when there is a free hypothesis slot.
                Some(Err(Error::BeyondLimit { operand: "beams", .. })) | None => None,
                Some(Err(error)) => return Err(error),
            };
            self.hypotheses[place] = Some(child);
        }
        Ok(())
    }

    fn done(&self) -> bool {
        self.hypotheses.iter().flatten().all(|hypothesis| hypothesis.done)
    }
}

/// A scheduler with random decisions.
pub struct Soak {
    seed: u64,
    draws: u64,
    tenants: Vec<Option<Active>>,
    steps: Vec<StepRow<'static>>,
    /// The sentence and the hypothesis of each row of the step.
    owners: Vec<(usize, usize)>,
    logits: Vec<f32>,
    pub totals: Totals,
}

impl Soak {
    /// For sessions with the limits of `session`.
    pub fn new(seed: u64, session: &Session) -> Self {
        let limits = session.plan().limits();
        let rows = limits.sentences * limits.beams;
        Self {
            seed,
            draws: 0,
            tenants: vec![None; limits.sentences],
            steps: Vec::with_capacity(rows),
            owners: Vec::with_capacity(rows),
            logits: vec![0.0; rows * session.model().config().target_vocab],
            totals: Totals::default(),
        }
    }

    fn chance(&mut self, of: u64) -> bool {
        self.draws += 1;
        mix(self.seed, self.draws).is_multiple_of(of)
    }

    /// Runs sentences `numbers` through `session`, admits them in order, and calls `done(number,
    /// digest)` for each in the order in which they end.
    pub fn decode_sentences(
        &mut self,
        session: &mut Session,
        numbers: core::ops::Range<u64>,
        done: &mut dyn FnMut(u64, u64, &Totals),
    ) -> Result<(), Error> {
        let mut next = numbers.start;
        loop {
            let mut taken = 0;
            for slot in 0..self.tenants.len() {
                if self.tenants[slot].is_none() && next < numbers.end && !self.chance(3) {
                    self.tenants[slot] = Some(admit(session, next)?);
                    next += 1;
                }
                taken += usize::from(self.tenants[slot].is_some());
            }
            if taken == 0 && next == numbers.end {
                return Ok(());
            }
            self.totals.most_together = self.totals.most_together.max(taken);
            self.step(session)?;
            for slot in 0..self.tenants.len() {
                if let Some(tenant) = &self.tenants[slot]
                    && tenant.done()
                {
                    session.release_sentence(tenant.sentence)?;
                    self.totals.sentences += 1;
                    done(tenant.number, tenant.digest, &self.totals);
                    self.tenants[slot] = None;
                }
            }
        }
    }

    /// Steps some of the rows, in random order.
    fn step(&mut self, session: &mut Session) -> Result<(), Error> {
        self.steps.clear();
        self.owners.clear();
        let turn = mix(self.seed, self.draws) as usize;
        for i in 0..self.tenants.len() {
            let slot = (i + turn) % self.tenants.len();
            let Some(mut tenant) = self.tenants[slot].take() else { continue };
            tenant.seat(session, &mut self.totals)?;
            for (index, hypothesis) in tenant.hypotheses.iter().enumerate() {
                if let Some(hypothesis) = hypothesis
                    && let (Some(row), false) = (hypothesis.row, hypothesis.done)
                    && !self.chance(4)
                {
                    let token = hypothesis.tokens[hypothesis.len - 1];
                    self.steps.push(StepRow::new(row, token));
                    self.owners.push((slot, index));
                }
            }
            self.tenants[slot] = Some(tenant);
        }
        let logits = session.step(&self.steps)?;
        let vocabulary = logits.len() / self.steps.len().max(1);
        self.totals.steps += 1;
        self.totals.rows += self.steps.len();
        self.logits[..logits.len()].copy_from_slice(logits);
        for (i, &(slot, index)) in self.owners.iter().enumerate() {
            let logits = &self.logits[i * vocabulary..][..vocabulary];
            if let Some(tenant) = &mut self.tenants[slot] {
                tenant.take(index, logits, session, &mut self.totals)?;
            }
        }
        Ok(())
    }
}

fn admit(session: &mut Session, number: u64) -> Result<Active, Error> {
    let config = session.model().config();
    let (source_vocab, target_vocab) = (config.source_vocab as u64, config.target_vocab);
    let mut source = [0; SOURCE];
    let len = 1 + (mix(number, 7) % SOURCE as u64) as usize;
    for (i, id) in source[..len].iter_mut().enumerate() {
        *id = (mix(number, 50 + i as u64) % source_vocab) as u32;
    }
    let mut sentence = [SourceId::default()];
    session.encode(&[&source[..len]], &mut sentence)?;
    let mut hypotheses = [None; HYPOTHESES];
    for (root, hypothesis) in hypotheses[..ROOTS].iter_mut().enumerate() {
        *hypothesis = Some(Hypothesis::new(mix(number, 900 + root as u64), target_vocab));
    }
    Ok(Active { number, sentence: sentence[0], hypotheses, digest: 0 })
}

/// The digest of sentence `number`, alone in the session: one hypothesis after the other, each in a row of
/// its own that is fed from the first token on.
pub fn alone(session: &mut Session, number: u64) -> Result<u64, Error> {
    session.clear();
    let mut tenant = admit(session, number)?;
    let mut index = 0;
    while index < HYPOTHESES {
        let Some(mut hypothesis) = tenant.hypotheses[index] else {
            index += 1;
            continue;
        };
        if hypothesis.done {
            index += 1;
            continue;
        }
        let row = session.start(tenant.sentence)?;
        for &token in &hypothesis.tokens[..hypothesis.inherited] {
            session.step(&[StepRow::new(row, token)])?;
        }
        while !hypothesis.done {
            let token = hypothesis.tokens[hypothesis.len - 1];
            let logits = session.step(&[StepRow::new(row, token)])?;
            let forks = hypothesis.take(logits);
            let vocabulary = logits.len();
            if hypothesis.done {
                tenant.digest =
                    tenant.digest.wrapping_add(mix(hypothesis.stream, hypothesis.digest));
            } else {
                if let Some(place) = hypothesis.place(index)
                    && forks
                    && tenant.hypotheses[place].is_none()
                {
                    tenant.hypotheses[place] = Some(hypothesis.child(vocabulary));
                }
                hypothesis.len += 1;
            }
        }
        tenant.hypotheses[index] = Some(hypothesis);
        session.release(row)?;
        // A child may come before this index.
        index = 0;
    }
    session.release_sentence(tenant.sentence)?;
    Ok(tenant.digest)
}
