//! Litmus tests: short programs under every order of deliveries.
//!
//! States that are equal are explored once. A thread that is alone in its rank accesses open pages without a choice: only
//! its own calls close them.

use super::network::Kind;
use super::program::{Op, Program};
use super::scheduler::{Choice, choices, execute, skip_time};
use super::thread::{Thread, ThreadState};
use super::world::{World, rank};
use crate::random::Random;
use ddss_dsm_core::{Access, Config, Homes, LogShape, Ordering, PageId, PageRange, Protocol, Rank, Stamps, Tuning};
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// States of one program at most.
const STATES_MAX: usize = 400_000;

/// Values of all reads, by thread.
type Outcome = Vec<(usize, usize, u8)>;

/// Result of an exploration.
#[derive(Debug, Default)]
struct Explored {
    outcomes: BTreeSet<Outcome>,
    states: usize,
    /// Coarse intervals of one run at most.
    coarse: u64,
}

fn config(ranks: usize, protocol: Protocol, ordering: Ordering) -> Config {
    Config {
        rank: Rank::ZERO,
        ranks,
        pages: 2,
        page_bytes: 16,
        message_bytes: 128,
        protocol,
        ordering,
        stamps: Stamps::PerHome,
        log: LogShape { slots: 4, record_bytes: 32 },
        tuning: Tuning { runs_max: 1, retries_max: 0, fetches: 1, ..Tuning::default() },
    }
}

fn read(address: usize) -> Op {
    Op::Read { address, bytes: 1 }
}

fn write(address: usize, value: u8) -> Op {
    Op::Write { address, values: vec![value] }
}

/// A program with one thread a rank.
fn program(threads: &[&[Op]]) -> Program {
    let threads: Vec<Vec<Op>> = threads.iter().map(|steps| steps.to_vec()).collect();
    Program { ranks: (0..threads.len()).collect(), threads, has_no_race: false }
}

/// Returns a hash of everything that determines the rest of a run, and of the state of the checker.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{:?}{:?}{:?}{:?}", world.nodes, world.threads, world.connections, world.model).hash(&mut hasher);
    hasher.finish()
}

/// Lets each thread that is alone in its rank access memory as far as it may. Calls are choices.
fn access_memory(world: &mut World) {
    let is_alone = |world: &World, rank: usize| world.threads.iter().filter(|thread| thread.rank == rank).count() == 1;
    let may_access = |world: &World, thread: &Thread| {
        let memory = &world.nodes[thread.rank].memory;
        let (address, access) = match thread.step() {
            Some(Op::Read { address, .. }) => (address, Access::Read),
            Some(Op::Write { address, .. }) => (address, Access::Write),
            _ => return false,
        };
        memory.may_access(PageId(*address as u32 / world.config.page_bytes), access)
    };
    loop {
        let can_run = |thread: &Thread| {
            thread.state == ThreadState::Ready && is_alone(world, thread.rank) && may_access(world, thread)
        };
        let Some(index) = world.threads.iter().position(can_run) else { return };
        world.run_thread(index, &mut Random::new(0));
    }
}

/// Returns a seed whose first draw below `end` is `value`.
fn seed(end: u64, value: u64) -> u64 {
    (0..).find(|seed| Random::new(*seed).below(end) == value).expect("some seed starts with each value")
}

/// Returns the seeds with which a choice is executed: one for each write in flight, or one for each answer to the question
/// whether the next write of another thread happens during a copy.
fn seeds(world: &World, choice: Choice) -> Vec<u64> {
    let values = match choice {
        Choice::Deliver { from, to, kind: Kind::Write } => world.connections[&(from, to)].writes() as u64,
        Choice::Deliver { kind: Kind::Read, .. } => 1,
        _ if world.threads.len() == world.nodes.len() => 1,
        _ => 2,
    };
    (0..values).map(|value| seed(values, value)).collect()
}

