//! Exact counts of messages and round trips, in rounds: each delivers all that was in flight at its start.

use super::network::Connection;
use super::program::Program;
use super::world::{World, rank};
use crate::random::Random;
use ddss_dsm_core::{
    Access, Area, CallId, Config, Homes, LogShape, Ordering, PageId, PageRange, Protocol, Rank, Request, Stamps, Tuning,
};

const READS_ONE_SIDED: [Protocol; 2] = [Protocol::Ardmar, Protocol::NewGenDsm];
const READS_BY_MESSAGE: [Protocol; 2] = [Protocol::Async, Protocol::Draw];
const ORDERINGS: [Ordering; 2] = [Ordering::Stamped, Ordering::Placed];

/// A space without random delays.
struct Space {
    world: World,
    random: Random,
}

impl Space {
    fn new(protocol: Protocol, ordering: Ordering, stamps: Stamps) -> Self {
        let config = Config {
            rank: Rank::ZERO,
            ranks: 4,
            pages: 64,
            page_bytes: 64,
            message_bytes: 512,
            protocol,
            ordering,
            stamps,
            log: LogShape { slots: 16, record_bytes: 128 },
            tuning: Tuning::default(),
        };
        Self { world: World::new(config, &Program::default()), random: Random::new(1) }
    }

    fn home(&mut self, range: PageRange, homes: Homes) {
        for node in &mut self.world.nodes {
            node.engine.assign_homes(range, homes).unwrap();
        }
    }

    /// Delivers all that is in flight now.
    fn round(&mut self) {
        let before = self.world.connections.clone();
        self.world.connections.values_mut().for_each(Connection::clear);
        for ((from, to), connection) in before {
            let new = std::mem::replace(self.world.connection(from, to), connection);
            loop {
                let kind = self.world.connection(from, to).possible().next();
                let Some(kind) = kind else { break };
                self.world.deliver(from, to, kind, &mut self.random);
            }
            *self.world.connection(from, to) = new;
        }
    }

    fn start(&mut self, node: usize, request: Request) -> CallId {
        self.world.request(node, request, &mut self.random)
    }

    /// Returns the rounds until a call is complete.
    fn rounds(&mut self, node: usize, call: CallId) -> usize {
        for round in 0..100 {
            if self.world.is_complete(node, call) {
                return round;
            }
            self.round();
        }
        panic!("{call:?} does not end");
    }

    fn run(&mut self, node: usize, request: Request) -> usize {
        let call = self.start(node, request);
        self.rounds(node, call)
    }

    /// Delivers all that is in flight and everything that follows.
    fn settle(&mut self) {
        (0..40).for_each(|_| self.round());
    }

    fn sent(&self) -> u64 {
        self.world.traffic.iter().map(|traffic| traffic.sent).sum()
    }

    /// Writes a byte of each page at a rank.
    fn write(&mut self, node: usize, pages: PageRange, value: u8) {
        self.run(node, Request::Touch { pages, access: Access::Write });
        for page in pages.iter() {
            assert!(self.world.nodes[node].memory.store(page.0 as usize * 64, &[value]));
        }
    }
}

fn read(page: u32, pages: u32) -> Request {
    Request::Touch { pages: PageRange { first: PageId(page), pages }, access: Access::Read }
}

const ALL: PageRange = PageRange { first: PageId(0), pages: 64 };

// If this failed, a fetch would cost more trips than the paper's, or the home's processor.
#[test]
fn fetch_with_known_home_is_one_trip_without_handler() {
    for ordering in ORDERINGS {
        for (protocol, handled) in
            READS_ONE_SIDED.map(|protocol| (protocol, 0)).into_iter().chain(READS_BY_MESSAGE.map(|p| (p, 1)))
        {
            let mut space = Space::new(protocol, ordering, Stamps::PerHome);
            space.home(ALL, Homes::Rank(rank(1)));
            assert_eq!(space.run(0, read(5, 1)), 2, "{protocol:?}: two rounds are one trip");
            assert_eq!(space.world.traffic[1].handled, handled, "{protocol:?}");
        }
    }
}

