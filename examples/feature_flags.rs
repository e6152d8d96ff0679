//! **Feature flags.** Services on two nodes read flags in place, and threads wait for the next change.
//!
//! ```sh
//! cargo run --example feature_flags
//! ```
//!
//! One typed value holds all flags, so a service never sees half of a change. A reader gets the flags whenever it needs
//! one; a thread that has to act on a change waits for a newer version, for a bounded time. Two operators may change
//! flags at the same time: `update` repeats the change of the slower one on the newer value.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Cell, ErrorKind, Spec};
use ddss_examples::{Failed, Nodes, PATIENCE, check, open_soon};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const NAME: &str = "examples/flags";
const SERVICES: usize = 6;
const CHANGES: u64 = 40;

/// The flags. Each change sets both fields, so a reader can detect a torn value.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug)]
#[repr(C)]
struct Flags {
    enabled: u64,
    changes: u64,
}

impl Flags {
    fn is_whole(self) -> bool {
        self.enabled == (1u64 << self.changes) - 1
    }
}

fn main() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let flags = nodes.client(0)?.segment(NAME).allocate(Spec::new(size_of::<Flags>() as u64))?;
    let counts = std::thread::scope(|scope| {
        let mut services = Vec::new();
        for index in 0..SERVICES {
            let nodes = &nodes;
            services.push(scope.spawn(move || serve(nodes, index)));
        }
        let operators = [0, 1].map(|index| {
            let nodes = &nodes;
            scope.spawn(move || operate(nodes, index))
        });
        operators.into_iter().try_for_each(|operator| operator.join().map_err(|_| "an operator panicked")?)?;
        services.into_iter().map(|service| service.join().map_err(|_| "a service panicked")?).collect()
    });
    let counts: Vec<u64> = Result::<_, Failed>::and_then(counts, Ok)?;
    // With no further change a bounded wait ends, and did nothing.
    let quiet = flags.with_timeout(Duration::from_millis(20));
    let last = quiet.stat()?.stamp.version;
    let ended = quiet.wait_newer_than(last).err().map(|error| error.kind());
    flags.release()?;
    check(ended == Some(ErrorKind::TimedOut), || format!("a wait for nothing ended with {ended:?}"))?;
    check(counts.iter().all(|&count| (1..=CHANGES).contains(&count)), || format!("changes seen: {counts:?}"))?;
    println!("{SERVICES} services on two nodes saw all {CHANGES} flags on, each change whole");
    Ok(())
}

/// An operator sets half of the flags, one after the other.
fn operate(nodes: &Nodes, index: usize) -> Result<(), Failed> {
    let flags: Cell<Flags> = open_soon(&nodes.client(index)?, NAME)?.cell(0)?;
    for _ in 0..CHANGES / 2 {
        flags.update(|flags| *flags = Flags { enabled: flags.enabled << 1 | 1, changes: flags.changes + 1 })?;
    }
    Ok(())
}

/// A service acts on each change that it sees, until all flags are on. Returns the number of changes that it saw.
fn serve(nodes: &Nodes, index: usize) -> Result<u64, Failed> {
    let segment = open_soon(&nodes.client(index)?, NAME)?.with_timeout(PATIENCE);
    let flags: Cell<Flags> = segment.cell(0)?;
    let mut seen = 0;
    loop {
        let now = flags.get()?;
        check(now.value.is_whole(), || format!("half of a change: {:?}", now.value))?;
        if now.value.changes == CHANGES {
            return Ok(seen.max(1));
        }
        segment.wait_newer_than(now.stamp.version)?;
        seen += 1;
    }
}
