//! Scheduler slice of the calling thread: how long it runs at a time.

use std::io;

/// The kernel's `struct sched_attr`, first version.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;
const _: () = assert!(SIZE == 48);

fn attributes() -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    let (this_thread, no_flags) = (0, 0);
    // SAFETY: the kernel writes at most the `SIZE` bytes of the argument, all of which are plain numbers.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, this_thread, &raw mut attributes, SIZE, no_flags) };
    if done == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Returns the slice of the calling thread; zero is the system's default. `None` for a thread with another scheduling
/// policy, or if the kernel does not report it.
pub(crate) fn slice_ns() -> Option<u64> {
    let attributes = attributes().ok()?;
    (attributes.policy == libc::SCHED_OTHER as u32).then_some(attributes.runtime_ns)
}

/// Sets the slice of the calling thread; zero is the system's default. The thread's share of its core is unchanged. A
/// kernel older than 6.12 has one slice for all threads and ignores this.
pub(crate) fn set_slice_ns(runtime_ns: u64) -> io::Result<()> {
    let changed = Attributes { size: SIZE, runtime_ns, ..attributes()? };
    let (this_thread, no_flags) = (0, 0);
    // SAFETY: the kernel reads `size` bytes of plain numbers.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const changed, no_flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_length_changes_alone_and_is_restored() {
        // If this failed, a call on an oversubscribed machine would change the thread's priority, or its slices would
        // stay short forever.
        let thread = std::thread::spawn(|| {
            let before = attributes().unwrap();
            set_slice_ns(300_000).unwrap();
            let after = attributes().unwrap();
            assert_eq!((after.policy, after.nice, after.flags), (before.policy, before.nice, before.flags));
            set_slice_ns(before.runtime_ns).unwrap();
            (before.runtime_ns, after.runtime_ns, slice_ns())
        });
        let (before, after, again) = thread.join().unwrap();
        // An older kernel has no slice for each thread.
        assert!(after == 300_000 || after == before, "{before} {after}");
        assert_eq!(again, Some(before));
    }
}
