//! The complete decoding loop on a session.

use crate::errors::Failure;
use crate::options::sf_options;
use crate::pointers::{optional_struct, reference, sized_struct, write_struct};
use crate::session::{State, on_session, sf_session};
use crate::sources::{OnEvent, sf_hypothesis_tokens, sf_on_event, sf_source};
use core::ffi::c_void;
use simdformer::Event;
use simdformer::search::Hooks;

/// What a call of `sf_generate` did.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_stats {
    /// `sizeof(sf_stats)`, set by the caller.
    pub struct_size: usize,
    /// Steps of the decoder.
    pub steps: usize,
    /// Tokens fed in all steps, without prefixes.
    pub rows: usize,
    /// Sources that were not finished at `SF_STOP_ALL`.
    pub cancelled: usize,
}

sized_struct! { sf_stats: cancelled as usize; }

/// Decodes `count` sources under `options` in the planned memory of a session, and calls `on_event` with each event, on the
/// calling thread. Sources that wait take the slots of those that are finished. Sentences of earlier calls are released.
/// `stats` may be null. `sf_session_options` makes the options of the checkpoint.
///
/// Errors: invalid options, or options beyond the plan; more sources than planned (`sf_limits.sources`); the first refused
/// source to which `on_event` does not answer `SF_STOP_SOURCE`; a cancellation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_generate(
    session: *mut sf_session,
    sources: *const sf_source,
    count: usize,
    options: *const sf_options,
    on_event: sf_on_event,
    user: *mut c_void,
    stats: *mut sf_stats,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |State { session, tables, sources: most }| {
            let on_event = OnEvent::new(on_event, user)?;
            let options = &reference("options", options)?.search;
            // Before anything runs.
            optional_struct(stats.cast_const())?;
            if count > *most {
                return Err(Failure::beyond_limit("sources", *most, count));
            }
            let sources = tables.sources.fill(crate::sources::sources(sources, count)?)?;
            let beams = session.plan().limits().beams;
            let none = core::iter::repeat_n(sf_hypothesis_tokens::NONE, beams);
            let hypotheses = tables.hypotheses.fill(none.map(Ok))?;
            let report = &mut |event: Event<'_>| on_event.report(&event, hypotheses);
            let found = session.generate(sources, options, &mut Hooks::default(), report)?;
            if stats.is_null() {
                return Ok(());
            }
            let (steps, rows, cancelled) = (found.steps, found.rows, found.cancelled);
            write_struct(stats, sf_stats { struct_size: 0, steps, rows, cancelled })
        })
    }
}
