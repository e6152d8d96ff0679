//! One cache line between two cores: the minimal round trip inside a node.
//!
//! Client and service are two threads here and not two processes. The cost of moving a line between two cores does not
//! depend on the process, so no memory is mapped for this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Cores, Figure, RoundTrip, Service, Spinner, Turn};

/// Polls of the service in one turn.
const LOOKS_PER_TURN: u32 = 1024;
/// Number of lines, used one after the other. The cost of a line depends on its position in the processor: it varies by
/// four tenths over these 64 (195 to 275 ns on the machine of docs/notes/figures.md), always in the same way. A ring uses all of
/// its lines, so its limit must use many as well.
const LINES: u64 = 64;
/// Round trips on a line before the next one.
const TRIPS_PER_LINE: u64 = 64;

/// A number on a cache line of its own: odd is a request, even a reply.
#[repr(align(64))]
struct Line(AtomicU64);

type Lines = [Line; LINES as usize];

/// Returns the line of a round trip, counted from zero.
fn line_of(lines: &Lines, trip: u64) -> &AtomicU64 {
    &lines[(trip / TRIPS_PER_LINE % LINES) as usize].0
}

struct PingPong {
    lines: Arc<Lines>,
    trips: u64,
    service: Service,
    yields: bool,
}

/// 8 bytes there and back through one cache line.
pub fn line_ping_pong(cores: Cores) -> Figure {
    let lines: Arc<Lines> = Arc::new(std::array::from_fn(|_| Line(AtomicU64::new(0))));
    let (answered, yields, mut trips) = (Arc::clone(&lines), cores.is_shared(), 0);
    let service = Service::start(cores, move || {
        trips = answer(&answered, trips);
        if yields {
            std::thread::yield_now();
        }
        Turn::Again
    });
    Figure::new("raw", "pingpong", 8, "shm/spin/t1", PingPong { lines, trips: 0, service, yields })
}

/// Answers requests during a bounded number of polls; returns the number of requests so far.
fn answer(lines: &Lines, mut trips: u64) -> u64 {
    for _ in 0..LOOKS_PER_TURN {
        let line = line_of(lines, trips);
        let question = 2 * trips + 1;
        if line.load(Ordering::Acquire) == question {
            line.store(question + 1, Ordering::Release);
            trips += 1;
        }
    }
    trips
}

impl RoundTrip for PingPong {
    fn once(&mut self) {
        let (line, question) = (line_of(&self.lines, self.trips), 2 * self.trips + 1);
        line.store(question, Ordering::Release);
        let mut spinner = Spinner::new(self.yields);
        while line.load(Ordering::Acquire) != question + 1 {
            spinner.again();
        }
        self.trips += 1;
    }

    fn wake(&mut self) {
        self.service.wake();
    }

    fn rest(&mut self) {
        self.service.rest();
    }
}
