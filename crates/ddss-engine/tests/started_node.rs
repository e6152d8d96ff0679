//! A node that has just started: it hears old decisions of the cluster behind the newer calls of its clients.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_core::{
    ChannelId, ClientId, LockRequest, LockToken, Message, Name, NodeId, Operation, Outcome, Permissions, Principal,
    Record, Request, RequestId, SegmentId, Shard, Spec, Timestamp, Version,
};
use ddss_engine::{Action, Engine, EngineConfig, NameState, Now, PeerAction, RoleAssignment};

const CLIENT: ClientId = ClientId { index: 0, generation: 1 };
const CHANNEL: ChannelId = ChannelId { client: CLIENT, index: 0 };
const PRINCIPAL: Principal = Principal { uid: 1, gid: 1 };
const NOW: Now = Now { steady_us: 1, wall_us: 1 };
const FIRST: NodeId = NodeId(1);
const SECOND: NodeId = NodeId(3);
const TOKEN: LockToken = LockToken(77);

/// Node 2, which has started and is connected with two others.
fn started_node() -> Engine {
    let (peers, shard) = (vec![FIRST, SECOND], Shard::ONLY);
    let config =
        EngineConfig { node: NodeId(2), shard, pool_bytes: 1 << 20, peers, first_generation: 0, reads_overlap: true };
    let mut engine = Engine::new(&config);
    engine.enable_replication();
    engine.attach(CLIENT, PRINCIPAL, 1 << 20);
    engine.on_peer_up(NOW, FIRST, Timestamp::default());
    engine.on_peer_up(NOW, SECOND, Timestamp::default());
    actions(&mut engine);
    engine
}

fn actions(engine: &mut Engine) -> Vec<Action> {
    std::iter::from_fn(|| engine.next_action()).collect()
}

fn ask(engine: &mut Engine, operation: Operation) -> Vec<Action> {
    engine.request(NOW, CHANNEL, &Request::new(RequestId(1), operation), &[]);
    actions(engine)
}

/// Takes the lock of a segment whose present home is the first node.
fn lock(engine: &mut Engine, segment: SegmentId) {
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset: None };
    let asked = ask(engine, Operation::Lock { segment, lock_request });
    let [Action::Peer(PeerAction::Send { node: FIRST, message: Message::Call { request, .. }, .. })] = asked[..] else {
        panic!("the home is asked: {asked:?}")
    };
    let step = request.id.0;
    let (outcome, version, timestamp) = (Outcome::Done, Version(1), Timestamp(1));
    let granted = Message::Ended { step, outcome, version, timestamp, word: TOKEN.0 };
    engine.on_message(NOW, FIRST, Timestamp(1), &granted, &[]);
    assert!(matches!(actions(engine)[..], [Action::Reply(_)]));
}

fn take_over(engine: &mut Engine, segment: SegmentId, home: NodeId, epoch: u32) {
    let replica = if home == FIRST { SECOND } else { FIRST };
    let assignment = RoleAssignment { segment, home, replica, epoch, turn: 0, paired: false, vacant: false };
    engine.assign_role(NOW, &assignment);
}

/// Returns true if the engine counts on the lock: it asks the home to end it.
fn holds_lock(engine: &mut Engine, segment: SegmentId) -> bool {
    let asked = ask(engine, Operation::Unlock { segment, token: TOKEN });
    let [Action::Peer(PeerAction::Send { message: Message::Call { request, .. }, .. })] = asked[..] else {
        return false;
    };
    request.operation == Operation::Unlock { segment, token: TOKEN }
}

// If this failed, clients of a restarted node would lose their locks to takeovers that came long before.
#[test]
fn old_takeovers_that_a_started_node_hears_late_leave_newer_locks() {
    let (mut engine, segment) = (started_node(), SegmentId::new(FIRST, 4, 1));
    lock(&mut engine, segment);
    take_over(&mut engine, segment, SECOND, 2);
    take_over(&mut engine, segment, FIRST, 3);
    assert!(holds_lock(&mut engine, segment));
}

// If this failed, a client would count on a lock that a takeover broke. A node that is no home has one lease, its first.
#[test]
fn takeover_after_the_first_lease_breaks_locks_although_that_lease_has_ended() {
    let (mut engine, segment) = (started_node(), SegmentId::new(FIRST, 4, 1));
    engine.lease(NOW, NOW.steady_us);
    lock(&mut engine, segment);
    take_over(&mut engine, segment, SECOND, 2);
    assert!(!holds_lock(&mut engine, segment));
}

const NAME: &str = "s";

/// Restores a replicated segment of this node, as the last daemon left it.
fn restore(engine: &mut Engine) -> SegmentId {
    restore_record(engine, SegmentId::new(NodeId(2), 0, 1), 0, Timestamp(5))
}

/// Restores a replicated segment, with the epoch in which this node took it over.
fn restore_record(engine: &mut Engine, known_as: SegmentId, epoch: u32, timestamp: Timestamp) -> SegmentId {
    let segment = SegmentId::new(NodeId(2), 0, 1);
    let spec = Spec { copies: 2, ..Spec::new(64) };
    let permissions = Permissions { owner: PRINCIPAL, mode: 0o600 };
    let record = Record { segment, known_as, at: 1 << 48, name: Name::new(NAME).unwrap(), spec, permissions, epoch };
    engine.restore(&record, Version(timestamp.0), timestamp).unwrap();
    known_as
}

/// Returns true if the engine drops the segment.
fn drops(engine: &mut Engine, segment: SegmentId) -> bool {
    let deleted = |action: &Action| matches!(action, Action::DeleteRecord { segment: deleted } if *deleted == segment);
    actions(engine).iter().any(deleted)
}

