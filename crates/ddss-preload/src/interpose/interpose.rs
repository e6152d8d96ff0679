//! Exported functions that move bytes, and differ only in how they do so on a stream.

/// Defines functions of libc for the program.
///
/// Each moves bytes of a descriptor. One that is no stream costs one look at the table. `native` is the kernel's call.
/// `unless` says when a call fails that the kernel must not see; `errno` is set then.
macro_rules! interpose {
    ($(fn $name:ident($fd:ident: c_int $(, $argument:ident: $kind:ty)*) $(unless $refused:expr)?
        => |$endpoint:ident, $native:ident| $body:expr;)*) => {$(
        #[doc = concat!("Replaces libc's `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($fd: c_int $(, $argument: $kind)*) -> ssize_t {
            #[inline(never)]
            unsafe fn on_stream($fd: c_int $(, $argument: $kind)*) -> ssize_t {
                // SAFETY: the program's arguments, unchanged.
                let $native = || unsafe { real::$name($fd $(, $argument)*) };
                let Some($endpoint) = descriptor_table::stream($fd) else { return $native() };
                // SAFETY: the program promised its buffer or its list.
                unsafe { $body }
            }
            if descriptor_table::may_leave_tcp($fd) {
                // SAFETY: as the program called it.
                return unsafe { on_stream($fd $(, $argument)*) };
            }
            $(if $refused {
                return -1;
            })?
            // SAFETY: the program's arguments, unchanged.
            unsafe { real::$name($fd $(, $argument)*) }
        }
    )*};
}
