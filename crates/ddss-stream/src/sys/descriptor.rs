//! Descriptors by number: those of the program, and those that the library hides from it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::user_memory::kernel_call;
use crate::limits::{RINGS_BYTES, RINGS_CALLS};

/// Descriptors below this number can be hidden.
const HIDDEN_MAX: usize = 65_536;
/// Highest number from which hidden descriptors are placed.
const FIRST_MAX: u64 = 8192;

/// Soft limit up to which programs are known to use every number.
const SMALL_LIMIT: u64 = 4096;
/// Share of a small and of a larger soft limit that the library may take if the hard limit is the same.
const RESERVES: [u64; 2] = [64, 8];
/// Descriptors that the library may take in any case.
const RESERVE_MIN: u64 = 4;
/// Looks of a start at a limit that another thread has raised.
const START_LOOKS: u32 = 10_000;
/// Share of the soft limit that stays free of descriptors that the library opens for a moment.
const SPARE: u64 = 8;

/// Calls that start an image by libc's own child, which inherits the limits of this moment.
static STARTS: AtomicU64 = AtomicU64::new(0);

/// A start of an image. No thread of this process raises the soft limit meanwhile.
#[derive(Debug)]
pub struct ImageStart(());

impl ImageStart {
    /// Begins a start: waits until no thread has raised the limit.
    #[must_use]
    pub fn begin() -> Self {
        STARTS.fetch_add(1, Ordering::SeqCst);
        let mut looks = 0;
        // A thread that was interrupted by the handler that starts the image never lowers it.
        while IS_RAISED.load(Ordering::SeqCst) && looks < START_LOOKS {
            looks += 1;
            std::thread::yield_now();
        }
        Self(())
    }
}

