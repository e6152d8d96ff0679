//! Faults of the spaces of this process, on their way from a signal handler to a service thread and back.
//!
//! The handler may interrupt any code, so that it takes no lock, allocates nothing, and finds everything in static memory. A thread
//! at a fault has a cell of its space's table:
//!
//! ```text
//! FREE --thread--> CLAIMED --thread--> ASKED --service thread--> TAKEN --service thread--> DONE --thread--> FREE
//! ```
//!
//! The thread writes page and access between CLAIMED and ASKED (release; the service thread acquires it). Opening the page comes
//! before DONE (release; the thread acquires it). A table ends with its space: it has no address any more, and answers until no
//! thread is inside. Both sides use sequential consistency for that: a thread counts itself, then looks at the addresses; the service
//! thread takes the addresses away, then looks at the count.

use super::application_view::ApplicationView;
use ddss_dsm_core::Access;
use ddss_group::Wake;
use rustix::thread::futex;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// Spaces of a process at most that are used by page faults.
const SPACES_MAX: usize = 16;
/// Threads of a process at most that wait at faults of a space. More wait for a cell.
const CELLS: usize = 64;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const ASKED: u32 = 2;
const TAKEN: u32 = 3;
const DONE: u32 = 4;

/// A fault that the service thread has to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    cell: usize,
    pub(crate) page: u32,
    /// `None` if the processor does not say it.
    pub(crate) access: Option<Access>,
}

/// How the service thread or the kernel has treated a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Treatment {
    /// The thread may try again: the page is open, or its use raises another signal.
    Answered,
    /// The address is no page of a space.
    NotOurs,
    /// This process is a child of the one that joined.
    Child,
}

#[derive(Debug)]
struct Cell {
    state: AtomicU32,
    page: AtomicU32,
    access: AtomicU32,
}

/// Table of a space.
#[derive(Debug)]
struct Table {
    is_used: AtomicBool,
    /// First address; 0 without a space.
    begin: AtomicUsize,
    bytes: AtomicUsize,
    page_bytes: AtomicUsize,
    process: AtomicI32,
    /// Descriptor that wakes the service thread.
    wake: AtomicI32,
    /// Threads inside.
    threads: AtomicUsize,
    /// Faults asked for since the service thread has looked.
    asked: AtomicUsize,
    cells: [Cell; CELLS],
}

static TABLES: [Table; SPACES_MAX] = [const { Table::new() }; SPACES_MAX];

/// Finds the space of a fault, and waits until its service thread has answered. Called in a signal handler.
pub(super) fn treat(address: usize, access: Option<Access>) -> Treatment {
    for table in &TABLES {
        if table.begin.load(Ordering::Relaxed) == 0 {
            continue;
        }
        table.threads.fetch_add(1, Ordering::SeqCst);
        let treatment = table.treat(address, access);
        table.threads.fetch_sub(1, Ordering::SeqCst);
        if treatment != Treatment::NotOurs {
            return treatment;
        }
    }
    Treatment::NotOurs
}

impl Table {
    const fn new() -> Self {
        Self {
            is_used: AtomicBool::new(false),
            begin: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            page_bytes: AtomicUsize::new(1),
            process: AtomicI32::new(0),
            wake: AtomicI32::new(-1),
            threads: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            cells: [const { Cell { state: AtomicU32::new(FREE), page: AtomicU32::new(0), access: AtomicU32::new(0) } };
                CELLS],
        }
    }

