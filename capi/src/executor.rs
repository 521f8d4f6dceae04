//! The caller's threads.

use crate::errors::Failure;
use crate::pointers::{optional_struct, sized_struct};
use core::any::Any;
use core::ffi::c_void;
use core::panic::AssertUnwindSafe;
use simdformer::kernels::Executor;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

/// A task of `sf_executor`: runs the part of number `index`.
pub type sf_task = Option<unsafe extern "C" fn(argument: *mut c_void, index: usize)>;

/// The caller's threads. The library starts none: without an executor every call computes on the calling thread. The results
/// have the same bits in both cases.
///
/// A wrong executor is only slow: a task that is called twice runs once, one that is never called runs at the end on the
/// calling thread.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct sf_executor {
    /// `sizeof(sf_executor)`.
    pub struct_size: usize,
    /// The first argument of both functions. Any thread may get it.
    pub context: *mut c_void,
    /// The number of threads that take part, with the calling one.
    pub threads: Option<unsafe extern "C" fn(context: *mut c_void) -> usize>,
    /// Calls `task(argument, index)` for each index from 0 to `tasks - 1` (at most 1,023), on any threads, and returns when
    /// all these calls have returned: no thread may call `task` after that. Several threads may call `for_each` at the same
    /// time if they share the executor. It must not throw, and not call functions of this library with the same session.
    pub for_each: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            tasks: usize,
            task: sf_task,
            argument: *mut c_void,
        ),
    >,
}

sized_struct! { sf_executor: for_each as usize; }

/// A checked [`sf_executor`].
#[derive(Clone, Copy)]
pub(crate) struct CallerThreads {
    context: *mut c_void,
    threads: unsafe extern "C" fn(*mut c_void) -> usize,
    for_each: unsafe extern "C" fn(*mut c_void, usize, sf_task, *mut c_void),
}

// SAFETY: any thread may get the context, by the contract of `sf_executor`.
unsafe impl Send for CallerThreads {}
// SAFETY: several threads may call the functions at the same time, by the contract of `sf_executor`.
unsafe impl Sync for CallerThreads {}

/// `None` for a null pointer.
pub(crate) unsafe fn caller_threads(
    executor: *const sf_executor,
) -> Result<Option<CallerThreads>, Failure> {
    // SAFETY: the caller's contract.
    let Some(executor) = (unsafe { optional_struct(executor) })? else { return Ok(None) };
    let sf_executor { context, threads, for_each, .. } = executor;
    let null = |operand| Failure::argument(operand, "a function", "null");
    let threads = threads.ok_or_else(|| null("sf_executor.threads"))?;
    let for_each = for_each.ok_or_else(|| null("sf_executor.for_each"))?;
    Ok(Some(CallerThreads { context, threads, for_each }))
}

/// A function of task numbers, and the panic of one of its calls: none may leave a function of C.
struct Tasks<'t> {
    task: &'t (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

unsafe extern "C" fn run_task(argument: *mut c_void, index: usize) {
    // SAFETY: `for_each` below passes a pointer to its `Tasks`, which live until the caller's function has returned, and by
    // the contract of `sf_executor` no thread calls a task after that.
    let tasks: &Tasks<'_> = unsafe { &*argument.cast() };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (tasks.task)(index))) {
        tasks.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
    }
}

impl Executor for CallerThreads {
    fn threads(&self) -> usize {
        // SAFETY: the contract of `sf_executor`.
        unsafe { (self.threads)(self.context) }
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let shared = Tasks { task, panic: Mutex::new(None) };
        let argument = core::ptr::from_ref(&shared).cast_mut().cast();
        // SAFETY: the contract of `sf_executor`; the argument is that of `run_task`.
        unsafe { (self.for_each)(self.context, tasks, Some(run_task), argument) };
        if let Some(panic) = shared.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }
}
