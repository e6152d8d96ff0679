//! Copies from and to memory of the program that may not exist: a wrong pointer ends the copy, as it does in the kernel.
//!
//! A handler of SIGSEGV and SIGBUS asks [`resume_address`] for the address at which the thread continues after a fault. Without such a
//! handler a fault ends the program, as in any other copy.

use rustix::io::Errno;

/// Copies `bytes` bytes that do not overlap. `FAULT`: a part of them is no memory; what was copied is undefined.
///
/// # Safety
///
/// Each side is valid memory for the copy or raises a fault, and no reference to it exists.
#[inline]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> Result<(), Errno> {
    // SAFETY: promised by the caller.
    if unsafe { machine::copy(to, from, bytes) } == 0 { Ok(()) } else { Err(Errno::FAULT) }
}

/// Copies a value out of the program's memory. `None`: the address is wrong.
///
/// # Safety
///
/// `from` points to a `T` or to memory that raises a fault, and every content is a valid `T`.
#[inline]
pub unsafe fn load<T: Copy>(from: *const T) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the value has the size of a `T`; the caller promised the source.
    unsafe { copy(value.as_mut_ptr().cast(), from.cast(), size_of::<T>()) }.ok()?;
    // SAFETY: every byte was copied, and the caller promised that every content is valid.
    Some(unsafe { value.assume_init() })
}

/// Copies a value into the program's memory. False: the address is wrong.
///
/// # Safety
///
/// `to` points to room for a `T` or to memory that raises a fault.
#[inline]
pub unsafe fn store<T: Copy>(to: *mut T, value: T) -> bool {
    // SAFETY: the value lives until the copy returns; the caller promised the room.
    unsafe { copy(to.cast(), (&raw const value).cast(), size_of::<T>()) }.is_ok()
}

/// Returns the address at which a thread continues that has a fault at `address`. `None`: the fault is none of a copy.
#[must_use]
pub fn resume_address(address: usize) -> Option<usize> {
    machine::resume_address(address)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod machine {
    // Every instruction between the first two names may have a fault; the stack is that of the caller, and one register counts the
    // bytes that are left. The third name returns this count.
    #[cfg(target_arch = "x86_64")]
    std::arch::global_asm!(
        ".pushsection .text.ddss_stream_guarded_copy,\"ax\",@progbits",
        ".balign 64",
        ".globl ddss_stream_guarded_copy, ddss_stream_guarded_copy_end, ddss_stream_guarded_copy_fault",
        ".hidden ddss_stream_guarded_copy, ddss_stream_guarded_copy_end, ddss_stream_guarded_copy_fault",
        "ddss_stream_guarded_copy:",
        "mov rcx, rdx",
        "cmp rcx, 1024",
        "jae 5f",
        "cmp rcx, 16",
        "jb 3f",
        "2:",
        "movups xmm0, [rsi]",
        "movups [rdi], xmm0",
        "add rsi, 16",
        "add rdi, 16",
        "sub rcx, 16",
        "cmp rcx, 16",
        "jae 2b",
        "3:",
        "cmp rcx, 8",
        "jb 4f",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "add rsi, 8",
        "add rdi, 8",
        "sub rcx, 8",
        "4:",
        "cmp rcx, 4",
        "jb 7f",
        "mov eax, [rsi]",
        "mov [rdi], eax",
        "add rsi, 4",
        "add rdi, 4",
        "sub rcx, 4",
        "7:",
        "test rcx, rcx",
        "jz 6f",
        "mov al, [rsi]",
        "mov [rdi], al",
        "inc rsi",
        "inc rdi",
        "dec rcx",
        "jmp 7b",
        "5:",
        "rep movsb",
        "6:",
        "xor eax, eax",
        "ret",
        "ddss_stream_guarded_copy_end:",
        "ddss_stream_guarded_copy_fault:",
        "mov rax, rcx",
        "ret",
        ".popsection",
    );

    #[cfg(target_arch = "aarch64")]
    std::arch::global_asm!(
        ".pushsection .text.ddss_stream_guarded_copy,\"ax\",@progbits",
        ".balign 64",
        ".globl ddss_stream_guarded_copy, ddss_stream_guarded_copy_end, ddss_stream_guarded_copy_fault",
        ".hidden ddss_stream_guarded_copy, ddss_stream_guarded_copy_end, ddss_stream_guarded_copy_fault",
        "ddss_stream_guarded_copy:",
        "cmp x2, #32",
        "b.lo 3f",
        "2:",
        "ldp q0, q1, [x1]",
        "stp q0, q1, [x0]",
        "add x1, x1, #32",
        "add x0, x0, #32",
        "sub x2, x2, #32",
        "cmp x2, #32",
        "b.hs 2b",
        "3:",
        "cmp x2, #8",
        "b.lo 4f",
        "ldr x4, [x1]",
        "str x4, [x0]",
        "add x1, x1, #8",
        "add x0, x0, #8",
        "sub x2, x2, #8",
        "b 3b",
        "4:",
        "cbz x2, 5f",
        "ldrb w4, [x1]",
        "strb w4, [x0]",
        "add x1, x1, #1",
        "add x0, x0, #1",
        "sub x2, x2, #1",
        "b 4b",
        "5:",
        "mov x0, #0",
        "ret",
        "ddss_stream_guarded_copy_end:",
        "ddss_stream_guarded_copy_fault:",
        "mov x0, x2",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        #[link_name = "ddss_stream_guarded_copy"]
        pub(super) fn copy(to: *mut u8, from: *const u8, bytes: usize) -> usize;
        #[link_name = "ddss_stream_guarded_copy_end"]
        fn end();
        #[link_name = "ddss_stream_guarded_copy_fault"]
        fn fault();
    }

    pub(super) fn resume_address(address: usize) -> Option<usize> {
        let (start, end) = (copy as *const () as usize, end as *const () as usize);
        (start..end).contains(&address).then_some(fault as *const () as usize)
    }
}

/// Machines without this code: a wrong pointer ends the program.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    pub(super) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> usize {
        // SAFETY: promised by the caller.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        0
    }

    pub(super) fn resume_address(_: usize) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_nothing_beyond() {
        // If this broke, a stream would change bytes, or memory behind a buffer.
        let source: Vec<u8> = (0..5000u32).map(|byte| (byte * 7 + 1) as u8).collect();
        for bytes in (0..300).chain([1000, 1023, 1024, 1025, 4095, 4900]) {
            for shift in 0..9 {
                let mut target = vec![0; 5000];
                // SAFETY: both vectors are longer than shift and length.
                let copied =
                    unsafe { copy(target.as_mut_ptr().wrapping_add(shift), source.as_ptr().wrapping_add(3), bytes) };
                assert_eq!(copied, Ok(()));
                assert_eq!(target[shift..shift + bytes], source[3..3 + bytes]);
                assert!(target[..shift].iter().chain(&target[shift + bytes..]).all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn only_addresses_of_the_copy_are_resumed() {
        // If this broke, a crash of the program would be taken for a wrong pointer.
        assert_eq!(resume_address(0), None);
        assert_eq!(resume_address(only_addresses_of_the_copy_are_resumed as *const () as usize), None);
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            let start = machine::copy as *const () as usize;
            let resumed = resume_address(start).unwrap();
            assert_eq!((resume_address(start - 1), resume_address(resumed - 1)), (None, Some(resumed)));
            assert_eq!(resume_address(resumed), None);
        }
    }
}
