//! Loaded code that enters the kernel past libc, found by its instructions: a constant number of a call just before the entry.
//!
//! A program with its own copy of liburing makes rings that no symbol shows; one with its own `close` gives numbers of streams to other
//! files. A number that is computed, or code that is generated at run time, stays unseen.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use libc::{dl_phdr_info, size_t};

/// Bytes before an entry in which its number is looked for: liburing saves registers in between. A ring that is missed is a program that
/// waits for ever, while one that is not there only costs the shared memory.
const WINDOW_BYTES: usize = 64;
/// The same for the number of a close, which compilers load last. Of 1,090 programs of a distribution only node.js, git-shell and libdw have
/// other numbers so far ahead of bytes that look like an entry.
const CLOSE_WINDOW_BYTES: usize = 24;
/// Bytes that are looked at together: the smallest page of any machine.
const PAGE_BYTES: usize = 4096;
/// Libraries whose calls this library replaces, by the start of their names.
const REPLACED: [&[u8]; 6] = [b"libc.so", b"libc-", b"ld-", b"libpthread", b"liburing.so", b"linux-vdso"];
/// Calls that close a descriptor.
const CLOSING: &[c_long] = &[
    libc::SYS_close,
    libc::SYS_dup3,
    libc::SYS_close_range,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
];

/// Loads and unloads of libraries, and objects, that the last look saw.
static LOADS: AtomicU64 = AtomicU64::new(0);
static UNLOADS: AtomicU64 = AtomicU64::new(0);
static OBJECTS: AtomicU64 = AtomicU64::new(0);

static MAKES_RINGS: AtomicBool = AtomicBool::new(false);
static CLOSES: AtomicBool = AtomicBool::new(false);

/// Loaded objects that are followed.
const OBJECTS_MAX: u32 = 4096;
/// Odd factor that mixes a mark.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mark of the objects that were looked at.
static MARK: AtomicU64 = AtomicU64::new(0);
static DEBUG: AtomicPtr<Debug> = AtomicPtr::new(std::ptr::null_mut());
static SINGLE_THREADED: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Start of the loader's description for debuggers.
#[repr(C)]
#[derive(Clone, Copy)]
struct Debug {
    version: c_int,
    objects: *const Object,
}

/// Start of an object in the loader's list.
#[repr(C)]
#[derive(Clone, Copy)]
struct Object {
    address: usize,
    name: *const c_char,
    dynamic: *const c_void,
    next: *const Object,
}

/// Calls that loaded code makes by its own instructions.
#[derive(Clone, Copy)]
pub(crate) struct RawCalls {
    pub(crate) makes_rings: bool,
    pub(crate) closes: bool,
}

#[derive(Default)]
struct Look {
    place: u64,
    skipped: u64,
}

/// Looks at the code that was loaded since the last look.
pub(crate) fn look() -> RawCalls {
    let mark = mark_of_objects();
    if mark.is_none() || mark != Some(MARK.load(Ordering::Acquire)) {
        let mut look = Look::default();
        // SAFETY: the function has the type that libc promises to call, and the state lives until the call returns.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut look).cast()) };
        // The loader's lock was held during the look: another thread's has ended.
        MARK.store(mark.unwrap_or(0), Ordering::Release);
    }
    RawCalls { makes_rings: MAKES_RINGS.load(Ordering::Relaxed), closes: CLOSES.load(Ordering::Relaxed) }
}

/// Looks before a thread among others forks: the child may find the loader's lock held for ever, and then must not look.
pub(crate) fn look_before_fork() {
    let alone = SINGLE_THREADED.load(Ordering::Relaxed);
    // SAFETY: libc's variable, a byte that it clears with the first thread.
    if alone.is_null() || unsafe { alone.read_volatile() } == 0 {
        look();
    }
}

