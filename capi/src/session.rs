//! Sessions: their limits and memory, and how a call takes one.

use crate::cancel::sf_cancel;
use crate::errors::{
    Failure, SF_ERROR_BUSY, SF_ERROR_MEMORY_SIZE, SF_ERROR_UNUSABLE, Value, enter,
};
use crate::executor::{CallerThreads, caller_threads, sf_executor};
use crate::model::sf_model;
use crate::options::sf_options;
use crate::pointers::{out, read_struct, reference, reference_mut, sized_struct};
use crate::session_memory::{ALIGNMENT, BlockPlan, TOO_LARGE, Tables};
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use simdformer::kernels::Dtype;
use simdformer::{Error, Limits, Model, Plan, Session, Threads};
use std::sync::Arc;

/// A model with the memory for a number of sentences and hypotheses, which is planned once: after `sf_session_new` or
/// `sf_session_init` no function of a session calls `malloc`. One thread at a time uses it.
pub struct sf_session {
    /// Whether a call runs.
    busy: AtomicBool,
    /// Whether a call has panicked since the last `sf_session_clear`.
    unusable: AtomicBool,
    /// Only the call that has set `busy` uses it.
    state: UnsafeCell<State>,
    /// The executor of the session, which borrows it. Not in `state`, which calls borrow exclusively.
    threads: UnsafeCell<Option<CallerThreads>>,
    /// The block of the library, if it is not the caller's.
    owned: Option<Layout>,
}

/// What a call works with.
pub(crate) struct State {
    pub(crate) session: Session<'static>,
    pub(crate) tables: Tables,
    /// Sources of one call of `sf_generate`.
    pub(crate) sources: usize,
}

/// The largest requests that a session serves. `sf_limits_init` sets the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_limits {
    /// `sizeof(sf_limits)`.
    pub struct_size: usize,
    /// Sentences at a time, at least 1.
    pub sentences: usize,
    /// Tokens of one source, at least 1; for features its positions, one for two frames.
    pub source_tokens: usize,
    /// Source tokens in one call of `sf_encode`; 0 for `sentences * source_tokens`.
    pub batch_tokens: usize,
    /// Tokens that can be fed to one hypothesis, with the decoder start; 0 for a model that only encodes.
    pub target_tokens: usize,
    /// Hypotheses of one sentence at a time; 0 for 1.
    pub beams: usize,
    /// The most end tokens of a search; 0 for 4.
    pub end_tokens: usize,
    /// The most sources of one call of `sf_generate`; 0 for `sentences`. Each takes about a hundred bytes.
    pub sources: usize,
    /// How keys and values are stored: 0 as it fits the weights, 1 in f32, 2 in f16.
    pub cache: i32,
    /// 0.
    pub reserved: i32,
}

sized_struct! { sf_limits: reserved as i32; }

/// How keys and values are stored: as it fits the weights.
pub const SF_CACHE_DEFAULT: i32 = 0;
/// Keys and values in f32.
pub const SF_CACHE_F32: i32 = 1;
/// Keys and values in f16: half the memory.
pub const SF_CACHE_F16: i32 = 2;

/// The limits in Rust, and the sources of one call.
unsafe fn limits_of(limits: *const sf_limits) -> Result<(Limits, usize), Failure> {
    // SAFETY: the caller's contract.
    let limits = unsafe { read_struct(limits) }?;
    let or = |number: usize, default| if number == 0 { default } else { number };
    let cache = match limits.cache {
        SF_CACHE_DEFAULT => None,
        SF_CACHE_F32 => Some(Dtype::F32),
        SF_CACHE_F16 => Some(Dtype::F16),
        _ => {
            return Err(Failure::argument(
                "sf_limits.cache",
                "a constant SF_CACHE",
                "another number",
            ));
        }
    };
    let defaults = Limits::new(limits.sentences, limits.source_tokens, limits.target_tokens);
    let of_session = Limits {
        batch_tokens: or(limits.batch_tokens, defaults.batch_tokens),
        beams: or(limits.beams, defaults.beams),
        end_tokens: or(limits.end_tokens, defaults.end_tokens),
        cache,
        ..defaults
    };
    Ok((of_session, or(limits.sources, limits.sentences)))
}

/// Sets `limits`, whatever it contains, to `sentences` sentences of `source_tokens` tokens with one hypothesis of
/// `target_tokens` each. The caller need not set `struct_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_limits_init(
    limits: *mut sf_limits,
    sentences: usize,
    source_tokens: usize,
    target_tokens: usize,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        unsafe { out("limits", limits) }?.write(sf_limits {
            struct_size: size_of::<sf_limits>(),
            sentences,
            source_tokens,
            batch_tokens: 0,
            target_tokens,
            beams: 0,
            end_tokens: 0,
            sources: 0,
            cache: SF_CACHE_DEFAULT,
            reserved: 0,
        });
        Ok(())
    })
}

