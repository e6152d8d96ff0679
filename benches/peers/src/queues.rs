//! Queues of other crates between two threads of one process: `crossbeam`'s `ArrayQueue`, which any number of threads
//! may use, and `rtrb`, which has one producer and one consumer like our rings. Neither works between two processes.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use ddss_benches::harness::{Cores, Figure, RoundTrip, Service, Spinner, Turn};

use crate::LOOKS_PER_TURN;

/// Entries of a queue, as many as a ring of a client has.
const SLOTS: usize = 64;

/// A round trip through two queues: `send` puts into one, `receive` takes from the other.
struct Trip<S, R> {
    send: S,
    receive: R,
    count: u64,
    service: Service,
    yields: bool,
}

/// Round trips through two queues, of which `take` and `answer` are the other ends.
fn trips(
    cores: Cores,
    op: &'static str,
    (send, receive): (impl FnMut(u64) + 'static, impl FnMut() -> Option<u64> + 'static),
    (mut take, mut answer): (impl FnMut() -> Option<u64> + Send + 'static, impl FnMut(u64) + Send + 'static),
) -> Figure {
    let service = Service::start(cores, move || {
        for _ in 0..LOOKS_PER_TURN {
            if let Some(question) = take() {
                answer(question);
            }
        }
        Turn::Again
    });
    let trip = Trip { send, receive, count: 0, service, yields: cores.is_shared() };
    Figure::new("raw", op, 8, "shm/spin/t1", trip)
}

/// Round trips through two of crossbeam's queues.
pub(crate) fn crossbeam(cores: Cores) -> Figure {
    let there = Arc::new(ArrayQueue::new(SLOTS));
    let back = Arc::new(ArrayQueue::new(SLOTS));
    let (questions, answers) = (Arc::clone(&there), Arc::clone(&back));
    let ours = (move |count| there.push(count).expect("one entry fits"), move || back.pop());
    let theirs = (move || questions.pop(), move |count| answers.push(count).expect("one entry fits"));
    trips(cores, "crossbeam", ours, theirs)
}

/// Round trips through two of rtrb's ring buffers.
pub(crate) fn rtrb(cores: Cores) -> Figure {
    let (mut there, mut questions) = rtrb::RingBuffer::new(SLOTS);
    let (mut answers, mut back) = rtrb::RingBuffer::new(SLOTS);
    let ours = (move |count| there.push(count).expect("one entry fits"), move || back.pop().ok());
    let theirs = (move || questions.pop().ok(), move |count| answers.push(count).expect("one entry fits"));
    trips(cores, "rtrb", ours, theirs)
}

impl<S: FnMut(u64), R: FnMut() -> Option<u64>> RoundTrip for Trip<S, R> {
    fn once(&mut self) {
        self.count += 1;
        (self.send)(self.count);
        let mut spinner = Spinner::new(self.yields);
        loop {
            if let Some(answer) = (self.receive)() {
                assert_eq!(answer, self.count);
                return;
            }
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
