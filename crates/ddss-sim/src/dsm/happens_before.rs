//! The memory model, by vector clocks of the program's own synchronisation. The engine's vector times play no part.
//!
//! A read may return a write that no other write overwrote, in the order of happens-before, before the read. In a program
//! without races that is exactly the last write.

use std::collections::{BTreeMap, BTreeSet};

/// Clock of a thread: the number of releases of each thread that happened before.
type Clock = Vec<u32>;

fn join(clock: &mut Clock, other: &Clock) {
    for (own, other) in clock.iter_mut().zip(other) {
        *own = (*own).max(*other);
    }
}

/// A write of one byte.
#[derive(Clone, Debug)]
struct Write {
    thread: usize,
    clock: Clock,
    value: u8,
}

impl Write {
    fn is_before(&self, clock: &Clock) -> bool {
        clock[self.thread] >= self.clock[self.thread]
    }
}

/// Releases and acquires of a counter: the value behind each addition, with the clock at its start.
#[derive(Clone, Debug, Default)]
struct CounterHistory {
    /// Additions that have begun.
    started: u64,
    known: Vec<(u64, Clock)>,
    open: BTreeMap<usize, Clock>,
}

/// A semaphore: the posts that have begun, and the waits.
#[derive(Clone, Debug, Default)]
struct SemaphoreHistory {
    posts: Vec<(usize, Clock)>,
    /// Waits that are over.
    waits: usize,
    /// Waits that were over when the open wait of a thread began.
    open: BTreeMap<usize, usize>,
}

impl SemaphoreHistory {
    /// Returns the clocks of the posts that certainly happened before, if at least `least` posts did. Of each thread
    /// these are the first posts: as many as remain if all posts of the other threads happened before.
    fn certain_posts(&self, least: usize) -> Vec<Clock> {
        let mut certain = Vec::new();
        for thread in self.posts.iter().map(|(thread, _)| *thread).collect::<BTreeSet<_>>() {
            let own: Vec<&Clock> =
                self.posts.iter().filter(|(poster, _)| *poster == thread).map(|(_, clock)| clock).collect();
            let others = self.posts.len() - own.len();
            certain.extend(own.into_iter().take(least.saturating_sub(others)).cloned());
        }
        certain
    }
}

/// The checker.
#[derive(Clone, Debug, Default)]
pub(crate) struct HappensBefore {
    clocks: Vec<Clock>,
    writes: BTreeMap<usize, Vec<Write>>,
    locks: BTreeMap<u32, (Option<usize>, Clock)>,
    /// Arrived threads and their joined clocks, by the number of the barrier.
    barriers: BTreeMap<u32, (usize, Clock)>,
    semaphores: BTreeMap<u32, SemaphoreHistory>,
    counters: BTreeMap<u32, CounterHistory>,
    /// True if the program must have no race.
    has_no_race: bool,
    pub(crate) violations: Vec<String>,
    /// All reads: thread, address and value.
    #[cfg(test)]
    pub(crate) reads: Vec<(usize, usize, u8)>,
}

impl HappensBefore {
    pub(crate) fn new(threads: usize, has_no_race: bool) -> Self {
        let clock = |thread: usize| (0..threads).map(|other| u32::from(other == thread)).collect();
        Self { clocks: (0..threads).map(clock).collect(), has_no_race, ..Self::default() }
    }

    fn complain(&mut self, what: String) {
        if self.violations.len() < 5 {
            self.violations.push(what);
        }
    }

    pub(crate) fn write(&mut self, thread: usize, address: usize, value: u8) {
        let clock = self.clocks[thread].clone();
        let writes = self.writes.entry(address).or_default();
        if self.has_no_race && writes.iter().any(|write| !write.is_before(&clock)) {
            let what = format!("the program has a race: thread {thread} writes byte {address}");
            self.complain(what);
            return;
        }
        if self.has_no_race {
            writes.clear();
        }
        writes.push(Write { thread, clock, value });
    }

