//! Streams on the wire, and streams on tokio over every transport.

mod asynchronous;
mod kills;
mod plans;
