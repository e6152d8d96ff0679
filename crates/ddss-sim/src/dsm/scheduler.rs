//! Chooses the next event at random. Some connections pause for a while, so that others overtake them.

use super::network::Kind;
use super::program::{Program, Shape, with_races, without_races};
use super::scenario::{DsmReport, DsmScenario, random_config};
use super::thread::ThreadState;
use super::world::{World, rank};
use crate::random::Random;
use ddss_dsm_core::{Config, Event, Failure, Statistics};
use std::collections::BTreeMap;

/// Steps after which a run is taken for one that never ends.
const STEPS_MAX: u64 = 400_000;
/// Of so many seeds one records accesses, and looks for races in them.
const RECORDED_EACH: u64 = 4;

/// An event that can happen next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Choice {
    Thread(usize),
    Deliver {
        from: usize,
        to: usize,
        kind: Kind,
    },
    Tick(usize),
    /// A rank notices that another one is lost.
    NoticeLoss {
        node: usize,
        lost: usize,
    },
}

/// Returns all events that can happen now.
pub(crate) fn choices(world: &World, into: &mut Vec<Choice>) {
    into.clear();
    let ready = |(_, thread): &(usize, &super::thread::Thread)| thread.state == ThreadState::Ready;
    into.extend(world.threads.iter().enumerate().filter(ready).map(|(index, _)| Choice::Thread(index)));
    for (&(from, to), connection) in &world.connections {
        into.extend(connection.possible().map(|kind| Choice::Deliver { from, to, kind }));
    }
    let is_due = |node: usize| world.nodes[node].engine.next_deadline().is_some_and(|due_us| due_us <= world.now_us);
    let alive = (0..world.nodes.len()).filter(|node| !world.nodes[*node].is_dead);
    into.extend(alive.filter(|node| is_due(*node)).map(Choice::Tick));
}

/// Executes a choice.
pub(crate) fn execute(world: &mut World, choice: Choice, random: &mut Random) {
    match choice {
        Choice::Thread(index) => world.run_thread(index, random),
        Choice::Deliver { from, to, kind } => world.deliver(from, to, kind, random),
        Choice::Tick(node) => world.handle(node, Event::Tick, random),
        Choice::NoticeLoss { node, lost } => world.handle(node, Event::Lost(rank(lost)), random),
    }
}

/// Moves the time to the next deadline. Returns false if no engine has one.
pub(crate) fn skip_time(world: &mut World) -> bool {
    let alive = world.nodes.iter().filter(|node| !node.is_dead);
    let next = alive.filter_map(|node| node.engine.next_deadline()).min();
    next.is_some_and(|due_us| {
        world.now_us = due_us.max(world.now_us);
        true
    })
}

/// Death of a rank during a run.
struct Death {
    node: usize,
    at_step: u64,
    /// Ranks that have not noticed it.
    unnoticed: Vec<usize>,
}

/// Runs one seed.
pub fn run_dsm(seed: u64, scenario: &DsmScenario) -> DsmReport {
    let mut random = Random::new(seed);
    let config = random_config(scenario, &mut random);
    let program = random_program(&config, scenario.has_tiny_log, &mut random);
    let mut world = new_world(config, &program, scenario);
    if seed.is_multiple_of(RECORDED_EACH) {
        world.nodes.iter_mut().for_each(|node| node.engine.record_accesses());
    }
    let length: usize = program.threads.iter().map(Vec::len).sum();
    let dies = scenario.deaths && random.one_in(4);
    let death = dies.then(|| Death {
        node: random.below(config.ranks as u64) as usize,
        at_step: random.below(8 * length as u64),
        unnoticed: Vec::new(),
    });
    Run { world, random, frozen: BTreeMap::new(), death, has_no_race: program.has_no_race, trace: seed, step: 0 }.run()
}

fn new_world(config: Config, program: &Program, scenario: &DsmScenario) -> World {
    #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
    let mut world = World::new(config, program);
    #[cfg(feature = "planted")]
    if let Some(bug) = scenario.bug {
        world.nodes.iter_mut().for_each(|node| node.engine.plant(bug));
    }
    #[cfg(not(feature = "planted"))]
    let _ = scenario;
    world
}

fn random_program(config: &Config, has_long_phases: bool, random: &mut Random) -> Program {
    let page_bytes = config.page_bytes as usize;
    let shape = Shape {
        ranks: config.ranks,
        threads_a_rank: if random.one_in(3) { 2 } else { 1 },
        bytes: config.pages as usize * page_bytes,
        page_bytes,
        phases: 2 + random.below(5) as u32,
        accesses: if has_long_phases { 20 } else { 2 + random.below(8) },
        locks: random.below(4) as u32,
        values: if random.one_in(2) { 3 } else { 250 },
    };
    if random.one_in(4) { with_races(shape, random) } else { without_races(shape, random) }
}

/// A run in progress.
struct Run {
    world: World,
    random: Random,
    /// Choices that are paused, and the step until which they are.
    frozen: BTreeMap<Choice, u64>,
    death: Option<Death>,
    has_no_race: bool,
    trace: u64,
    step: u64,
}

