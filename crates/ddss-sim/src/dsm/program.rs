//! Random programs: what each thread of each rank does.
//!
//! A program without races gives every byte, phase by phase, to one thread, to a lock, to a semaphore that hands it from
//! one thread to another, or to readers only. Neighbouring bytes have different owners, so that pages, lines and words are
//! shared. A program with races accesses bytes at random, and its semaphores have several posters and waiters.

use crate::random::Random;
use std::collections::VecDeque;

/// One step of a thread. Ranges of bytes never cross a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read {
        address: usize,
        bytes: usize,
    },
    Write {
        address: usize,
        values: Vec<u8>,
    },
    /// Opens consecutive pages by one call, to read or to write.
    Open {
        page: u32,
        pages: u32,
        writes: bool,
    },
    Lock(u32),
    Unlock(u32),
    /// All threads of all ranks; the number is that of the barrier's use.
    Barrier(u32),
    Post(u32),
    Wait(u32),
    Add(u32),
}

/// A program: the steps of each thread, and the rank of each thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) threads: Vec<Vec<Op>>,
    pub(crate) ranks: Vec<usize>,
    pub(crate) has_no_race: bool,
}

/// Size of a random program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) ranks: usize,
    pub(crate) threads_a_rank: usize,
    pub(crate) bytes: usize,
    pub(crate) page_bytes: usize,
    pub(crate) phases: u32,
    pub(crate) accesses: u64,
    pub(crate) locks: u32,
    /// Number of different values that are written; few, so that silent stores happen.
    pub(crate) values: u64,
}

/// Owner of a byte in a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Thread(usize),
    Readers,
    Lock(u32),
    /// Handed from one thread to another by a semaphore.
    Handed {
        from: usize,
        to: usize,
        semaphore: u32,
    },
}

/// State of a generator while it makes a program.
struct Generator<'a> {
    random: &'a mut Random,
    shape: Shape,
    threads: usize,
    owners: Vec<Owner>,
    semaphores: u32,
}

/// Makes a program without races.
pub(crate) fn without_races(shape: Shape, random: &mut Random) -> Program {
    let threads = shape.ranks * shape.threads_a_rank;
    let mut generator = Generator { random, shape, threads, owners: Vec::new(), semaphores: 0 };
    let mut program = Program {
        threads: vec![Vec::new(); threads],
        ranks: (0..threads).map(|thread| thread / shape.threads_a_rank).collect(),
        has_no_race: true,
    };
    for phase in 0..shape.phases {
        generator.assign_owners();
        for (thread, steps) in program.threads.iter_mut().enumerate() {
            generator.add_phase(thread, steps);
            steps.push(Op::Barrier(phase));
        }
    }
    program.threads.iter_mut().for_each(|steps| read_all(shape, steps));
    program
}

/// Reads every byte, behind the last barrier: otherwise a lost write of a byte that no thread reads later would go unnoticed.
fn read_all(shape: Shape, steps: &mut Vec<Op>) {
    let pages = (0..shape.bytes).step_by(shape.page_bytes);
    steps.extend(pages.map(|address| Op::Read { address, bytes: shape.page_bytes }));
}

/// Makes a program whose threads access any byte. They share locks, counters, and semaphores with several posters and waiters.
pub(crate) fn with_races(shape: Shape, random: &mut Random) -> Program {
    let threads = shape.ranks * shape.threads_a_rank;
    let mut generator = Generator { random, shape, threads, owners: vec![Owner::Readers; shape.bytes], semaphores: 0 };
    let all: Vec<usize> = (0..shape.bytes).collect();
    let mut steps = vec![Vec::new(); threads];
    for phase in 0..shape.phases {
        let semaphore_steps = generator.semaphore_steps();
        for (steps, mut semaphore_steps) in steps.iter_mut().zip(semaphore_steps) {
            let mut turns = shape.accesses;
            while turns > 0 || !semaphore_steps.is_empty() {
                turns = turns.saturating_sub(1);
                if generator.random.one_in(3) || turns == 0 {
                    steps.extend(semaphore_steps.pop_front());
                }
                generator.add_racing_turn(&all, steps);
            }
            steps.push(Op::Barrier(phase));
        }
    }
    steps.iter_mut().for_each(|steps| read_all(shape, steps));
    let ranks = (0..threads).map(|thread| thread / shape.threads_a_rank).collect();
    Program { threads: steps, ranks, has_no_race: false }
}

