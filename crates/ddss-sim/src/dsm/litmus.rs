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

/// Hash of all that decides how a run goes on, and of what the checker knows.
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

/// Explores all orders. Returns every outcome, and the number of states.
fn explore(config: Config, home: Option<usize>, program: &Program) -> (BTreeSet<Outcome>, usize) {
    let mut first = World::new(config, program);
    if let Some(home) = home {
        let all = PageRange { first: PageId(0), pages: config.pages };
        first.nodes.iter_mut().for_each(|node| node.engine.assign_homes(all, Homes::Rank(rank(home))).unwrap());
    }
    access_memory(&mut first);
    let (mut open, mut seen) = (vec![first], HashSet::new());
    let (mut outcomes, mut possible) = (BTreeSet::new(), Vec::new());
    while let Some(mut world) = open.pop() {
        assert_eq!(world.model.violations, Vec::<String>::new());
        if world.threads.iter().all(Thread::has_ended) {
            let mut reads = world.model.reads.clone();
            reads.sort_by_key(|(thread, ..)| *thread);
            outcomes.insert(reads);
            continue;
        }
        choices(&world, &mut possible);
        if possible.is_empty() {
            assert!(skip_time(&mut world), "nothing can happen any more: {:#?}", world.threads);
            choices(&world, &mut possible);
        }
        for choice in &possible {
            // Any of the writes in flight, each in one piece.
            let variants = if matches!(choice, Choice::Deliver { kind: Kind::Write, .. }) { 3 } else { 1 };
            for variant in 0..variants {
                let mut next = world.clone();
                execute(&mut next, *choice, &mut Random::new(variant));
                access_memory(&mut next);
                if seen.insert(fingerprint(&next)) {
                    open.push(next);
                }
            }
        }
        assert!(seen.len() < STATES_MAX, "the program is too long to be explored");
    }
    (outcomes, seen.len())
}

/// Explores a program in all protocols and orderings, with homes by first touch and at one rank. Returns the outcomes of all.
fn explore_all(threads: &[&[Op]]) -> BTreeSet<Outcome> {
    let mut all = BTreeSet::new();
    for protocol in Protocol::ALL {
        for ordering in [Ordering::Stamped, Ordering::Placed] {
            for home in [None, Some(threads.len() - 1)] {
                let (outcomes, states) = explore(config(threads.len(), protocol, ordering), home, &program(threads));
                println!("{protocol:?} {ordering:?} {home:?}: {states} states, {} outcomes", outcomes.len());
                all.extend(outcomes);
            }
        }
    }
    all
}

/// Values that a thread read.
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
    let section = |address| [Op::Lock(0), write(address, 9), Op::Unlock(0)];
    let writer = [section(0), section(17), section(2)].concat();
    let threads: [&[Op]; 2] = [&writer, &[read(0), read(17), Op::Lock(0), read(0), read(17), Op::Unlock(0)]];
    let config = config(2, Protocol::NewGenDsm, Ordering::Stamped);
    let config = Config { log: LogShape { slots: 2, record_bytes: 24 }, ..config };
    let (outcomes, _) = explore(config, Some(1), &program(&threads));
    assert!(outcomes.iter().any(|outcome| values(outcome, 1)[2..] == [9, 9]));
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
        let (outcomes, _) = explore(config(2, Protocol::NewGenDsm, ordering), Some(1), &program);
        assert!(outcomes.iter().all(|outcome| values(outcome, 1) == [5] && values(outcome, 2) == [3]));
    }
}
