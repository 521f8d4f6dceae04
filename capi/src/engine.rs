//! Many sources at a time, in memory that the library plans.

use crate::cancel::sf_cancel;
use crate::errors::{Failure, SF_OK, Value, code_of, enter};
use crate::executor::{caller_threads, sf_executor};
use crate::model::sf_model;
use crate::options::sf_options;
use crate::pointers::{
    close_box, optional, optional_struct, out, reference, sized_struct, write_struct,
};
use crate::sources::{OnEvent, finish_code, sf_hypothesis_tokens, sf_on_event, sf_source, sources};
use core::ffi::{c_char, c_void};
use core::ops::ControlFlow;
use simdformer::search::{Hypothesis, SearchOptions};
use simdformer::{Engine, Error, Event, Generation, Source, Threads};
use std::borrow::Cow;
use std::ffi::CString;
use std::sync::Arc;

/// A model with sessions that the library plans for what the calls need. Any threads may use it at the same time; each call
/// then has sessions of its own.
pub struct sf_engine {
    engine: Engine,
}

/// The settings of an engine. Null stands for the defaults, which are zeros.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_engine_settings {
    /// `sizeof(sf_engine_settings)`.
    pub struct_size: usize,
    /// The threads that compute; null for the calling thread. What it points to is copied, its context must live as long as
    /// the engine.
    pub executor: *const sf_executor,
    /// The most sources that a session decodes at the same time; 0 for 32.
    pub slots: usize,
    /// The most sessions of a call, each on one thread; 0 for as many as there are threads.
    pub sessions: usize,
    /// The most bytes of all sessions; 0 for no limit. Fewer sources are decoded at the same time if they need more.
    pub bytes: usize,
    /// Ends the calls of the engine; null for none.
    pub cancel: *const sf_cancel,
}

/// The result of one source. It and what it points to are valid until `sf_results_close`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_result {
    /// `sizeof(sf_result)`, set by the caller.
    pub struct_size: usize,
    /// `[hypotheses_len]`, best first, samples in the order of their numbers.
    pub hypotheses: *const sf_hypothesis_tokens,
    /// Hypotheses; 0 with an error.
    pub hypotheses_len: usize,
    /// The text of the error; null without one.
    pub message: *const c_char,
    /// `SF_OK`, or the code of the error: the other sources of the call have their results.
    pub error: i32,
    /// A constant `SF_FINISH`.
    pub finish: i32,
}

sized_struct! {
    sf_engine_settings: cancel as usize;
    sf_result: finish as i32;
}

/// Makes an engine of a model, which may be closed before it. `settings` may be null. `sf_engine_close` frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_engine_new(
    model: *const sf_model,
    settings: *const sf_engine_settings,
    engine: *mut *mut sf_engine,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let (model, place) = unsafe { (reference("model", model)?, out("engine", engine)?) };
        place.write(core::ptr::null_mut());
        let mut builder = Engine::builder(Arc::clone(&model.model));
        let mut cancel = None;
        // SAFETY: the contract of the interface.
        if let Some(settings) = unsafe { optional_struct(settings) }? {
            let sf_engine_settings { slots, sessions, bytes, .. } = settings;
            // SAFETY: the contract of the interface.
            if let Some(threads) = unsafe { caller_threads(settings.executor) }? {
                builder = builder.threads(Threads::Shared(Arc::new(threads)));
            }
            // SAFETY: the contract of the interface.
            cancel = unsafe { optional("sf_engine_settings.cancel", settings.cancel) }?;
            builder = if slots > 0 { builder.slots(slots) } else { builder };
            builder = if sessions > 0 { builder.sessions(sessions) } else { builder };
            builder = if bytes > 0 { builder.bytes(bytes) } else { builder };
        }
        let mut engine = builder.build()?;
        if let Some(cancel) = cancel {
            engine.set_cancel(cancel.flag.clone());
        }
        place.write(Box::into_raw(Box::new(sf_engine { engine })));
        Ok(())
    })
}

/// The engine and its arguments in Rust.
struct Call<'a> {
    engine: &'a Engine,
    sources: Vec<Source<'a>>,
    options: Cow<'a, SearchOptions>,
}

unsafe fn call<'a>(
    engine: *const sf_engine,
    first: *const sf_source,
    count: usize,
    options: *const sf_options,
) -> Result<Call<'a>, Failure> {
    // SAFETY: the caller's contract.
    unsafe {
        let engine = &reference("engine", engine)?.engine;
        let options: Option<&sf_options> = optional("options", options)?;
        let options = options.map_or_else(
            || Cow::Owned(engine.search_options()),
            |options| Cow::Borrowed(&options.search),
        );
        let sources = sources(first, count)?.collect::<Result<_, _>>()?;
        Ok(Call { engine, sources, options })
    }
}

/// The results of a call of an engine.
pub struct sf_results {
    results: Vec<OneResult>,
}

struct OneResult {
    found: Result<Generation, (i32, CString)>,
    hypotheses: Vec<sf_hypothesis_tokens>,
}

impl OneResult {
    fn new(found: Result<Generation, Error>) -> Self {
        let found = found.map_err(|error| {
            let text = error.to_string().replace('\0', "");
            (code_of(&error), CString::new(text).unwrap_or_default())
        });
        // The vectors of tokens stay where they are.
        let hypotheses = found.iter().flat_map(|found| &found.hypotheses);
        let hypotheses = hypotheses
            .map(|(tokens, score)| {
                sf_hypothesis_tokens::from_hypothesis(Hypothesis { tokens, score: *score })
            })
            .collect();
        Self { found, hypotheses }
    }
}

