//! Page faults of the application, as calls that open a page.

use super::lost_page::{LostPage, LostPageCallback};
use crate::sys::{ApplicationView, Fault, FaultTable, Frames, install_fault_handler};
use ddss_dsm_core::{Access, Failure, PageId, PageRange, Rank, Request};
use ddss_group::Wake;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Names the elements in a page, for a message.
pub(crate) type DescribePage = Box<dyn Fn(PageId) -> String + Send>;

/// Settings of a rank that uses page faults.
pub(crate) struct FaultSettings {
    pub(crate) rank: Rank,
    /// Time of a wait for a page at most.
    pub(crate) timeout: Duration,
    pub(crate) describe: DescribePage,
    pub(crate) on_lost_page: LostPageCallback,
}

/// Page faults of the application.
pub(crate) struct Faults {
    table: FaultTable,
    frames: Arc<Frames>,
    settings: FaultSettings,
    /// Faults that wait, in order, and when each began.
    waiting: Vec<(Fault, Duration)>,
    /// Time before which no other attempt is made to end the space.
    next_attempt: Duration,
}

impl Faults {
    /// Time behind an attempt to end the space.
    const AGAIN: Duration = Duration::from_secs(1);

    /// Begins to take the faults in the view of some frames.
    pub(crate) fn start(frames: Arc<Frames>, wake: Arc<Wake>, settings: FaultSettings) -> io::Result<Self> {
        install_fault_handler()?;
        let full = || io::Error::other("16 spaces of this process use them: leave some");
        let table = frames.view().and_then(|view| FaultTable::take(view, wake)).ok_or_else(full)?;
        Ok(Self { table, frames, settings, waiting: Vec::new(), next_attempt: Duration::ZERO })
    }

    /// Takes the faults that wait, with what opens their pages.
    pub(crate) fn take(&mut self, now: Duration) -> Vec<(Fault, Request)> {
        let mut taken = Vec::new();
        for fault in self.table.faults() {
            let access = fault.access.unwrap_or_else(|| match self.frames.access(fault.page) {
                // A thread that may read waits because it writes.
                Access::Read | Access::Write => Access::Write,
                Access::None => Access::Read,
            });
            self.waiting.push((fault, now));
            taken.push((fault, Request::Touch { pages: PageRange::one(PageId(fault.page)), access }));
        }
        taken
    }

    /// Returns true if the space has to end because a fault waits for too long.
    pub(crate) fn are_late(&mut self, now: Duration) -> bool {
        let Some((_, begun)) = self.waiting.first() else { return false };
        let is_late = now >= (*begun + self.settings.timeout).max(self.next_attempt);
        if is_late {
            self.next_attempt = now + Self::AGAIN;
        }
        is_late
    }

    /// Lets the thread of a fault go on. If its page cannot be had, it gets `SIGBUS`.
    pub(crate) fn answer(&mut self, fault: &Fault, failure: Option<Failure>) {
        self.waiting.retain(|(waiting, _)| waiting != fault);
        let Some(view) = self.frames.view() else { return };
        match failure {
            None => view.reopen(fault.page, self.frames.access(fault.page)),
            Some(failure) => {
                // Before the signal, which may end the process.
                self.report((self.settings.describe)(PageId(fault.page)), Some(failure));
                view.lose(fault.page);
            }
        }
        self.table.answer(fault);
    }

    fn report(&self, elements: String, failure: Option<Failure>) {
        let FaultSettings { rank, on_lost_page, .. } = &self.settings;
        on_lost_page.call(&LostPage { rank: *rank, elements, failure });
    }
}

impl Drop for Faults {
    /// Answers the threads that still wait. Uses of closed pages have no end otherwise.
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Threads that wait, and later ones, get a signal. The callback may be what has panicked.
            let _ = catch_unwind(AssertUnwindSafe(|| self.report("any page".to_owned(), None)));
        }
        self.frames.view().into_iter().for_each(ApplicationView::lose_all);
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}
