//! The flag that ends calls from another thread.

use crate::errors::enter;
use crate::pointers::{close_box, out, reference};
use simdformer::Cancel;

/// A flag that ends the calls of the sessions and engines that it was given to. Any thread may use it at any time.
pub struct sf_cancel {
    pub(crate) flag: Cancel,
}

/// Makes a flag that is not set. `sf_cancel_close` frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cancel_new(cancel: *mut *mut sf_cancel) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        let place = unsafe { out("cancel", cancel) }?;
        place.write(Box::into_raw(Box::new(sf_cancel { flag: Cancel::new() })));
        Ok(())
    })
}

/// Sets the flag: calls that run end some milliseconds later with `SF_ERROR_CANCELLED`, and later calls at once, until
/// `sf_cancel_reset`. Takes no lock and allocates nothing, so a signal handler may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cancel_set(cancel: *const sf_cancel) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        unsafe { reference("cancel", cancel) }?.flag.cancel();
        Ok(())
    })
}

/// Clears the flag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cancel_reset(cancel: *const sf_cancel) -> i32 {
    enter(|| {
        // SAFETY: the contract of the interface.
        unsafe { reference("cancel", cancel) }?.flag.reset();
        Ok(())
    })
}

/// Frees the flag and sets the pointer to null. Sessions and engines that have it keep the flag as it is. A null pointer is
/// closed already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_cancel_close(cancel: *mut *mut sf_cancel) -> i32 {
    // SAFETY: the contract of the interface.
    enter(|| unsafe { close_box("cancel", cancel) })
}
