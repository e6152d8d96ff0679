//! Waits of threads that are interrupted, forked, or nested in another set: none hangs, and every byte is correct.

use std::process::{Command, Stdio};

use ddss_testkit::{preload_library, skipped};
use tempfile::TempDir;

use super::output_of;

fn run(name: &str, part: &str) {
    run_source(name, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/waits.c"), part);
}

/// Runs one part of a C program without the library and with it.
pub(super) fn run_source(name: &str, source: &str, part: &str) {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("program");
    let compiled = Command::new("cc").args(["-O1", "-w", "-pthread", "-o"]).arg(&program).arg(source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        return skipped(name, "no C compiler is installed");
    }
    for library in [None, Some(preload_library().unwrap())] {
        let mut command = Command::new(&program);
        command.arg(part).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(library) = &library {
            command.env("LD_PRELOAD", library);
        }
        let output = output_of(command.spawn().unwrap());
        assert!(output.status.success(), "{part}, library {library:?}: {output:?}");
    }
}

// If this failed, the child of a program with threads would wait forever for a lock that only its parent can release.
#[test]
fn child_of_a_program_with_threads_connects_and_reads() {
    run("child_of_a_program_with_threads_connects_and_reads", "forks");
}

// If this failed, a handler would wait forever for the code that it interrupts, or would mix its bytes with that
// code's.
#[test]
fn handlers_of_signals_use_the_streams_that_they_interrupt() {
    run("handlers_of_signals_use_the_streams_that_they_interrupt", "handlers");
}

// If this failed, an event loop inside another one, as libmicrohttpd's in systemd's, would never see a request.
#[test]
fn set_of_streams_wakes_those_that_wait_for_the_set() {
    run("set_of_streams_wakes_those_that_wait_for_the_set", "nested");
}

// If this failed, a program that registers a descriptor and its copy would not get the events of one of them.
#[test]
fn every_copy_of_a_descriptor_is_reported() {
    run("every_copy_of_a_descriptor_is_reported", "copies");
}

// If this failed, a program with one handler without `SA_RESTART` would see `EINTR` that no kernel returns.
#[test]
fn read_continues_after_a_handler_that_asks_for_it() {
    run("read_continues_after_a_handler_that_asks_for_it", "restart");
}

// If this failed, a program that cancels a thread would wait for it forever.
#[test]
fn thread_that_is_blocked_on_a_stream_is_cancelled() {
    run("thread_that_is_blocked_on_a_stream_is_cancelled", "cancel");
}

// If this failed, a socket that gets a second connection would use the rings of its first.
#[test]
fn socket_is_connected_again() {
    run("socket_is_connected_again", "again");
}

// If this failed, a program with many descriptors would wait forever in `select`, or would spin beside a pipe that was hung up.
#[test]
fn select_sees_high_descriptors_and_ignores_ends_that_were_not_asked_for() {
    run("select_sees_high_descriptors_and_ignores_ends_that_were_not_asked_for", "select");
}

// If this failed, a program would get half a record, no signal, or the urgent mark at a wrong byte.
#[test]
fn options_of_the_kernels_stream_keep_it_or_are_met() {
    run("options_of_the_kernels_stream_keep_it_or_are_met", "options");
}