    fn treat(&self, address: usize, access: Option<Access>) -> Treatment {
        let (begin, bytes) = (self.begin.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst));
        let offset = address.wrapping_sub(begin);
        if begin == 0 || offset >= bytes {
            return Treatment::NotOurs;
        }
        if rustix::process::getpid().as_raw_nonzero().get() != self.process.load(Ordering::Relaxed) {
            return Treatment::Child;
        }
        let page = offset / self.page_bytes.load(Ordering::Relaxed);
        let cell = loop {
            let claim =
                |cell: &&Cell| cell.state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok();
            match self.cells.iter().find(claim) {
                Some(cell) => break cell,
                // The service thread answers those that have one, also when the space ends.
                None => rustix::thread::sched_yield(),
            }
        };
        cell.page.store(page as u32, Ordering::Relaxed);
        cell.access.store(access.unwrap_or(Access::None) as u32, Ordering::Relaxed);
        cell.state.store(ASKED, Ordering::Release);
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.wake_service();
        loop {
            match cell.state.load(Ordering::Acquire) {
                DONE => break,
                // Interrupted or not: the state decides.
                state => drop(futex::wait(&cell.state, futex::Flags::PRIVATE, state, None)),
            }
        }
        cell.state.store(FREE, Ordering::Release);
        Treatment::Answered
    }

    fn wake_service(&self) {
        // SAFETY: the descriptor is open while the table has addresses or threads inside: `FaultTable` has it.
        let wake = unsafe { BorrowedFd::borrow_raw(self.wake.load(Ordering::Relaxed)) };
        let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
    }

    fn take(&self, number: usize) -> Option<Fault> {
        let cell = &self.cells[number];
        cell.state.compare_exchange(ASKED, TAKEN, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let access = match cell.access.load(Ordering::Relaxed) {
            access if access == Access::Read as u32 => Some(Access::Read),
            access if access == Access::Write as u32 => Some(Access::Write),
            _ => None,
        };
        Some(Fault { cell: number, page: cell.page.load(Ordering::Relaxed), access })
    }

    fn answer(&self, number: usize) {
        let state = &self.cells[number].state;
        if state.compare_exchange(TAKEN, DONE, Ordering::Release, Ordering::Relaxed).is_ok() {
            let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
        }
    }
}

/// The service thread's side of a table. Dropping it answers all threads that wait.
#[derive(Debug)]
pub(crate) struct FaultTable {
    table: &'static Table,
    /// Open as long as a thread may write to it.
    _wake: Arc<Wake>,
}

impl FaultTable {
    /// Takes a table for the pages of a view. `None` if too many spaces of this process have one.
    pub(crate) fn take(view: &ApplicationView, wake: Arc<Wake>) -> Option<Self> {
        let is_taken = |table: &&Table| !table.is_used.swap(true, Ordering::Acquire);
        let table = TABLES.iter().find(is_taken)?;
        table.page_bytes.store(view.page_bytes(), Ordering::Relaxed);
        table.process.store(rustix::process::getpid().as_raw_nonzero().get(), Ordering::Relaxed);
        table.wake.store(wake.as_fd().as_raw_fd(), Ordering::Relaxed);
        table.bytes.store(view.len(), Ordering::SeqCst);
        table.begin.store(view.base() as usize, Ordering::SeqCst);
        Some(Self { table, _wake: wake })
    }

    /// Takes the faults that wait.
    pub(crate) fn faults(&self) -> impl Iterator<Item = Fault> + use<> {
        let (table, cells) = (self.table, if self.table.asked.swap(0, Ordering::SeqCst) > 0 { CELLS } else { 0 });
        (0..cells).filter_map(|number| table.take(number))
    }

    /// Lets the thread of a fault try again.
    pub(crate) fn answer(&self, fault: &Fault) {
        self.table.answer(fault.cell);
    }
}

impl Drop for FaultTable {
    fn drop(&mut self) {
        let table = self.table;
        table.bytes.store(0, Ordering::SeqCst);
        table.begin.store(0, Ordering::SeqCst);
        while table.threads.load(Ordering::SeqCst) > 0 {
            (0..CELLS).for_each(|number| {
                let _ = table.take(number);
                table.answer(number);
            });
            rustix::thread::sched_yield();
        }
        table.is_used.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{MemoryFile, ViewAddress};

    #[test]
    fn more_threads_than_cells_are_answered_and_none_waits_behind_the_end() {
        // If this broke, a thread would hang at a fault, or a handler would write to a descriptor of another file.
        let bytes = 4096 * CELLS as u64 * 2;
        let view = ApplicationView::map(&MemoryFile::create("test", bytes).unwrap(), 0..bytes, 4096, ViewAddress::Any)
            .unwrap();
        let begin = view.base() as usize;
        let table = FaultTable::take(&view, Arc::new(Wake::new().unwrap())).unwrap();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CELLS * 2)
                .map(|page| scope.spawn(move || treat(begin + 4096 * page + 8, Some(Access::Write))))
                .collect();
            let mut pages = Vec::new();
            while pages.len() < CELLS {
                for fault in table.faults() {
                    assert_eq!(fault.access, Some(Access::Write));
                    pages.push(fault.page);
                    table.answer(&fault);
                }
            }
            pages.sort_unstable();
            pages.dedup();
            assert!(pages.len() >= CELLS, "each fault is taken once");
            // The others wait for cells or answers.
            drop(table);
            for thread in threads {
                // Those that have not begun yet find no space.
                assert_ne!(thread.join().unwrap(), Treatment::Child);
            }
        });
        assert_eq!(treat(begin, None), Treatment::NotOurs);
    }
}
