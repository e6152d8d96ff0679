//! What a fabric has to do, whatever it is made of.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test binary uses its own part of this")]

/// Tests of one fabric, by name.
macro_rules! conformance {
    ($fabric:ident, $lab:expr, [$($test:ident),* $(,)?]) => {
        mod $fabric {
            use super::*;
            $(
                #[test]
                fn $test() {
                    suite::$test($lab);
                }
            )*
        }
    };
}

/// All of them.
macro_rules! every {
    ($fabric:ident, $lab:expr) => {
        conformance!(
            $fabric,
            $lab,
            [
                bytes_arrive_at_every_size_and_offset,
                messages_come_in_order_and_after_the_writes,
                messages_say_how_they_were_sent,
                atomics_are_exact,
                many_reads_are_under_way,
                a_bad_key_ends_the_connection_and_names_the_read,
                bounds_and_rights_hold,
                a_key_is_its_peers_and_dies_with_it,
                local_mistakes_are_refused_before_anything_goes_out,
                what_is_promised_is_carried_and_no_more,
                closing_ends_every_operation_once,
                a_rejected_peer_reads_why,
                messages_pass_between_large_answers,
                both_sides_talk_at_once,
                an_abandoned_read_leaves_memory_alone,
                memory_outlives_its_deregistration_while_it_is_used,
                too_much_is_busy_and_nothing_is_lost,
                stopped_clients_do_not_matter,
            ]
        );
    };
}

mod endings;
mod keys;
mod limits;
mod messages;
mod stopped;
mod transfers;

pub(crate) use endings::*;
pub(crate) use keys::*;
pub(crate) use limits::*;
pub(crate) use messages::*;
pub(crate) use stopped::*;
pub(crate) use transfers::*;

use ddss_verbs::{Fabric, LocalRange, PeerId, RegionId, RemoteRange, SendMode, Window, Work};

use crate::common::{Lab, Pair};

fn local(region: RegionId, offset: u64, bytes: u64) -> LocalRange {
    LocalRange { region, offset, bytes }
}

fn remote(window: &Window, offset: u64) -> RemoteRange {
    RemoteRange { key: window.key, address: window.base + offset }
}

fn send(peer: PeerId, tag: u64, message: &[u8]) -> Work<'_> {
    Work::Send { peer, tag, message, mode: SendMode::default() }
}

/// In revision 1 the connecting side has to speak first; so it always does.
fn greet<L: Lab>(pair: &mut Pair<L>, there: PeerId) {
    pair.a.fabric.post(&[send(there, 1 << 60, b"first")]).unwrap();
    assert_eq!(pair.a_done(1 << 60), Ok(0));
    assert_eq!(pair.wait("the greeting", |pair| pair.b.message()), b"first");
}
