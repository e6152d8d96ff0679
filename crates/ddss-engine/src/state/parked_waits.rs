//! Parked waits of local clients: requests that wait for an event and hold no place in a ring.
//!
//! ```text
//!   request ── ends at once ───────────────────────────────► its own completion
//!      │
//!      └─ has to wait ─► waiting ── event, deadline, cancel ─► ended ── collect ─► completion in the collect's place
//! ```
//!
//! A client offers places with [`Operation::Collect`](crate::Operation::Collect), so no completion goes out without a
//! place for it. A client that collects nothing fills its own limit: an ended wait counts until it is collected.

use ddss_core::limits::{CLIENTS_MAX, COLLECTS_PER_CLIENT_MAX, WAITS_PER_CLIENT_DEFAULT, WAITS_PER_NODE_MAX};
use ddss_core::{ChannelId, ClientId, Completion, Failure, Limit, Outcome, RequestId};
use std::collections::{BTreeSet, VecDeque};

/// Parked waits of one client.
#[derive(Debug)]
struct ClientWaits {
    client: ClientId,
    waiting: BTreeSet<RequestId>,
    /// Completions without a place, in order. Empty while a place is offered.
    ended: VecDeque<Completion>,
    /// Offered places, in order.
    places: VecDeque<(ChannelId, RequestId)>,
}

/// Route of a completion that belongs to the parked waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParkedReply {
    /// The request ended before it was parked: it has its own place.
    AtOnce(ChannelId),
    /// The wait ended later, or there is none.
    Later,
}

/// Parked waits of all local clients.
#[derive(Debug)]
pub(crate) struct ParkedWaits {
    clients: Vec<Option<Box<ClientWaits>>>,
    /// Waits of all clients, waiting or ended.
    total: usize,
    per_client_max: usize,
    /// Request that is dispatched now, with its own place.
    dispatched: Option<(ChannelId, RequestId)>,
    /// Completions with their places, for the daemon.
    replies: VecDeque<(ChannelId, Completion)>,
}

impl ParkedWaits {
    pub(crate) fn new() -> Self {
        let clients = std::iter::repeat_with(|| None).take(CLIENTS_MAX).collect();
        let (total, per_client_max) = (0, WAITS_PER_CLIENT_DEFAULT);
        Self { clients, total, per_client_max, dispatched: None, replies: VecDeque::new() }
    }

    /// Sets the maximum number of waits of one client.
    pub(crate) fn set_limit(&mut self, per_client_max: usize) {
        self.per_client_max = per_client_max.min(WAITS_PER_NODE_MAX);
    }

    /// Returns the maximum number of parked waits of one client.
    pub(crate) fn limit(&self) -> usize {
        self.per_client_max
    }

    /// Returns the number of parked waits, waiting or not yet collected.
    pub(crate) fn count(&self) -> usize {
        self.total
    }

    fn of(&mut self, client: ClientId) -> Option<&mut ClientWaits> {
        self.clients.get_mut(client.index as usize)?.as_deref_mut().filter(|waits| waits.client == client)
    }

    /// Begins the dispatch of a request that may be parked.
    pub(crate) fn begin(&mut self, channel: ChannelId, request: RequestId) -> Result<(), Failure> {
        assert!(self.dispatched.is_none(), "one request at a time is dispatched");
        let (most, full) = (self.per_client_max, self.total >= WAITS_PER_NODE_MAX);
        if let Some(waits) = self.of(channel.client) {
            if waits.waiting.contains(&request) {
                return Err(Failure::Malformed);
            }
            if waits.waiting.len() + waits.ended.len() >= most {
                return Err(Failure::Busy(Limit::Waits));
            }
        }
        if full || most == 0 {
            return Err(Failure::Busy(if full { Limit::NodeWaits } else { Limit::Waits }));
        }
        self.dispatched = Some((channel, request));
        Ok(())
    }

    /// Ends the dispatch. Returns true if the request has not ended: it is parked now.
    pub(crate) fn park(&mut self) -> bool {
        let Some((channel, request)) = self.dispatched.take() else { return false };
        let client = channel.client;
        let Some(slot) = self.clients.get_mut(client.index as usize) else { return false };
        let fresh =
            || ClientWaits { client, waiting: BTreeSet::new(), ended: VecDeque::new(), places: VecDeque::new() };
        slot.get_or_insert_with(|| Box::new(fresh())).waiting.insert(request);
        self.total += 1;
        true
    }

    /// Routes the completion of a request that was dispatched as a parked wait.
    pub(crate) fn complete(&mut self, client: ClientId, completion: Completion) -> ParkedReply {
        if let Some((channel, request)) = self.dispatched
            && (channel.client, request) == (client, completion.request)
        {
            self.dispatched = None;
            return ParkedReply::AtOnce(channel);
        }
        let Some(waits) = self.of(client) else { return ParkedReply::Later };
        if !waits.waiting.remove(&completion.request) {
            // A wait ends once; a late lock has no caller any more.
            return ParkedReply::Later;
        }
        match waits.places.pop_front() {
            Some((channel, _)) => {
                let unused = if waits.waiting.is_empty() { std::mem::take(&mut waits.places) } else { VecDeque::new() };
                self.total -= 1;
                self.replies.push_back((channel, completion));
                let returned = unused.into_iter().map(|(to, request)| (to, Completion::bare(request, Outcome::Done)));
                self.replies.extend(returned);
            }
            None => waits.ended.push_back(completion),
        }
        ParkedReply::Later
    }