// If this failed, pages of one view would be fetched one after another.
#[test]
fn pages_of_a_view_are_fetched_in_one_trip() {
    let mut space = Space::new(Protocol::NewGenDsm, Ordering::Stamped, Stamps::PerHome);
    space.home(ALL, Homes::Blocks(4));
    assert_eq!(space.run(0, read(0, 64)), 2, "and none before the last page is here");
    assert_eq!(space.world.traffic[0].reads, 2 * 48, "a line and a page for each page of another home");
    assert_eq!(space.sent(), 0);
}

// If this failed, the first touch would read the home word a second time, as the paper does.
#[test]
fn first_touch_is_one_trip_won_and_two_lost() {
    for protocol in READS_ONE_SIDED {
        let mut space = Space::new(protocol, Ordering::Stamped, Stamps::PerHome);
        assert_eq!(space.run(0, read(1, 1)), 2, "won: the swap");
        assert_eq!(space.run(2, read(1, 1)), 4, "lost: the swap and the page");
        assert_eq!((space.world.traffic[0].swaps, space.world.traffic[2].swaps, space.sent()), (1, 1, 0));
    }
    for protocol in READS_BY_MESSAGE {
        let mut space = Space::new(protocol, Ordering::Stamped, Stamps::PerHome);
        assert_eq!(space.run(0, read(1, 1)), 2, "appointed");
        assert_eq!((space.run(2, read(1, 1)), space.sent()), (3, 5), "request, forward, page");
    }
}

/// Writes six pages of two homes under a lock that another rank waits for. Returns the messages of the flush, and the rounds
/// from the release to the other rank's acquire.
fn flush(protocol: Protocol, ordering: Ordering, stamps: Stamps) -> (u64, usize) {
    let mut space = Space::new(protocol, ordering, stamps);
    space.home(ALL, Homes::Rank(rank(1)));
    space.home(PageRange { first: PageId(3), pages: 3 }, Homes::Rank(rank(2)));
    assert_eq!(space.run(0, Request::Lock(0)), 0, "rank 0 manages lock 0");
    space.write(0, PageRange { first: PageId(0), pages: 6 }, 7);
    let waiting = space.start(3, Request::Lock(0));
    space.round();
    let before = space.world.traffic[0].sent;
    space.run(0, Request::Unlock(0));
    let rounds = space.rounds(3, waiting);
    space.settle();
    // Without the grant.
    (space.world.traffic[0].sent - before - 1, rounds)
}

// If this failed, a flush would cost more messages, or would wait where the paper's design does not.
#[test]
fn flush_costs_one_message_a_home_and_no_wait() {
    let (stamped, placed) = (Ordering::Stamped, Ordering::Placed);
    for protocol in [Protocol::Draw, Protocol::NewGenDsm] {
        assert_eq!(flush(protocol, stamped, Stamps::PerHome), (2, 1), "the grant leaves at once");
        assert_eq!(flush(protocol, stamped, Stamps::PerPage), (6, 1));
        assert_eq!(flush(protocol, placed, Stamps::PerHome), (0, 3), "a read behind the writes");
    }
    for protocol in [Protocol::Async, Protocol::Ardmar] {
        assert_eq!(flush(protocol, stamped, Stamps::PerHome), (6, 13), "six acknowledged messages, then the grant");
    }
}

// If this failed, a lock would cost more messages than the paper's.
#[test]
fn lock_costs_two_messages_or_three_or_none() {
    let mut space = Space::new(Protocol::NewGenDsm, Ordering::Stamped, Stamps::PerHome);
    let mut cost = |node, request| {
        let before = space.sent();
        space.run(node, request);
        space.sent() - before
    };
    assert_eq!(cost(2, Request::Lock(1)), 2, "request and grant");
    assert_eq!(cost(2, Request::Unlock(1)), 0);
    assert_eq!(cost(2, Request::Lock(1)), 0, "again by its last holder");
    assert_eq!(cost(2, Request::Unlock(1)), 0);
    assert_eq!(cost(3, Request::Lock(1)), 3, "through another holder");
    assert_eq!(cost(3, Request::Unlock(1)), 0);
    assert_eq!(cost(1, Request::Lock(1)), 2, "the manager itself: forward and grant");
}

