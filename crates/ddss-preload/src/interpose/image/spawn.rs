//! `posix_spawn`: libc itself duplicates descriptors in the child, past this library.
//!
//! A stream that the image can use by this library is inherited as it is, and one that is only its standard output returns to TCP. Any
//! other stream gets a pump, and the child, before it takes the program's actions, replaces the descriptors of the stream by the pump's
//! Unix socket. The parent's own descriptors stay.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use ddss_stream::{Endpoint, ImageStart};
use libc::{pid_t, posix_spawn_file_actions_t};

use super::exec::{is_output, loads, loads_by_name};
use super::pump;
use crate::sys::errno;
use crate::sys::real::{self, StringList};
use crate::{calls, descriptor_table};

/// Actions of a program that are looked at.
const ACTIONS_MAX: usize = 4096;

/// Start of libc's list of actions.
#[repr(C)]
struct List {
    allocated: c_int,
    used: c_int,
    actions: *mut Action,
}

/// One action of libc's list: its kind, then the descriptors that it is about.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    kind: c_int,
    _padding: c_int,
    first: c_int,
    second: c_int,
    _rest: [u64; 2],
}

/// A list that libc fills, and that this module reads.
struct Owned(MaybeUninit<posix_spawn_file_actions_t>);

impl Owned {
    fn new() -> Self {
        let mut list = Self(MaybeUninit::zeroed());
        // SAFETY: libc initializes its own type.
        unsafe { libc::posix_spawn_file_actions_init(list.0.as_mut_ptr()) };
        list
    }

    fn duplicate(&mut self, fd: c_int, copy: c_int) -> bool {
        // SAFETY: the list was initialized.
        unsafe { real::adddup2(self.0.as_mut_ptr().cast(), fd, copy) == 0 }
    }

    fn actions(&mut self) -> &mut [Action] {
        // SAFETY: the list was initialized, and begins with these fields; their layout was checked.
        let list = unsafe { self.0.as_mut_ptr().cast::<List>().read() };
        if list.actions.is_null() {
            return &mut [];
        }
        // SAFETY: as above; libc has so many actions.
        unsafe { std::slice::from_raw_parts_mut(list.actions, list.used.max(0) as usize) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the list was initialized, and libc's type is larger than these fields.
        let list = unsafe { self.0.as_mut_ptr().cast::<List>().read() };
        // SAFETY: libc's own array. Strings in copied actions belong to the program's list, so that only the array is freed.
        unsafe { libc::free(list.actions.cast()) };
    }
}

/// Returns libc's number of the kind that duplicates. `None`: libc has another layout than this module.
fn duplicates() -> Option<c_int> {
    static KIND: OnceLock<Option<c_int>> = OnceLock::new();
    *KIND.get_or_init(|| {
        let mut list = Owned::new();
        let is_filled = list.duplicate(3, 4) && list.duplicate(5, 6);
        // SAFETY: libc's type is larger than these fields, and was initialized.
        let start = unsafe { list.0.as_ptr().cast::<List>().read() };
        if !is_filled || start.used != 2 || start.allocated < 2 || start.actions.is_null() {
            return None;
        }
        match list.actions() {
            [one, two] if (one.first, one.second, two.first, two.second, two.kind) == (3, 4, 5, 6, one.kind) => {
                Some(one.kind)
            }
            _ => None,
        }
    })
}

/// Returns a copy of the program's actions.
///
/// # Safety
///
/// `list` is null or an initialized list of libc.
unsafe fn copied(list: *const c_void) -> Vec<Action> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: promised by the caller; the layout was checked.
    let start = unsafe { list.cast::<List>().read() };
    let count = usize::try_from(start.used).unwrap_or(0).min(ACTIONS_MAX);
    // SAFETY: as above; libc has so many actions.
    (0..count).map(|place| unsafe { start.actions.wrapping_add(place).read() }).collect()
}

/// Replaces libc's function of this name: the copy may survive `exec` although the original does not.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, copy: c_int) -> c_int {
    if let Some(endpoint) = descriptor_table::stream(fd)
        && !calls::stay_on_tcp(&endpoint, fd)
    {
        endpoint.set_close_on_exec(false);
    }
    // SAFETY: the program's arguments, unchanged.
    unsafe { real::adddup2(actions, fd, copy) }
}

/// A shared stream of this process and what a spawned image gets of it.
struct Given {
    endpoint: Endpoint,
    /// Descriptors of the stream.
    descriptors: Vec<c_int>,
    is_inherited: bool,
    /// True if one of the image's standard descriptors is the stream.
    is_standard: bool,
    /// True if the stream is nothing but standard output of the image.
    is_only_written: bool,
}