impl Run {
    fn run(mut self) -> DsmReport {
        let mut possible = Vec::new();
        while !self.world.threads.iter().all(super::thread::Thread::has_ended) {
            self.step += 1;
            self.world.now_us += self.random.below(3);
            self.kill_when_due();
            choices(&self.world, &mut possible);
            self.add_losses(&mut possible);
            let Some(choice) = self.choose(&possible) else {
                if skip_time(&mut self.world) {
                    continue;
                }
                self.complain("nothing can happen any more");
                break;
            };
            self.trace = (self.trace.rotate_left(5) ^ hash(choice)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            execute(&mut self.world, choice, &mut self.random);
            if let (Choice::NoticeLoss { node, .. }, Some(death)) = (choice, &mut self.death) {
                death.unnoticed.retain(|other| *other != node);
            }
            if self.step > STEPS_MAX {
                self.complain("the run does not end");
                break;
            }
            if !self.world.model.violations.is_empty() {
                break;
            }
        }
        self.report()
    }

    fn complain(&mut self, what: &str) {
        let open: Vec<String> = (self.world.threads.iter().enumerate())
            .filter(|(_, thread)| !thread.has_ended())
            .map(|(index, thread)| format!("thread {index} of rank {} at {:?}", thread.rank, thread.step()))
            .collect();
        self.world.model.violations.push(format!("{what}: {}", open.join(", ")));
    }

    /// Chooses one of the possible events that is not paused.
    fn choose(&mut self, possible: &[Choice]) -> Option<Choice> {
        if possible.is_empty() {
            return None;
        }
        let step = self.step;
        self.frozen.retain(|_, until| *until > step);
        let moving: Vec<Choice> = possible.iter().filter(|choice| !self.frozen.contains_key(choice)).copied().collect();
        let list = if moving.is_empty() { possible } else { &moving };
        let choice = list[self.random.below(list.len() as u64) as usize];
        if self.random.one_in(16) {
            let longest = if self.random.one_in(4) { 3000 } else { 200 };
            let until = step + self.random.below(longest);
            self.frozen.insert(choice, until);
        }
        Some(choice)
    }

    fn kill_when_due(&mut self) {
        if let Some(death) = self.death.as_mut().filter(|death| death.at_step == self.step) {
            let node = death.node;
            death.unnoticed = (0..self.world.nodes.len()).filter(|other| *other != node).collect();
            self.world.kill(node);
        }
    }

    fn add_losses(&self, possible: &mut Vec<Choice>) {
        if let Some(death) = &self.death {
            let notice = |node: &usize| Choice::NoticeLoss { node: *node, lost: death.node };
            possible.extend(death.unnoticed.iter().map(notice));
        }
    }

    /// Returns the counts, and checks how threads ended.
    fn report(mut self) -> DsmReport {
        let lost = self.death.as_ref().filter(|death| death.at_step <= self.step).map(|death| death.node);
        for thread in &self.world.threads {
            let ThreadState::Failed(failure) = thread.state else { continue };
            if lost.map(rank).map(Failure::Lost) != Some(failure) {
                self.world.model.violations.push(format!("a thread of rank {} failed: {failure}", thread.rank));
            }
        }
        let mut statistics = Statistics::default();
        for node in &self.world.nodes {
            add(&mut statistics, &node.engine.statistics());
        }
        let races = self.world.races();
        if self.has_no_race {
            self.world.model.violations.extend(races.iter().cloned());
        }
        let Config { protocol, ordering, stamps, .. } = self.world.config;
        let settings = format!("{protocol:?}, {ordering:?}, {stamps:?}");
        DsmReport {
            violations: self.world.model.violations.iter().map(|what| format!("{settings}: {what}")).collect(),
            trace: self.trace,
            steps: self.step,
            accesses: self.world.accesses,
            calls: self.world.calls,
            messages: self.world.traffic.iter().map(|traffic| traffic.handled).sum(),
            deaths: u64::from(lost.is_some()),
            races: races.len() as u64,
            statistics,
        }
    }
}

fn hash(choice: Choice) -> u64 {
    match choice {
        Choice::Thread(index) => index as u64,
        Choice::Deliver { from, to, kind } => 1 << 32 | (from << 16 | to << 8 | kind as usize) as u64,
        Choice::Tick(node) => 2 << 32 | node as u64,
        Choice::NoticeLoss { node, .. } => 3 << 32 | node as u64,
    }
}

fn add(sum: &mut Statistics, one: &Statistics) {
    sum.fetches += one.fetches;
    sum.retries += one.retries;
    sum.own_pages += one.own_pages;
    sum.swaps += one.swaps;
    sum.forwards += one.forwards;
    sum.diffs += one.diffs;
    sum.runs += one.runs;
    sum.diff_bytes += one.diff_bytes;
    sum.packed += one.packed;
    sum.intervals += one.intervals;
    sum.coarse += one.coarse;
    sum.notices += one.notices;
    sum.overwritten += one.overwritten;
    sum.invalidations += one.invalidations;
    sum.handled += one.handled;
    sum.handler_bytes += one.handler_bytes;
    sum.fences += one.fences;
    sum.idle_twins += one.idle_twins;
    sum.locks += one.locks;
    sum.barriers += one.barriers;
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the check for races would call programs without races wrong, or would find none in the others.
    #[test]
    fn recorded_accesses_race_only_in_programs_with_races() {
        let scenario = DsmScenario { deaths: true, ..DsmScenario::default() };
        let mut races = 0;
        for seed in (0..400).filter(|seed: &u64| seed.is_multiple_of(RECORDED_EACH)) {
            let report = run_dsm(seed, &scenario);
            assert_eq!(report.violations, [""; 0], "seed {seed}");
            races += report.races;
        }
        assert!(races > 100, "{races} races");
    }
}
