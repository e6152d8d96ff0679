//! One cache line between two cores: the least that a question and its answer can cost inside a node.
//!
//! Client and service are two threads here and not two processes. A line that moves between two cores does not
//! know whose page it is on, and so nobody has to map memory for this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::harness::{Cores, Figure, RoundTrip, Service, Spinner, Turn};

/// Looks of the service within one turn.
const LOOKS_PER_TURN: u32 = 1024;

/// A number on a cache line of its own. Odd is a question, even an answer.
#[repr(align(64))]
struct Line(AtomicU64);

struct PingPong {
    line: Arc<Line>,
    answer: u64,
    service: Service,
    yields: bool,
}

/// 8 bytes there and back through one cache line.
pub fn line_ping_pong(cores: Cores) -> Figure {
    let line = Arc::new(Line(AtomicU64::new(0)));
    let (answered, yields) = (Arc::clone(&line), cores.is_shared());
    let service = Service::start(cores, move || {
        answer(&answered.0);
        if yields {
            std::thread::yield_now();
        }
        Turn::Again
    });
    Figure::new("raw", "pingpong", 8, "shm/spin/t1", PingPong { line, answer: 0, service, yields })
}

/// Answers the questions that come while it looks a bounded number of times.
fn answer(line: &AtomicU64) {
    for _ in 0..LOOKS_PER_TURN {
        let seen = line.load(Ordering::Acquire);
        if seen % 2 == 1 {
            line.store(seen + 1, Ordering::Release);
        }
    }
}

impl RoundTrip for PingPong {
    fn once(&mut self) {
        self.line.0.store(self.answer + 1, Ordering::Release);
        self.answer += 2;
        let mut spinner = Spinner::new(self.yields);
        while self.line.0.load(Ordering::Acquire) != self.answer {
            spinner.again();
        }
    }

    fn wake(&mut self) {
        self.service.wake();
    }

    fn rest(&mut self) {
        self.service.rest();
    }
}
