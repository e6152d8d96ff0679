//! Limits: the same operations on this machine without DDSS.
//!
//! Each file measures one limit, inside a node (cache line, ring, wake-up, copy) or between nodes (sockets).

mod copy;
mod hop;
mod ring;
mod seqlock;
mod tcp;
mod wake;
mod window;

pub use crate::harness::line_ping_pong;
pub use copy::memory_copy;
pub use hop::{HandOver, hop};
pub use ring::ring_stream;
pub use seqlock::seqlock_copy;
pub use tcp::{Over, Wait, tcp_ping_pong, tcp_ping_pong_over, tcp_stream};
pub(crate) use wake::IDLE;
pub use wake::futex_wake;
pub use window::tcp_window;
