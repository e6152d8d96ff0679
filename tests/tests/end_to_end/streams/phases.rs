//! Directions that go by TCP, by the ring, and by TCP again: where the ring would hold a program up, and where only TCP can serve it.

use super::waits::run_source;

const LARGE_WRITES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/large_writes.c");
const ATTACKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/phase_attacks.c");
const PEEKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/peeks.c");
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

// If this failed, a program that peeks until a whole header is there would never see it where the ring ends within the header.
#[test]
fn peek_sees_the_bytes_of_two_phases() {
    run_source("peek_sees_the_bytes_of_two_phases", ATTACKS, "peek");
}

// If this failed, a program would wait for ever for bytes that have come, a part by TCP and the rest by the ring.
#[test]
fn low_water_mark_counts_the_bytes_of_two_phases() {
    run_source("low_water_mark_counts_the_bytes_of_two_phases", ATTACKS, "low");
}

// If this failed, an event loop inside another one would wait for ever for a peer that does not read yet.
#[test]
fn writer_in_a_nested_set_goes_on_by_tcp() {
    run_source("writer_in_a_nested_set_goes_on_by_tcp", ATTACKS, "nested");
}

// If this failed, a program would never hear of space in TCP once its peer has asked for signals.
#[test]
fn idle_registration_hears_of_space_in_tcp() {
    run_source("idle_registration_hears_of_space_in_tcp", ATTACKS, "space");
}

// If this failed, a program that stops reading would spin until its peer has nothing more to send.
#[test]
fn removed_registration_does_not_spin() {
    run_source("removed_registration_does_not_spin", ATTACKS, "sleep");
}

// If this failed, a short read would tell a program that nothing is left.
#[test]
fn read_fills_every_part_of_a_long_list() {
    run_source("read_fills_every_part_of_a_long_list", ATTACKS, "parts");
}

// If this failed, a program that waits for a header without taking it would get a part, or would never see the rest.
#[test]
fn reads_that_wait_for_more_than_a_byte_get_it() {
    run_source("reads_that_wait_for_more_than_a_byte_get_it", PEEKS, "more");
}

// If this failed, the same would hold for a header whose bytes took different ways.
#[test]
fn peek_waits_for_the_bytes_of_three_phases() {
    run_source("peek_waits_for_the_bytes_of_three_phases", PEEKS, "borders");
}
