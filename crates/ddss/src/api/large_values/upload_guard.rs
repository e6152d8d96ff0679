//! The parts of a large put until they are committed.

use super::super::segment::Segment;
use super::{only_aio, only_blocking};
use crate::deadline::Deadline;
use ddss_core::{Operation, UploadId};
use std::time::Duration;

/// Time to tell the home that the parts of a put are of no use.
const DROP_TIMEOUT: Duration = Duration::from_millis(100);

/// Frees the parts at the home when it is dropped before they are committed: after an error, or with the future of a task
/// that gave up.
pub(crate) struct UploadGuard<'a> {
    segment: &'a Segment,
    pub(crate) upload: UploadId,
}

impl<'a> UploadGuard<'a> {
    pub(crate) fn new(segment: &'a Segment) -> Self {
        Self { segment, upload: UploadId(0) }
    }

    /// Ends the guard: the parts are committed.
    pub(crate) fn commit(mut self) {
        self.upload = UploadId(0);
    }
}

impl UploadGuard<'_> {
    /// Asks the home to free the parts. The home frees them by itself later, so a request that finds no room does no harm.
    fn free(&self) {
        let operation = Operation::DropUpload { segment: self.segment.id(), upload: self.upload };
        let plan = self.segment.location().plan("put", operation).returns(|_, _| ());
        end_of(self.segment.client().execute(Deadline::of(DROP_TIMEOUT), plan));
    }
}

/// Drops the result: the put has failed with an error that matters more.
#[only_blocking]
fn end_of<T>(_ended: T) {}

/// Sends the request without waiting for its end: the caller is the drop of a future.
#[only_aio]
fn end_of(call: impl Future) {
    let call = std::pin::pin!(call);
    // The first poll sends the request, and the dropped call leaves its completion to the channel.
    let _ = call.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
}

impl Drop for UploadGuard<'_> {
    fn drop(&mut self) {
        if self.upload != UploadId(0) {
            self.free();
        }
    }
}
