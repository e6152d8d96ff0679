//! Tests of the number of round trips of each call. In a network with a constant delay, and no other costs, the time of a
//! call is its number of hops.

use crate::cluster::network::Event;
use crate::cluster::simulator::Simulator;
use crate::load::calls::{Content, HeldLock, Kind, PendingCall, Target};
use crate::load::scenario::Scenario;
use ddss_core::{Completion, EntryChangeKind, EntryState, Failure, LockToken, Model, Outcome};

const HOP_US: u64 = 100;
const PATIENCE_US: u32 = 100_000_000;

/// Creates a simulator without faults, whose nodes are connected.
fn world(nodes: usize, clients: usize) -> Simulator {
    world_of(&Scenario { nodes, clients, faults: false, hop_us: Some(HOP_US), ..Scenario::default() })
}

/// Creates a simulator without replicas, which would send messages by themselves.
fn silent_world() -> Simulator {
    let (faults, hop_us) = (false, Some(HOP_US));
    world_of(&Scenario { nodes: 2, clients: 2, replicated: 0, faults, hop_us, ..Scenario::default() })
}

fn world_of(plan: &Scenario) -> Simulator {
    let mut world = Simulator::new(1, plan);
    while world.now_us < HOP_US / 2 {
        assert!(world.step());
        if world.nodes.iter().all(|node| node.engine.pending() == 0) {
            break;
        }
    }
    world
}

/// Makes one call and returns it, its completion and the time of its end.
fn ask_once(
    world: &mut Simulator,
    node: usize,
    client: usize,
    kind: Kind,
    target: Target,
) -> (PendingCall, Completion, u64) {
    world.ask_for(node, client, kind, target, PATIENCE_US);
    while world.nodes[node].clients[client].asked.is_some() {
        assert!(world.step(), "everything ends");
    }
    world.last.expect("something ended")
}

/// Reads a bucket. Every other request asks for it by the call for many rows, which the home refuses to its own clients.
fn read_bucket(world: &mut Simulator, node: usize, target: Target) {
    let (_, completion, _) = ask_once(world, node, 0, Kind::GetBucket, target);
    if completion.outcome != Outcome::Done {
        assert_eq!(completion.outcome, Outcome::Failed(Failure::Unsupported));
        ask(world, node, 0, Kind::GetBucket, target);
    }
}

/// Makes one call and returns its completion and its number of hops.
fn ask(world: &mut Simulator, node: usize, client: usize, kind: Kind, target: Target) -> (Completion, u64) {
    let (asked, completion, ended_us) = ask_once(world, node, client, kind, target);
    assert_eq!(completion.outcome, Outcome::Done, "{asked:?}");
    assert_eq!((ended_us - asked.began_us) % HOP_US, 0, "only hops take time");
    (completion, (ended_us - asked.began_us) / HOP_US)
}

/// Returns a segment of this model, and a node that is not its home.
fn remote(world: &Simulator, model: Model) -> (Target, usize) {
    let is_it = |target: &&Target| std::mem::discriminant(&target.model) == std::mem::discriminant(&model);
    let target = *world.segments.targets[1..].iter().find(is_it).expect("every model has a segment");
    (target, usize::from(target.id.home().0) % world.plan.nodes)
}

const MODELS: [Model; 7] =
    [Model::Null, Model::Read, Model::Write, Model::Strict, Model::Version, Model::Delta(0), Model::Temporal(0)];

