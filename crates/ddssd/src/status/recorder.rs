//! Counts all requests and events, and writes them to the status page. Counters are written each millisecond and
//! before the thread sleeps, rows when they have changed, gauges twenty times a second.
//!
//! A call costs a few additions in memory that no other core reads. Clocks are read only for traced requests
//! (`crates/ddss-ipc/src/trace_sampling.rs` selects them).

use super::inflight::{InflightRequest, InflightRequests, RequestSubject, StepTimes};
use super::page::StatusPage;
use super::top_segments::{AccessKind, TopSegments};
use ddss_core::status::{ClientRow, Counter, Gauge, Kind, Layout, Location, PeerRow, SampleRow, Step, Tally as Column};
use ddss_core::{ChannelId, ClientId, Entry, Failure, Message, NodeId, Outcome, SegmentId};
use ddss_engine::{Counters, ReplicaCounts};
use ddss_ipc::{ServerCounts, Session, Strategy, TracedRequest, clock_ns};

/// Row of a client, and a flag for its next write.
#[derive(Clone, Copy, Debug)]
struct ClientState {
    row: ClientRow,
    dirty: bool,
}

/// Values that are polled from time to time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) segments: usize,
    pub(crate) pool_bytes: u64,
    pub(crate) pool_bytes_free: u64,
    pub(crate) file_bytes: u64,
    pub(crate) file_bytes_free: u64,
    pub(crate) under_way: usize,
    pub(crate) lock_holders: usize,
    pub(crate) lock_waiters: usize,
    pub(crate) parked_waits: usize,
    pub(crate) replicas: ReplicaCounts,
}

/// All counters of one shard.
#[derive(Debug)]
pub(crate) struct Recorder {
    node: NodeId,
    page: StatusPage,
    counters: [u64; Counter::COUNT],
    operations: [[u64; Column::COUNT]; Kind::COUNT],
    failures: [u64; Layout::FAILURES],
    clients: Vec<Option<ClientState>>,
    dirty: Vec<u32>,
    attached: usize,
    channels: usize,
    arena_bytes: u64,
    top_segments: TopSegments,
    inflight: InflightRequests,
    samples: u64,
    /// Time of the last network event, while a traced request was in flight.
    last_event_ns: u64,
    wall_us: u64,
    peers: usize,
    flushes: u32,
}

impl Recorder {
    /// Gauge writes between two halvings of the segments' heat: about a second.
    const FLUSHES_PER_DECAY: u32 = 16;

    pub(crate) fn new(node: NodeId, page: StatusPage, clients_max: usize) -> Self {
        Self {
            node,
            page,
            counters: [0; Counter::COUNT],
            operations: [[0; Column::COUNT]; Kind::COUNT],
            failures: [0; Layout::FAILURES],
            clients: vec![None; clients_max],
            dirty: Vec::with_capacity(clients_max),
            attached: 0,
            channels: 0,
            arena_bytes: 0,
            top_segments: TopSegments::new(),
            inflight: InflightRequests::new(),
            samples: 0,
            last_event_ns: 0,
            wall_us: 0,
            peers: 0,
            flushes: 0,
        }
    }

    /// Adds one to a counter.
    #[inline]
    pub(crate) fn count(&mut self, counter: Counter) {
        self.counters[counter.index()] += 1;
    }