// If this failed, a barrier would cost more than two messages a rank.
#[test]
fn barrier_costs_two_messages_a_rank() {
    let mut space = Space::new(Protocol::NewGenDsm, Ordering::Stamped, Stamps::PerHome);
    let calls: Vec<CallId> = (0..4).map(|node| space.start(node, Request::Barrier(0))).collect();
    assert_eq!(space.rounds(3, calls[3]), 2);
    let traffic = &space.world.traffic;
    assert_eq!(
        traffic.iter().map(|traffic| (traffic.sent, traffic.handled)).collect::<Vec<_>>(),
        [(3, 3), (1, 1), (1, 1), (1, 1)]
    );
}

// If this failed, notices of a barrier would be read one log after another.
#[test]
fn notices_of_a_barrier_are_read_in_one_trip() {
    let mut space = Space::new(Protocol::NewGenDsm, Ordering::Stamped, Stamps::PerHome);
    space.home(ALL, Homes::Blocks(16));
    (0..4).for_each(|node| space.write(node, PageRange::one(PageId(16 * node as u32)), 3));
    let before = space.world.traffic[3].reads;
    let calls: Vec<CallId> = (0..4).map(|node| space.start(node, Request::Barrier(0))).collect();
    assert_eq!(space.rounds(3, calls[3]), 4, "arrive, depart, and one trip to three logs");
    assert_eq!(space.world.traffic[3].reads - before, 3);
}

// If this failed, a second flush of a page could overtake the first, or would be sent as a message without need.
#[test]
fn page_is_written_one_sided_again_when_its_last_write_is_placed() {
    let mut space = Space::new(Protocol::NewGenDsm, Ordering::Stamped, Stamps::PerHome);
    space.home(ALL, Homes::Rank(rank(1)));
    let section = |space: &mut Space, value| {
        space.run(0, Request::Lock(0));
        space.write(0, PageRange::one(PageId(0)), value);
        space.run(0, Request::Unlock(0));
        space.world.nodes[0].engine.statistics().packed
    };
    assert_eq!(section(&mut space, 1), 0);
    assert_eq!(section(&mut space, 2), 1, "the first write may be in flight");
    assert_eq!(section(&mut space, 3), 2, "the message is not acknowledged");
    space.settle();
    assert_eq!(section(&mut space, 4), 2, "all is placed");
}

// If this failed, a checkpoint would lack bytes that are on their way to their home.
#[test]
fn place_ends_when_the_bytes_are_at_their_home() {
    for protocol in Protocol::ALL {
        for (ordering, has_two_homes) in
            [(Ordering::Stamped, false), (Ordering::Placed, false), (Ordering::Stamped, true)]
        {
            let mut space = Space::new(protocol, ordering, Stamps::PerHome);
            space.home(ALL, Homes::Rank(rank(1)));
            if has_two_homes {
                space.home(PageRange { first: PageId(3), pages: 3 }, Homes::Rank(rank(2)));
            }
            assert_eq!(space.run(0, Request::Place), 0, "nothing is under way");
            space.write(0, PageRange { first: PageId(2), pages: 3 }, 9);
            let call = space.start(0, Request::Place);
            let home = |space: &mut Space, page: u64| {
                let node = if has_two_homes && page >= 3 { 2 } else { 1 };
                space.world.nodes[node].memory.read(Area::HomeFrames, page * 64, 1)[0]
            };
            let mut rounds = 0;
            while !space.world.is_complete(0, call) {
                space.round();
                rounds += 1;
                assert!(rounds < 20, "{protocol:?} {ordering:?}");
            }
            assert!(rounds >= 2, "{protocol:?} {ordering:?}: an answer of the home is needed");
            assert_eq!([2, 3, 4].map(|page| home(&mut space, page)), [9; 3], "{protocol:?} {ordering:?}");
        }
    }
}