#[test]
fn remote_calls_take_the_minimum_of_round_trips() {
    for model in MODELS {
        let mut world = world(2, 2);
        let (target, node) = remote(&world, model);
        // The first get fetches the metadata of the segment.
        ask(&mut world, node, 0, Kind::Get, target);
        let put = if model == Model::Version { Kind::PutIf(0) } else { Kind::Put };
        assert_eq!(ask(&mut world, node, 0, put, target).1, 2, "a put under {model:?}");
        assert_eq!(ask(&mut world, node, 0, Kind::Get, target).1, 2, "a get under {model:?}");
        assert_eq!(
            ask(&mut world, node, 0, Kind::GetMany, target).1,
            if is_copied(model) { 0 } else { 2 },
            "{model:?}"
        );
        assert_eq!(ask(&mut world, node, 0, Kind::GetAsking(Model::Strict), target).1, 2, "asked of {model:?}");
        assert_eq!(ask(&mut world, node, 0, Kind::GetAsking(Model::Read), target).1, 2, "asked of {model:?}");
        if model != Model::Version {
            assert_eq!(ask(&mut world, node, 0, Kind::PutMany, target).1, 2, "several puts under {model:?}");
        }
        let newest = world.newest(&target);
        assert_eq!(ask(&mut world, node, 0, Kind::PutIf(newest), target).1, 2);
        assert_eq!(ask(&mut world, node, 0, Kind::Stat, target).1, 2);
        let counter = world.segments.targets[0];
        let far = usize::from(counter.id.home().0) % 2;
        assert_eq!(ask(&mut world, far, 0, Kind::Add, counter).1, 2, "an atomic");
        let (_, lock) = ask(&mut world, node, 0, Kind::Lock { shared: false, of_row: false }, target);
        let (_, unlock) = ask(&mut world, node, 0, Kind::Unlock, target);
        assert_eq!((lock, unlock), (2, 2), "a lock and its end are two trips");
    }
}

#[test]
fn change_that_waits_behind_a_lock_until_its_deadline_ends_as_failed() {
    // If this failed, the caller would not know whether a change that never left the queue took effect.
    // Less than the lease of the lock.
    const TIMEOUT_US: u32 = 10_000;
    let mut world = silent_world();
    let far = |target: &Target| usize::from(target.id.home().0) % 2;
    let (value, counter) = (remote(&world, Model::Strict).0, world.segments.targets[0]);
    for (kind, target) in [(Kind::Put, value), (Kind::Add, counter)] {
        let far = far(&target);
        ask(&mut world, 1 - far, 0, Kind::Lock { shared: false, of_row: false }, target);
        for _ in 0..3 {
            ask(&mut world, 1 - far, 0, Kind::Renew, target);
            world.last = None;
            world.ask_for(far, 0, kind, target, TIMEOUT_US);
            while world.nodes[far].clients[0].asked.is_some() {
                assert!(world.step(), "everything ends");
            }
            let (asked, completion, _) = world.last.take().expect("an answer comes before the deadline of its caller");
            assert_eq!(completion.outcome, Outcome::Failed(Failure::TimedOut), "{asked:?}");
        }
        ask(&mut world, 1 - far, 0, Kind::Unlock, target);
    }
}

#[test]
fn calls_under_the_lock_of_a_row_take_one_round_trip_each() {
    // If this failed, a holder on another node would first read the row, and then ask the home whether it may.
    let (faults, hop_us, reads_overlap) = (false, Some(HOP_US), Some(true));
    let mut world = world_of(&Scenario {
        nodes: 2,
        clients: 2,
        replicated: 0,
        faults,
        hop_us,
        reads_overlap,
        ..Scenario::default()
    });
    let table = *world.segments.targets.iter().find(|target| target.row.is_some()).expect("there are tables");
    let far = 2 - usize::from(table.id.home().0);
    let row = table.with_row(1);
    let of_row = Kind::Lock { shared: false, of_row: true };
    ask(&mut world, far, 0, Kind::Get, row);
    for kind in [of_row, Kind::GetHeld, Kind::PutHeld, Kind::Renew, Kind::Unlock] {
        assert_eq!(ask(&mut world, far, 0, kind, row).1, 2, "{kind:?}");
    }
    ask(&mut world, far, 0, of_row, row);
    let other = table.with_row(2);
    assert_eq!(ask(&mut world, far, 1, Kind::Put, other).1, 2, "another row is free");
    assert_eq!(ask(&mut world, far, 1, Kind::Get, other).1, 4, "its home knows that");
}