/// Finds the variables of libc and its loader. Runs before the program's `main`.
pub(crate) fn start() {
    // SAFETY: the name is a C string.
    DEBUG.store(unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_r_debug".as_ptr()) }.cast(), Ordering::Relaxed);
    // SAFETY: as above.
    let alone = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(alone.cast(), Ordering::Relaxed);
}

/// Returns a mark of the loaded objects, without the loader's lock. `None`: the loader does not say, or changes them.
fn mark_of_objects() -> Option<u64> {
    let debug = DEBUG.load(Ordering::Relaxed);
    // SAFETY: the loader's variable; a wrong address is an error here, and so is each below.
    let mut place = if debug.is_null() { return None } else { unsafe { ddss_stream::load(debug) }?.objects };
    let mut mark = 1;
    for _ in 0..OBJECTS_MAX {
        if place.is_null() {
            return Some(mark);
        }
        // SAFETY: an object of the loader, or one that another thread unloads.
        let object = unsafe { ddss_stream::load(place) }?;
        mark = (mark ^ place as u64 ^ object.address as u64).wrapping_mul(FACTOR).rotate_left(17);
        place = object.next;
    }
    None
}

unsafe extern "C" fn visit(info: *mut dl_phdr_info, _bytes: size_t, look: *mut c_void) -> c_int {
    // SAFETY: libc passes an object whose code stays loaded until this function returns.
    let info = unsafe { &*info };
    // SAFETY: `look` passed its own state.
    let look = unsafe { &mut *look.cast::<Look>() };
    if look.place == 0 {
        if LOADS.swap(info.dlpi_adds, Ordering::AcqRel) == info.dlpi_adds {
            return 1;
        }
        // New objects come last, unless others went.
        let is_longer = UNLOADS.swap(info.dlpi_subs, Ordering::AcqRel) == info.dlpi_subs;
        look.skipped = if is_longer { OBJECTS.load(Ordering::Acquire) } else { 0 };
    }
    look.place += 1;
    OBJECTS.store(look.place, Ordering::Release);
    // SAFETY: libc promises a C string, or null.
    let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
    let name = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if look.place <= look.skipped || REPLACED.iter().any(|start| name.starts_with(start)) {
        return 0;
    }
    for index in 0..info.dlpi_phnum {
        // SAFETY: the object has as many headers.
        let header = unsafe { info.dlpi_phdr.wrapping_add(index.into()).read() };
        let wanted = libc::PF_X | libc::PF_R;
        if header.p_type != libc::PT_LOAD || header.p_flags & wanted != wanted {
            continue;
        }
        let start = (info.dlpi_addr + header.p_vaddr) as usize;
        let code = start..start.saturating_add(header.p_filesz as usize);
        if code.contains(&(visit as *const () as usize)) {
            break;
        }
        look_at(code);
    }
    0
}

/// Looks at code page by page. A page that cannot be read may do all of this: the program protected it, or its file became shorter.
fn look_at(code: Range<usize>) {
    let mut bytes = [0; WINDOW_BYTES + PAGE_BYTES];
    for place in (code.start / PAGE_BYTES * PAGE_BYTES..code.end).step_by(PAGE_BYTES) {
        // SAFETY: memory that the loader mapped, or that raises a fault; every content is a number.
        let page = unsafe { ddss_stream::load(std::ptr::with_exposed_provenance::<[u8; PAGE_BYTES]>(place)) };
        let Some(page) = page else { return record_all() };
        // The last bytes of the page before, for entries at the start of this one.
        bytes.copy_within(PAGE_BYTES.., 0);
        bytes[WINDOW_BYTES..].copy_from_slice(&page);
        let from = if place < code.start { WINDOW_BYTES + code.start - place } else { 0 };
        machine::each_entry(&bytes[from..WINDOW_BYTES + PAGE_BYTES.min(code.end - place)]);
    }
}

/// Records that unknown code may do all of this.
fn record_all() {
    MAKES_RINGS.store(true, Ordering::Relaxed);
    CLOSES.store(true, Ordering::Relaxed);
}

/// Records the number of a call, found `distance` bytes before its entry.
fn record(number: c_long, distance: usize) {
    if number == libc::SYS_io_uring_setup {
        MAKES_RINGS.store(true, Ordering::Relaxed);
    }
    if distance <= CLOSE_WINDOW_BYTES && CLOSING.contains(&number) {
        CLOSES.store(true, Ordering::Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use super::{WINDOW_BYTES, record};

    /// Records the numbers before each `syscall` in `mov $NUMBER, %eax`, `mov $NUMBER, %rax`, `push $NUMBER; pop %rax`, which
    /// compilers choose for size, and `mov $NUMBER, %al`.
    pub(super) fn each_entry(code: &[u8]) {
        let mut from = 1;
        while let Some(at) = code.get(from..).and_then(find_second_byte).map(|offset| from + offset) {
            from = at + 1;
            if code[at - 1] != 0x0f {
                continue;
            }
            let window = &code[at.saturating_sub(WINDOW_BYTES)..at - 1];
            for (place, bytes) in window.windows(5).enumerate() {
                let is_long = place >= 2 && window[place - 2..=place] == [0x48, 0xc7, 0xc0];
                if bytes[0] == 0xb8 || is_long {
                    let number = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
                    record(number.into(), window.len() - place);
                }
            }
            for (place, bytes) in window.windows(3).enumerate() {
                if let [0x6a, number, 0x58] | [_, 0xb0, number] = *bytes {
                    record(number.into(), window.len() - place);
                }
            }
        }
    }

    /// Returns the place of the second byte of `syscall`, by libc's fast search.
    fn find_second_byte(code: &[u8]) -> Option<usize> {
        // SAFETY: the slice has this length.
        let found = unsafe { libc::memchr(code.as_ptr().cast(), 0x05, code.len()) };
        (!found.is_null()).then(|| found as usize - code.as_ptr() as usize)
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use super::{WINDOW_BYTES, record};

    const ENTRY: u32 = 0xd400_0001;

    /// Records the numbers in `mov w8, NUMBER` and `mov x8, NUMBER` before each `svc 0`.
    pub(super) fn each_entry(code: &[u8]) {
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        for (index, bytes) in code.chunks_exact(4).enumerate() {
            if word(bytes) != ENTRY {
                continue;
            }
            let window = &code[(index * 4).saturating_sub(WINDOW_BYTES)..index * 4];
            for (place, bytes) in window.chunks_exact(4).enumerate() {
                let instruction = word(bytes);
                if instruction & 0x7fe0_001f == 0x5280_0008 {
                    record((instruction >> 5 & 0xffff).into(), window.len() - place * 4);
                }
            }
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    /// Other machines: nothing is known of their code.
    pub(super) fn each_entry(_code: &[u8]) {
        super::record_all();
    }
}
