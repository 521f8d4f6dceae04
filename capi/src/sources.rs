//! Sources as the caller gives them, and the events of their targets.

use crate::errors::{Failure, SF_OK, code_of, record_error};
use crate::options::sf_options;
use crate::pointers::{optional, sized_struct, slice, structs};
use core::ffi::c_void;
use core::ops::ControlFlow;
use simdformer::search::{Finish, Hypothesis};
use simdformer::{Event, Features, Source, Stop};

/// One source: token ids with the end token, or frames of features for an encoder that reads them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_source {
    /// `sizeof(sf_source)`.
    pub struct_size: usize,
    /// `[tokens_len]`: ids below the source vocabulary; null with features.
    pub tokens: *const u32,
    /// At least 1; 0 with features.
    pub tokens_len: usize,
    /// `[prefix_len]`: ids of the target that follow the decoder start. They are not part of the result.
    pub prefix: *const u32,
    /// Ids in `prefix`.
    pub prefix_len: usize,
    /// `[frames, feature_bins]`, row-major; null with token ids.
    pub features: *const f32,
    /// Frames in `features`.
    pub frames: usize,
    /// Numbers in a frame.
    pub feature_bins: usize,
    /// The stream of random numbers of its samples.
    pub stream: u64,
    /// The token that must follow the decoder start, in place of that of the options; null without one.
    pub forced_bos: *const u32,
    /// The options of this source; null for those of the call.
    pub options: *const sf_options,
}

sized_struct! { sf_source: options as usize; }

/// The sources of a call, which borrow the memory of the caller.
pub(crate) unsafe fn sources<'a>(
    sources: *const sf_source,
    count: usize,
) -> Result<impl ExactSizeIterator<Item = Result<Source<'a>, Failure>>, Failure> {
    // SAFETY: the caller's contract.
    let structs = unsafe { structs("sources", sources, count) }?;
    // SAFETY: the caller's contract.
    Ok(structs.map(|source| unsafe { rust_source(source?) }))
}

unsafe fn rust_source<'a>(source: sf_source) -> Result<Source<'a>, Failure> {
    // SAFETY: the caller's contract.
    unsafe {
        let mut found = Source::new(slice("sf_source.tokens", source.tokens, source.tokens_len)?);
        found.prefix = slice("sf_source.prefix", source.prefix, source.prefix_len)?;
        found.stream = source.stream;
        found.forced_bos = optional("sf_source.forced_bos", source.forced_bos)?.copied();
        let options: Option<&sf_options> = optional("sf_source.options", source.options)?;
        found.options = options.map(|options| &options.search);
        if !source.features.is_null() {
            let len = source.frames.checked_mul(source.feature_bins).ok_or_else(|| {
                Failure::argument("sf_source.frames", "frames that memory can have", source.frames)
            })?;
            let values = slice("sf_source.features", source.features, len)?;
            found.features = Some(Features::new(values, source.feature_bins));
        }
        Ok(found)
    }
}

/// A sequence of a target: with its end token, without decoder start and prefix.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_hypothesis_tokens {
    /// `[tokens_len]`.
    pub tokens: *const u32,
    /// Ids in `tokens`.
    pub tokens_len: usize,
    /// The natural logarithm of its probability, with beams divided by a power of its length; NaN in greedy search without
    /// scores.
    pub score: f32,
}

impl sf_hypothesis_tokens {
    pub(crate) const NONE: Self = Self { tokens: core::ptr::null(), tokens_len: 0, score: 0.0 };

    pub(crate) fn from_hypothesis(found: Hypothesis<'_>) -> Self {
        let Hypothesis { tokens, score } = found;
        Self { tokens: tokens.as_ptr(), tokens_len: tokens.len(), score }
    }
}

/// An end token came, or beam search could not improve its hypotheses.
pub const SF_FINISH_END: i32 = 0;
/// A sequence has the maximum length.
pub const SF_FINISH_LENGTH: i32 = 1;
/// A callback or a cancellation stopped the source.
pub const SF_FINISH_STOPPED: i32 = 2;
/// No token was allowed to come next.
pub const SF_FINISH_EXHAUSTED: i32 = 3;
/// A score was NaN or infinite.
pub const SF_FINISH_NOT_FINITE: i32 = 4;

/// The constant of why a source ended.
pub(crate) fn finish_code(finish: Finish) -> i32 {
    match finish {
        Finish::End => SF_FINISH_END,
        Finish::Length => SF_FINISH_LENGTH,
        Finish::Stopped => SF_FINISH_STOPPED,
        Finish::Exhausted => SF_FINISH_EXHAUSTED,
        Finish::NotFinite => SF_FINISH_NOT_FINITE,
    }
}

/// A step of the decoder begins: the time to test a deadline.
pub const SF_EVENT_STEP: i32 = 0;
/// A source cannot be decoded: `error` is the code, and `sf_last_error` has the text. With `SF_STOP_SOURCE` as the answer the
/// call goes on without it, else the call fails with this error.
pub const SF_EVENT_REFUSED: i32 = 1;
/// A token of a source is final.
pub const SF_EVENT_TOKEN: i32 = 2;
/// A source is finished.
pub const SF_EVENT_DONE: i32 = 3;

