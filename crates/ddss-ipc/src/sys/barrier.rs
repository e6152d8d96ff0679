//! Keeping the processor from running ahead.

/// Nothing behind this starts, not even a guess at a load, before everything in front of it has ended.
#[inline(always)]
pub(crate) fn end_all_before() {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has this instruction, and it touches no memory.
        unsafe { std::arch::x86_64::_mm_lfence() };
    }
    // Elsewhere a look may start early: a matter of time and nothing else.
}
