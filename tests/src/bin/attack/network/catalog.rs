//! Every attack from the network, by name.

use super::target::Target;
use super::{
    control_messages, control_port, impersonation, malformed_frames, member_requests, replay, unauthenticated,
};
use crate::byzantine_client::AttackResult;

/// One attack from the network.
pub(crate) struct NetworkAttack {
    /// Module and function.
    pub(crate) name: &'static str,
    /// Effect that the attack tries to have.
    pub(crate) tries: &'static str,
    pub(crate) run: fn(&Target) -> AttackResult,
}

macro_rules! network_attacks {
    ($(#[$doc:meta])* $list:ident: $($module:ident :: $name:ident: $tries:literal;)*) => {
        $(#[$doc])*
        pub(crate) const $list: &[NetworkAttack] = &[$(NetworkAttack {
            name: concat!(stringify!($module), "::", stringify!($name)), tries: $tries, run: $module::$name,
        }),*];
    };
}

network_attacks! {
    /// Without the key.
    UNAUTHENTICATED:
    unauthenticated::opens_silent_connections: "no other peer can connect";
    unauthenticated::holds_every_connection_slot: "the same, for as long as it likes";
    unauthenticated::connects_and_disconnects: "the same, faster";
    unauthenticated::connects_and_resets: "a closed connection keeps its slot";
    unauthenticated::speaks_another_protocol: "a port that answers another protocol";
    unauthenticated::sends_request_byte_by_byte: "a connection slot is held by waiting";
    unauthenticated::sends_half_a_request: "the same";
    unauthenticated::sends_request_and_resets: "an end in the middle of a start frame";
    unauthenticated::sends_oversized_private_data: "a length that is not checked";
    unauthenticated::sends_empty_private_data: "a hello that is not there";
    unauthenticated::sends_unknown_revisions: "an older handshake that checks less";
    unauthenticated::sends_every_flag: "terms under which less is checked";
    unauthenticated::sends_truncated_limits: "a read beyond the private data";
    unauthenticated::sends_reply_as_request: "the other side's part of the handshake";
    unauthenticated::uses_another_key: "a key that is not checked";
    unauthenticated::uses_another_key_without_end: "the progress thread spends its time on cryptography";
    unauthenticated::announces_another_release: "a protocol that is not checked";
    unauthenticated::sends_random_hellos: "lengths and tags";
    unauthenticated::sends_hellos_of_one_repeated_byte: "a key share that gives a known key";
    unauthenticated::sends_frames_before_request: "memory is read before authentication";
    unauthenticated::sends_frames_after_refused_request: "memory is read before the refusal arrives";
    unauthenticated::sends_random_bytes_after_request: "the progress thread throws bytes away without end";
    unauthenticated::sends_control_hello_to_data_port: "the handshake of one port on another";
    unauthenticated::half_closes_and_waits: "a connection that is half gone and stays";
    unauthenticated::never_reads_replies: "the daemon's memory fills with unread replies";
    replay::replays_hello: "an old packet takes a node's place";
    replay::replays_hello_without_end: "the progress thread spends its time on cryptography";
    replay::flips_each_byte: "a byte that nothing proves";
    replay::truncates_or_extends_hello: "a length that nothing proves";
    replay::replays_control_hello: "the handshake of one port on another";
    replay::replays_hello_of_another_shard: "the same";
    replay::replays_with_invalid_limits: "a connection about which the two sides disagree";
    replay::replays_then_reads: "memory is read without authentication";
    replay::replays_then_writes: "memory is written without authentication";
    replay::replays_then_sends_atomics: "atomics run without authentication";
    replay::replays_then_sends_random_bytes: "a message that fails decryption is processed";
    replay::replays_then_sends_endless_message: "a message is reassembled without bound";
    replay::replays_then_sends_wrong_checksum: "a frame that is taken all the same";
    replay::replays_then_uses_wrong_queues: "a queue that is not there";
    replay::replays_then_sends_empty_frames: "work without end for no bytes";
    replay::replays_then_sends_half_a_frame: "a connection slot is held by waiting";
    replay::replays_then_resets: "an end during the handshake";
    impersonation::answers_random_bytes: "an answer without a key is believed";
    impersonation::answers_random_hello: "the same, in shape";
    impersonation::reflects_hello: "a node that connects to itself";
    impersonation::answers_with_another_key: "a key that the initiator does not check";
    impersonation::answers_oversized_hello: "an answer without bound";
    impersonation::answers_half_and_waits: "a node that waits for ever";
    impersonation::refuses_with_control_characters: "control characters reach the log";
    control_port::opens_silent_connections: "the members of the cluster cannot connect";
    control_port::connects_and_disconnects: "the same, faster";
    control_port::connects_and_resets: "a closed stream keeps its slot";
    control_port::speaks_another_protocol: "a port that answers another protocol";
    control_port::sends_half_a_hello: "a connection slot is held by waiting";
    control_port::sends_hello_byte_by_byte: "the same";
    control_port::uses_another_key: "a key that is not checked";
    control_port::sends_data_hello_to_control_port: "the handshake of one port on another";
    control_port::replays_then_sends_random_bytes: "a message that fails decryption is processed";
    control_port::replays_then_sends_empty_frames: "work without end for no bytes";
    control_port::replays_on_silent_connections: "slots are held without authentication";
    control_port::replays_then_sends_half_a_frame: "the same, waiting for more";
    control_port::sends_random_metrics_requests: "a file outside the metrics pages is served";
    control_port::sends_metrics_request_byte_by_byte: "monitors cannot connect";
    control_port::requests_metrics_without_end: "the same, faster";
}

network_attacks! {
    /// With the key.
    MEMBERS:
    member_requests::reads_with_a_guessed_key: "memory that was not opened to it";
    member_requests::reads_beyond_its_window: "memory behind a segment is read";
    member_requests::reads_far_from_its_window: "the same";
    member_requests::reads_at_wrapping_addresses: "an address sum wraps into bounds";
    member_requests::reads_four_gigabytes: "an answer without bound";
    member_requests::reads_what_it_may_only_write: "staged bytes of itself or others are read";
    member_requests::reads_a_segment_that_it_released: "memory of the next owner is read";
    member_requests::writes_what_it_may_only_read: "a put that is not checked";
    member_requests::writes_beyond_its_staging_memory: "the same";
    member_requests::sends_atomics_to_a_window: "the same, by an atomic";
    member_requests::reuses_key_of_earlier_connection: "a key outlives its connection";
    member_requests::puts_from_beyond_its_staging_memory: "memory that is not its own is put";
    member_requests::puts_bytes_never_sent: "the same";
    member_requests::sends_more_bytes_than_a_buffer_holds: "a message ends the daemon";
    member_requests::requests_what_no_client_may: "a request that a node would refuse its own clients";
    member_requests::announces_invalid_staging_window: "the node writes to an invalid window";
    member_requests::sends_invalid_segment_info: "the node believes false segment metadata";
    member_requests::requests_ranges_beyond_a_segment: "an address sum wraps into bounds";
    member_requests::changes_entries_outside_of_buckets: "a map's entry is written over another row";
    member_requests::locks_what_is_no_row: "a lock beyond the rows, or a token for another row";
    member_requests::uses_foreign_lock: "a foreign lock is used or released";
    member_requests::requests_for_unprivileged_user: "permissions hold for clients only";
    member_requests::names_absent_segments: "an id names something else";
    member_requests::sends_unsolicited_answers: "a call of another client ends";
    member_requests::sends_far_future_timestamps: "all clocks run ahead for ever";
    member_requests::floods_lock_queues: "a lock queue without bound";
    member_requests::fills_segment_memory: "memory without bound";
    member_requests::requests_without_end: "no other client is polled any more";
    member_requests::requests_and_never_reads: "the daemon's memory fills with answers";
    member_requests::reads_without_end: "no other client is polled any more";
    member_requests::reconnects_without_end: "the progress thread spends its time on cryptography";
    malformed_frames::sends_unencrypted_messages: "an unencrypted message is accepted";
    malformed_frames::repeats_messages: "a repeated message is accepted";
    malformed_frames::sends_messages_of_another_connection: "the same";
    malformed_frames::reorders_messages: "an order that is not checked";
    malformed_frames::sends_empty_messages: "a kind that is not there";
    malformed_frames::sends_random_messages: "an untested combination";
    malformed_frames::welcomes_twice: "a staging window that moves";
    malformed_frames::sends_before_welcome: "a connection without a handshake";
    malformed_frames::sends_wrong_checksums: "a frame that is taken all the same";
    malformed_frames::sends_wrong_sequence_numbers: "a message out of sequence";
    malformed_frames::uses_wrong_queues: "a queue that is not there";
    malformed_frames::sends_unknown_opcodes: "an operation that is not checked";
    malformed_frames::sends_unsolicited_read_responses: "memory is written by an answer";
    malformed_frames::sends_empty_frames: "work without end for no bytes";
    malformed_frames::sends_oversized_messages: "more is copied than there is room for";
    malformed_frames::exceeds_negotiated_reads: "a queue without bound";
    malformed_frames::sends_half_a_frame_and_closes: "half a frame is taken for a whole one";
    malformed_frames::replays_its_own_hello: "an old packet takes a living node's place";
    control_messages::sends_invalid_messages: "an invalid directory";
    control_messages::sends_random_messages: "the same";
    control_messages::sends_endless_message: "the daemon's memory fills with one message";
    control_messages::sends_empty_parts_without_end: "work without end for no bytes";
    control_messages::sends_undecryptable_messages: "a message that fails decryption is processed";
    control_messages::sends_invalid_names: "unusable names";
    control_messages::sends_invalid_nodes: "invalid nodes";
    control_messages::requests_and_never_reads: "the daemon's memory fills with answers";
}