#[test]
fn change_of_a_maps_entry_takes_one_round_trip_and_none_at_home() {
    // If this failed, each insert from another node would read the bucket first.
    let mut world = world(2, 2);
    let map =
        *world.segments.targets.iter().find(|target| target.content == Content::Bucket).expect("one table is a map");
    let home = usize::from(map.id.home().0) - 1;
    let (target, far) = (map.with_row(1), 1 - home);
    for (node, hops) in [(far, 2), (home, 0)] {
        for (kind, state) in [
            (EntryChangeKind::Insert, EntryState::Absent),
            (EntryChangeKind::Insert, EntryState::Present),
            (EntryChangeKind::Write, EntryState::Present),
            (EntryChangeKind::Touch, EntryState::Present),
            (EntryChangeKind::Replace, EntryState::Present),
            (EntryChangeKind::Remove, EntryState::Present),
            (EntryChangeKind::Touch, EntryState::Absent),
            (EntryChangeKind::Remove, EntryState::Absent),
            (EntryChangeKind::Write, EntryState::Absent),
            (EntryChangeKind::Remove, EntryState::Present),
        ] {
            if kind == EntryChangeKind::Replace {
                read_bucket(&mut world, node, target);
            }
            let (completion, took) = ask(&mut world, node, 0, Kind::ChangeEntry(kind, 3), target);
            let word = u64::from_le_bytes(std::array::from_fn(|i| completion.data[i]));
            assert_eq!((EntryState::of_word(word), took), (state, hops), "{kind:?} at node {node}");
        }
    }
    assert_eq!(world.newest(&target), 14, "each node made seven changes");
    // The slots of a bucket, and one key more.
    let slots = Target::bucket_layout().slots as u64;
    for key in 0..=slots {
        let change = Kind::ChangeEntry(EntryChangeKind::Insert, 3 * key);
        let (completion, took) = ask(&mut world, far, 0, change, target);
        let state = if key < slots { EntryState::Absent } else { EntryState::Elsewhere };
        assert_eq!((completion.data[0], took), (state as u8, 2), "key {key}");
    }
    assert_eq!(world.newest(&target), 14 + slots, "a full bucket is not changed");
    assert_eq!(world.checks.maps.violations(), Vec::<String>::new());
}

#[test]
fn calls_of_a_row_take_one_round_trip() {
    for model in [Model::Strict, Model::Write] {
        let mut world = world(2, 2);
        let is_it = |target: &&Target| target.row.is_some() && target.model == model;
        let table = *world.segments.targets.iter().find(is_it).expect("a table has that model");
        let (row, far) = (table.with_row(2), usize::from(table.id.home().0) % 2);
        // The first get fetches the metadata of the segment.
        ask(&mut world, far, 0, Kind::Get, row);
        for (version, kind) in [Kind::Put, Kind::PutMany, Kind::PutIf(2), Kind::Get, Kind::GetMany].iter().enumerate() {
            let (completion, hops) = ask(&mut world, far, 0, *kind, row);
            assert_eq!((completion.version.0, hops), ((version as u64 + 1).min(3), 2), "{kind:?} under {model:?}");
        }
        let counter = table.with_row(0);
        assert_eq!(ask(&mut world, far, 0, Kind::Add, counter).1, 2);
        assert_eq!(ask(&mut world, far, 0, Kind::Await(0), counter).1, 2, "a version that is there already");
        assert_eq!((world.newest(&row), world.newest(&counter)), (3, 1));
    }
}

#[test]
fn strict_get_takes_one_round_trip_with_fenced_reads() {
    // On an adapter with fenced reads, a one-sided Strict get would take three round trips. Other models accept this,
    // because they need nothing of the home's processor.
    for model in MODELS {
        let (faults, hop_us, reads_overlap) = (false, Some(HOP_US), Some(false));
        let mut world =
            world_of(&Scenario { nodes: 2, clients: 2, faults, hop_us, reads_overlap, ..Scenario::default() });
        let (target, node) = remote(&world, model);
        ask(&mut world, node, 0, Kind::Get, target);
        let handed = |world: &Simulator| world.nodes.iter().map(|node| node.engine.counters().served_gets).sum::<u64>();
        let before = handed(&world);
        let put = if model == Model::Version { Kind::PutIf(0) } else { Kind::Put };
        assert_eq!(ask(&mut world, node, 0, put, target).1, 2, "a put under {model:?}");
        let waits = matches!(model, Model::Strict | Model::Read);
        let hops = if waits { 2 } else { 6 };
        assert_eq!(ask(&mut world, node, 0, Kind::Get, target).1, hops, "a get under {model:?}");
        assert_eq!(handed(&world) - before, u64::from(waits), "who reads under {model:?}");
        assert_eq!(ask(&mut world, node, 0, Kind::GetAsking(Model::Strict), target).1, 2, "asked of {model:?}");
        let (_, lock) = ask(&mut world, node, 0, Kind::Lock { shared: false, of_row: false }, target);
        let (_, unlock) = ask(&mut world, node, 0, Kind::Unlock, target);
        assert_eq!((lock, unlock), (2, 2), "a lock and its end are two trips");
    }
}

