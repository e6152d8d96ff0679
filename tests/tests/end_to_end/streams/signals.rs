//! Handlers of signals that arrive while the library holds a lock: each runs, and the thread gets its mask back.

use super::waits::run_source;

fn run(name: &str, part: &str) {
    run_source(name, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/signals.c"), part);
}

// If this failed, a program at its limit of queued signals would get no signal any more.
#[test]
fn signal_that_cannot_be_queued_again_leaves_no_signal_blocked() {
    run("signal_that_cannot_be_queued_again_leaves_no_signal_blocked", "limit");
}

// If this failed, a handler that is set by an old function would wait forever for the code that it interrupts.
#[test]
fn handlers_that_are_set_by_old_names_wait_for_the_locks() {
    run("handlers_that_are_set_by_old_names_wait_for_the_locks", "names");
}

// If this failed, the child of a handler that interrupts a `fork` would lose what it writes, without an error.
#[test]
fn handler_that_interrupts_a_fork_forks() {
    run("handler_that_interrupts_a_fork_forks", "forks");
}