/// The answer to an event: go on.
pub const SF_CONTINUE: i32 = 0;
/// The answer to an event: end this source with its tokens so far, or leave it out if it is refused.
pub const SF_STOP_SOURCE: i32 = 1;
/// The answer to an event: end the call. Every unfinished source is reported with its tokens so far.
pub const SF_STOP_ALL: i32 = 2;

/// An event of a call that generates. It and what it points to are valid until the callback returns.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_event {
    /// Its size in the library.
    pub struct_size: usize,
    /// The index of the source; 0 for `SF_EVENT_STEP`.
    pub source: usize,
    /// `[hypotheses_len]`, best first, samples in the order of their numbers: of `SF_EVENT_DONE`.
    pub hypotheses: *const sf_hypothesis_tokens,
    /// Hypotheses; 0 if the call ended before the source began.
    pub hypotheses_len: usize,
    /// A constant `SF_EVENT`.
    pub kind: i32,
    /// Of `SF_EVENT_REFUSED`: the code of the error.
    pub error: i32,
    /// Of `SF_EVENT_DONE`: a constant `SF_FINISH`.
    pub finish: i32,
    /// Of `SF_EVENT_TOKEN`: the id.
    pub token: u32,
    /// Of `SF_EVENT_TOKEN`: the index of the sample; 0 in other searches.
    pub sequence: u32,
    /// Of `SF_EVENT_TOKEN`: the index among the tokens of its sequence.
    pub index: u32,
    /// Of `SF_EVENT_TOKEN`: the natural logarithm of its probability; NaN if it was not computed.
    pub log_probability: f32,
    /// 0.
    pub reserved: u32,
}

/// Called with each event; returns an answer: `SF_CONTINUE`, `SF_STOP_SOURCE` or `SF_STOP_ALL`. It must not throw, and not
/// use the session of the call.
pub type sf_on_event =
    Option<unsafe extern "C" fn(user: *mut c_void, event: *const sf_event) -> i32>;

/// The caller's function for events, with its argument. Any thread may call it if the interface says so.
#[derive(Clone, Copy)]
pub(crate) struct OnEvent {
    call: unsafe extern "C" fn(*mut c_void, *const sf_event) -> i32,
    user: *mut c_void,
}

// SAFETY: functions that call it from several threads say so in the header.
unsafe impl Send for OnEvent {}
// SAFETY: as above.
unsafe impl Sync for OnEvent {}

impl OnEvent {
    pub(crate) fn new(call: sf_on_event, user: *mut c_void) -> Result<Self, Failure> {
        let call = call.ok_or_else(|| Failure::argument("on_event", "a function", "null"))?;
        Ok(Self { call, user })
    }

    /// Reports an event. `scratch` is a place for the hypotheses of a source.
    pub(crate) fn report(
        &self,
        event: &Event<'_>,
        scratch: &mut [sf_hypothesis_tokens],
    ) -> ControlFlow<Stop> {
        let mut found = sf_event {
            struct_size: size_of::<sf_event>(),
            source: 0,
            hypotheses: core::ptr::null(),
            hypotheses_len: 0,
            kind: SF_EVENT_STEP,
            error: SF_OK,
            finish: 0,
            token: 0,
            sequence: 0,
            index: 0,
            log_probability: f32::NAN,
            reserved: 0,
        };
        match event {
            Event::Step(_) => (),
            Event::Refused { source, error } => {
                record_error(error);
                found.error = code_of(error);
                (found.kind, found.source) = (SF_EVENT_REFUSED, *source);
            }
            Event::Token { source, token } => {
                (found.kind, found.source) = (SF_EVENT_TOKEN, *source);
                (found.token, found.sequence, found.index) =
                    (token.id, token.sequence, token.index);
                found.log_probability = token.log_probability.unwrap_or(f32::NAN);
            }
            Event::Done(done) => {
                (found.kind, found.source) = (SF_EVENT_DONE, done.source);
                found.finish = finish_code(done.finish);
                let mut count = 0;
                for (place, hypothesis) in scratch.iter_mut().zip(done.hypotheses()) {
                    *place = sf_hypothesis_tokens::from_hypothesis(hypothesis);
                    count += 1;
                }
                (found.hypotheses, found.hypotheses_len) = (scratch.as_ptr(), count);
            }
            // Events of later versions are not in this interface.
            _ => return ControlFlow::Continue(()),
        }
        // SAFETY: the caller's function, with its argument; the event lives until it returns.
        match unsafe { (self.call)(self.user, &raw const found) } {
            SF_STOP_SOURCE => ControlFlow::Break(Stop::Source),
            SF_CONTINUE => ControlFlow::Continue(()),
            _ => ControlFlow::Break(Stop::All),
        }
    }
}