/// Returns true if a second get is answered from the read cache.
fn is_copied(model: Model) -> bool {
    matches!(model, Model::Temporal(_))
}

#[test]
fn replica_costs_one_round_trip_for_a_put_and_none_for_a_get() {
    let mut world = world(2, 2);
    let target = world.segments.targets[world.plan.segments];
    let far = usize::from(target.id.home().0) % 2;
    let near = 1 - far;
    let until_us = 200_000;
    while world.now_us < until_us {
        assert!(world.step());
    }
    assert!(
        world.raft.assignments.get(&target.id).is_some_and(|assignment| assignment.paired),
        "the replica has everything by now"
    );
    // The first get fetches the metadata of the segment.
    ask(&mut world, far, 0, Kind::Get, target);
    for (kind, from_far, from_near) in [
        (Kind::Put, 4, 2),
        (Kind::PutMany, 4, 2),
        (Kind::Get, 2, 0),
        (Kind::GetMany, 2, 0),
        (Kind::GetAsking(Model::Strict), 2, 0),
        (Kind::Stat, 2, 0),
        (Kind::Lock { shared: false, of_row: false }, 4, 2),
        (Kind::GetHeld, 2, 0),
        (Kind::PutHeld, 4, 2),
        (Kind::Unlock, 2, 0),
    ] {
        assert_eq!(ask(&mut world, far, 0, kind, target).1, from_far, "{kind:?} from afar");
        if matches!(kind, Kind::Put | Kind::PutMany | Kind::Get | Kind::GetMany | Kind::Stat) {
            assert_eq!(ask(&mut world, near, 0, kind, target).1, from_near, "{kind:?} at home");
        }
    }
}

#[test]
fn old_version_takes_one_round_trip_and_a_cached_one_none() {
    let mut world = world(2, 2);
    let target = *world.segments.targets.iter().find(|target| target.history_len == 4).expect("one has a history");
    let node = usize::from(target.id.home().0) % 2;
    ask(&mut world, node, 0, Kind::Get, target);
    for version in 0..4 {
        assert_eq!(ask(&mut world, node, 0, Kind::Put, target).0.version.0, version + 1);
    }
    for version in 0..=4 {
        let (completion, hops) = ask(&mut world, node, 0, Kind::GetAt(version), target);
        assert_eq!((completion.version.0, hops), (version, 2));
    }
    let (target, node) = remote(&world, Model::Temporal(0));
    ask(&mut world, node, 0, Kind::Get, target);
    let (_, hops) = ask(&mut world, node, 1, Kind::Get, target);
    assert_eq!(hops, 0, "the second client of the node reads the copy of the first");
    let Model::Temporal(micros) = target.model else { unreachable!("it was looked for") };
    let until_us = world.now_us + u64::from(micros);
    while world.now_us < until_us {
        assert!(world.step());
    }
    assert_eq!(ask(&mut world, node, 1, Kind::Get, target).1, 2, "until it is too old");
}

#[test]
fn get_of_locked_segment_waits_without_polling() {
    let mut world = world(2, 2);
    let (target, node) = remote(&world, Model::Strict);
    ask(&mut world, node, 0, Kind::Get, target);
    ask(&mut world, node, 1, Kind::Lock { shared: false, of_row: false }, target);
    world.ask_for(node, 0, Kind::Get, target, PATIENCE_US);
    for _ in 0..40 {
        world.step();
    }
    assert!(world.nodes[node].clients[0].asked.is_some(), "it waits");
    assert_eq!(ask(&mut world, node, 1, Kind::GetHeld, target).1, 2, "the holder's own get does not");
    let before = world.now_us;
    ask(&mut world, node, 1, Kind::Unlock, target);
    while world.nodes[node].clients[0].asked.is_some() {
        assert!(world.step());
    }
    assert!(world.now_us - before <= 2 * HOP_US, "unlocked there, answered here");
}

