//! Variables of the program.

use std::ptr;

/// A range of variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variables {
    pub(crate) begin: *mut u8,
    pub(crate) bytes: usize,
}

impl Variables {
    /// Returns the range between two addresses. `None` if the second one is not behind the first one.
    pub(super) fn between(begin: *mut u8, end: *mut u8) -> Option<Self> {
        let bytes = end.addr().checked_sub(begin.addr()).filter(|bytes| *bytes > 0)?;
        Some(Self { begin, bytes })
    }

    /// Returns true if an address is among them.
    pub(crate) fn contain(&self, address: usize) -> bool {
        address.checked_sub(self.begin.addr()).is_some_and(|offset| offset < self.bytes)
    }
}

/// Copies bytes, one by one: AddressSanitizer has its own `memcpy`, which refuses to copy what lies between variables.
///
/// # Safety
/// So many bytes can be read at one address and written at the other one, and no other thread uses them.
pub(crate) unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    for index in 0..bytes {
        let (from, to) = (from.wrapping_add(index), to.wrapping_add(index));
        // SAFETY: the caller promises it.
        let byte = unsafe { ptr::read_volatile(from) };
        // SAFETY: as above.
        unsafe { ptr::write_volatile(to, byte) };
    }
}
