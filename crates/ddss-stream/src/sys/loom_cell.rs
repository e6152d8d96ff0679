//! Raw access to the cells of the models.

/// Stores through the pointer that loom checks.
pub(crate) fn store(cell: *mut u64, value: u64) {
    // SAFETY: loom hands out the pointer of a live cell, and reports a concurrent access.
    unsafe { *cell = value };
}

/// Loads through the pointer that loom checks.
pub(crate) fn load(cell: *const u64) -> u64 {
    // SAFETY: as above.
    unsafe { *cell }
}
