//! Many threads on one core, each with its own cache lines, and a service on another core: the cost of short time
//! slices alone.
//!
//! A thread that keeps its core for a whole scheduler slice has the best throughput, and delays every other thread by
//! as many slices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Repeated, run_threads};
use crate::harness::{Cores, Service, StandaloneResult, Turn};

/// Lines of each thread, one after the other, as in a ring.
const LINES: u64 = 128;
/// Polls of the last requester's line before all other lines, because it is the most likely next requester.
const LOOKS_AT_THE_LAST: u32 = 512;
/// Polls of the service in one turn.
const LOOKS_PER_TURN: u32 = 64;
/// Round trips between two readings of the clock: a reading takes a tenth of a round trip.
const TRIPS_PER_READING: u64 = 8;

/// A number on a cache line of its own: odd is a request, even a reply.
#[repr(align(64))]
struct Line(AtomicU64);

type Lines = [Line; LINES as usize];

/// Returns the line and the request of a round trip, counted from zero.
fn question(lines: &Lines, trip: u64) -> (&AtomicU64, u64) {
    (&lines[(trip % LINES) as usize].0, 2 * (trip / LINES) + 1)
}

/// The side of the service.
struct Answerer {
    all: Arc<[Lines]>,
    trips: Vec<u64>,
    last: usize,
}

impl Answerer {
    fn turn(&mut self) -> Turn {
        for _ in 0..LOOKS_PER_TURN {
            if !(0..LOOKS_AT_THE_LAST).any(|_| self.answers(self.last)) {
                let (last, threads) = (self.last, self.all.len());
                self.last =
                    (1..=threads).map(|step| (last + step) % threads).find(|&one| self.answers(one)).unwrap_or(last);
            }
        }
        Turn::Again
    }

    /// Answers the next request of this thread, if there is one, and returns true then.
    fn answers(&mut self, one: usize) -> bool {
        let (line, question) = question(&self.all[one], self.trips[one]);
        let asked = line.load(Ordering::Acquire) == question;
        if asked {
            line.store(question + 1, Ordering::Release);
            self.trips[one] += 1;
        }
        asked
    }
}

/// Threads that share the client's core and yield it after slices of that length, or when the scheduler decides.
/// Returns their joint throughput, and its fairness.
pub fn line_turns(cores: Cores, threads: usize, turn: Option<Duration>, time: Duration) -> StandaloneResult {
    let fresh = || std::array::from_fn(|_| Line(AtomicU64::new(0)));
    let all: Arc<[Lines]> = (0..threads).map(|_| fresh()).collect();
    let mut answerer = Answerer { all: Arc::clone(&all), trips: vec![0; threads], last: 0 };
    let service = Service::start(cores, move || answerer.turn());
    service.wake();
    let tasks = (0..threads).map(|one| asks(Arc::clone(&all), one, turn)).collect();
    let alone = run_threads(cores, true, tasks, time, Vec::new);
    service.rest();
    alone
}

/// Sends one request and polls for its reply.
fn asks(all: Arc<[Lines]>, one: usize, turn: Option<Duration>) -> Repeated {
    let (mut trip, mut began) = (0, Instant::now());
    Box::new(move || {
        let (line, question) = question(&all[one], trip);
        line.store(question, Ordering::Release);
        while line.load(Ordering::Acquire) != question + 1 {
            std::hint::spin_loop();
        }
        trip += 1;
        if trip % TRIPS_PER_READING == 0
            && let Some(turn) = turn
            && began.elapsed() >= turn
        {
            thread::yield_now();
            began = Instant::now();
        }
    })
}