/// Returns the hops of a call while another client holds the exclusive lock, or `None` if the call waits.
fn beside_a_holder(
    world: &mut Simulator,
    (holder, other): (usize, usize),
    node: usize,
    kind: Kind,
    target: Target,
) -> Option<u64> {
    ask(world, holder, other, Kind::Lock { shared: false, of_row: false }, target);
    world.ask_for(node, 0, kind, target, PATIENCE_US);
    let began_us = world.now_us;
    while world.nodes[node].clients[0].asked.is_some() && world.now_us < began_us + 10 * HOP_US {
        assert!(world.step());
    }
    let ended = world.nodes[node].clients[0].asked.is_none();
    let hops = (world.now_us - began_us) / HOP_US;
    assert!(world.nodes[holder].clients[other].held.is_some(), "it is held all the time");
    ask(world, holder, other, Kind::Unlock, target);
    while world.nodes[node].clients[0].asked.is_some() {
        assert!(world.step(), "who waits is served in the end");
    }
    let (_, completion, _) = world.last.expect("something ended");
    assert_eq!(completion.outcome, Outcome::Done, "{kind:?} of {target:?}");
    ended.then_some(hops)
}

#[test]
fn only_calls_that_respect_locks_wait_for_a_holder() {
    // A reader of a lock-free model must not stall, and a Strict reader must not see an unfinished change.
    for model in MODELS {
        let mut world = world(2, 2);
        let (target, far) = remote(&world, model);
        let home = 1 - far;
        for (node, holder) in [(far, (home, 1)), (far, (far, 1)), (home, (home, 1)), (home, (far, 1))] {
            let far_hops = if node == far { 2 } else { 0 };
            let get_hops = if is_copied(model) { 0 } else { far_hops };
            let told = format!("under {model:?}, node {node}, held by {holder:?}");
            // A put of this node has invalidated the cached copy.
            ask(&mut world, node, 0, Kind::Get, target);
            let get = beside_a_holder(&mut world, holder, node, Kind::Get, target);
            let waits = matches!(model, Model::Strict | Model::Read);
            assert_eq!(get, (!waits).then_some(get_hops), "a get {told}");
            let asking = beside_a_holder(&mut world, holder, node, Kind::GetAsking(Model::Write), target);
            assert_eq!(asking, (!waits).then_some(far_hops), "a get that asks for as much as Write {told}");
            let asking = beside_a_holder(&mut world, holder, node, Kind::GetAsking(Model::Strict), target);
            assert_eq!(asking, None, "a get that asks for Strict {told}");
            let named = Kind::PutIf(world.newest(&target));
            let put = if model == Model::Version { named } else { Kind::Put };
            let put = beside_a_holder(&mut world, holder, node, put, target);
            let free = matches!(model, Model::Null | Model::Read);
            assert_eq!(put, free.then_some(far_hops), "a put {told}");
        }
    }
}

#[test]
fn waiting_for_a_version_costs_one_request_and_one_reply() {
    let mut world = silent_world();
    let (target, far) = remote(&world, Model::Write);
    let home = 1 - far;
    ask(&mut world, far, 0, Kind::Get, target);
    let newest = world.newest(&target);
    assert_eq!(world.network.under_way(), 0);
    world.ask_for(far, 0, Kind::Await(newest), target, PATIENCE_US);
    assert_eq!(world.network.under_way(), 1, "one there");
    let asked_us = world.now_us;
    while world.now_us < asked_us + 50 * HOP_US {
        assert!(world.step());
        assert!(world.network.under_way() == 0 || world.now_us <= asked_us + HOP_US, "and nothing while it waits");
    }
    assert_eq!(ask(&mut world, home, 0, Kind::Put, target).1, 0);
    let put_us = world.now_us;
    assert_eq!(world.network.under_way(), 1, "one back");
    while world.nodes[far].clients[0].asked.is_some() {
        assert!(world.step());
    }
    let (_, told, _) = world.last.expect("it was told");
    assert_eq!((told.outcome, told.version.0), (Outcome::Done, newest + 1));
    assert_eq!((world.now_us - put_us, world.network.under_way()), (HOP_US, 0));
}