    pub(crate) fn read(&mut self, thread: usize, address: usize, value: u8) {
        #[cfg(test)]
        self.reads.push((thread, address, value));
        let clock = &self.clocks[thread];
        let writes = self.writes.get(&address).map_or(&[][..], Vec::as_slice);
        let before: Vec<&Write> = writes.iter().filter(|write| write.is_before(clock)).collect();
        let is_overwritten = |at: usize| {
            let write = &writes[at];
            let later = |other: &Write| write.is_before(&other.clock) && other.is_before(clock);
            // Writes of one thread are in its order, and those before a release have one clock.
            let is_later = |(index, other): (usize, &Write)| {
                if other.thread == write.thread { index > at && other.is_before(clock) } else { later(other) }
            };
            writes.iter().enumerate().any(is_later)
        };
        let from_write = (0..writes.len()).any(|at| writes[at].value == value && !is_overwritten(at));
        let from_start = value == 0 && before.is_empty();
        if !from_write && !from_start {
            let last = before.last().map(|write| (write.thread, write.value));
            let what = format!("thread {thread} read {value} at byte {address}, the last write before: {last:?}");
            self.complain(what);
        }
    }

    fn tick(&mut self, thread: usize) {
        self.clocks[thread][thread] += 1;
    }

    fn empty(&self) -> Clock {
        vec![0; self.clocks.len()]
    }

    pub(crate) fn locked(&mut self, thread: usize, lock: u32) {
        let empty = self.empty();
        let (holder, clock) = self.locks.entry(lock).or_insert((None, empty));
        let before = holder.replace(thread);
        join(&mut self.clocks[thread], clock);
        if let Some(before) = before {
            self.complain(format!("thread {thread} got lock {lock}, which thread {before} holds"));
        }
    }

    pub(crate) fn unlock(&mut self, thread: usize, lock: u32) {
        if let Some((holder, clock)) = self.locks.get_mut(&lock) {
            *holder = None;
            join(clock, &self.clocks[thread]);
        }
        self.tick(thread);
    }

    pub(crate) fn arrive(&mut self, thread: usize, barrier: u32) {
        let empty = self.empty();
        let (arrived, clock) = self.barriers.entry(barrier).or_insert((0, empty));
        *arrived += 1;
        join(clock, &self.clocks[thread]);
        self.tick(thread);
    }

    pub(crate) fn depart(&mut self, thread: usize, barrier: u32) {
        let threads = self.clocks.len();
        let (arrived, clock) = &self.barriers[&barrier];
        let arrived = *arrived;
        join(&mut self.clocks[thread], clock);
        if arrived < threads {
            self.complain(format!("thread {thread} left barrier {barrier} with {arrived} of {threads} there"));
        }
    }

    pub(crate) fn post(&mut self, thread: usize, semaphore: u32) {
        let clock = self.clocks[thread].clone();
        self.semaphores.entry(semaphore).or_default().posts.push((thread, clock));
        self.tick(thread);
    }

    pub(crate) fn start_wait(&mut self, thread: usize, semaphore: u32) {
        let history = self.semaphores.entry(semaphore).or_default();
        history.open.insert(thread, history.waits);
    }

    /// A wait is over. Waits that were over at its start have used a post each, so one post more happened before its end.
    pub(crate) fn waited(&mut self, thread: usize, semaphore: u32) {
        let history = self.semaphores.entry(semaphore).or_default();
        history.waits += 1;
        let (waits, posts) = (history.waits, history.posts.len());
        let before = history.open.remove(&thread).unwrap_or_default();
        let certain = history.certain_posts(before + 1);
        if waits > posts {
            self.complain(format!("wait {waits} of semaphore {semaphore} ended with {posts} posts"));
            return;
        }
        certain.iter().for_each(|clock| join(&mut self.clocks[thread], clock));
    }

    pub(crate) fn start_add(&mut self, thread: usize, counter: u32) {
        let clock = self.clocks[thread].clone();
        let history = self.counters.entry(counter).or_default();
        history.started += 1;
        history.open.insert(thread, clock);
        self.tick(thread);
    }