/// The targets of `count` sources under `options`, or those of the checkpoint if that is null. `*results` has a result for
/// each source in their order, also for one that failed; `sf_results_close` frees it. It is null if the call fails.
///
/// Errors: what concerns all sources: invalid options, no memory, a cancellation, a source whose struct or pointer is wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_engine_generate(
    engine: *const sf_engine,
    sources: *const sf_source,
    count: usize,
    options: *const sf_options,
    results: *mut *mut sf_results,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let place = unsafe { out("results", results) }?;
        place.write(core::ptr::null_mut());
        // SAFETY: the contract of the interface.
        let Call { engine, sources, options } = unsafe { call(engine, sources, count, options) }?;
        let found = engine.generate_with(&sources[..], &options)?;
        let results = found.into_iter().map(OneResult::new).collect();
        place.write(Box::into_raw(Box::new(sf_results { results })));
        Ok(())
    })
}

/// Writes the result of the source of index `source`.
///
/// Errors: `SF_ERROR_ARGUMENT` if the call had fewer sources.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_results_get(
    results: *const sf_results,
    source: usize,
    result: *mut sf_result,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let results = &unsafe { reference("results", results) }?.results;
        let one = results.get(source).ok_or_else(|| {
            let below = Value::Below(results.len());
            Failure::argument("source", below, source)
        })?;
        let (hypotheses, hypotheses_len) = (one.hypotheses.as_ptr(), one.hypotheses.len());
        let (message, error, finish) = match &one.found {
            Ok(found) => (core::ptr::null(), SF_OK, finish_code(found.finish)),
            Err((code, text)) => (text.as_ptr(), *code, 0),
        };
        let found =
            sf_result { struct_size: 0, hypotheses, hypotheses_len, message, error, finish };
        // SAFETY: the contract of the interface.
        unsafe { write_struct(result, found) }
    })
}

/// Frees the results and sets the pointer to null. A null pointer is closed already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_results_close(results: *mut *mut sf_results) -> i32 {
    // SAFETY: the contract of the interface.
    enter(|| unsafe { close_box("results", results) })
}

/// Decodes `count` sources under `options`, or those of the checkpoint if that is null, and calls `on_event` with each event
/// while the model decodes: from all threads of the executor, and from several at the same time.
///
/// Errors: as `sf_engine_generate`; the first refused source to which `on_event` does not answer `SF_STOP_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_engine_stream(
    engine: *const sf_engine,
    sources: *const sf_source,
    count: usize,
    options: *const sf_options,
    on_event: sf_on_event,
    user: *mut c_void,
) -> i32 {
    enter(|| {
        let on_event = OnEvent::new(on_event, user)?;
        // SAFETY: the contract of the interface.
        let Call { engine, sources, options } = unsafe { call(engine, sources, count, options) }?;
        engine.stream(&sources, &options, &|event: Event<'_>| {
            let count = match &event {
                Event::Done(done) => done.hypotheses().len(),
                _ => 0,
            };
            let mut hypotheses = vec![sf_hypothesis_tokens::NONE; count];
            on_event.report(&event, &mut hypotheses)
        })?;
        Ok(())
    })
}

/// Called with the index of a source and its hidden states, `[rows, d_model]` row-major, which are valid until it returns. A
/// result other than 0 ends the call.
pub type sf_on_hidden = Option<
    unsafe extern "C" fn(user: *mut c_void, source: usize, hidden: *const f32, rows: usize) -> i32,
>;

struct OnHidden {
    call: unsafe extern "C" fn(*mut c_void, usize, *const f32, usize) -> i32,
    user: *mut c_void,
}

// SAFETY: `sf_engine_encode` says that all threads call it.
unsafe impl Sync for OnHidden {}

/// The hidden states of the encoder for each of `count` sources: one row of `d_model` numbers for each token, or for two
/// frames of features. `on_hidden` is called once for each source, in any order, from all threads of the executor and from
/// several at the same time.
///
/// Errors: as `sf_engine_generate`; also what concerns one source is an error of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_engine_encode(
    engine: *const sf_engine,
    sources: *const sf_source,
    count: usize,
    on_hidden: sf_on_hidden,
    user: *mut c_void,
) -> i32 {
    enter(|| {
        let null = || Failure::argument("on_hidden", "a function", "null");
        let on_hidden = OnHidden { call: on_hidden.ok_or_else(null)?, user };
        let on_hidden = &on_hidden;
        // SAFETY: the contract of the interface.
        let Call { engine, sources, .. } =
            unsafe { call(engine, sources, count, core::ptr::null()) }?;
        let d_model = engine.model().config().d_model;
        engine.stream_hidden(&sources, &[], &|source: usize, hidden: &[f32]| {
            let rows = hidden.len() / d_model;
            // SAFETY: the caller's function, with its argument.
            match unsafe { (on_hidden.call)(on_hidden.user, source, hidden.as_ptr(), rows) } {
                0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        })?;
        Ok(())
    })
}

/// Frees the engine and sets the pointer to null. No call may run on it. A null pointer is closed already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_engine_close(engine: *mut *mut sf_engine) -> i32 {
    // SAFETY: the contract of the interface.
    enter(|| unsafe { close_box("engine", engine) })
}
