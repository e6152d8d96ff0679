//! Counts everything, and writes it into the page: counts each millisecond and before the thread sleeps, rows when they
//! have changed, what has to be looked up twenty times a second.
//!
//! What a call costs here is a few additions in memory that no other core looks at. Clocks are read only for a request
//! that is followed (`crates/ddss-ipc/src/trace_sampling.rs` says which).

use super::inflight::{Asked, InflightRequest, InflightRequests, Way};
use super::page::StatusPage;
use super::top_segments::{TopSegments, Touch};
use ddss_core::engine::Counters;
use ddss_core::status::{ClientRow, Counter, Gauge, Kind, Layout, PeerRow, Road, SampleRow, Step, Tally as Column};
use ddss_core::{ChannelId, ClientId, Entry, Message, NodeId, Outcome, SegmentId};
use ddss_ipc::{ServerCounts, Session, Strategy, TracedRequest, clock_ns};

/// A client and whether its row has to be written.
#[derive(Clone, Copy, Debug)]
struct ClientState {
    row: ClientRow,
    dirty: bool,
}

/// What has to be looked up, now and then.
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
}

/// Everything that is counted.
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
    lanes: usize,
    arena_bytes: u64,
    busiest: TopSegments,
    flights: InflightRequests,
    samples: u64,
    /// When the network last brought something, while a request was followed.
    noticed_ns: u64,
    wall_us: u64,
    peers: usize,
    flushes: u32,
}

