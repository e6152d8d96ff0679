//! Directions that go by TCP, by the ring, and by TCP again: where the ring would hold a program up, and where only TCP can serve it.

use super::waits::run_source;

const LARGE_WRITES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/large_writes.c");
const LATE_REQUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/late_requests.c");

// If this failed, two programs that both write a message before they read would wait for each other for ever.
#[test]
fn both_ends_write_a_large_message_before_they_read() {
    run_source("both_ends_write_a_large_message_before_they_read", LARGE_WRITES, "exchange");
}

// If this failed, a client would wait for ever for a server that reads only after another event.
#[test]
fn large_writes_end_while_the_peer_does_not_read() {
    run_source("large_writes_end_while_the_peer_does_not_read", LARGE_WRITES, "idle");
}

// If this failed, bytes would change their order where a direction goes over to TCP and back.
#[test]
fn slow_reader_gets_every_byte_in_order() {
    run_source("slow_reader_gets_every_byte_in_order", LARGE_WRITES, "slow");
}

// If this failed, a program that asks for SIGIO would be refused what the kernel grants, or would wait for ever for a signal.
#[test]
fn late_request_for_signals_is_met_for_every_byte() {
    run_source("late_request_for_signals_is_met_for_every_byte", LATE_REQUESTS, "signals");
}

// If this failed, urgent data would come before the bytes that were written before it, or its mark would lie at another byte.
#[test]
fn late_urgent_data_keeps_its_place() {
    run_source("late_urgent_data_keeps_its_place", LATE_REQUESTS, "urgent");
}
