//! `execl`, `execlp` and `execle`: libc gathers their arguments and enters the kernel itself, past this library.
//!
//! A function with a variable list of arguments cannot be written in Rust. Each of these puts its register arguments on the stack, and
//! passes their address and that of the rest.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lists {
    use std::ffi::{c_char, c_int};

    use super::super::exec::{execv, execve, execvp};
    use crate::sys::errno;
    use crate::sys::real::StringList;

    /// Arguments of one call. A longer list is refused: the memory for it is on the stack.
    const ARGUMENTS_MAX: usize = 4096;
    /// Registers behind the path.
    #[cfg(target_arch = "x86_64")]
    const REGISTERS: usize = 5;
    #[cfg(target_arch = "aarch64")]
    const REGISTERS: usize = 7;

    /// Gathers the arguments up to the null, and the one behind it, which `execle` has. `None`: there are too many.
    ///
    /// # Safety
    ///
    /// `registers` points to the register arguments, and `rest` to the others.
    unsafe fn gather(
        registers: StringList,
        rest: StringList,
        list: &mut [*const c_char; ARGUMENTS_MAX],
    ) -> Option<StringList> {
        let at = |place: usize| {
            if place < REGISTERS { registers.wrapping_add(place) } else { rest.wrapping_add(place - REGISTERS) }
        };
        for (place, argument) in list.iter_mut().enumerate() {
            // SAFETY: the program's list ends with null, and the loop has not met it yet.
            *argument = unsafe { at(place).read() };
            if argument.is_null() {
                // SAFETY: only `execle` uses the value; the place is a register, or on the caller's stack.
                return Some(unsafe { at(place + 1).read() }.cast());
            }
        }
        None
    }

    fn too_many() -> c_int {
        errno::set(libc::E2BIG);
        -1
    }

    unsafe extern "C-unwind" fn execl_list(path: *const c_char, registers: StringList, rest: StringList) -> c_int {
        let mut list = [std::ptr::null(); ARGUMENTS_MAX];
        // SAFETY: the entry code passes both.
        match unsafe { gather(registers, rest, &mut list) } {
            // SAFETY: the program's strings, ended by null.
            Some(_) => unsafe { execv(path, list.as_ptr()) },
            None => too_many(),
        }
    }

    unsafe extern "C-unwind" fn execlp_list(name: *const c_char, registers: StringList, rest: StringList) -> c_int {
        let mut list = [std::ptr::null(); ARGUMENTS_MAX];
        // SAFETY: the entry code passes both.
        match unsafe { gather(registers, rest, &mut list) } {
            // SAFETY: the program's strings, ended by null.
            Some(_) => unsafe { execvp(name, list.as_ptr()) },
            None => too_many(),
        }
    }

    unsafe extern "C-unwind" fn execle_list(path: *const c_char, registers: StringList, rest: StringList) -> c_int {
        let mut list = [std::ptr::null(); ARGUMENTS_MAX];
        // SAFETY: the entry code passes both.
        match unsafe { gather(registers, rest, &mut list) } {
            // SAFETY: the program's strings, ended by null, and its environment behind the null.
            Some(environment) => unsafe { execve(path, list.as_ptr(), environment) },
            None => too_many(),
        }
    }

    macro_rules! entry {
        ($($name:ident => $list:ident;)*) => {$(
            /// Replaces libc's function of this name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C-unwind" fn $name() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!(
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "mov rsi, rsp",
                    "lea rdx, [rsp + 48]",
                    "call {list}",
                    "add rsp, 40",
                    "ret",
                    list = sym $list,
                );
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!(
                    "stp x29, x30, [sp, #-80]!",
                    "mov x29, sp",
                    "stp x1, x2, [sp, #16]",
                    "stp x3, x4, [sp, #32]",
                    "stp x5, x6, [sp, #48]",
                    "str x7, [sp, #64]",
                    "add x1, sp, #16",
                    "add x2, sp, #80",
                    "bl {list}",
                    "ldp x29, x30, [sp], #80",
                    "ret",
                    list = sym $list,
                );
            }
        )*};
    }

    entry! {
        execl => execl_list;
        execlp => execlp_list;
        execle => execle_list;
    }
}