    /// Adds `many` to a counter.
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, many: u64) {
        self.counters[counter.index()] += many;
    }

    /// Counts posted reads and their bytes.
    pub(crate) fn count_reads(&mut self, reads: usize, bytes: u64) {
        self.add(Counter::FabricReads, reads as u64);
        self.add(Counter::FabricReadBytes, bytes);
    }

    /// Counts a posted write.
    pub(crate) fn count_write(&mut self, bytes: u32) {
        self.count(Counter::FabricWrites);
        self.add(Counter::FabricWriteBytes, bytes.into());
    }

    /// Sets the number of verified handshakes.
    pub(crate) fn set_handshakes(&mut self, many: u64) {
        self.counters[Counter::ConnectionsAsked.index()] = many;
    }

    /// Sets the number of sent messages and their bytes.
    pub(crate) fn set_sent(&mut self, messages: u64, bytes: u64) {
        self.counters[Counter::FabricMessages.index()] = messages;
        self.counters[Counter::FabricMessageBytes.index()] = bytes;
    }

    /// Sets the number of requests that a quota has refused.
    pub(crate) fn set_refusals(&mut self, many: u64) {
        self.counters[Counter::QuotaRefusals.index()] = many;
    }

    /// Counts a message from another node.
    pub(crate) fn count_message(&mut self, message: &Message) {
        self.count(Counter::MessagesHeard);
        let answers = matches!(
            message,
            Message::Found { .. } | Message::Ended { .. } | Message::Got { .. } | Message::Listed { .. }
        );
        self.add(Counter::RoundTrips, answers.into());
    }

    // Clients.

    pub(crate) fn attach(&mut self, session: &ClientInfo, wall_us: u64) {
        let &ClientInfo { client, pid, uid, gid, strategy, channels, arena_bytes } = session;
        self.count(Counter::Attached);
        let row = ClientRow {
            client,
            pid,
            uid,
            gid,
            strategy,
            channels,
            attached_us: wall_us,
            arena_bytes,
            operations: 0,
            failed: 0,
            bytes_got: 0,
            bytes_put: 0,
            under_way: 0,
        };
        self.free_slot(client.index);
        if let Some(place) = self.clients.get_mut(client.index as usize) {
            *place = Some(ClientState { row, dirty: true });
            self.dirty.push(client.index);
            self.attached += 1;
            self.channels += usize::from(channels);
            self.arena_bytes += arena_bytes;
        }
    }

    /// Frees a client slot.
    fn free_slot(&mut self, index: u32) {
        let Some(client_state) = self.clients.get_mut(index as usize).and_then(Option::take) else { return };
        if client_state.dirty {
            self.dirty.retain(|&other| other != index);
        }
        if client_state.row.under_way > 0 {
            self.inflight.remove_client(client_state.row.client);
        }
        self.attached -= 1;
        self.channels -= usize::from(client_state.row.channels);
        self.arena_bytes -= client_state.row.arena_bytes;
        self.page.set_row::<ClientRow>(Layout::CLIENTS, index as usize, None);
    }

    pub(crate) fn detach(&mut self, client: ClientId) {
        if self.client_state(client).is_some() {
            self.free_slot(client.index);
            self.count(Counter::Left);
        }
    }

    #[inline]
    fn client_state(&mut self, client: ClientId) -> Option<&mut ClientState> {
        self.clients.get_mut(client.index as usize)?.as_mut().filter(|client_state| client_state.row.client == client)
    }

    // Requests.

    /// Records a request with an immediate reply of its own.
    #[inline]
    pub(crate) fn record_reply(
        &mut self,
        channel: ChannelId,
        request: &Entry,
        reply: &Entry,
        traced: Option<TracedRequest>,
    ) {
        let subject = RequestSubject::of(request);
        let outcome = outcome_of(reply);
        self.count_outcome(channel.client, &subject, outcome, 0);
        if let Some(traced) = traced {
            self.record_local_trace(channel, request[1], &subject, outcome, traced);
        }
    }

    /// Records a request that has to wait.
    pub(crate) fn begin_wait(&mut self, channel: ChannelId, request: &Entry, traced: Option<TracedRequest>) {
        let subject = RequestSubject::of(request);
        self.operations[subject.kind.index()][Column::Waited.index()] += 1;
        let times = traced.map(|TracedRequest { submitted_ns, taken_ns }| StepTimes {
            submitted_ns,
            taken_ns,
            posted_ns: clock_ns(),
        });
        if self.inflight.begin(channel, request[1], InflightRequest { subject, times }) {
            if let Some(client_state) = self.client_state(channel.client) {
                client_state.row.under_way += 1;
            }
        } else {
            self.count(Counter::Untracked);
        }
    }

    /// Records the reply to a request that had to wait.
    pub(crate) fn complete(&mut self, channel: ChannelId, reply: &Entry) {
        let Some(InflightRequest { subject, times }) = self.inflight.end(channel, reply[1]) else { return };
        let outcome = outcome_of(reply);
        self.count_outcome(channel.client, &subject, outcome, 1);
        if let Some(times) = times {
            self.record_remote_trace(channel, reply[1], &subject, outcome, times);
        }
    }

    #[inline]
    fn count_outcome(&mut self, client: ClientId, subject: &RequestSubject, outcome: Outcome, waited: u64) {
        match outcome {
            Outcome::Done => self.count_done(client, subject, waited),
            Outcome::Failed(failure) => self.count_failed(client, subject.kind, (Column::Failed, failure), waited),
            Outcome::Indeterminate(failure) => {
                self.count_failed(client, subject.kind, (Column::Indeterminate, failure), waited);
            }
        }
    }

    #[inline]
    fn count_done(&mut self, client: ClientId, subject: &RequestSubject, waited: u64) {
        let counts = &mut self.operations[subject.kind.index()];
        counts[Column::Done.index()] += 1;
        counts[Column::Bytes.index()] += subject.bytes;
        let access = match subject.kind {
            Kind::Get | Kind::GetMany => AccessKind::Get,
            Kind::Put | Kind::PutMany | Kind::Atomic => AccessKind::Put,
            _ => AccessKind::Other,
        };
        if subject.kind == Kind::Release {
            self.top_segments.remove(SegmentId::from_bits(subject.segment));
        } else if subject.segment != 0 {
            self.top_segments.count(subject.segment, access, subject.bytes);
        }
        let Some(row) = self.changed_row(client) else { return };
        row.operations += 1;
        row.under_way = row.under_way.saturating_sub(waited);
        match access {
            AccessKind::Get => row.bytes_got += subject.bytes,
            AccessKind::Put => row.bytes_put += subject.bytes,
            AccessKind::Other => {}
        }
    }

    #[cold]
    fn count_failed(&mut self, client: ClientId, kind: Kind, (column, failure): (Column, Failure), waited: u64) {
        self.operations[kind.index()][column.index()] += 1;
        self.failures[usize::from(failure.code()) % Layout::FAILURES] += 1;
        let Some(row) = self.changed_row(client) else { return };
        row.operations += 1;
        row.failed += 1;
        row.under_way = row.under_way.saturating_sub(waited);
    }

    /// Returns the row of a client, which will be published.
    #[inline]
    fn changed_row(&mut self, client: ClientId) -> Option<&mut ClientRow> {
        let Some(Some(client_state)) = self.clients.get_mut(client.index as usize) else { return None };
        if !client_state.dirty {
            client_state.dirty = true;
            self.dirty.push(client.index);
        }
        Some(&mut client_state.row)
    }

    // Traced requests.

    /// Records the time of a network event. The event loop calls it before it handles the events.
    #[inline]
    pub(crate) fn mark_event_time(&mut self) {
        if self.inflight.has_traced() {
            self.last_event_ns = clock_ns();
        }
    }

    #[cold]
    fn record_local_trace(
        &mut self,
        channel: ChannelId,
        request: u64,
        subject: &RequestSubject,
        outcome: Outcome,
        traced: TracedRequest,
    ) {
        let now = clock_ns();
        let TracedRequest { submitted_ns, taken_ns } = traced;
        let mut steps = [None; Step::COUNT];
        steps[Step::Submit.index()] = submitted_ns.map(|from| taken_ns.saturating_sub(from));
        steps[Step::Post.index()] = Some(now.saturating_sub(taken_ns));
        steps[Step::Total.index()] = Some(now.saturating_sub(submitted_ns.unwrap_or(taken_ns)));
        let away = subject.segment_id().is_some_and(|segment| self.is_remote(segment));
        self.sample(channel, request, subject, outcome, if away { Location::Away } else { Location::Here }, steps);
    }

    #[cold]
    fn record_remote_trace(
        &mut self,
        channel: ChannelId,
        request: u64,
        subject: &RequestSubject,
        outcome: Outcome,
        times: StepTimes,
    ) {
        let now = clock_ns();
        let StepTimes { submitted_ns, taken_ns, posted_ns } = times;
        // A deadline or another client, and no network event, may have completed the request.
        let complete_ns = if self.last_event_ns > posted_ns { self.last_event_ns } else { now };
        let mut steps = [None; Step::COUNT];
        steps[Step::Submit.index()] = submitted_ns.map(|from| taken_ns.saturating_sub(from));
        steps[Step::Post.index()] = Some(posted_ns.saturating_sub(taken_ns));
        steps[Step::Complete.index()] = Some(complete_ns.saturating_sub(posted_ns));
        steps[Step::Reply.index()] = Some(now.saturating_sub(complete_ns));
        steps[Step::Total.index()] = Some(now.saturating_sub(submitted_ns.unwrap_or(taken_ns)));
        let here = subject.segment_id().is_some_and(|segment| !self.is_remote(segment));
        self.sample(channel, request, subject, outcome, if here { Location::Here } else { Location::Away }, steps);
    }

    fn is_remote(&self, segment: SegmentId) -> bool {
        segment.home() != self.node
    }

    fn sample(
        &mut self,
        channel: ChannelId,
        request: u64,
        subject: &RequestSubject,
        outcome: Outcome,
        location: Location,
        steps_ns: [Option<u64>; Step::COUNT],
    ) {
        for (&step, ns) in Step::ALL.iter().zip(steps_ns) {
            if let Some(ns) = ns {
                self.page.add_sample(subject.kind, location, step, ns);
            }
        }
        self.samples += 1;
        let row = SampleRow {
            number: self.samples,
            ended_us: self.wall_us,
            kind: subject.kind,
            location,
            outcome,
            channel: channel.index,
            client: channel.client,
            request,
            segment: subject.segment_id(),
            bytes: subject.bytes,
            steps_ns,
        };
        self.page.set_row(Layout::SAMPLE_ROWS, self.samples as usize, Some(&row));
    }

    /// Records the release of a segment, which frees its row.
    pub(crate) fn record_release(&mut self, segment: SegmentId) {
        self.count(Counter::SegmentsReleased);
        self.top_segments.remove(segment);
    }

    // Writing to the page.

    /// Sets the time that the thread has read last.
    pub(crate) fn set_time(&mut self, wall_us: u64) {
        self.wall_us = wall_us;
    }

    /// Writes all counters, changed rows and a sign of life.
    pub(crate) fn flush(&mut self, engine: Counters, server: ServerCounts) {
        for (counter, value) in [
            (Counter::Requests, engine.requests + engine.malformed),
            (Counter::Malformed, engine.malformed),
            (Counter::Stale, engine.stale),
            (Counter::Timeouts, engine.timeouts),
            (Counter::Commits, engine.commits),
            (Counter::Retries, engine.torn_fetches),
            (Counter::ServedGets, engine.served_gets),
            (Counter::CacheHits, engine.cache_hits),
            (Counter::LocksGranted, engine.locks_granted),
            (Counter::LocksBroken, engine.locks_broken),
            (Counter::RepliesLate, server.replies_to_gone_clients),
            (Counter::RepliesUnasked, server.replies_unsolicited),
            (Counter::Wakes, server.wakes),
            (Counter::Parks, server.sleeps),
            (Counter::Sampled, self.samples),
            (Counter::SegmentRowsLost, self.top_segments.lost),
        ] {
            self.counters[counter.index()] = value;
        }
        for (&counter, &value) in Counter::ALL.iter().zip(&self.counters) {
            self.page.set_counter(counter, value);
        }
        for (&kind, counts) in Kind::ALL.iter().zip(&self.operations) {
            for (&column, &value) in Column::ALL.iter().zip(counts) {
                self.page.set(Layout::operation_at(kind, column), value);
            }
        }
        for (code, &value) in (0..=u8::MAX).zip(&self.failures) {
            self.page.set(Layout::failure_at(code), value);
        }
        for index in self.dirty.drain(..) {
            if let Some(Some(client_state)) = self.clients.get_mut(index as usize) {
                client_state.dirty = false;
                self.page.set_row(Layout::CLIENTS, index as usize, Some(&client_state.row));
            }
        }
        let page = &self.page;
        self.top_segments.flush(|index, row| page.set_row(Layout::SEGMENT_ROWS, index, row));
        self.page.beat(self.wall_us);
    }

    /// Writes the gauges.
    pub(crate) fn flush_gauges(&mut self, gauges: &Gauges, latency_ns: u64, peers: impl Iterator<Item = PeerRow>) {
        let (mut known, mut connected) = (0, 0);
        for peer in peers.take(Layout::PEERS.rows) {
            self.page.set_row(Layout::PEERS, known, Some(&peer));
            known += 1;
            connected += u64::from(peer.connected);
        }
        for index in known..self.peers {
            self.page.set_row::<PeerRow>(Layout::PEERS, index, None);
        }
        self.peers = known;
        for (gauge, value) in [
            (Gauge::Clients, self.attached as u64),
            (Gauge::Channels, self.channels as u64),
            (Gauge::ArenaBytes, self.arena_bytes),
            (Gauge::Segments, gauges.segments as u64),
            (Gauge::PoolBytes, gauges.pool_bytes),
            (Gauge::PoolBytesUsed, gauges.pool_bytes.saturating_sub(gauges.pool_bytes_free)),
            (Gauge::FileBytes, gauges.file_bytes),
            (Gauge::FileBytesUsed, gauges.file_bytes.saturating_sub(gauges.file_bytes_free)),
            (Gauge::UnderWay, gauges.under_way as u64),
            (Gauge::LockHolders, gauges.lock_holders as u64),
            (Gauge::LockWaiters, gauges.lock_waiters as u64),
            (Gauge::ParkedWaits, gauges.parked_waits as u64),
            (Gauge::ReplicasInSync, gauges.replicas.in_sync as u64),
            (Gauge::ReplicasCopying, gauges.replicas.copying as u64),
            (Gauge::ReplicasDegraded, gauges.replicas.degraded as u64),
            (Gauge::ReplicasUnsure, gauges.replicas.unsure as u64),
            (Gauge::LatencyNs, latency_ns),
            (Gauge::Peers, known as u64),
            (Gauge::Connections, connected),
        ] {
            self.page.set_gauge(gauge, value);
        }
        self.flushes += 1;
        if self.flushes.is_multiple_of(Self::FLUSHES_PER_DECAY) {
            self.top_segments.decay();
        }
    }
}

/// Data of a client that its row shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientInfo {
    client: ClientId,
    pid: u32,
    uid: u32,
    gid: u32,
    strategy: u8,
    channels: u8,
    arena_bytes: u64,
}

impl ClientInfo {
    pub(crate) fn of(session: &Session) -> Self {
        let credentials = session.credentials();
        let strategy = match session.strategy() {
            Strategy::Mq => 1,
            Strategy::Rmq => 2,
            Strategy::Rcq => 3,
            Strategy::Auto => 4,
        };
        Self {
            client: session.client(),
            pid: credentials.pid.cast_unsigned(),
            uid: credentials.uid,
            gid: credentials.gid,
            strategy,
            channels: session.channels() as u8,
            arena_bytes: session.arena().len() as u64,
        }
    }
}

/// Decodes the outcome of a completion.
#[inline]
fn outcome_of(reply: &Entry) -> Outcome {
    Outcome::from_bytes(((reply[0] >> 32) as u16).to_le_bytes())
}
