//! Calls of the application that wait.

use crate::engine::call::{CallId, Failure};
use crate::limits::CALLS_MAX;
use crate::model::{Access, PageId};
use std::collections::BTreeMap;

/// All calls without a completion, and those that wait for pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// Pages that each call still waits for.
    open: BTreeMap<CallId, u32>,
    /// Calls that wait for a page.
    touches: BTreeMap<PageId, Vec<(CallId, Access)>>,
}

impl Calls {
    /// Records a call.
    pub(crate) fn open(&mut self, call: CallId) -> Result<(), Failure> {
        if self.open.len() >= CALLS_MAX || self.open.contains_key(&call) {
            return Err(Failure::Full("calls"));
        }
        self.open.insert(call, 0);
        Ok(())
    }

    /// Forgets a call: its number is free again. Returns false if it was complete before.
    pub(crate) fn close(&mut self, call: CallId) -> bool {
        let pages = self.open.remove(&call);
        if pages.is_some_and(|pages| pages > 0) {
            // The call failed at one page and still waits for others.
            self.touches.retain(|_, calls| {
                calls.retain(|(waiting, _)| *waiting != call);
                !calls.is_empty()
            });
        }
        pages.is_some()
    }

    /// Lets a call wait for one more page.
    pub(crate) fn wait_for(&mut self, call: CallId, page: PageId, access: Access) {
        if let Some(pages) = self.open.get_mut(&call) {
            *pages += 1;
            self.touches.entry(page).or_default().push((call, access));
        }
    }

    /// Takes the calls that wait for a page.
    pub(crate) fn take_waiting(&mut self, page: PageId) -> Vec<(CallId, Access)> {
        self.touches.remove(&page).unwrap_or_default()
    }

    /// Counts a page of a call. Returns true if it was the last one.
    pub(crate) fn count_page(&mut self, call: CallId) -> bool {
        self.open.get_mut(&call).is_some_and(|pages| {
            *pages -= 1;
            *pages == 0
        })
    }

    /// Takes all calls.
    pub(crate) fn take_all(&mut self) -> Vec<CallId> {
        self.touches.clear();
        std::mem::take(&mut self.open).into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a later call with the number of a failed one would complete before its pages are there.
    #[test]
    fn number_of_a_failed_call_waits_for_no_page_of_it() {
        let (mut calls, call) = (Calls::default(), CallId(1));
        let [first, second, third] = [PageId(1), PageId(2), PageId(3)];
        calls.open(call).unwrap();
        [first, second].into_iter().for_each(|page| calls.wait_for(call, page, Access::Write));
        assert_eq!(calls.take_waiting(first), [(call, Access::Write)]);
        assert!(calls.close(call), "it failed at the first page");
        calls.open(call).unwrap();
        calls.wait_for(call, third, Access::Read);
        assert_eq!(calls.take_waiting(second), [], "its number is another call's now");
        assert_eq!(calls.take_waiting(third), [(call, Access::Read)]);
        assert!(calls.count_page(call));
    }
}