impl Drop for ImageStart {
    fn drop(&mut self) {
        STARTS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// True while a thread has raised the soft limit.
static IS_RAISED: AtomicBool = AtomicBool::new(false);
/// The soft limit before it was raised, and the raised one.
static SOFT: AtomicU64 = AtomicU64::new(0);
static RAISED: AtomicU64 = AtomicU64::new(0);

static HIDDEN: [AtomicU64; HIDDEN_MAX / 64] = [const { AtomicU64::new(0) }; HIDDEN_MAX / 64];

/// Returns true if the library itself uses this descriptor: the program must not close or replace it.
#[inline]
pub fn is_hidden(number: RawFd) -> bool {
    let index = number as usize;
    let is_listed = index < HIDDEN_MAX && HIDDEN[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 == 1;
    is_listed && is_intact(HiddenDescriptor(number))
}

/// Inode of each hidden descriptor.
static INODES: [AtomicU64; HIDDEN_MAX] = [const { AtomicU64::new(0) }; HIDDEN_MAX];
/// True if the program may close any number past the library: each use then compares the inode.
static COMPARES_INODES: AtomicBool = AtomicBool::new(false);

/// Compares the inode of a hidden descriptor with each use from now on.
pub fn compare_hidden_inodes() {
    COMPARES_INODES.store(true, Ordering::Relaxed);
}

fn inode(number: RawFd) -> u64 {
    rustix::fs::fstat(Descriptor(number)).map_or(0, |found| found.st_ino)
}

/// Returns false if the number belongs to a file of the program, or to none.
#[inline]
pub(crate) fn is_intact(hidden: HiddenDescriptor) -> bool {
    let known = INODES.get(hidden.0 as usize).map_or(0, |known| known.load(Ordering::Relaxed));
    !COMPARES_INODES.load(Ordering::Relaxed) || inode(hidden.0) == known
}

fn set_hidden(number: RawFd, is_hidden: bool) {
    let (index, bit) = (number as usize, 1 << (number as usize % 64));
    if index < HIDDEN_MAX {
        if is_hidden {
            INODES[index].store(inode(number), Ordering::Relaxed);
            HIDDEN[index / 64].fetch_or(bit, Ordering::Relaxed);
        } else {
            HIDDEN[index / 64].fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

fn count_hidden(words: impl Iterator<Item = &'static AtomicU64>) -> u64 {
    words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
}

fn soft_limit(limits: Rlimit) -> u64 {
    limits.current.unwrap_or(HIDDEN_MAX as u64)
}

fn first(limit: u64) -> RawFd {
    (limit / 2).min(FIRST_MAX) as RawFd
}

/// Copies a descriptor to a number above the soft limit, which costs the program none of its numbers.
fn above_limit(owned: &OwnedFd, limits: Rlimit) -> Option<OwnedFd> {
    let soft = limits.current.filter(|soft| *soft < HIDDEN_MAX as u64)?;
    if !raise_limit(soft, limits) {
        return None;
    }
    let moved = rustix::io::fcntl_dupfd_cloexec(owned, soft as RawFd).ok();
    lower_limit();
    moved
}

/// Raises the soft limit for a moment. False: the system refuses, or another thread or an interrupted one has raised it.
fn raise_limit(soft: u64, limits: Rlimit) -> bool {
    let highest = limits.maximum.unwrap_or(u64::MAX).min(HIDDEN_MAX as u64);
    if highest <= soft || IS_RAISED.swap(true, Ordering::SeqCst) {
        return false;
    }
    if STARTS.load(Ordering::SeqCst) > 0 {
        IS_RAISED.store(false, Ordering::Release);
        return false;
    }
    SOFT.store(soft, Ordering::Relaxed);
    // Last: a child that finds this number as its limit finds the other one, too.
    RAISED.store(highest, Ordering::Release);
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(highest), ..limits }).is_ok();
    if !is_raised {
        IS_RAISED.store(false, Ordering::Release);
    }
    is_raised
}

/// Lowers the soft limit, unless the program has set another one meanwhile.
fn lower_limit() {
    let limits = getrlimit(Resource::Nofile);
    if limits.current == Some(RAISED.load(Ordering::Acquire)) {
        let lowered = Rlimit { current: Some(SOFT.load(Ordering::Relaxed)), ..limits };
        // A lower limit is never refused.
        let _ = setrlimit(Resource::Nofile, lowered);
    }
    IS_RAISED.store(false, Ordering::Release);
}

/// Copies a descriptor to a number below the limit, while few are taken.
fn in_reserve(owned: &OwnedFd, limits: Rlimit) -> Result<OwnedFd, Errno> {
    let limit = soft_limit(limits);
    let taken = count_hidden(HIDDEN.iter().take(limit.div_ceil(64) as usize));
    let share = RESERVES[usize::from(limit > SMALL_LIMIT)];
    if taken >= (limit / share).max(RESERVE_MIN) {
        return Err(Errno::MFILE);
    }
    rustix::io::fcntl_dupfd_cloexec(owned, first(limit))
}

/// Lowers the limit in the child of a `fork` that came while another thread had raised it.
pub(crate) fn forget_raised_limit() {
    STARTS.store(0, Ordering::SeqCst);
    if IS_RAISED.load(Ordering::Acquire) {
        lower_limit();
    }
}

/// A descriptor of the program, by number. The program owns it and may close it at any time; the kernel then answers `EBADF`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor(pub RawFd);

impl AsFd for Descriptor {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the number is only handed to system calls, which check it; a wrong number is an error of the call.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// A descriptor that belongs to the library, stored in a table without a destructor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HiddenDescriptor(RawFd);

impl HiddenDescriptor {
    /// Moves a descriptor to a number that the program does not need: above its soft limit if the hard limit allows, else from a reserve.
    pub fn hide(owned: OwnedFd, close_on_exec: bool) -> Result<Self, Errno> {
        let limits = getrlimit(Resource::Nofile);
        let moved = match above_limit(&owned, limits) {
            Some(moved) => moved,
            None => in_reserve(&owned, limits)?,
        };
        if moved.as_raw_fd() as usize >= HIDDEN_MAX {
            return Err(Errno::MFILE);
        }
        let number = std::os::fd::IntoRawFd::into_raw_fd(moved);
        set_hidden(number, true);
        let hidden = Self(number);
        hidden.set_close_on_exec(close_on_exec);
        Ok(hidden)
    }

    /// Returns true if the program is so far from its limit that the library may open descriptors for a moment.
    pub(crate) fn has_room(socket: Descriptor) -> bool {
        let limit = soft_limit(getrlimit(Resource::Nofile));
        // Older kernels say nothing here; then the number of the socket, the lowest that was free, is the best guess.
        let open = rustix::fs::stat(c"/proc/self/fd").map_or(0, |found| found.st_size as u64);
        let usable = limit - limit / SPARE;
        // The count takes as long as all the rest of an accept, so it is made only where it decides.
        let programs = || open.saturating_sub(count_hidden(HIDDEN.iter().skip(limit.div_ceil(64) as usize)));
        (socket.0 as u64) < usable && (open < usable || programs() < usable)
    }

    /// Returns the lowest number of a hidden descriptor.
    pub(crate) fn lowest() -> RawFd {
        first(soft_limit(getrlimit(Resource::Nofile)))
    }

    /// Takes over a descriptor that an earlier program image left at this number.
    pub(crate) fn adopt(number: RawFd) -> Self {
        set_hidden(number, true);
        Self(number)
    }

    /// Returns the descriptor that the table of streams stored as a number.
    #[inline]
    pub(super) fn known(number: RawFd) -> Self {
        Self(number)
    }

    /// Returns the number -1, which no call of the kernel may get but as a plain number.
    pub(crate) fn none() -> Self {
        Self(-1)
    }

    /// Returns the number.
    pub fn number(self) -> RawFd {
        self.0
    }

    /// Copies the program's choice for its own descriptor.
    pub fn set_close_on_exec(self, is_set: bool) {
        let flags = if is_set { rustix::io::FdFlags::CLOEXEC } else { rustix::io::FdFlags::empty() };
        // A failure means that the descriptor is gone, and then nothing is inherited.
        let _ = rustix::io::fcntl_setfd(Descriptor(self.0), flags);
    }

    /// Closes the descriptor. Safe in signal handlers: one system call, of libc: programs with a `close` of their own are slower.
    pub(crate) fn close(self) {
        set_hidden(self.0, false);
        if !is_intact(self) {
            return;
        }
        // SAFETY: `hide` and `adopt` gave this number to the library alone, and the table entry is taken before this call.
        drop(unsafe { OwnedFd::from_raw_fd(self.0) });
    }
}

impl AsFd for HiddenDescriptor {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: as for `Descriptor`; the number stays open until `close`.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Contents of a control socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rings {
    None,
    Some,
    /// The peer's last process is gone, or it rings no more.
    Ended,
}

/// Returns true if the program closed the descriptor past the library, whether or not its code was known to do so.
pub(crate) fn is_lost(hidden: HiddenDescriptor) -> bool {
    INODES.get(hidden.0 as usize).is_some_and(|known| known.load(Ordering::Relaxed) != inode(hidden.0))
}

/// Rings the bell of the peer. The flags of the call make it return at once, whatever the peer did to its end. `BADF`: the program closed
/// this end past the library. Any other error: the peer's end is closed.
pub(crate) fn ring_peer(control: HiddenDescriptor) -> Result<(), Errno> {
    if !is_intact(control) {
        return Err(Errno::BADF);
    }
    match rustix::net::send(control, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // A full queue means that the peer has rings to take already.
        Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes the rings of the peer, at most as many as the limits say: a peer that rings all the time delays nobody else.
pub(crate) fn take_rings(control: HiddenDescriptor) -> Rings {
    let (mut bytes, mut taken) = ([0u8; RINGS_BYTES], Rings::None);
    if !is_intact(control) {
        return Rings::Ended;
    }
    for _ in 0..RINGS_CALLS {
        match rustix::net::recv(control, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Rings::Ended,
            Ok((count, _)) => {
                taken = Rings::Some;
                if count < RINGS_BYTES {
                    break;
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => break,
            Err(_) => return Rings::Ended,
        }
    }
    taken
}

/// Rings a bell of this end: a sleeping waiter returns from its system call.
pub(crate) fn ring_bell(bell: HiddenDescriptor) {
    if is_intact(bell) {
        // A full counter means that the bell has rung already.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

/// Silences a bell. Returns true if it had rung.
pub(crate) fn drain_bell(bell: HiddenDescriptor) -> bool {
    // An empty counter means that the bell did not ring.
    is_intact(bell) && rustix::io::read(bell, &mut [0u8; 8]).is_ok()
}

/// Request that asks whether the next byte is at the mark of urgent data.
const SIOCATMARK: rustix::ioctl::Opcode = 0x8905;

/// Returns true if a read would begin at the mark of urgent data.
pub(crate) fn is_at_mark(socket: Descriptor) -> bool {
    // SAFETY: the request stores one `int`.
    let request = unsafe { rustix::ioctl::Getter::<SIOCATMARK, libc::c_int>::new() };
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(socket, request) }.is_ok_and(|mark| mark != 0)
}

/// Commands of `fcntl` about the signals of a descriptor.
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;
const F_SETOWN_EX: libc::c_int = 15;
const F_GETOWN_EX: libc::c_int = 16;

/// Gives a control socket the signals of a TCP socket: owner, number, and whether there are any.
pub(crate) fn copy_signals(socket: Descriptor, control: HiddenDescriptor) {
    // Kind and number, the kernel's `f_owner_ex`.
    let mut owner = [0 as libc::c_int; 2];
    let place = owner.as_mut_ptr() as usize;
    // SAFETY: the numbers of descriptors, and an owner that lives until the last call returns.
    let fcntl = |number, command, argument| unsafe {
        kernel_call(libc::SYS_fcntl, number, command as usize, argument, 0) as usize
    };
    fcntl(socket.0, F_GETOWN_EX, place);
    fcntl(control.0, F_SETOWN_EX, place);
    fcntl(control.0, F_SETSIG, fcntl(socket.0, F_GETSIG, 0));
    let wanted = fcntl(socket.0, libc::F_GETFL, 0) & libc::O_ASYNC as usize;
    fcntl(control.0, libc::F_SETFL, fcntl(control.0, libc::F_GETFL, 0) & !(libc::O_ASYNC as usize) | wanted);
}

/// Returns the low water mark of a socket's reads.
pub(crate) fn low_water(socket: Descriptor) -> usize {
    let (mut bytes, mut length) = (0i32, size_of::<i32>() as libc::socklen_t);
    let place = (&raw mut bytes).cast();
    // SAFETY: the value and its length live until the call returns.
    let asked = unsafe { libc::getsockopt(socket.0, libc::SOL_SOCKET, libc::SO_RCVLOWAT, place, &raw mut length) };
    if asked == 0 { bytes.max(1) as usize } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a child would start programs with a limit that nobody set.
    #[test]
    fn child_that_inherits_the_raised_limit_lowers_it() {
        let (soft, original) = (512, getrlimit(Resource::Nofile));
        let before = Rlimit { current: Some(soft), ..original };
        setrlimit(Resource::Nofile, before).unwrap();
        // Another test may raise the limit for a moment.
        while !raise_limit(soft, before) {
            std::thread::yield_now();
        }
        assert_ne!(getrlimit(Resource::Nofile).current, Some(soft));
        forget_raised_limit();
        assert_eq!(getrlimit(Resource::Nofile), before);
        // A limit that the program set meanwhile stays.
        assert!(raise_limit(soft, before));
        let chosen = Rlimit { current: Some(soft - 1), ..before };
        setrlimit(Resource::Nofile, chosen).unwrap();
        forget_raised_limit();
        assert_eq!(getrlimit(Resource::Nofile), chosen);
        setrlimit(Resource::Nofile, original).unwrap();
    }
}
