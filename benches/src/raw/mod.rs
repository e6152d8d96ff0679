//! The limits: what the machine does when nothing of DDSS is in between.

mod copy;
mod hop;
mod line;
mod ring;
mod seqlock;
mod tcp;
mod turns;
mod wake;
mod window;

pub use copy::memory_copy;
pub use hop::{HandOver, hop};
pub use line::line_ping_pong;
pub use ring::ring_stream;
pub use seqlock::seqlock_copy;
pub use tcp::{Over, Wait, tcp_ping_pong, tcp_ping_pong_over, tcp_stream};
pub use turns::line_turns;
pub(crate) use wake::IDLE;
pub use wake::futex_wake;
pub use window::tcp_window;