impl Recorder {
    /// How often what was looked up is written until calls count half as much: about a second.
    const FLUSHES_PER_COOL: u32 = 16;

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
            lanes: 0,
            arena_bytes: 0,
            busiest: TopSegments::new(),
            flights: InflightRequests::new(),
            samples: 0,
            noticed_ns: 0,
            wall_us: 0,
            peers: 0,
            flushes: 0,
        }
    }

    /// Counts one more.
    #[inline]
    pub(crate) fn count(&mut self, counter: Counter) {
        self.counters[counter.index()] += 1;
    }

    /// Counts some more.
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, many: u64) {
        self.counters[counter.index()] += many;
    }

    /// Some reads were posted, of so many bytes together.
    pub(crate) fn read(&mut self, reads: usize, bytes: u64) {
        self.add(Counter::FabricReads, reads as u64);
        self.add(Counter::FabricReadBytes, bytes);
    }

    /// A write was posted.
    pub(crate) fn wrote(&mut self, bytes: u32) {
        self.count(Counter::FabricWrites);
        self.add(Counter::FabricWriteBytes, bytes.into());
    }

    /// So many have wanted to connect.
    pub(crate) fn asked(&mut self, many: u64) {
        self.counters[Counter::ConnectionsAsked.index()] = many;
    }

    /// What was sent so far.
    pub(crate) fn sent(&mut self, messages: u64, bytes: u64) {
        self.counters[Counter::FabricMessages.index()] = messages;
        self.counters[Counter::FabricMessageBytes.index()] = bytes;
    }

    /// What quotas did not allow so far.
    pub(crate) fn refused(&mut self, many: u64) {
        self.counters[Counter::QuotaRefusals.index()] = many;
    }

    /// Another node said something.
    pub(crate) fn heard(&mut self, message: &Message) {
        self.count(Counter::MessagesHeard);
        let answers = matches!(
            message,
            Message::Found { .. } | Message::Ended { .. } | Message::Got { .. } | Message::Listed { .. }
        );
        self.add(Counter::RoundTrips, answers.into());
    }

    // Clients.

    pub(crate) fn attached(&mut self, session: &ClientSeen, wall_us: u64) {
        let &ClientSeen { client, pid, uid, gid, strategy, lanes, arena_bytes } = session;
        self.count(Counter::Attached);
        let row = ClientRow {
            client,
            pid,
            uid,
            gid,
            strategy,
            lanes,
            attached_us: wall_us,
            arena_bytes,
            operations: 0,
            failed: 0,
            bytes_got: 0,
            bytes_put: 0,
            under_way: 0,
        };
        self.left(client.index);
        if let Some(place) = self.clients.get_mut(client.index as usize) {
            *place = Some(ClientState { row, dirty: true });
            self.dirty.push(client.index);
            self.attached += 1;
            self.lanes += usize::from(lanes);
            self.arena_bytes += arena_bytes;
        }
    }

    /// Whoever has this slot has it no longer.
    fn left(&mut self, index: u32) {
        let Some(guest) = self.clients.get_mut(index as usize).and_then(Option::take) else { return };
        if guest.dirty {
            self.dirty.retain(|&other| other != index);
        }
        if guest.row.under_way > 0 {
            self.flights.forget(guest.row.client);
        }
        self.attached -= 1;
        self.lanes -= usize::from(guest.row.lanes);
        self.arena_bytes -= guest.row.arena_bytes;
        self.page.set_row::<ClientRow>(Layout::CLIENTS, index as usize, None);
    }

    pub(crate) fn gone(&mut self, client: ClientId) {
        if self.guest(client).is_some() {
            self.left(client.index);
            self.count(Counter::Left);
        }
    }

    #[inline]
    fn guest(&mut self, client: ClientId) -> Option<&mut ClientState> {
        self.clients.get_mut(client.index as usize)?.as_mut().filter(|guest| guest.row.client == client)
    }

    // Requests.

    /// A request was answered on the spot.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        lane: ChannelId,
        request: &Entry,
        reply: &Entry,
        followed: Option<TracedRequest>,
    ) {
        if request[1] != reply[1] {
            return self.answered_another(lane, request, reply, followed);
        }
        let asked = Asked::of(request);
        let outcome = outcome_of(reply);
        self.ended(lane.client, &asked, outcome, 0);
        if let Some(followed) = followed {
            self.follow_here(lane, request[1], &asked, outcome, followed);
        }
    }

    /// What was answered is an older request of the same lane.
    #[cold]
    fn answered_another(&mut self, lane: ChannelId, request: &Entry, reply: &Entry, followed: Option<TracedRequest>) {
        self.waits(lane, request, followed);
        self.landed(lane, reply);
    }

    /// A request waits for somebody.
    pub(crate) fn waits(&mut self, lane: ChannelId, request: &Entry, followed: Option<TracedRequest>) {
        let asked = Asked::of(request);
        self.operations[asked.kind.index()][Column::Waited.index()] += 1;
        let way = followed.map(|TracedRequest { submitted_ns, taken_ns }| Way {
            submitted_ns,
            taken_ns,
            posted_ns: clock_ns(),
        });
        if self.flights.begin(lane, request[1], InflightRequest { asked, way }) {
            if let Some(guest) = self.guest(lane.client) {
                guest.row.under_way += 1;
            }
        } else {
            self.count(Counter::Untracked);
        }
    }

    /// One that waited has its answer.
    pub(crate) fn landed(&mut self, lane: ChannelId, reply: &Entry) {
        let Some(InflightRequest { asked, way }) = self.flights.end(lane, reply[1]) else { return };
        let outcome = outcome_of(reply);
        self.ended(lane.client, &asked, outcome, 1);
        if let Some(way) = way {
            self.follow_away(lane, reply[1], &asked, outcome, way);
        }
    }

    #[inline]
    fn ended(&mut self, client: ClientId, asked: &Asked, outcome: Outcome, waited: u64) {
        let counts = &mut self.operations[asked.kind.index()];
        let (done, failure) = match outcome {
            Outcome::Done => {
                counts[Column::Done.index()] += 1;
                counts[Column::Bytes.index()] += asked.bytes;
                (true, None)
            }
            Outcome::Failed(failure) => {
                counts[Column::Failed.index()] += 1;
                (false, Some(failure))
            }
            Outcome::Indeterminate(failure) => {
                counts[Column::Indeterminate.index()] += 1;
                (false, Some(failure))
            }
        };
        if let Some(failure) = failure {
            self.failures[usize::from(failure.code()) % Layout::FAILURES] += 1;
        }
        let touch = match asked.kind {
            Kind::Get | Kind::GetMany => Touch::Get,
            Kind::Put | Kind::PutMany | Kind::Atomic => Touch::Put,
            _ => Touch::Other,
        };
        if done && asked.kind == Kind::Release {
            self.busiest.forget(SegmentId::from_bits(asked.segment));
        } else if done && asked.segment != 0 {
            self.busiest.touch(asked.segment, touch, asked.bytes);
        }
        let Some(Some(guest)) = self.clients.get_mut(client.index as usize) else { return };
        let row = &mut guest.row;
        row.operations += 1;
        row.failed += u64::from(!done);
        row.under_way = row.under_way.saturating_sub(waited);
        match touch {
            Touch::Get if done => row.bytes_got += asked.bytes,
            Touch::Put if done => row.bytes_put += asked.bytes,
            _ => {}
        }
        if !guest.dirty {
            guest.dirty = true;
            self.dirty.push(client.index);
        }
    }

    // Those that are followed.

    /// The network has brought something. Called before anybody looks what it is.
    #[inline]
    pub(crate) fn notice(&mut self) {
        if self.flights.follows() {
            self.noticed_ns = clock_ns();
        }
    }

    #[cold]
    fn follow_here(&mut self, lane: ChannelId, request: u64, asked: &Asked, outcome: Outcome, followed: TracedRequest) {
        let now = clock_ns();
        let TracedRequest { submitted_ns, taken_ns } = followed;
        let mut steps = [None; Step::COUNT];
        steps[Step::Submit.index()] = submitted_ns.map(|from| taken_ns.saturating_sub(from));
        steps[Step::Post.index()] = Some(now.saturating_sub(taken_ns));
        steps[Step::Total.index()] = Some(now.saturating_sub(submitted_ns.unwrap_or(taken_ns)));
        let away = asked.segment_id().is_some_and(|segment| self.is_remote(segment));
        self.sample(lane, request, asked, outcome, if away { Road::Away } else { Road::Here }, steps);
    }

    #[cold]
    fn follow_away(&mut self, lane: ChannelId, request: u64, asked: &Asked, outcome: Outcome, way: Way) {
        let now = clock_ns();
        let Way { submitted_ns, taken_ns, posted_ns } = way;
        // Time may have brought the answer, or another client.
        let complete_ns = if self.noticed_ns > posted_ns { self.noticed_ns } else { now };
        let mut steps = [None; Step::COUNT];
        steps[Step::Submit.index()] = submitted_ns.map(|from| taken_ns.saturating_sub(from));
        steps[Step::Post.index()] = Some(posted_ns.saturating_sub(taken_ns));
        steps[Step::Complete.index()] = Some(complete_ns.saturating_sub(posted_ns));
        steps[Step::Reply.index()] = Some(now.saturating_sub(complete_ns));
        steps[Step::Total.index()] = Some(now.saturating_sub(submitted_ns.unwrap_or(taken_ns)));
        let here = asked.segment_id().is_some_and(|segment| !self.is_remote(segment));
        self.sample(lane, request, asked, outcome, if here { Road::Here } else { Road::Away }, steps);
    }

    fn is_remote(&self, segment: SegmentId) -> bool {
        segment.home() != self.node
    }

    fn sample(
        &mut self,
        lane: ChannelId,
        request: u64,
        asked: &Asked,
        outcome: Outcome,
        road: Road,
        steps_ns: [Option<u64>; Step::COUNT],
    ) {
        for (&step, ns) in Step::ALL.iter().zip(steps_ns) {
            if let Some(ns) = ns {
                self.page.note(asked.kind, road, step, ns);
            }
        }
        self.samples += 1;
        let row = SampleRow {
            number: self.samples,
            ended_us: self.wall_us,
            kind: asked.kind,
            road,
            outcome,
            lane: lane.index,
            client: lane.client,
            request,
            segment: asked.segment_id(),
            bytes: asked.bytes,
            steps_ns,
        };
        self.page.set_row(Layout::SAMPLE_ROWS, self.samples as usize, Some(&row));
    }

    /// A segment was released: its row is free.
    pub(crate) fn released(&mut self, segment: SegmentId) {
        self.count(Counter::SegmentsReleased);
        self.busiest.forget(segment);
    }

    // Writing it down.

    /// The time, as the thread read it last.
    pub(crate) fn set_time(&mut self, wall_us: u64) {
        self.wall_us = wall_us;
    }

    /// Writes every count, each row that has changed, and a sign of life.
    pub(crate) fn flush(&mut self, engine: Counters, station: ServerCounts) {
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
            (Counter::RepliesLate, station.replies_to_gone_clients),
            (Counter::RepliesUnasked, station.replies_unsolicited),
            (Counter::Wakes, station.wakes),
            (Counter::Parks, station.sleeps),
            (Counter::Sampled, self.samples),
            (Counter::SegmentRowsLost, self.busiest.lost),
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
            if let Some(Some(guest)) = self.clients.get_mut(index as usize) {
                guest.dirty = false;
                self.page.set_row(Layout::CLIENTS, index as usize, Some(&guest.row));
            }
        }
        let page = &self.page;
        self.busiest.flush(|index, row| page.set_row(Layout::SEGMENT_ROWS, index, row));
        self.page.beat(self.wall_us);
    }

    /// Writes what had to be looked up.
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
            (Gauge::Lanes, self.lanes as u64),
            (Gauge::ArenaBytes, self.arena_bytes),
            (Gauge::Segments, gauges.segments as u64),
            (Gauge::PoolBytes, gauges.pool_bytes),
            (Gauge::PoolBytesUsed, gauges.pool_bytes.saturating_sub(gauges.pool_bytes_free)),
            (Gauge::FileBytes, gauges.file_bytes),
            (Gauge::FileBytesUsed, gauges.file_bytes.saturating_sub(gauges.file_bytes_free)),
            (Gauge::UnderWay, gauges.under_way as u64),
            (Gauge::LockHolders, gauges.lock_holders as u64),
            (Gauge::LockWaiters, gauges.lock_waiters as u64),
            (Gauge::LatencyNs, latency_ns),
            (Gauge::Peers, known as u64),
            (Gauge::Connections, connected),
        ] {
            self.page.set_gauge(gauge, value);
        }
        self.flushes += 1;
        if self.flushes.is_multiple_of(Self::FLUSHES_PER_COOL) {
            self.busiest.cool();
        }
    }
}

/// What is told of a client when it attaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientSeen {
    client: ClientId,
    pid: u32,
    uid: u32,
    gid: u32,
    strategy: u8,
    lanes: u8,
    arena_bytes: u64,
}

impl ClientSeen {
    pub(crate) fn of(session: &Session) -> Self {
        let who = session.credentials();
        let strategy = match session.strategy() {
            Strategy::Mq => 1,
            Strategy::Rmq => 2,
            Strategy::Rcq => 3,
            Strategy::Auto => 4,
        };
        Self {
            client: session.client(),
            pid: who.pid.cast_unsigned(),
            uid: who.uid,
            gid: who.gid,
            strategy,
            lanes: session.channels() as u8,
            arena_bytes: session.arena().len() as u64,
        }
    }
}

/// How a request ended, as its completion says.
#[inline]
fn outcome_of(reply: &Entry) -> Outcome {
    Outcome::from_bytes(((reply[0] >> 32) as u16).to_le_bytes())
}
