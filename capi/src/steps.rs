//! Sessions step by step: sentences, hypotheses, and the logits of their next tokens.

use crate::errors::{Failure, SF_ERROR_INVALID_HANDLE, Value};
use crate::pointers::{lists, out, slice, slice_mut};
use crate::session::{State, on_session, sf_session};
use core::ffi::c_void;
use simdformer::{Features, HypothesisId, Session, SourceId, StepRow};

/// An encoded source of one session. A handle of a sentence that was released is an error, never another sentence: until 2^32
/// later ones were made.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_sentence {
    /// The slot.
    pub slot: u32,
    /// The number that tells it from others in the same slot.
    pub ticket: u32,
}

/// A hypothesis about a sentence of one session: the tokens that were fed to it. As `sf_sentence`, a handle is never that of
/// another hypothesis.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_hypothesis {
    /// The slot.
    pub slot: u32,
    /// The number that tells it from others in the same slot.
    pub ticket: u32,
}

impl sf_sentence {
    fn from_id(id: SourceId) -> Self {
        Self { slot: id.slot(), ticket: id.generation() as u32 }
    }

    fn find(self, session: &Session<'_>) -> Result<SourceId, Failure> {
        let found = session.sentence_in(self.slot);
        let found = found.filter(|id| id.generation() as u32 == self.ticket);
        found.ok_or_else(|| unknown("sentence", "a sentence of this session", self.slot))
    }
}

impl sf_hypothesis {
    fn from_id(id: HypothesisId) -> Self {
        Self { slot: id.slot(), ticket: id.generation() as u32 }
    }

    fn find(self, session: &Session<'_>) -> Result<HypothesisId, Failure> {
        let found = session.hypothesis_in(self.slot);
        let found = found.filter(|id| id.generation() as u32 == self.ticket);
        found.ok_or_else(|| unknown("hypothesis", "a hypothesis of this session", self.slot))
    }
}

fn unknown(operand: &'static str, expected: &'static str, slot: u32) -> Failure {
    let found = Value::Slot(slot);
    Failure::own(SF_ERROR_INVALID_HANDLE, operand, expected, found)
}

/// More sources, or more rows, than the session was planned for.
fn check_count(operand: &'static str, most: usize, found: usize) -> Result<(), Failure> {
    match found > most {
        true => Err(Failure::beyond_limit(operand, most, found)),
        false => Ok(()),
    }
}

/// Encodes `count` sources: source `i` is `ids[offsets[i]]` to `ids[offsets[i + 1] - 1]`, with its end token; `offsets` has
/// `count + 1` numbers. Stores the keys and values of each in a free slot, and writes the handles to `sentences`, `[count]`.
///
/// Errors: an empty or too long source, an id outside the vocabulary (`sf_last_error_source` is its index); more tokens than
/// planned for one call; more sources than free slots. An error changes nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_encode(
    session: *mut sf_session,
    ids: *const u32,
    offsets: *const usize,
    count: usize,
    sentences: *mut sf_sentence,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, tables, .. }| {
            check_count("sentences", session.plan().limits().sentences, count)?;
            let places = slice_mut("sentences", sentences, count)?;
            let sources = tables.lists.fill(lists(ids, offsets, count)?.map(Ok))?;
            let none = core::iter::repeat_n(SourceId::default(), count);
            let handles = tables.sentences.fill(none.map(Ok))?;
            session.encode(sources, handles)?;
            for (place, handle) in places.iter_mut().zip(handles) {
                *place = sf_sentence::from_id(*handle);
            }
            Ok(())
        })
    }
}

/// Encodes one source of features: `[frames, bins]`, row-major, for an encoder that reads them. Writes the handle to
/// `*sentence`.
///
/// Errors: as `sf_encode`; a number that is not finite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_encode_features(
    session: *mut sf_session,
    features: *const f32,
    frames: usize,
    bins: usize,
    sentence: *mut sf_sentence,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, .. }| {
            let len = frames.checked_mul(bins).ok_or_else(|| {
                Failure::argument("frames", "frames that memory can have", frames)
            })?;
            let place = out("sentence", sentence)?;
            let features = Features::new(slice("features", features, len)?, bins);
            let mut handle = [SourceId::default()];
            session.encode_features(&[features], &mut handle)?;
            place.write(sf_sentence::from_id(handle[0]));
            Ok(())
        })
    }
}

/// The hidden states of the encoder for `count` sources, as in `sf_encode`: `*hidden` points to `[offsets[count] - offsets[0],
/// d_model]`, row-major, valid until the next call on the session. Takes no slot.
///
/// Errors: as `sf_encode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_hidden(
    session: *mut sf_session,
    ids: *const u32,
    offsets: *const usize,
    count: usize,
    hidden: *mut *const f32,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, tables, .. }| {
            check_count("sentences", session.plan().limits().sentences, count)?;
            let place = out("hidden", hidden)?;
            let sources = tables.lists.fill(lists(ids, offsets, count)?.map(Ok))?;
            place.write(session.encoder_output(sources)?.as_ptr());
            Ok(())
        })
    }
}

/// Starts an empty hypothesis about a sentence, and writes its handle to `*hypothesis`.
///
/// Errors: an unknown sentence, or one with as many hypotheses as planned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_start(
    session: *mut sf_session,
    sentence: sf_sentence,
    hypothesis: *mut sf_hypothesis,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, .. }| {
            let place = out("hypothesis", hypothesis)?;
            let sentence = sentence.find(session)?;
            place.write(sf_hypothesis::from_id(session.start(sentence)?));
            Ok(())
        })
    }
}

