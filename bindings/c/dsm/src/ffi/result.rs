//! Results of calls, as C gets them.

use crate::error::CallError;
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Message of the last call of this thread that has failed.
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// Makes a call. Returns 0, or the number of its error. No panic leaves it.
pub(super) fn code(call: impl FnOnce() -> Result<(), CallError>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(CallError::Panicked));
    let Err(error) = result else { return 0 };
    let mut message = error.to_string();
    let mut reason = error.source();
    while let Some(cause) = reason {
        message = format!("{message}: {cause}");
        reason = cause.source();
    }
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no message any more.
    let _ = MESSAGE.try_with(|last| last.replace(message));
    error.code()
}

/// Returns the message of the last call of this thread that has failed, valid until the next one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_error() -> *const c_char {
    MESSAGE.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns text that C has passed, of so many bytes at most.
///
/// # Safety
/// The address is null, or that of bytes up to a zero.
pub(super) unsafe fn text<'a>(what: &'static str, text: *const c_char, max: usize) -> Result<&'a str, CallError> {
    if text.is_null() {
        return Err(CallError::Null(what));
    }
    // SAFETY: the caller promises it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().ok().filter(|text| text.len() <= max).ok_or(CallError::Text(what, max))
}
