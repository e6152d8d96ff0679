//! Conformance suite: the behaviour that every fabric has to have.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test binary uses its own part of this")]

/// Declares tests of one fabric, by name.
macro_rules! conformance {
    ($fabric:ident, $factory:expr, [$($test:ident),* $(,)?]) => {
        mod $fabric {
            use super::*;
            $(
                #[test]
                fn $test() {
                    suite::$test($factory);
                }
            )*
        }
    };
}

/// Declares all tests of the suite.
macro_rules! all_tests {
    ($fabric:ident, $factory:expr) => {
        conformance!(
            $fabric,
            $factory,
            [
                bytes_arrive_at_every_size_and_offset,
                messages_arrive_in_order_after_writes,
                messages_carry_their_mode,
                atomics_are_exact,
                many_reads_complete_correctly,
                bad_key_ends_the_connection_and_names_the_read,
                bounds_and_rights_are_enforced,
                key_is_valid_for_one_connection,
                invalid_work_is_refused_locally,
                capability_limits_are_exact,
                close_completes_every_operation_once,
                rejected_peer_receives_the_reason,
                messages_pass_between_large_answers,
                both_sides_transfer_concurrently,
                abandoned_read_leaves_memory_alone,
                deregistered_memory_stays_mapped_while_in_use,
                full_queue_is_busy_and_loses_nothing,
                stopped_client_does_not_delay_transfers,
                stream_moves_bytes_through_buffers_and_in_place,
            ]
        );
    };
}

mod access_rights;
mod limits;
mod messages;
pub(crate) mod process_streams;
mod stopped_client;
mod streams;
mod termination;
mod transfers;

pub(crate) use access_rights::*;
pub(crate) use limits::*;
pub(crate) use messages::*;
pub(crate) use stopped_client::*;
pub(crate) use streams::*;
pub(crate) use termination::*;
pub(crate) use transfers::*;

use ddss_verbs::{Fabric, LocalRange, PeerId, RegionId, RemoteRange, SendMode, Window, Work};

use crate::common::{FabricFactory, Pair};

fn local(region: RegionId, offset: u64, bytes: u64) -> LocalRange {
    LocalRange { region, offset, bytes }
}

fn remote(window: &Window, offset: u64) -> RemoteRange {
    RemoteRange { key: window.key, address: window.base + offset }
}

fn send(peer: PeerId, tag: u64, message: &[u8]) -> Work<'_> {
    Work::Send { peer, tag, message, mode: SendMode::default() }
}

/// Sends the first message: in revision 1 the connecting side has to send first, so it always does.
fn greet<L: FabricFactory>(pair: &mut Pair<L>, there: PeerId) {
    pair.a.fabric.post(&[send(there, 1 << 60, b"first")]).unwrap();
    assert_eq!(pair.a_done(1 << 60), Ok(0));
    assert_eq!(pair.wait("the greeting", |pair| pair.b.message()), b"first");
}