#[test]
fn late_reply_is_dropped_and_counted() {
    // A late reply must not be taken for the reply to the next call.
    let mut world = silent_world();
    let counter = world.segments.targets[0];
    let far = usize::from(counter.id.home().0) % 2;
    ask(&mut world, far, 0, Kind::Add, counter);
    let counters = |world: &Simulator| {
        let counters = world.nodes[far].engine.counters();
        (counters.timeouts, counters.stale)
    };
    let ((timeouts, stale), version) = (counters(&world), world.newest(&counter));
    // The reply takes two hops; the clock is checked before.
    world.ask_for(far, 0, Kind::Add, counter, HOP_US as u32 * 3 / 2);
    let asked_us = world.now_us;
    world.network.at(asked_us + HOP_US * 7 / 4, Event::Tick { node: far });
    while counters(&world).0 == timeouts {
        assert!(world.step());
    }
    assert!(world.now_us < asked_us + 2 * HOP_US && world.nodes[far].clients[0].asked.is_none(), "it has ended");
    assert_eq!((counters(&world), world.network.under_way()), ((timeouts + 1, stale), 1));
    while world.now_us < asked_us + 3 * HOP_US {
        assert!(world.step());
    }
    assert_eq!((counters(&world), world.newest(&counter)), ((timeouts + 1, stale + 1), version + 1));
    // The next call gets its own reply.
    assert_eq!(ask(&mut world, far, 0, Kind::Add, counter).0.version.0, version + 2);
    assert_eq!(counters(&world), (timeouts + 1, stale + 1));
}

#[test]
fn contended_lock_is_handed_over_in_two_hops_and_fairly() {
    const TURNS: usize = 50;
    let mut world = world(2, 8);
    let (target, _) = remote(&world, Model::Strict);
    let everybody: Vec<(usize, usize)> = (0..2).flat_map(|node| (0..8).map(move |client| (node, client))).collect();
    let mut turns = [0usize; 16];
    let mut asked_us = [0; 16];
    let (mut waits, mut hand_overs) = (Vec::new(), Vec::new());
    let mut let_go_us = None;
    for &(node, client) in &everybody {
        world.ask_for(node, client, Kind::Lock { shared: false, of_row: false }, target, PATIENCE_US);
    }
    while turns.iter().any(|&count| count < TURNS) {
        assert!(world.step());
        for (caller, &(node, client)) in everybody.iter().enumerate() {
            let state = &world.nodes[node].clients[client];
            if state.asked.is_some() {
                continue;
            }
            if let Some(HeldLock { token, .. }) = state.held {
                assert_ne!(token, LockToken::default());
                waits.push(world.now_us - asked_us[caller]);
                hand_overs.extend(let_go_us.take().map(|let_go_us: u64| world.now_us - let_go_us));
                turns[caller] += 1;
                let_go_us = Some(world.now_us);
                world.ask_for(node, client, Kind::Unlock, target, PATIENCE_US);
            } else if turns[caller] < 2 * TURNS {
                asked_us[caller] = world.now_us;
                world.ask_for(node, client, Kind::Lock { shared: false, of_row: false }, target, PATIENCE_US);
            }
        }
    }
    let longest_hand_over = hand_overs.iter().max().expect("it went around");
    assert!(*longest_hand_over <= 4 * HOP_US, "{longest_hand_over} µs");
    // Each client waits for at most fifteen others, and for its own round trip.
    let fair = waits.iter().sum::<u64>() / waits.len() as u64;
    let longest = *waits.iter().max().expect("somebody waited");
    assert!(longest <= 3 * fair, "the longest wait was {longest} µs, the mean {fair} µs");
    let (least, most) = (turns.iter().min(), turns.iter().max());
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= TURNS / 2), "{turns:?}");
}
