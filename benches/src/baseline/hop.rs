//! A bare hop: a client that reaches another core's socket through a thread on its own core, as a remote get goes
//! through its daemon. The threads only forward; the cost of two runs on one core remains.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use super::tcp::{Answerer, Over, QUESTION_BYTES, Wait, connected, write_all};
use crate::harness::{Cores, Figure, RoundTrip, Service, Turn};

/// Number of yields of the forwarding thread in one turn.
const OFFERS_PER_TURN: u32 = 64;
/// The longest sleep, in case a wake-up gets lost.
const SLEEP_MAX: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };

/// How the client waits while the thread on its core works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOver {
    /// Both yield to each other.
    Yield,
    /// The client sleeps and is woken.
    Sleep,
}

impl HandOver {
    fn word(self) -> &'static str {
        match self {
            HandOver::Yield => "yield",
            HandOver::Sleep => "sleep",
        }
    }
}

/// Counts of requests and of replies, each on a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Count(AtomicU32);

#[derive(Default)]
struct Counts {
    asked: Count,
    answered: Count,
}

/// The forwarding thread.
struct Relay {
    counts: Arc<Counts>,
    passed_on: u32,
    home: TcpStream,
    answer: Vec<u8>,
    hand_over: HandOver,
}

struct Hop {
    counts: Arc<Counts>,
    asked: u32,
    hand_over: HandOver,
    // The order of fields matters: the forwarding thread must end first, because it may be waiting for the home.
    relay: Service,
    home: Service,
}

/// 8 bytes to another core's socket and `size_bytes` back, by way of a thread on the client's core.
pub fn hop(cores: Cores, hand_over: HandOver, size_bytes: usize) -> Figure {
    let (socket, server) = connected(Over::Loopback, Wait::Spin).expect("both ends are there");
    let mut answerer = Answerer::new(server, size_bytes, 1, cores.is_shared());
    let home = Service::start(cores, move || answerer.turn());
    let counts = Arc::<Counts>::default();
    let mut relay =
        Relay { counts: Arc::clone(&counts), passed_on: 0, home: socket, answer: vec![0; size_bytes], hand_over };
    let beside = Cores { client: cores.client, service: cores.client };
    let relay = Service::start(beside, move || relay.turn());
    let mode = format!("tcp-lo-hop/{}/t1", hand_over.word());
    Figure::new("raw", "hop", size_bytes, mode, Hop { counts, asked: 0, hand_over, relay, home })
}

impl Relay {
    fn turn(&mut self) -> Turn {
        for _ in 0..OFFERS_PER_TURN {
            let asked = self.counts.asked.0.load(Ordering::Acquire);
            if asked != self.passed_on {
                if self.ask_home().is_none() {
                    return Turn::Over;
                }
                self.passed_on = asked;
                self.counts.answered.0.store(asked, Ordering::Release);
                if self.hand_over == HandOver::Sleep {
                    let _ = futex::wake(&self.counts.answered.0, futex::Flags::PRIVATE, 1);
                }
            }
            std::thread::yield_now();
        }
        Turn::Again
    }

    /// Forwards a request to the home and waits for the reply. Returns `None` if the connection has ended.
    fn ask_home(&mut self) -> Option<()> {
        write_all(&self.home, &[1; QUESTION_BYTES], false).ok()?;
        let mut have = 0;
        while have < self.answer.len() {
            match self.home.read(&mut self.answer[have..]) {
                Ok(0) => return None,
                Ok(count) => have += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(_) => return None,
            }
        }
        Some(())
    }
}

impl RoundTrip for Hop {
    fn once(&mut self) {
        let before = self.asked;
        self.asked = before.wrapping_add(1);
        self.counts.asked.0.store(self.asked, Ordering::Release);
        while self.counts.answered.0.load(Ordering::Acquire) != self.asked {
            match self.hand_over {
                HandOver::Yield => std::thread::yield_now(),
                // After any wake-up the counter shows if the answer is there.
                HandOver::Sleep => {
                    _ = futex::wait(&self.counts.answered.0, futex::Flags::PRIVATE, before, Some(&SLEEP_MAX));
                }
            }
        }
    }

    fn wake(&mut self) {
        self.home.wake();
        self.relay.wake();
    }

    fn rest(&mut self) {
        self.relay.rest();
        self.home.rest();
    }
}
