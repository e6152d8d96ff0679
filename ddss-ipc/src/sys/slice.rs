//! How long the scheduler lets the calling thread run at a time.

use std::io;
use std::time::Duration;

/// What the kernel takes and gives (`struct sched_attr`, its first version).
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
    // SAFETY: the kernel writes at most the `SIZE` bytes that it is told of, all of which are plain numbers of ours.
    let done = unsafe {
        libc::syscall(libc::SYS_sched_getattr, this_thread, &raw mut attributes, SIZE, no_flags)
    };
    if done == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Asks for slices of that length, if the thread is one that the scheduler treats as usual; its share of the core stays what
/// it was. A kernel older than 6.12 has one length for all, and does nothing.
pub(crate) fn shorten_slice(slice: Duration) -> io::Result<()> {
    let attributes = attributes()?;
    if attributes.policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    let runtime_ns = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    if attributes.runtime_ns != 0 && attributes.runtime_ns <= runtime_ns {
        return Ok(());
    }
    let shorter = Attributes { size: SIZE, runtime_ns, ..attributes };
    let (this_thread, no_flags) = (0, 0);
    // SAFETY: the kernel reads the `size` bytes of our numbers.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const shorter, no_flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_gets_shorter_and_nothing_else_changes() {
        // If this broke, a call in a crowd would change the thread's priority, or make its slices longer again.
        let thread = std::thread::spawn(|| {
            let before = attributes().unwrap();
            shorten_slice(Duration::from_micros(300)).unwrap();
            let after = attributes().unwrap();
            assert_eq!((after.policy, after.nice, after.flags), (before.policy, before.nice, before.flags));
            shorten_slice(Duration::from_micros(900)).unwrap();
            (before.runtime_ns, after.runtime_ns, attributes().unwrap().runtime_ns)
        });
        let (before, after, longer) = thread.join().unwrap();
        assert!(after == before || after == 300_000, "{before} {after}");
        assert_eq!(longer, after);
    }
}