/// Explores all orders.
fn explore(config: Config, home: Option<usize>, program: &Program) -> Explored {
    let mut first = World::new(config, program);
    if let Some(home) = home {
        let all = PageRange { first: PageId(0), pages: config.pages };
        first.nodes.iter_mut().for_each(|node| node.engine.assign_homes(all, Homes::Rank(rank(home))).unwrap());
    }
    access_memory(&mut first);
    let (mut open, mut seen) = (vec![first], HashSet::new());
    let (mut explored, mut possible) = (Explored::default(), Vec::new());
    while let Some(mut world) = open.pop() {
        assert_eq!(world.model.violations, Vec::<String>::new());
        if world.threads.iter().all(Thread::has_ended) {
            let mut reads = world.model.reads.clone();
            reads.sort_by_key(|(thread, ..)| *thread);
            explored.outcomes.insert(reads);
            let coarse = world.nodes.iter().map(|node| node.engine.statistics().coarse).sum();
            explored.coarse = explored.coarse.max(coarse);
            continue;
        }
        choices(&world, &mut possible);
        if possible.is_empty() {
            assert!(skip_time(&mut world), "nothing can happen any more: {:#?}", world.threads);
            choices(&world, &mut possible);
        }
        for choice in &possible {
            for seed in seeds(&world, *choice) {
                let mut next = world.clone();
                execute(&mut next, *choice, &mut Random::new(seed));
                access_memory(&mut next);
                if seen.insert(fingerprint(&next)) {
                    open.push(next);
                }
            }
        }
        assert!(seen.len() < STATES_MAX, "the program is too long to be explored");
    }
    Explored { states: seen.len(), ..explored }
}

/// Explores a program in all protocols, orderings and kinds of stamps, with homes by first touch and at one rank. Returns the
/// outcomes of all.
fn explore_all(threads: &[&[Op]]) -> BTreeSet<Outcome> {
    let mut all = BTreeSet::new();
    let orderings = [
        (Ordering::Stamped, Stamps::PerHome),
        (Ordering::Stamped, Stamps::PerPage),
        (Ordering::Placed, Stamps::PerHome),
    ];
    for protocol in Protocol::ALL {
        // Diff messages carry their stamps.
        let differs = |stamps| stamps == Stamps::PerHome || protocol.writes_one_sided();
        for (ordering, stamps) in orderings.into_iter().filter(|(_, stamps)| differs(*stamps)) {
            for home in [None, Some(threads.len() - 1)] {
                let config = Config { stamps, ..config(threads.len(), protocol, ordering) };
                let Explored { outcomes, states, .. } = explore(config, home, &program(threads));
                println!("{protocol:?} {ordering:?} {stamps:?} {home:?}: {states} states, {} outcomes", outcomes.len());
                all.extend(outcomes);
            }
        }
    }
    all
}

/// Returns the values that a thread read.
fn values(outcome: &Outcome, thread: usize) -> Vec<u8> {
    outcome.iter().filter(|(reader, ..)| *reader == thread).map(|(.., value)| *value).collect()
}

#[test]
fn message_passing_by_lock() {
    let section = |access: Op| [Op::Lock(0), access, Op::Unlock(0)];
    let outcomes = explore_all(&[&section(write(3, 7)), &section(read(3))]);
    assert_eq!(outcomes.iter().map(|outcome| values(outcome, 1)).collect::<BTreeSet<_>>(), [vec![0], vec![7]].into());
}

#[test]
fn message_passing_by_barrier() {
    let outcomes = explore_all(&[&[write(3, 7), Op::Barrier(0)], &[Op::Barrier(0), read(3)]]);
    assert!(outcomes.iter().all(|outcome| values(outcome, 1) == [7]));
}

#[test]
fn message_passing_by_semaphore() {
    let outcomes = explore_all(&[&[write(3, 7), Op::Post(1)], &[read(20), Op::Wait(1), read(3)]]);
    assert!(outcomes.iter().all(|outcome| values(outcome, 1)[1] == 7));
}

#[test]
fn message_passing_by_counter() {
    let outcomes = explore_all(&[&[write(3, 7), Op::Add(1)], &[read(20), Op::Add(1), read(3)]]);
    // The checker knows which addition was the first.
    let seen: BTreeSet<u8> = outcomes.iter().map(|outcome| values(outcome, 1)[1]).collect();
    assert_eq!(seen, [0, 7].into());
}

#[test]
fn two_waiters_of_one_semaphore() {
    let waiter = [Op::Wait(1), read(3)];
    let outcomes = explore_all(&[&[write(3, 7), Op::Post(1), Op::Post(1)], &waiter, &waiter]);
    assert!(outcomes.iter().all(|outcome| values(outcome, 1) == [7] && values(outcome, 2) == [7]));
}

