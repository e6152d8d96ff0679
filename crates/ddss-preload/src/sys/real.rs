//! The functions of the next library, looked up by name at their first call.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pid_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

/// Function that a process begins with.
pub(crate) type Start = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Strings of a program image, ended by null.
pub(crate) type StringList = *const *const c_char;

struct Function {
    address: AtomicPtr<c_void>,
    name: &'static CStr,
}

impl Function {
    const fn new(name: &'static CStr) -> Self {
        Self { address: AtomicPtr::new(std::ptr::null_mut()), name }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let name: *const c_char = self.name.as_ptr();
        // SAFETY: the name is a C string; the call finds the symbol behind this library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        // A program may load a library with this function later.
        if found.is_null() {
            return missing as *mut c_void;
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Stands for a function that this libc does not have.
extern "C" fn missing() -> c_long {
    super::errno::set(libc::ENOSYS);
    -1
}

macro_rules! real {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $symbol:literal;)*) => {
        #[allow(non_upper_case_globals, reason = "each has the name of its function")]
        mod functions {
            $(pub(super) static $name: super::Function = super::Function::new($symbol);)*
        }

        /// Looks all functions up: the loader's locks and memory are not for signal handlers.
        pub(crate) fn find_all() {
            $(functions::$name.get();)*
        }

        $(
        /// Calls the next library's function of this name.
        ///
        /// # Safety
        ///
        /// As for the C function.
        #[inline]
        pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
            type Real = unsafe extern "C-unwind" fn($($kind),*) -> $result;
            // SAFETY: the symbol of this name has this signature in every libc.
            let function = unsafe { std::mem::transmute::<*mut c_void, Real>(functions::$name.get()) };
            // SAFETY: promised by the caller.
            unsafe { function($($argument),*) }
        }
        )*
    };
}

real! {
    fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t = c"read";
    fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t = c"write";
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = c"readv";
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = c"writev";
    fn recv(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t = c"recv";
    fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t = c"send";
    fn recvfrom(fd: c_int, to: *mut c_void, bytes: size_t, flags: c_int, name: *mut sockaddr, length: *mut socklen_t) -> ssize_t = c"recvfrom";
    fn sendto(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int, name: *const sockaddr, length: socklen_t) -> ssize_t = c"sendto";
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = c"recvmsg";
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = c"sendmsg";
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int, timeout: *mut timespec) -> c_int = c"recvmmsg";
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int) -> c_int = c"sendmmsg";
    fn connect(fd: c_int, name: *const sockaddr, length: socklen_t) -> c_int = c"connect";
    fn accept4(fd: c_int, name: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int = c"accept4";
    fn accept(fd: c_int, name: *mut sockaddr, length: *mut socklen_t) -> c_int = c"accept";
    fn shutdown(fd: c_int, how: c_int) -> c_int = c"shutdown";
    fn setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, length: socklen_t) -> c_int = c"setsockopt";
    fn getsockopt(fd: c_int, level: c_int, option: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int = c"getsockopt";
    fn getsockname(fd: c_int, name: *mut sockaddr, length: *mut socklen_t) -> c_int = c"getsockname";
    fn getpeername(fd: c_int, name: *mut sockaddr, length: *mut socklen_t) -> c_int = c"getpeername";
    fn close(fd: c_int) -> c_int = c"close";
    fn close_range(first: u32, last: u32, flags: c_int) -> c_int = c"close_range";
    fn dup(fd: c_int) -> c_int = c"dup";
    fn dup2(fd: c_int, copy: c_int) -> c_int = c"dup2";
    fn dup3(fd: c_int, copy: c_int, flags: c_int) -> c_int = c"dup3";
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = c"fcntl";
    fn ioctl(fd: c_int, command: usize, argument: usize) -> c_int = c"ioctl";
    fn poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = c"poll";
    fn ppoll(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int = c"ppoll";
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int = c"select";
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = c"pselect";
    fn epoll_create(size: c_int) -> c_int = c"epoll_create";
    fn epoll_create1(flags: c_int) -> c_int = c"epoll_create1";
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int = c"epoll_ctl";
    fn epoll_wait(set: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int = c"epoll_wait";
    fn epoll_pwait(set: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int = c"epoll_pwait";
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t = c"sendfile";
    fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, bytes: size_t, flags: u32) -> ssize_t = c"splice";
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = c"preadv2";
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = c"pwritev2";
    fn fork() -> pid_t = c"fork";
    fn bare_fork() -> pid_t = c"_Fork";
    fn clone(start: Start, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut pid_t, tls: *mut c_void, child: *mut pid_t) -> c_int = c"clone";
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = c"fdopen";
    fn fileno(file: *mut FILE) -> c_int = c"fileno";
    fn execve(path: *const c_char, arguments: StringList, environment: StringList) -> c_int = c"execve";
    fn execv(path: *const c_char, arguments: StringList) -> c_int = c"execv";
    fn execvp(name: *const c_char, arguments: StringList) -> c_int = c"execvp";
    fn execvpe(name: *const c_char, arguments: StringList, environment: StringList) -> c_int = c"execvpe";
    fn fexecve(fd: c_int, arguments: StringList, environment: StringList) -> c_int = c"fexecve";
    fn posix_spawn(child: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: StringList, environment: StringList) -> c_int = c"posix_spawn";
    fn posix_spawnp(child: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: StringList, environment: StringList) -> c_int = c"posix_spawnp";
    fn system(command: *const c_char) -> c_int = c"system";
    fn wordexp(words: *const c_char, expanded: *mut c_void, flags: c_int) -> c_int = c"wordexp";
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE = c"popen";
    fn adddup2(actions: *mut c_void, fd: c_int, copy: c_int) -> c_int = c"posix_spawn_file_actions_adddup2";
    fn sigtimedwait(set: *const sigset_t, info: *mut libc::siginfo_t, timeout: *const timespec) -> c_int = c"sigtimedwait";
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int = c"sigaction";
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long = c"syscall";
    fn io_uring_queue_init(entries: u32, ring: *mut c_void, flags: u32) -> c_int = c"io_uring_queue_init";
    fn io_uring_queue_init_mem(entries: u32, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, bytes: usize) -> c_int = c"io_uring_queue_init_mem";
    fn io_uring_setup(entries: u32, parameters: *mut c_void) -> c_int = c"io_uring_setup";
    fn io_uring_queue_init_params(entries: u32, ring: *mut c_void, parameters: *mut c_void) -> c_int = c"io_uring_queue_init_params";
}
