//! Calls of a space.

use super::result::{code, text};
use super::variables::Variables;
use crate::error::CallError;
use crate::process::{self, Process, check_index, with};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::time::Duration;

/// Bytes of the name of a region at most.
const NAME_MAX: usize = 64;

/// Function of the program that rank 0 starts on other ranks.
type Function = unsafe extern "C" fn();
/// Function of the program for a page that is lost.
type OnLostPage = unsafe extern "C" fn(*const c_char);

fn check<T>(what: &'static str, address: *mut T) -> Result<*mut T, CallError> {
    if address.is_null() { Err(CallError::Null(what)) } else { Ok(address) }
}

fn in_process(call: impl FnOnce(&mut Process) -> Result<(), CallError>) -> c_int {
    code(|| with(call))
}

/// Joins the space of `ddss dsm run`: see `ddss_dsm.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_join(bytes: u64, timeout_s: u32, on_lost_page: Option<OnLostPage>) -> c_int {
    code(|| {
        let timeout = (timeout_s > 0).then(|| Duration::from_secs(timeout_s.into()));
        let callback = on_lost_page.map(|callback| -> process::OnLostPage {
            Box::new(move |page| {
                let message = CString::new(page.to_string().replace('\0', " ")).unwrap_or_default();
                // SAFETY: the program has passed a function of this type, and the text lives until it returns.
                unsafe { callback(message.as_ptr()) };
            })
        });
        process::join(bytes, timeout, callback)
    })
}

/// Leaves the space.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_leave() -> c_int {
    code(process::leave)
}

/// Returns the number of this rank, or -1.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_rank() -> c_int {
    process::place()[0]
}

/// Returns the number of ranks, or -1.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_ranks() -> c_int {
    process::place()[1]
}

/// Opens a region.
///
/// # Safety
/// The name is null or ends with a zero, and the result is null or can be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ddss_dsm_region(name: *const c_char, bytes: usize, address: *mut *mut c_void) -> c_int {
    in_process(|process| {
        let address = check("the place of the address", address)?;
        // SAFETY: the caller promises it.
        let name = unsafe { text("the name", name, NAME_MAX) }?;
        let region = process.region(name, bytes.max(1))?;
        // SAFETY: the caller promises that it can be written.
        unsafe { address.write(region.cast()) };
        Ok(())
    })
}

/// Allocates shared memory. Returns null if there is none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_malloc(bytes: usize) -> *mut c_void {
    let mut allocated = ptr::null_mut();
    in_process(|process| {
        allocated = process.heap.allocate(&mut process.space, bytes)?;
        Ok(())
    });
    allocated.cast()
}

/// Frees shared memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_free(address: *mut c_void) -> c_int {
    if address.is_null() {
        return 0;
    }
    in_process(|process| process.heap.free(&mut process.space, address.cast()))
}

/// Meets all ranks.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_barrier() -> c_int {
    in_process(Process::barrier)
}

/// Acquires a lock.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_lock(lock: u32) -> c_int {
    in_process(|process| Ok(process.space.acquire(check_index("lock", lock)?)?))
}

/// Releases a lock.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_unlock(lock: u32) -> c_int {
    in_process(|process| Ok(process.space.release(check_index("lock", lock)?)?))
}

/// Gives the index of a lock that no rank has been given.
///
/// # Safety
/// The result is null or can be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ddss_dsm_new_lock(lock: *mut u32) -> c_int {
    in_process(|process| {
        let lock = check("the place of the lock", lock)?;
        let found = process.new_lock()?;
        // SAFETY: the caller promises that it can be written.
        unsafe { lock.write(found) };
        Ok(())
    })
}

/// Adds one to a semaphore.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_post(semaphore: u32) -> c_int {
    in_process(|process| Ok(process.space.post(check_index("semaphore", semaphore)?)?))
}

/// Waits for a semaphore.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_wait(semaphore: u32) -> c_int {
    in_process(|process| Ok(process.space.wait(check_index("semaphore", semaphore)?)?))
}

/// Adds to a counter, and gives its value before.
///
/// # Safety
/// The result is null or can be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ddss_dsm_add(counter: u32, delta: u64, before: *mut u64) -> c_int {
    in_process(|process| {
        let value = process.space.add(check_index("counter", counter)?, delta)?;
        if !before.is_null() {
            // SAFETY: the caller promises that it can be written.
            unsafe { before.write(value) };
        }
        Ok(())
    })
}

/// Writes a checkpoint.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_checkpoint(step: u64) -> c_int {
    in_process(|process| process.checkpoint(step))
}

/// Gives the step of the checkpoint from which the space goes on. Returns 1 if there is one.
///
/// # Safety
/// The result is null or can be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ddss_dsm_restored(step: *mut u64) -> c_int {
    let mut is_restored = 0;
    let failed = in_process(|process| {
        let step = check("the place of the step", step)?;
        if let Some(restored) = process.space.restored() {
            // SAFETY: the caller promises that it can be written.
            unsafe { step.write(restored) };
            is_restored = 1;
        }
        Ok(())
    });
    if failed < 0 { failed } else { is_restored }
}

/// Copies a variable to all other ranks, at the next barrier.
///
/// # Safety
/// So many bytes can be read at the address, and written at the same address of the other ranks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ddss_dsm_distribute(address: *mut c_void, bytes: usize) -> c_int {
    in_process(|process| {
        let (address, Process { space, heap, distribution, .. }) = (check("the address", address)?, process);
        // SAFETY: the caller promises it.
        unsafe { distribution.distribute(space, heap, address.cast(), bytes) }
    })
}

/// Starts a function on the next rank, with the variables between two addresses.
///
/// # Safety
/// The variables can be read, and written at the other ranks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ddss_dsm_create(
    function: Option<Function>,
    begin: *mut c_void,
    end: *mut c_void,
) -> c_int {
    in_process(|process| {
        let function = function.ok_or(CallError::Null("the function"))?;
        let variables = Variables::between(begin.cast(), end.cast()).ok_or(CallError::Null("the range"))?;
        let Process { space, heap, program, .. } = process;
        // SAFETY: the caller promises it.
        unsafe { program.create(space, heap, function as usize, variables) }
    })
}

/// Waits for a function that rank 0 starts on this rank. Gives null at rank 0, and if there is none.
///
/// # Safety
/// The variables can be written, no other thread uses them, and the result is null or can be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ddss_dsm_await_function(
    begin: *mut c_void,
    end: *mut c_void,
    function: *mut Option<Function>,
) -> c_int {
    in_process(|process| {
        let result = check("the place of the function", function)?;
        let variables = Variables::between(begin.cast(), end.cast()).ok_or(CallError::Null("the range"))?;
        let Process { space, heap, program, .. } = process;
        // SAFETY: the caller promises it.
        let function = unsafe { program.await_function(space, heap, variables) }?;
        // SAFETY: rank 0 has the same program at the same address, and has passed a function of this type.
        let function = function.map(|address| unsafe { std::mem::transmute::<usize, Function>(address) });
        // SAFETY: the caller promises that it can be written.
        unsafe { result.write(function) };
        Ok(())
    })
}

/// Tells rank 0 that the function of this rank has ended.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_end_function() -> c_int {
    in_process(|process| process.program.end(&mut process.space))
}

/// Waits in rank 0 until all functions have ended.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ddss_dsm_await_ends() -> c_int {
    in_process(|process| process.program.await_ends(&mut process.space, &process.heap))
}