#[test]
fn transitivity_over_two_semaphores() {
    let outcomes = explore_all(&[&[write(3, 7), Op::Post(0)], &[Op::Wait(0), Op::Post(1)], &[Op::Wait(1), read(3)]]);
    assert!(outcomes.iter().all(|outcome| values(outcome, 2) == [7]));
}

#[test]
fn store_buffering_is_allowed() {
    let outcomes = explore_all(&[&[write(0, 1), read(16)], &[write(16, 1), read(0)]]);
    assert!(outcomes.iter().any(|outcome| (values(outcome, 0), values(outcome, 1)) == (vec![0], vec![0])));
}

#[test]
fn two_writers_of_one_word() {
    let outcomes = explore_all(&[
        &[write(0, 1), Op::Barrier(0), read(0), read(1)],
        &[write(1, 2), Op::Barrier(0), read(0), read(1)],
    ]);
    assert!(outcomes.iter().all(|outcome| values(outcome, 0) == [1, 2] && values(outcome, 1) == [1, 2]));
}

#[test]
fn silent_store_does_not_undo_another_write() {
    let outcomes = explore_all(&[
        &[write(0, 5), Op::Post(1), Op::Wait(0), read(0)],
        &[Op::Wait(1), write(0, 5), write(0, 6), Op::Post(0)],
    ]);
    assert!(outcomes.iter().all(|outcome| values(outcome, 0) == [6]));
}

#[test]
fn lock_again_without_a_message_and_packed_diffs() {
    let section = |values: Vec<u8>| [Op::Lock(0), Op::Write { address: 0, values }, Op::Unlock(0)];
    // Two runs are packed, one run is written; the second and third flush may meet the first one in flight.
    let writer = [section(vec![1, 0, 1]), section(vec![2]), section(vec![3])].concat();
    let outcomes = explore_all(&[&writer, &[Op::Lock(0), read(0), read(2), Op::Unlock(0)]]);
    let seen: BTreeSet<Vec<u8>> = outcomes.iter().map(|outcome| values(outcome, 1)).collect();
    assert_eq!(seen, [vec![0, 0], vec![1, 1], vec![2, 1], vec![3, 1]].into());
}

#[test]
fn full_ring_is_coarse_and_correct() {
    // Two pages that are no neighbours do not fit a record with one range.
    let writer = [Op::Lock(0), write(0, 9), write(33, 9), Op::Unlock(0), Op::Lock(0), write(17, 9), Op::Unlock(0)];
    let threads: [&[Op]; 2] = [&writer, &[read(0), Op::Lock(0), read(0), read(33), read(17), Op::Unlock(0)]];
    let config = config(2, Protocol::NewGenDsm, Ordering::Stamped);
    let config = Config { pages: 3, log: LogShape { slots: 2, record_bytes: 24 }, ..config };
    for (home, stamps) in [(None, Stamps::PerHome), (Some(1), Stamps::PerHome), (Some(1), Stamps::PerPage)] {
        let explored = explore(Config { stamps, ..config }, home, &program(&threads));
        assert_eq!(explored.coarse, 1);
        let seen = explored.outcomes.iter().map(|outcome| values(outcome, 1)[1..].to_vec());
        assert_eq!(seen.collect::<BTreeSet<_>>(), [vec![0, 0, 0], vec![9, 9, 0], vec![9, 9, 9]].into());
    }
}

#[test]
fn one_thread_acquires_while_another_of_its_rank_writes() {
    let threads: [&[Op]; 3] = [
        &[Op::Lock(1), read(0), Op::Unlock(1), Op::Barrier(0)],
        &[write(8, 3), Op::Barrier(0), read(0)],
        &[Op::Lock(1), write(0, 5), Op::Unlock(1), Op::Barrier(0), read(8)],
    ];
    for ordering in [Ordering::Stamped, Ordering::Placed] {
        let program = Program { ranks: vec![0, 0, 1], ..program(&threads) };
        let explored = explore(config(2, Protocol::NewGenDsm, ordering), Some(1), &program);
        assert!(explored.outcomes.iter().all(|outcome| values(outcome, 1) == [5] && values(outcome, 2) == [3]));
    }
}
