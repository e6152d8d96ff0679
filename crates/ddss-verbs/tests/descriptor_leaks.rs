//! Leaks of connections that come and go. Alone in its binary, because descriptors are counted in the whole process.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod wire;

use common::{Node, pattern};
use ddss_verbs::{Fabric, IwarpConfig};
use wire::accepting::{Home, tagged, untagged};
use wire::{CRC, frame};

const ROUNDS: usize = 1000;

#[test]
fn descriptors_and_memory_are_released() {
    // If this failed, a flapping node would use up the daemon's descriptors within a day.
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut home = Home::new(IwarpConfig::default());
    let mut rounds = |count: usize| {
        for round in 0..count {
            let (mut wire, peer, window) = home.meet(CRC);
            match round % 3 {
                0 => {
                    assert!(wire.segment(&untagged(3, 0, 1, &pattern(1, 100))));
                    home.wait("the message", Node::message);
                    home.node.fabric.close(peer);
                }
                1 => assert!(wire.segment(&untagged(13, 0, 1, b""))),
                // The end comes in the middle of a frame.
                _ => {
                    let write = tagged(0, window.key, window.base, &pattern(2, 2000));
                    assert!(wire.send(&frame(&write.bytes(), true)[..1500]));
                    wire.stream.shutdown(std::net::Shutdown::Write).unwrap();
                }
            }
            home.closed(peer);
            home.assert_clean(Some(&mut wire));
        }
    };
    rounds(3);
    let before = open();
    rounds(ROUNDS);
    let after = open();
    assert!(after <= before, "{before} descriptors before, {after} after");
}