/// The rows of a step.
unsafe fn rows(
    State { session, tables, .. }: &mut State,
    hypotheses: *const sf_hypothesis,
    tokens: *const u32,
    count: usize,
) -> Result<(&mut Session<'static>, &[StepRow<'static>]), Failure> {
    let limits = session.plan().limits();
    check_count("sentences * beams", limits.sentences * limits.beams, count)?;
    // SAFETY: the caller's contract.
    let (hypotheses, tokens) =
        unsafe { (slice("hypotheses", hypotheses, count)?, slice("tokens", tokens, count)?) };
    let rows = hypotheses.iter().zip(tokens);
    let rows = rows.map(|(hypothesis, &token)| Ok(StepRow::new(hypothesis.find(session)?, token)));
    let rows = tables.rows.fill(rows)?;
    Ok((session, rows))
}

/// Feeds `tokens[i]` to `hypotheses[i]`, for `count` different hypotheses. `*logits` points to the logits of their next tokens,
/// `[count, target_vocabulary]` row-major, before any softmax. They are valid until the next call on the session; the caller
/// may change them.
///
/// Errors: an unknown hypothesis, or one named twice, one of the planned length, an id outside the vocabulary. An error changes
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_step(
    session: *mut sf_session,
    hypotheses: *const sf_hypothesis,
    tokens: *const u32,
    count: usize,
    logits: *mut *mut f32,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |state| {
            let place = out("logits", logits)?;
            let (session, rows) = rows(state, hypotheses, tokens, count)?;
            place.write(session.step(rows)?.as_mut_ptr());
            Ok(())
        })
    }
}

/// Whether `token` may not be chosen for row `row`: any number but 0 bans it. All threads of the executor call it.
pub type sf_banned = Option<unsafe extern "C" fn(user: *mut c_void, row: usize, token: u32) -> i32>;

#[derive(Clone, Copy)]
struct Banned {
    call: sf_banned,
    user: *mut c_void,
}

// SAFETY: `sf_banned` says that all threads call it.
unsafe impl Sync for Banned {}

impl Banned {
    fn bans(&self, row: usize, token: u32) -> bool {
        // SAFETY: the caller's function, with its argument.
        self.call.is_some_and(|call| unsafe { call(self.user, row, token) } != 0)
    }
}

/// As `sf_step`, but writes the best next token of each row to `best`, `[count]`: the one with the largest logit that `banned`
/// does not ban (which may be null), the lowest id among equal ones, `UINT32_MAX` if all are banned. On most machines this takes
/// a third of the time of the logits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_step_best(
    session: *mut sf_session,
    hypotheses: *const sf_hypothesis,
    tokens: *const u32,
    count: usize,
    banned: sf_banned,
    user: *mut c_void,
    best: *mut u32,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |state| {
            let (session, rows) = rows(state, hypotheses, tokens, count)?;
            let places = slice_mut("best", best, count)?;
            let banned = Banned { call: banned, user };
            let found = session.step_argmax(rows, &|row, token| banned.bans(row, token))?;
            places.copy_from_slice(found);
            Ok(())
        })
    }
}

/// Feeds `count` tokens to one hypothesis, in one pass.
///
/// Errors: an unknown hypothesis, more tokens than planned, an id outside the vocabulary. An error changes nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_prefill(
    session: *mut sf_session,
    hypothesis: sf_hypothesis,
    tokens: *const u32,
    count: usize,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, .. }| {
            let hypothesis = hypothesis.find(session)?;
            Ok(session.prefill(hypothesis, slice("tokens", tokens, count)?, None)?)
        })
    }
}

/// Starts a hypothesis with the tokens of `hypothesis`, without copying keys or values, and writes its handle to `*fork`.
///
/// Errors: an unknown hypothesis; its sentence has as many hypotheses as planned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_fork(
    session: *mut sf_session,
    hypothesis: sf_hypothesis,
    fork: *mut sf_hypothesis,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, .. }| {
            let place = out("fork", fork)?;
            let hypothesis = hypothesis.find(session)?;
            place.write(sf_hypothesis::from_id(session.fork(hypothesis)?));
            Ok(())
        })
    }
}

/// Removes the tokens of a hypothesis after the first `len`.
///
/// Errors: an unknown hypothesis, or one with fewer tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_rewind(
    session: *mut sf_session,
    hypothesis: sf_hypothesis,
    len: usize,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, .. }| {
            let hypothesis = hypothesis.find(session)?;
            Ok(session.rewind(hypothesis, len)?)
        })
    }
}

/// Ends a hypothesis. Its forks do not change.
///
/// Errors: an unknown hypothesis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_release(session: *mut sf_session, hypothesis: sf_hypothesis) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, .. }| {
            let hypothesis = hypothesis.find(session)?;
            Ok(session.release(hypothesis)?)
        })
    }
}

/// Ends a sentence and all its hypotheses.
///
/// Errors: an unknown sentence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_release_sentence(
    session: *mut sf_session,
    sentence: sf_sentence,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, .. }| {
            let sentence = sentence.find(session)?;
            Ok(session.release_sentence(sentence)?)
        })
    }
}

/// Writes the number of tokens that were fed to a hypothesis, with those before a fork, to `*len`.
///
/// Errors: an unknown hypothesis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_hypothesis_len(
    session: *mut sf_session,
    hypothesis: sf_hypothesis,
    len: *mut usize,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, .. }| {
            let place = out("len", len)?;
            let hypothesis = hypothesis.find(session)?;
            place.write(session.hypothesis_len(hypothesis)?);
            Ok(())
        })
    }
}

/// Writes the number of free sentence slots to `*count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_free_sentences(session: *mut sf_session, count: *mut usize) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, .. }| {
            out("count", count)?.write(session.free_sentences());
            Ok(())
        })
    }
}