/// A checked request for a session.
struct Request<'m> {
    model: &'m Arc<Model>,
    limits: Limits,
    sources: usize,
    plan: Plan,
    block: BlockPlan,
}

unsafe fn request<'m>(
    model: *const sf_model,
    limits: *const sf_limits,
) -> Result<Request<'m>, Failure> {
    // SAFETY: the caller's contract.
    let model = &unsafe { reference("model", model) }?.model;
    // SAFETY: the caller's contract.
    let (limits, sources) = unsafe { limits_of(limits) }?;
    let plan = Plan::new(model, limits)?;
    let block = BlockPlan::new(Layout::new::<sf_session>(), &limits, sources)?;
    Ok(Request { model, limits, sources, plan, block })
}

impl Request<'_> {
    /// Writes the object into `block`.
    ///
    /// # Safety
    /// The block is aligned to [`ALIGNMENT`] and has the bytes of the plan; nothing else uses it until the session is closed.
    unsafe fn write(
        &self,
        block: *mut u8,
        session: Session<'static>,
        owned: Option<Layout>,
    ) -> *mut sf_session {
        let object = block.cast::<sf_session>();
        // SAFETY: the caller's contract.
        unsafe {
            let state = State { session, tables: self.block.tables(block), sources: self.sources };
            object.write(sf_session {
                busy: AtomicBool::new(false),
                unusable: AtomicBool::new(false),
                state: UnsafeCell::new(state),
                threads: UnsafeCell::new(None),
                owned,
            });
        }
        object
    }
}

/// Writes the bytes that `sf_session_init` needs for these limits to `*bytes`. Allocates nothing.
///
/// Errors: a limit is 0 or beyond the positions of the model; the memory does not fit the address space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_session_bytes(
    model: *const sf_model,
    limits: *const sf_limits,
    bytes: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let (place, request) = unsafe { (out("bytes", bytes)?, request(model, limits)?) };
        place.write(request.block.bytes(request.plan.floats())?);
        Ok(())
    })
}

/// Makes a session in `bytes` bytes of the caller's memory, of any content and alignment, which the session uses alone until
/// `sf_session_close`. Later calls allocate nothing. The session keeps what it needs of the model.
///
/// Errors: as `sf_session_bytes`; `SF_ERROR_MEMORY_SIZE` if there are fewer bytes than that function says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_session_init(
    model: *const sf_model,
    limits: *const sf_limits,
    memory: *mut c_void,
    bytes: usize,
    session: *mut *mut sf_session,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let place = unsafe { out("session", session) }?;
        place.write(core::ptr::null_mut());
        // SAFETY: the contract of the interface.
        let request = unsafe { request(model, limits) }?;
        let (floats, memory) = (request.plan.floats(), memory.cast::<u8>());
        let needed = request.block.bytes(floats)?;
        if memory.is_null() {
            return Err(Failure::argument("memory", "a pointer", "null"));
        }
        if bytes < needed {
            let expected = Value::AtLeast(needed);
            return Err(Failure::own(SF_ERROR_MEMORY_SIZE, "bytes of memory", expected, bytes));
        }
        // Not `align_offset`, which may fail.
        let padding = memory.addr().wrapping_neg() % ALIGNMENT;
        // SAFETY: the caller's memory has `needed` bytes, which are enough after any padding. The floats begin on a multiple of
        // 64 bytes, behind the tables, and the session alone uses them until it is closed: the lifetime ends there.
        let (block, buffer) = unsafe {
            let block = memory.add(padding);
            let buffer = block.add(request.block.floats).cast::<f32>();
            (block, core::slice::from_raw_parts_mut(buffer, floats))
        };
        let session = Session::with_buffer(request.model, request.limits, buffer)?;
        // SAFETY: as above.
        place.write(unsafe { request.write(block, session, None) });
        Ok(())
    })
}

/// Makes a session in memory of the library. `sf_session_close` frees it. Later calls allocate nothing. The session keeps what
/// it needs of the model.
///
/// Errors: as `sf_session_bytes`; no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_session_new(
    model: *const sf_model,
    limits: *const sf_limits,
    session: *mut *mut sf_session,
) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let place = unsafe { out("session", session) }?;
        place.write(core::ptr::null_mut());
        // SAFETY: the contract of the interface.
        let request = unsafe { request(model, limits) }?;
        let session = Session::new(request.model, request.limits)?;
        let head = request.block.head;
        // SAFETY: the object has bytes.
        let block = unsafe { std::alloc::alloc(head) };
        if block.is_null() {
            let Error::OutOfMemory { operand, .. } = TOO_LARGE else { unreachable!() };
            return Err(Error::OutOfMemory { operand, bytes: Some(head.size()) }.into());
        }
        // SAFETY: the block is new, and has this layout.
        place.write(unsafe { request.write(block, session, Some(head)) });
        Ok(())
    })
}

/// A call that uses a session.
struct InUse<'s>(&'s sf_session);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.unusable.store(true, Ordering::Relaxed);
        }
        self.0.busy.store(false, Ordering::Release);
    }
}