    /// An addition of one is over: all additions up to the old value happened before it. If the old value counts all others
    /// that have begun, these are among them.
    pub(crate) fn added(&mut self, thread: usize, counter: u32, before: u64) {
        let history = self.counters.entry(counter).or_default();
        let own = history.open.remove(&thread).unwrap_or_default();
        let is_double = history.known.iter().any(|(value, _)| *value == before + 1);
        let mut earlier: Vec<Clock> =
            history.known.iter().filter(|(value, _)| *value <= before).map(|(_, clock)| clock.clone()).collect();
        if before + 1 == history.started {
            earlier.extend(history.open.values().cloned());
        }
        history.known.push((before + 1, own));
        earlier.iter().for_each(|clock| join(&mut self.clocks[thread], clock));
        if is_double {
            self.complain(format!("two additions to counter {counter} found {before}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the checker could accept stale values, and every campaign with it.
    #[test]
    fn stale_and_invented_values_are_violations() {
        let fresh = || {
            let mut model = HappensBefore::new(2, false);
            model.locked(0, 1);
            model.write(0, 5, 7);
            model.write(0, 5, 8);
            model.unlock(0, 1);
            model.locked(1, 1);
            model
        };
        let read = |value| {
            let mut model = fresh();
            model.read(1, 5, value);
            model.violations.len()
        };
        assert_eq!([read(8), read(7), read(0), read(9)], [0, 1, 1, 1]);
        let mut model = fresh();
        model.write(1, 5, 9);
        model.read(1, 5, 8);
        assert_eq!(model.violations.len(), 1, "an own write is the last one");
        let mut racing = HappensBefore::new(2, false);
        racing.write(0, 5, 7);
        racing.read(1, 5, 0);
        racing.read(1, 5, 7);
        assert_eq!(racing.violations, Vec::<String>::new());
    }

    // If this failed, the checker would expect too much of a semaphore with several waiters, or too little.
    #[test]
    fn wait_knows_the_posts_that_certainly_ended_it() {
        let posted = || {
            let mut model = HappensBefore::new(4, false);
            for thread in [0, 1, 0] {
                model.post(thread, 5);
            }
            model
        };
        let knows = |model: &HappensBefore, thread: usize| (model.clocks[thread][0], model.clocks[thread][1]);
        let mut model = posted();
        [2, 3].into_iter().for_each(|thread| model.start_wait(thread, 5));
        [2, 3].into_iter().for_each(|thread| model.waited(thread, 5));
        assert_eq!((knows(&model, 2), knows(&model, 3)), ((0, 0), (0, 0)), "each may be the first");
        model.start_wait(3, 5);
        model.waited(3, 5);
        assert_eq!(knows(&model, 3), (2, 1), "the last has all three posts");
        let mut model = posted();
        for thread in [2, 3] {
            model.start_wait(thread, 5);
            model.waited(thread, 5);
        }
        assert_eq!(knows(&model, 3), (1, 0), "of two posts one is certainly the first of the first thread");
        assert_eq!(model.violations, Vec::<String>::new());
    }

    // If this failed, an addition that does not acquire would go unnoticed while the other one has no answer.
    #[test]
    fn addition_knows_all_earlier_ones() {
        let mut model = HappensBefore::new(2, false);
        [0, 1].into_iter().for_each(|thread| model.start_add(thread, 2));
        model.added(1, 2, 1);
        assert_eq!(model.clocks[1][0], 1, "the answer to the first is on its way");
    }

    #[test]
    fn broken_synchronisation_is_a_violation() {
        let mut model = HappensBefore::new(2, true);
        model.locked(0, 1);
        model.locked(1, 1);
        model.arrive(0, 0);
        model.depart(0, 0);
        model.waited(0, 3);
        model.start_add(0, 2);
        model.start_add(1, 2);
        model.added(0, 2, 0);
        model.added(1, 2, 0);
        model.write(0, 9, 1);
        model.clocks[1][0] = 0;
        model.write(1, 9, 1);
        assert_eq!(model.violations.len(), 5, "{:#?}", model.violations);
    }
}