// If this failed, a home that was replaced, and learns from a snapshot that its segment was released meanwhile, would serve
// the segment for ever.
#[test]
fn home_whose_segment_was_released_elsewhere_drops_it() {
    let mut engine = started_node();
    let segment = restore(&mut engine);
    let home = NodeId(2);
    engine.assign_role(
        NOW,
        &RoleAssignment { segment, home, replica: FIRST, epoch: 1, turn: 1, paired: true, vacant: false },
    );
    engine.lease(NOW, 1_000_000);
    assert!(!drops(&mut engine, segment));
    engine.remove_role(NOW, segment);
    assert!(drops(&mut engine, segment));
}

// If this failed, a node would bring back a segment that was released while it was away, or a new cluster on the memory of
// an older one would lose its segments.
#[test]
fn restored_segment_without_a_name_is_dropped_unless_the_cluster_is_new() {
    for (is_compared, home, is_dropped) in [
        (true, None, true),
        (true, Some(FIRST), true),
        (true, Some(NodeId(2)), false),
        (false, None, false),
        (false, Some(FIRST), false),
    ] {
        let mut engine = started_node();
        engine.enable_cluster_names();
        if is_compared {
            engine.set_names_compared();
        }
        let segment = restore(&mut engine);
        let name = Name::new(NAME).unwrap();
        let state = if is_compared { NameState::Undecided } else { NameState::Owned };
        assert_eq!(engine.names(), [(name, state)]);
        engine.set_home(name, home);
        engine.lease(NOW, 1_000_000);
        assert_eq!(drops(&mut engine, segment), is_dropped, "compared: {is_compared}, home: {home:?}");
    }
}

// If this failed, a cluster that is founded again would delete what was put since a takeover.
#[test]
fn segment_taken_over_in_an_earlier_cluster_waits_for_the_decision() {
    for (first_home, epoch) in [(1, 2), (2, 3)] {
        let (known_as, home) = (SegmentId::new(NodeId(first_home), 0, 1), NodeId(2));
        for (is_last, decided) in
            [(true, RoleAssignment { home, ..taken_over(known_as, epoch) }), (false, taken_over(known_as, epoch + 1))]
        {
            let mut engine = started_node();
            engine.enable_cluster_names();
            let segment = restore_record(&mut engine, known_as, epoch, Timestamp(5));
            assert_eq!(engine.names(), [(Name::new(NAME).unwrap(), NameState::TakenOver { segment, epoch })]);
            for until_us in [1_000_000, 1_000_001] {
                engine.lease(NOW, until_us);
                // An earlier home was faster, and has another replica.
                let replica = NodeId(3);
                engine.assign_role(NOW, &RoleAssignment { replica, turn: 1, paired: true, ..taken_over(known_as, 1) });
                assert!(actions(&mut engine).is_empty(), "neither dropped nor offered to another node");
            }
            // No lease follows: a node that is no home gets none.
            engine.assign_role(NOW, &decided);
            let all = actions(&mut engine);
            let kept = |action: &Action| matches!(action, Action::RewriteRecord { record } if record.epoch == epoch);
            assert_eq!(all.iter().any(kept), is_last, "{all:?}");
            assert!(!all.iter().any(|action| matches!(action, Action::DeleteRecord { .. })), "{all:?}");
        }
    }
}

// If this failed, a cluster that is founded again would serve half of a segment, which its first home had from another node.
#[test]
fn copy_that_was_not_complete_is_dropped_at_its_first_home() {
    let mut engine = started_node();
    engine.enable_cluster_names();
    let segment = restore_record(&mut engine, SegmentId::new(NodeId(2), 0, 1), 0, Timestamp(0));
    assert_eq!(engine.names(), [(Name::new(NAME).unwrap(), NameState::Undecided)]);
    engine.lease(NOW, 1_000_000);
    assert!(drops(&mut engine, segment));
}

/// Node 1 takes a segment over.
fn taken_over(segment: SegmentId, epoch: u32) -> RoleAssignment {
    RoleAssignment { segment, home: FIRST, replica: NodeId(2), epoch, turn: 0, paired: false, vacant: false }
}

// If this failed, a node that starts with a clock far ahead would free live entries of the maps that it has from before.
#[test]
fn node_far_ahead_of_the_clocks_in_messages_looks_through_no_map() {
    let (mut engine, id) = (started_node(), SegmentId::new(NodeId(2), 0, 1));
    engine.set_sweep_pause(1000);
    let (spec, permissions) = (Spec::table(9, 1024), Permissions { owner: PRINCIPAL, mode: 0o600 });
    let record =
        Record { segment: id, known_as: id, at: 1 << 48, name: Name::new(NAME).unwrap(), spec, permissions, epoch: 0 };
    engine.restore(&record, Version(5), Timestamp(5)).unwrap();
    let clock = |wall_us: u64| Timestamp(wall_us << Timestamp::COUNTER_BITS);
    let gone = Message::Forgotten { segment: id };
    for (steady_us, heard_us, is_found) in [(1_000_000, 40_000_000, false), (2_000_000, 59_000_000, true)] {
        let now = Now { steady_us, wall_us: 60_000_000 };
        engine.on_message(now, FIRST, clock(heard_us), &gone, &[]);
        engine.tick(now);
        let found = actions(&mut engine).iter().any(|action| matches!(action, Action::FindGarbage { .. }));
        assert_eq!((found, engine.clock(now)), (is_found, clock(now.wall_us)), "{heard_us}");
    }
}