impl sf_session {
    /// Takes the session for a call, which no other one may use meanwhile.
    fn take(&self) -> Result<InUse<'_>, Failure> {
        match self.busy.swap(true, Ordering::Acquire) {
            true => {
                let expected = "one that no call uses";
                Err(Failure::own(SF_ERROR_BUSY, "session", expected, "one in use"))
            }
            false => Ok(InUse(self)),
        }
    }
}

/// Runs a call on a session that is usable.
pub(crate) unsafe fn on_session(
    session: *mut sf_session,
    run: impl FnOnce(&mut State) -> Result<(), Failure>,
) -> i32 {
    enter(|| {
        // SAFETY: the caller's contract.
        let session = unsafe { reference("session", session.cast_const()) }?;
        let _in_use = session.take()?;
        if session.unusable.load(Ordering::Relaxed) {
            let expected = "one that did not panic since sf_session_clear";
            return Err(Failure::own(SF_ERROR_UNUSABLE, "session", expected, "one that did"));
        }
        // SAFETY: `take` gave this call the session alone.
        run(unsafe { &mut *session.state.get() })
    })
}

/// Makes the options of the checkpoint as they fit the session: without a maximum length beyond its plan, which then limits
/// the targets itself. `sf_options_close` frees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_session_options(
    session: *mut sf_session,
    options: *mut *mut sf_options,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |state| {
            let place = out("options", options)?;
            let mut config = state.session.model().config().clone();
            let fitted = state.session.search_options();
            config.settings.options.max_length = fitted.max_length;
            config.settings.options.max_new_tokens = fitted.max_new_tokens;
            place.write(Box::into_raw(Box::new(sf_options::new(&config))));
            Ok(())
        })
    }
}

/// Computes on the threads of `executor`, or, if that is null, on the calling thread. What it points to is copied; its context
/// must live as long as the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_session_set_executor(
    session: *mut sf_session,
    executor: *const sf_executor,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |state| {
            let threads = caller_threads(executor)?;
            // The executor is not used while it changes.
            state.session.set_threads(Threads::Serial);
            // SAFETY: the call has the session alone, and nothing borrows the executor now. The object stays where it is until
            // it is closed, and drops the borrow first.
            let place = (*session).threads.get();
            place.write(threads);
            if let Some(threads) = &*place {
                state.session.set_threads(Threads::Executor(threads));
            }
            Ok(())
        })
    }
}

/// Ends later calls with `SF_ERROR_CANCELLED` when `cancel` is set: every call that computes ends some milliseconds after that
/// and changes nothing, except that `sf_generate` releases all sentences.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_session_set_cancel(
    session: *mut sf_session,
    cancel: *const sf_cancel,
) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |state| {
            state.session.set_cancel(reference("cancel", cancel)?.flag.clone());
            Ok(())
        })
    }
}

/// Ends all sentences and hypotheses. After a panic the session can be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_session_clear(session: *mut sf_session) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let session = unsafe { reference("session", session.cast_const()) }?;
        let _in_use = session.take()?;
        // SAFETY: `take` gave this call the session alone.
        unsafe { &mut *session.state.get() }.session.clear();
        session.unusable.store(false, Ordering::Relaxed);
        Ok(())
    })
}

/// Ends a session and sets the pointer to null. The caller's memory is the caller's again. A null pointer is closed already.
///
/// Errors: `SF_ERROR_BUSY` if a call runs, which then goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_session_close(session: *mut *mut sf_session) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let pointer = unsafe { reference_mut("session", session) }?;
        if pointer.is_null() {
            return Ok(());
        }
        // SAFETY: the contract of the interface.
        core::mem::forget(unsafe { reference("session", pointer.cast_const()) }?.take()?);
        let object = core::mem::replace(pointer, core::ptr::null_mut());
        // SAFETY: it came from `Request::write` and is closed once, by the contract of the interface. The session, which borrows
        // the executor, is dropped first: fields are dropped in their order.
        unsafe {
            let owned = (*object).owned;
            object.drop_in_place();
            if let Some(layout) = owned {
                std::alloc::dealloc(object.cast(), layout);
            }
        }
        Ok(())
    })
}

/// cbindgen:ignore
/// Panics inside of the library, in a call on `session`, or in a task on its executor: for tests. Only builds with
/// debug assertions have it.
#[cfg(debug_assertions)]
#[doc(hidden)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_test_panic(session: *mut sf_session, in_task: i32) -> i32 {
    // SAFETY: the contract of the interface.
    unsafe {
        on_session(session, |_| {
            let threads = (*(*session).threads.get()).as_ref();
            match threads.filter(|_| in_task != 0) {
                Some(threads) => {
                    use simdformer::kernels::Executor;
                    threads.for_each(4, &|task| assert!(task != 2, "task {task} panics"));
                    Ok(())
                }
                None => panic!("the call panics"),
            }
        })
    }
}