fn given(actions: &[Action], duplicates: c_int) -> Vec<Given> {
    let mut all: Vec<Given> = Vec::new();
    for (fd, endpoint) in descriptor_table::streams().filter(|(_, endpoint)| endpoint.is_shared()) {
        let survives = descriptor_table::survives_exec(fd);
        let place = all.iter().position(|other| other.endpoint.index() == endpoint.index()).unwrap_or(all.len());
        if place == all.len() {
            let is_inherited = endpoint.is_memory_inherited();
            all.push(Given {
                endpoint,
                descriptors: Vec::new(),
                is_inherited,
                is_standard: false,
                is_only_written: true,
            });
        }
        let stream = &mut all[place];
        stream.descriptors.push(fd);
        stream.is_inherited |= survives;
        stream.is_standard |= survives && fd <= libc::STDERR_FILENO;
        stream.is_only_written &= !survives || is_output(fd);
    }
    for stream in &mut all {
        let mut numbers = stream.descriptors.clone();
        for action in actions.iter().filter(|action| action.kind == duplicates) {
            if numbers.contains(&action.first) {
                numbers.push(action.second);
                stream.is_inherited = true;
                stream.is_standard |= action.second <= libc::STDERR_FILENO;
                stream.is_only_written &= is_output(action.second);
            }
        }
    }
    all.retain(|stream| stream.is_inherited);
    all
}

/// Starts an image by `start`, which gets the list of actions. `is_loading`: whether the image loads this library.
///
/// # Safety
///
/// `program` is null or an initialized list of libc.
unsafe fn spawn(
    program: *const c_void,
    is_loading: impl FnOnce() -> Option<bool>,
    start: impl Fn(*const c_void) -> c_int,
) -> c_int {
    let start = |actions| {
        let _start = ImageStart::begin();
        start(actions)
    };
    if !descriptor_table::has_streams() {
        return start(program);
    }
    let duplicates = duplicates();
    // SAFETY: promised by the caller.
    let actions = if duplicates.is_some() { unsafe { copied(program) } } else { Vec::new() };
    let streams = given(&actions, duplicates.unwrap_or(-1));
    let Some(is_loading) = (if streams.is_empty() { None } else { is_loading() }) else { return start(program) };
    let (native, pumped): (Vec<Given>, Vec<Given>) = streams.into_iter().partition(|stream| {
        let is_native = is_loading && stream.endpoint.is_memory_inherited() && !stream.is_standard;
        is_native || stream.is_standard && stream.is_only_written && stream.endpoint.leave_ring()
    });
    // The image is counted before the start: the program may close its own descriptors as soon as the call returns.
    native.iter().for_each(|stream| stream.endpoint.count_process());
    let result = if pumped.is_empty() {
        start(program)
    } else if let Some(duplicates) = duplicates {
        spawn_with_pumps(&pumped, &actions, duplicates, start)
    } else {
        crate::sys::report("ddss-preload: posix_spawn cannot give a stream in shared memory to this program\n");
        libc::ENOTSUP
    };
    if result != 0 {
        native.iter().for_each(|stream| stream.endpoint.uncount_process());
    }
    result
}

fn spawn_with_pumps(
    pumped: &[Given],
    actions: &[Action],
    duplicates: c_int,
    start: impl Fn(*const c_void) -> c_int,
) -> c_int {
    let (mut list, mut sockets, mut is_filled) = (Owned::new(), Vec::new(), true);
    let mut closed = Vec::new();
    for stream in pumped {
        let Some(socket) = stream.descriptors.first().and_then(|fd| pump::start(*fd, stream.is_standard)) else {
            is_filled = false;
            break;
        };
        sockets.push(socket);
        for fd in &stream.descriptors {
            is_filled &= list.duplicate(socket, *fd);
            // A copy is not closed on `exec`, as the descriptor may be.
            let target = |action: &Action| if action.kind == duplicates { action.second } else { action.first };
            let is_taken = actions.iter().any(|action| target(action) == *fd);
            if !descriptor_table::survives_exec(*fd) && !is_taken {
                closed.push(*fd);
            }
        }
    }
    let first = list.actions().len();
    is_filled &= actions.iter().all(|_| list.duplicate(0, 0));
    if is_filled {
        list.actions()[first..].copy_from_slice(actions);
        for fd in closed {
            // SAFETY: the list was initialized.
            unsafe { libc::posix_spawn_file_actions_addclose(list.0.as_mut_ptr(), fd) };
        }
    }
    let result = if is_filled { start(list.0.as_ptr().cast()) } else { libc::ENOMEM };
    for socket in sockets {
        // SAFETY: a descriptor of this function.
        unsafe { real::close(socket) };
    }
    result
}

/// Replaces libc's `posix_spawn`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: StringList,
    environment: StringList,
) -> c_int {
    let error = errno::get();
    // SAFETY: the program promised the strings.
    let is_loading = || unsafe { loads(path, environment) };
    // SAFETY: the program's arguments; the actions are its own, or a list of this library.
    let start = |actions| unsafe { real::posix_spawn(child, path, actions, attributes, arguments, environment) };
    // SAFETY: the program promised the list.
    let result = unsafe { spawn(actions, is_loading, start) };
    errno::set(error);
    result
}

/// Replaces libc's `posix_spawnp`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawnp(
    child: *mut pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: StringList,
    environment: StringList,
) -> c_int {
    let error = errno::get();
    // SAFETY: the program promised the strings.
    let is_loading = || unsafe { loads_by_name(name, environment) };
    // SAFETY: the program's arguments; the actions are its own, or a list of this library.
    let start = |actions| unsafe { real::posix_spawnp(child, name, actions, attributes, arguments, environment) };
    // SAFETY: the program promised the list.
    let result = unsafe { spawn(actions, is_loading, start) };
    errno::set(error);
    result
}
