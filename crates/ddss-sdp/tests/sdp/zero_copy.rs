//! Reads from advertised memory.

use ddss_sdp::codec::Advertisement;
use ddss_sdp::{Plan, SdpError};

use crate::basic_simulation::Network;
use crate::common::{SMALL, zero_copy_plan};
use crate::reading::mid;

fn network() -> Network {
    Network::new(&SMALL, zero_copy_plan())
}

fn deliver_all(network: &mut Network) {
    for side in [0, 1] {
        network.pump(side);
        while network.deliver(side) {}
    }
}

#[test]
fn advertised_bytes_are_read_without_a_copy() {
    // If this failed, zero copy would copy.
    let mut network = network();
    network.write(0, 40);
    network.advertise(0, 100_000, 16);
    deliver_all(&mut network);
    assert_eq!(network.streams[1].source(), None, "bytes before it were not read");
    assert_eq!(network.read(1, 1000), 56);
    assert_eq!(network.streams[1].source().map(|source| source.len), Some(100_000 - 16));
    assert!(network.read_source(1, 60_000, false) && network.read_source(1, 60_000, false));
    assert_eq!(network.streams[1].source(), None);
    network.pump(1);
    while network.deliver(1) {}
    assert!(network.take_outcome(0));
    network.write(0, 10);
    network.settle();
    assert_eq!(network.read[1], 100_050);
    let (sender, receiver) = (network.streams[0].ledger(), network.streams[1].ledger());
    assert_eq!((sender.written, sender.send_copied), (100_050, 66));
    assert_eq!((receiver.read, receiver.receive_copied), (100_050, 66));
    assert_eq!(network.reading.count(1, mid::SEND_SM), 0);
}

#[test]
fn plain_read_requests_the_bytes_through_the_buffers() {
    // If this failed, a reader that knows nothing of zero copy would wait forever.
    let mut network = network();
    network.advertise(0, 5000, 10);
    network.settle();
    network.write(0, 4990);
    network.settle();
    network.write(0, 4000);
    network.settle();
    assert_eq!(network.reading.count(1, mid::SEND_SM), 1);
    assert_eq!(network.read[1], network.written[0]);
}

#[test]
fn crossing_advertisements_are_withdrawn() {
    // If this failed, two sides that advertise at once would wait for each other.
    let mut network = network();
    for side in 0..2 {
        network.advertise(side, 4000, 1);
        network.pump(side);
    }
    for side in 0..2 {
        while network.deliver(side) {}
    }
    for side in 0..2 {
        assert_eq!(network.pump(side), 1);
        assert_eq!(network.queues[side][0][0], mid::SRC_AVAIL_CANCEL);
    }
    network.settle();
    for side in 0..2 {
        assert_eq!(network.reading.count(side, mid::SEND_SM), 1);
        network.write(side, 1000);
    }
    network.settle();
    assert_eq!(network.read, [1001, 1001]);
}

#[test]
fn withdrawal_during_a_read_lets_the_read_finish() {
    // If this failed, bytes that were already read in place would be sent again.
    let mut network = network();
    network.advertise(0, 3000, 0);
    deliver_all(&mut network);
    network.streams[1].begin_source_read(1000).unwrap();
    assert_eq!(network.streams[1].begin_source_read(1), Err(SdpError::NoSource(1)));
    network.streams[0].withdraw();
    deliver_all(&mut network);
    assert_eq!(network.reading.count(1, mid::SEND_SM), 0);
    network.streams[1].end_source_read(1000).unwrap();
    network.read[1] += 1000;
    network.pump(1);
    while network.deliver(1) {}
    assert!(network.take_outcome(0));
    assert_eq!(network.written[0], 1000, "the rest was not sent");
    network.write(0, 500);
    network.settle();
    assert_eq!(network.read[1], 1500);
}

#[test]
fn only_one_advertisement_is_outstanding() {
    // If this failed, this side would use the pipelined mode, which it never offers.
    let mut network = network();
    network.advertise(0, 3000, 0);
    let memory = Advertisement { len: 1, rkey: 0, vaddr: 0 };
    assert_eq!(network.streams[0].advertise(memory, &[]), Err(SdpError::CannotAdvertise));
    assert_eq!(network.streams[0].write(b"behind it"), Ok(0));
    let mut basic = Network::new(&SMALL, Plan::basic());
    assert_eq!(basic.streams[0].advertise(memory, &[]), Err(SdpError::CannotAdvertise));
}

#[test]
fn half_close_waits_for_the_advertisement() {
    // If this failed, the peer would see the end of the stream before its last bytes.
    let mut network = network();
    network.advertise(0, 3000, 0);
    network.shutdown(0);
    deliver_all(&mut network);
    assert_eq!(network.reading.count(0, mid::DIS_CONN), 0);
    assert!(network.read_source(1, 3000, false));
    network.settle();
    assert_eq!(network.reading.count(0, mid::DIS_CONN), 1);
    assert!(network.has_end[1]);
}
