//! Barriers against speculative execution.

/// Waits until all earlier instructions have completed. No later instruction starts before that, not even a speculative
/// load.
#[inline(always)]
pub(crate) fn end_all_before() {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has this instruction, and it touches no memory.
        unsafe { std::arch::x86_64::_mm_lfence() };
    }
    // Elsewhere a poll may start early, which only costs time.
}