    /// Takes an offered place. Returns the completion for it, if there is one now.
    pub(crate) fn collect(&mut self, channel: ChannelId, request: RequestId) -> Option<Completion> {
        let done = Completion::bare(request, Outcome::Done);
        let Some(waits) = self.of(channel.client) else { return Some(done) };
        if let Some(ended) = waits.ended.pop_front() {
            self.total -= 1;
            return Some(ended);
        }
        if waits.waiting.is_empty() {
            return Some(done);
        }
        if waits.places.len() == COLLECTS_PER_CLIENT_MAX {
            return Some(Completion::bare(request, Outcome::Failed(Failure::Busy(Limit::WaitCollections))));
        }
        waits.places.push_back((channel, request));
        None
    }

    /// Takes the next completion that has a place.
    #[inline]
    pub(crate) fn next_reply(&mut self) -> Option<(ChannelId, Completion)> {
        self.replies.pop_front()
    }

    /// Forgets everything of a client that is gone.
    pub(crate) fn detach(&mut self, client: ClientId) {
        if self.of(client).is_some()
            && let Some(waits) = self.clients[client.index as usize].take()
        {
            self.total -= waits.waiting.len() + waits.ended.len();
            self.replies.retain(|(channel, _)| channel.client != client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId { index: 3, generation: 1 };
    const CHANNEL: ChannelId = ChannelId { client: CLIENT, index: 2 };

    fn done(request: u64) -> Completion {
        Completion::bare(RequestId(request), Outcome::Done)
    }

    fn park(waits: &mut ParkedWaits, request: u64) {
        waits.begin(CHANNEL, RequestId(request)).unwrap();
        assert!(waits.park());
    }

    #[test]
    fn completions_go_out_only_into_offered_places() {
        // If this broke, a completion would overwrite that of another call in the ring.
        let mut waits = ParkedWaits::new();
        for request in 1..=3 {
            park(&mut waits, request);
        }
        assert_eq!(waits.complete(CLIENT, done(1)), ParkedReply::Later);
        assert_eq!((waits.next_reply(), waits.count()), (None, 3));
        assert_eq!(waits.collect(CHANNEL, RequestId(90)), Some(done(1)));
        assert_eq!(waits.collect(CHANNEL, RequestId(91)), None);
        assert_eq!(waits.collect(CHANNEL, RequestId(92)), None);
        assert_eq!(waits.collect(CHANNEL, RequestId(93)), None);
        waits.complete(CLIENT, done(3));
        assert_eq!((waits.next_reply(), waits.next_reply()), (Some((CHANNEL, done(3))), None));
        // The last wait returns the places that nothing will use.
        waits.complete(CLIENT, done(2));
        let rest: Vec<_> = std::iter::from_fn(|| waits.next_reply()).map(|(_, completion)| completion).collect();
        assert_eq!((rest, waits.count()), (vec![done(2), done(93)], 0));
        assert_eq!(waits.collect(CHANNEL, RequestId(94)), Some(done(94)));
    }

    #[test]
    fn wait_that_ends_at_once_has_its_own_place_and_ends_once() {
        // If this broke, an uncontended lock would cost two more requests, or a wait would end twice.
        let mut waits = ParkedWaits::new();
        waits.begin(CHANNEL, RequestId(7)).unwrap();
        assert_eq!(waits.complete(CLIENT, done(7)), ParkedReply::AtOnce(CHANNEL));
        assert!(!waits.park());
        park(&mut waits, 8);
        assert_eq!(waits.begin(CHANNEL, RequestId(8)), Err(Failure::Malformed), "ids of one client differ");
        waits.complete(CLIENT, done(8));
        waits.complete(CLIENT, done(8));
        assert_eq!(waits.collect(CHANNEL, RequestId(90)), Some(done(8)));
        assert_eq!((waits.collect(CHANNEL, RequestId(91)), waits.count()), (Some(done(91)), 0));
    }

    #[test]
    fn waits_of_a_client_are_bounded_until_they_are_collected_or_it_is_gone() {
        // If this broke, a client that never collects could take the memory of its node.
        let mut waits = ParkedWaits::new();
        waits.set_limit(2);
        park(&mut waits, 1);
        park(&mut waits, 2);
        assert_eq!(waits.begin(CHANNEL, RequestId(3)), Err(Failure::Busy(Limit::Waits)));
        waits.complete(CLIENT, done(1));
        assert_eq!(waits.begin(CHANNEL, RequestId(3)), Err(Failure::Busy(Limit::Waits)), "nobody has collected it");
        assert!(waits.collect(CHANNEL, RequestId(90)).is_some());
        park(&mut waits, 3);
        assert_eq!(waits.collect(CHANNEL, RequestId(91)), None);
        waits.detach(CLIENT);
        waits.complete(CLIENT, done(2));
        assert_eq!((waits.next_reply(), waits.count()), (None, 0));
        let offers = COLLECTS_PER_CLIENT_MAX as u64;
        park(&mut waits, 4);
        assert!((0..offers).all(|offer| waits.collect(CHANNEL, RequestId(100 + offer)).is_none()));
        let beyond = waits.collect(CHANNEL, RequestId(99)).map(|completion| completion.outcome);
        assert_eq!(beyond, Some(Outcome::Failed(Failure::Busy(Limit::WaitCollections))));
    }
}
