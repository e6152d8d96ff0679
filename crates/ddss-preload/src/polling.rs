//! `poll` over streams and other descriptors.

use std::time::{Duration, Instant};

use ddss_stream::{Blocked, Descriptor, Endpoint, Spin};
use libc::{pollfd, sigset_t};

use crate::descriptor_table;
use crate::sys::Array;
use crate::sys::kernel::kernel_poll;

const IN: i16 = libc::POLLIN | libc::POLLRDNORM;
const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;
const END: i16 = libc::POLLRDHUP;
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP;

/// Streams, or entries of a list, for which no memory is needed.
const HERE: usize = 64;

/// Sleep of a call whose list has no room for bells.
const LOOK_WITHOUT_BELLS: Duration = Duration::from_millis(10);
/// Descriptors that ring for a stream.
const BELLS: usize = 2;

/// A stream in the list.
struct Polled {
    place: usize,
    endpoint: Endpoint,
    is_held: bool,
}

impl Drop for Polled {
    fn drop(&mut self) {
        if self.is_held {
            self.endpoint.release();
        }
    }
}

/// Returns true if the library has a part in the answer.
pub(crate) fn concerns(list: &[pollfd]) -> bool {
    list.iter().any(|entry| descriptor_table::stream(entry.fd).is_some())
}

/// Polls. `timeout` `None` waits without end. Returns the number of ready descriptors or the error number.
pub(crate) fn poll(list: &mut [pollfd], timeout: Option<Duration>, mask: *const sigset_t) -> Result<usize, i32> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut streams = Array::<Polled, HERE>::new();
    for (place, entry) in list.iter().enumerate() {
        if let Some(endpoint) = descriptor_table::stream(entry.fd) {
            // No other thread may move an undecided stream to memory while this one waits for TCP only.
            let is_held = endpoint.hold();
            streams.push(Polled { place, endpoint, is_held })?;
        }
    }
    poll_streams(list, &streams, deadline, timeout == Some(Duration::ZERO), mask)
}

fn poll_streams(
    list: &mut [pollfd],
    streams: &[Polled],
    deadline: Option<Instant>,
    is_look: bool,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    let librarys = || streams.iter().filter(|polled| polled.endpoint.is_shared());
    let is_ready = |list: &[pollfd]| librarys().any(|polled| bits(polled, &list[polled.place]) != 0);
    loop {
        let mut blocked = Array::<Blocked<'_>, HERE>::new();
        for polled in librarys() {
            let events = list[polled.place].events;
            blocked.push(polled.endpoint.block(events & (IN | END) != 0, events & OUT != 0))?;
        }
        let mut ready = is_ready(list);
        if !ready && !is_look {
            ready = Spin::until(|| is_ready(list).then_some(())).is_some();
        }
        if !ready {
            blocked.iter().for_each(Blocked::silence);
            for polled in librarys() {
                polled.endpoint.rest(list[polled.place].events & OUT != 0);
            }
            ready = is_ready(list);
        }
        let (mut extended, owes_set) = extend(list, streams)?;
        let left = if ready || is_look {
            Some(Duration::ZERO)
        } else {
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
        };
        let short = if owes_set { Some(LOOK_WITHOUT_BELLS) } else { ddss_stream::before_sleep() };
        let idle = short.filter(|short| left.is_none_or(|left| *short < left));
        let slept = poll_in_kernel(&mut extended, list.len(), idle.or(left), mask);
        if idle.is_some() && slept == Ok(0) {
            ddss_stream::after_idle_sleep();
        }
        drop(blocked);
        slept?;
        for (entry, found) in list.iter_mut().zip(extended.iter()) {
            entry.revents = found.revents;
        }
        for (polled, bells) in librarys().zip(extended[list.len()..].chunks(BELLS)) {
            if bells.iter().any(|bell| bell.revents & libc::POLLNVAL != 0) {
                polled.endpoint.lose_bells();
            }
        }
        for polled in librarys() {
            let found = list[polled.place].revents;
            if found & libc::POLLNVAL == 0 {
                merge(polled, &mut list[polled.place], found);
            }
        }
        let count = list.iter().filter(|entry| entry.revents != 0).count();
        if count > 0 || is_look || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(count);
        }
    }
}

/// Polls the list. The kernel refuses one that is longer than the limit of descriptors: without the bells it is the program's own, and the
/// caller looks at the streams again after a short sleep.
fn poll_in_kernel(
    list: &mut [pollfd],
    programs: usize,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    match kernel_poll(list, timeout, mask) {
        Err(libc::EINVAL) if list.len() > programs => {
            let short = timeout.map_or(LOOK_WITHOUT_BELLS, |timeout| timeout.min(LOOK_WITHOUT_BELLS));
            kernel_poll(&mut list[..programs], Some(short), mask)
        }
        polled => polled,
    }
}

/// Returns the list for the kernel: what TCP can still tell of streams, and their bells behind the program's entries. True: a bell is left to
/// a set of `epoll`, and the caller looks again after a short sleep.
fn extend(list: &[pollfd], streams: &[Polled]) -> Result<(Array<pollfd, HERE>, bool), i32> {
    let (mut extended, mut owes_set) = (Array::new(), false);
    extended.reserve(list.len() + BELLS * streams.len())?;
    for entry in list {
        extended.push(*entry)?;
    }
    for polled in streams.iter().filter(|polled| polled.endpoint.is_shared()) {
        let events = list[polled.place].events;
        let out = if polled.endpoint.writes_to_tcp() { events & OUT } else { 0 };
        let end = if events & IN != 0 { END } else { 0 };
        extended[polled.place].events = events & (IN | END | libc::POLLPRI) | out | end;
        let [control, bell] = polled.endpoint.bells();
        let is_left = polled.endpoint.owes_set();
        owes_set |= is_left;
        for bell in [control, if is_left { -1 } else { bell }] {
            extended.push(pollfd { fd: bell, events: libc::POLLIN, revents: 0 })?;
        }
    }
    Ok((extended, owes_set))
}

/// Adds the library's answer to the kernel's.
fn merge(polled: &Polled, entry: &mut pollfd, found: i16) {
    if polled.endpoint.is_off_tcp() || found & (END | ALWAYS) != 0 {
        polled.endpoint.latch(found as u32);
    }
    if found & IN != 0 && found & (END | ALWAYS) == 0 {
        polled.endpoint.check_bypass(Descriptor(entry.fd));
    }
    let of_tcp = if polled.endpoint.is_off_tcp() { found & ALWAYS } else { found };
    entry.revents = (of_tcp & (entry.events | ALWAYS)) | bits(polled, entry);
}

fn bits(polled: &Polled, entry: &pollfd) -> i16 {
    let ready = polled.endpoint.ready().bits as i16;
    let normal = if ready & libc::POLLIN != 0 { libc::POLLRDNORM } else { 0 };
    let writable = if ready & libc::POLLOUT != 0 { libc::POLLWRNORM } else { 0 };
    (ready | normal | writable) & (entry.events | ALWAYS)
}
