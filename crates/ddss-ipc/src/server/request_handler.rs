//! Handler of the requests that a server takes.

use ddss_core::{ChannelId, Entry};

use crate::trace_sampling::TracedRequest;

/// Handles requests one after the other, for [`IpcServer::serve`](crate::IpcServer::serve). A closure with the arguments of
/// [`handle`](Self::handle) is a handler without follow-up work.
pub trait RequestHandler {
    /// Returns the cost of a request in units of a small request, for the fair shares of users.
    #[inline(always)]
    fn weight(&self, _request: &Entry) -> usize {
        1
    }

    /// Handles a request. `None` means that it is in flight and [`IpcServer::reply`](crate::IpcServer::reply) follows. Sampled requests come
    /// with their submit and take times.
    fn handle(&mut self, channel: ChannelId, request: &Entry, traced: Option<TracedRequest>) -> Option<Entry>;

    /// Runs after the reply is published, for work that the client need not wait for.
    #[inline(always)]
    fn after_reply(&mut self, _channel: ChannelId, _request: &Entry, _answer: &Entry, _traced: Option<TracedRequest>) {}
}

impl<F: FnMut(ChannelId, &Entry, Option<TracedRequest>) -> Option<Entry>> RequestHandler for F {
    #[inline(always)]
    fn handle(&mut self, channel: ChannelId, request: &Entry, traced: Option<TracedRequest>) -> Option<Entry> {
        self(channel, request, traced)
    }
}