impl Generator<'_> {
    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn assign_owners(&mut self) {
        self.owners.clear();
        // Each pair of threads has one semaphore a phase.
        let (from, to) = (self.below(self.threads), self.below(self.threads));
        let semaphore = self.semaphores;
        self.semaphores += 1;
        while self.owners.len() < self.shape.bytes {
            let owner = match self.random.below(10) {
                0..5 => Owner::Thread(self.below(self.threads)),
                5 | 6 => Owner::Readers,
                7 | 8 if self.shape.locks > 0 => Owner::Lock(self.random.below(self.shape.locks.into()) as u32),
                _ if from != to => Owner::Handed { from, to, semaphore },
                _ => Owner::Readers,
            };
            let bytes = 1 + self.below(self.shape.page_bytes / 2);
            self.owners.extend(std::iter::repeat_n(owner, bytes));
        }
        self.owners.truncate(self.shape.bytes);
    }

    fn bytes_of(&self, is_owner: impl Fn(Owner) -> bool) -> Vec<usize> {
        (0..self.owners.len()).filter(|address| is_owner(self.owners[*address])).collect()
    }

    /// Adds an access to one of these bytes, and to those behind it as far as they are in the list and the page.
    fn access(&mut self, allowed: &[usize], writes: bool, steps: &mut Vec<Op>) {
        if allowed.is_empty() {
            return;
        }
        let at = self.below(allowed.len());
        let (address, longest) = (allowed[at], 1 + self.below(8));
        let in_page = self.shape.page_bytes - address % self.shape.page_bytes;
        let is_next = |(index, next): &(usize, &usize)| **next == address + index;
        let bytes = allowed[at..].iter().enumerate().take(longest.min(in_page)).take_while(is_next).count();
        if writes {
            // Never 0, which stands for an untouched byte.
            let values = (0..bytes).map(|_| 1 + self.random.below(self.shape.values) as u8).collect();
            steps.push(Op::Write { address, values });
        } else {
            steps.push(Op::Read { address, bytes });
        }
    }

    /// Opens a few pages in front of an access.
    fn open_pages(&mut self, steps: &mut Vec<Op>) {
        let all = self.shape.bytes / self.shape.page_bytes;
        let page = self.below(all);
        let pages = 1 + self.below(all - page) as u32;
        steps.push(Op::Open { page: page as u32, pages, writes: self.random.one_in(2) });
    }

    fn accesses(&mut self, allowed: &[usize], count: u64, steps: &mut Vec<Op>) {
        if self.random.one_in(8) {
            self.open_pages(steps);
        }
        for _ in 0..count {
            let writes = self.random.one_in(2);
            self.access(allowed, writes, steps);
        }
    }

    /// Adds the steps of a thread in one phase. Posts come before waits, so no thread waits forever.
    fn add_phase(&mut self, thread: usize, steps: &mut Vec<Op>) {
        let own = self.bytes_of(|owner| owner == Owner::Thread(thread));
        let shared = self.bytes_of(|owner| owner == Owner::Readers);
        let handed = self.owners.iter().find_map(|owner| match *owner {
            Owner::Handed { from, to, semaphore } => Some((from, to, semaphore)),
            _ => None,
        });
        let handed_bytes = self.bytes_of(|owner| matches!(owner, Owner::Handed { .. }));
        if let Some((_, _, semaphore)) = handed.filter(|(from, ..)| *from == thread) {
            self.accesses(&handed_bytes, 3, steps);
            steps.push(Op::Post(semaphore));
        }
        for _ in 0..1 + self.random.below(self.shape.accesses) {
            match self.random.below(8) {
                0..3 => self.accesses(&own, 2, steps),
                3 => self.access(&shared, false, steps),
                4..7 if self.shape.locks > 0 => self.add_section(steps),
                _ if self.random.one_in(4) => steps.push(Op::Add(self.random.below(2) as u32)),
                _ => self.accesses(&own, 1, steps),
            }
        }
        if let Some((_, _, semaphore)) = handed.filter(|(_, to, _)| *to == thread) {
            steps.push(Op::Wait(semaphore));
            self.accesses(&handed_bytes, 3, steps);
        }
    }

    /// Returns posts and waits of each thread in one phase, as many waits as posts. All posts of a thread come before its waits,
    /// so no thread waits forever.
    fn semaphore_steps(&mut self) -> Vec<VecDeque<Op>> {
        let (mut posts, mut waits) = (vec![VecDeque::new(); self.threads], vec![VecDeque::new(); self.threads]);
        for _ in 0..self.below(2 * self.threads) {
            let semaphore = self.random.below(2) as u32;
            let (poster, waiter) = (self.below(self.threads), self.below(self.threads));
            posts[poster].push_back(Op::Post(semaphore));
            waits[waiter].push_back(Op::Wait(semaphore));
        }
        posts.iter_mut().zip(waits).for_each(|(posts, waits)| posts.extend(waits));
        posts
    }

    /// Adds a few accesses to any bytes, some of them in a critical section or behind an addition to a counter.
    fn add_racing_turn(&mut self, all: &[usize], steps: &mut Vec<Op>) {
        if self.random.one_in(4) {
            steps.push(Op::Add(self.random.below(2) as u32));
        }
        let locks = self.shape.locks;
        let lock = (locks > 0 && self.random.one_in(3)).then(|| self.random.below(locks.into()) as u32);
        steps.extend(lock.map(Op::Lock));
        for _ in 0..=self.random.below(3) {
            let writes = self.random.one_in(2);
            self.access(all, writes, steps);
        }
        steps.extend(lock.map(Op::Unlock));
    }

    /// Adds a critical section.
    fn add_section(&mut self, steps: &mut Vec<Op>) {
        let lock = self.random.below(self.shape.locks.into()) as u32;
        let guarded = self.bytes_of(|owner| owner == Owner::Lock(lock));
        steps.push(Op::Lock(lock));
        let count = 1 + self.random.below(4);
        self.accesses(&guarded, count, steps);
        steps.push(Op::Unlock(lock));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns programs of both kinds, with their shape.
    fn programs() -> impl Iterator<Item = (Shape, Program)> {
        (0..40).map(|seed| {
            let mut random = Random::new(seed);
            let (locks, values) = (seed as u32 % 3, if seed % 2 == 0 { 3 } else { 250 });
            let shape =
                Shape { ranks: 3, threads_a_rank: 2, bytes: 64, page_bytes: 16, phases: 3, accesses: 6, locks, values };
            let make = if seed % 4 < 2 { with_races } else { without_races };
            (shape, make(shape, &mut random))
        })
    }

    // If this failed, a lost write of a byte that no thread reads later would go unnoticed.
    #[test]
    fn each_thread_reads_all_bytes_behind_the_last_barrier() {
        for (shape, program) in programs() {
            for steps in &program.threads {
                let last = steps.iter().rposition(|step| *step == Op::Barrier(shape.phases - 1)).expect("a barrier");
                let mut all = Vec::new();
                read_all(shape, &mut all);
                assert_eq!(steps[last + 1..], all);
            }
        }
    }

    // If this failed, counters and general semaphores would not be checked, or a program could wait forever.
    #[test]
    fn racing_threads_share_semaphores_and_post_as_often_as_they_wait() {
        let (mut waiters_max, mut additions) = (0, 0);
        for (_, program) in programs().filter(|(_, program)| !program.has_no_race) {
            let count = |op: &Op| program.threads.iter().flatten().filter(|step| *step == op).count();
            for semaphore in 0..2 {
                assert_eq!(count(&Op::Post(semaphore)), count(&Op::Wait(semaphore)));
                let waits = |steps: &&Vec<Op>| steps.contains(&Op::Wait(semaphore));
                waiters_max = waiters_max.max(program.threads.iter().filter(waits).count());
            }
            for steps in &program.threads {
                for phase in steps.split(|step| matches!(step, Op::Barrier(_))) {
                    let first_wait = phase.iter().position(|step| matches!(step, Op::Wait(_)));
                    let last_post = phase.iter().rposition(|step| matches!(step, Op::Post(_)));
                    assert!(first_wait.is_none() || last_post < first_wait);
                }
            }
            additions += count(&Op::Add(0));
        }
        assert!(waiters_max > 1 && additions > 0, "{waiters_max} waiters, {additions} additions");
    }
}
