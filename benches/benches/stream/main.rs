//! Streams between two processes of one node: shared memory beside Unix sockets and loopback TCP, alone and under unmodified programs.
//!
//! ```sh
//! cargo bench -p ddss-benches --bench stream -- [--rounds N] [--only TEXT]
//! ```
//!
//! In each round every transport takes its turn, in an order that rotates; a ratio is the median of the rounds' ratios. Client and server
//! have a core each. Redis and nginx are the programs of the distribution; a row whose program is not installed is left out. The preload
//! library is built where it is missing.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the rows are its result")]

mod compare;
mod measured_process;
mod nginx;
mod raw;
mod redis;

use std::io;

use compare::Options;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("peer") => return raw::run_peer(&arguments[1..]),
        Some("busy") => loop {
            std::hint::spin_loop();
        },
        _ => (),
    }
    let options = Options::parse(&arguments);
    compare::print_head();
    raw::ping_pong(&options)?;
    raw::stream(&options)?;
    redis::run(&options)?;
    nginx::run(&options)
}
