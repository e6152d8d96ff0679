//! The parts of a large put until they are committed.

use crate::async_client::AsyncSegment;
use crate::deadline::Deadline;
use crate::segment::Segment;
use ddss_core::{Operation, UploadId};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// Time to tell the home that the parts of a put are of no use.
const DROP_TIMEOUT: Duration = Duration::from_millis(100);

/// A handle that can free the parts of a put at the home. The home frees them by itself later, so that a request which
/// finds no room does no harm.
pub(crate) trait FreeUpload {
    fn free_upload(&self, upload: UploadId);
}

impl FreeUpload for Segment {
    fn free_upload(&self, upload: UploadId) {
        let operation = Operation::DropUpload { segment: self.id(), upload };
        let plan = self.location().plan("put", operation).returns(|_, _| ());
        // The put has failed with an error that matters more.
        let _ = self.client().run(Deadline::of(DROP_TIMEOUT), plan);
    }
}

impl FreeUpload for AsyncSegment {
    /// Sends the request without waiting for its end: the caller is the drop of a future.
    fn free_upload(&self, upload: UploadId) {
        let operation = Operation::DropUpload { segment: self.id(), upload };
        let plan = self.location().plan("put", operation).returns(|_, _| ());
        let call = pin!(self.client().run(Deadline::of(DROP_TIMEOUT), plan));
        // The first poll sends the request, and the dropped call leaves its completion to the channel.
        let _ = call.poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// Frees the parts at the home when it is dropped before they are committed: after an error, or with the future of a task
/// that gave up.
pub(crate) struct UploadGuard<'a, S: FreeUpload> {
    segment: &'a S,
    pub(crate) upload: UploadId,
}

impl<'a, S: FreeUpload> UploadGuard<'a, S> {
    pub(crate) fn new(segment: &'a S) -> Self {
        Self { segment, upload: UploadId(0) }
    }

    /// Ends the guard: the parts are committed.
    pub(crate) fn commit(mut self) {
        self.upload = UploadId(0);
    }
}

impl<S: FreeUpload> Drop for UploadGuard<'_, S> {
    fn drop(&mut self) {
        if self.upload != UploadId(0) {
            self.segment.free_upload(self.upload);
        }
    }
}
