//! One connection driven by the calls of two threads, over any fabric with a descriptor.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread;

use ddss_verbs::{CloseReason, Endpoint, EndpointError, Fabric, RemoteRange, Rights, Trust, Work};

use super::local;
use crate::common::{Memory, WAIT_MAX, pattern};

const BYTES: u64 = 256 << 10;
const MESSAGES: u32 = 300;

/// Sends messages both ways, reads and writes memory that is registered for one call, and ends.
pub(crate) fn endpoint_carries_messages_and_borrowed_memory<F: Fabric + 'static>(
    here: F,
    mut there: F,
    address: SocketAddr,
) {
    // If this failed, a program without an event loop could not use the fabric, or would wait in it forever.
    let address = there.listen(address).unwrap();
    let bytes = pattern(3, BYTES as usize);
    let expected = bytes.clone();
    let server = thread::spawn(move || {
        let judge = |hello: &[u8]| if hello == b"hello" { Ok(b"welcome".to_vec()) } else { Err(b"no".to_vec()) };
        let mut endpoint = Endpoint::accept(there, WAIT_MAX, judge).unwrap();
        // In revision 1 the connecting side has to send first.
        assert_eq!(endpoint.receive(WAIT_MAX).unwrap(), b"first");
        let memory = Memory::new(BYTES);
        memory.set(0, &expected);
        let peer = endpoint.peer();
        let region = endpoint.fabric().register(memory.fd.as_fd(), Trust::Sealed, 0, BYTES).unwrap();
        let rights = Rights::READ.union(Rights::WRITE);
        let window = endpoint.fabric().expose(peer, region, 0, BYTES, rights).unwrap();
        let place = [&window.key.to_be_bytes()[..], &window.base.to_be_bytes()].concat();
        endpoint.send(&place, WAIT_MAX).unwrap();
        for number in 0..MESSAGES {
            let message = endpoint.receive(WAIT_MAX).unwrap();
            assert_eq!(message, number.to_be_bytes());
            endpoint.send(&message, WAIT_MAX).unwrap();
        }
        assert_eq!(endpoint.receive(WAIT_MAX).unwrap(), b"written");
        let reversed: Vec<u8> = expected.iter().rev().copied().collect();
        assert!(memory.get(0, BYTES as usize) == reversed);
        let ended = endpoint.receive(WAIT_MAX).unwrap_err();
        assert!(matches!(ended, EndpointError::Closed(CloseReason::ClosedByPeer | CloseReason::Lost(_))), "{ended}");
    });
    let (mut endpoint, answer) = Endpoint::connect(here, address, b"hello", WAIT_MAX).unwrap();
    assert_eq!(answer, b"welcome");
    endpoint.send(b"first", WAIT_MAX).unwrap();
    let place = endpoint.receive(WAIT_MAX).unwrap();
    let (key, base) = place.split_first_chunk::<4>().unwrap();
    let remote = RemoteRange { key: u32::from_be_bytes(*key), address: u64::from_be_bytes(base.try_into().unwrap()) };
    for number in 0..MESSAGES {
        endpoint.send(&number.to_be_bytes(), WAIT_MAX).unwrap();
    }
    for number in 0..MESSAGES {
        assert_eq!(endpoint.receive(WAIT_MAX).unwrap(), number.to_be_bytes());
    }
    let memory = Memory::new(BYTES);
    let read = endpoint.with_memory(memory.fd.as_fd(), Trust::Sealed, (0, BYTES), |endpoint, region| {
        endpoint.call(WAIT_MAX, |peer, tag| Work::Read { peer, tag, local: local(region, 0, BYTES), remote })
    });
    assert_eq!(read.unwrap().unwrap(), 0);
    assert!(memory.get(0, BYTES as usize) == bytes);
    memory.set(0, &bytes.iter().rev().copied().collect::<Vec<u8>>());
    let written = endpoint.with_memory(memory.fd.as_fd(), Trust::Sealed, (0, BYTES), |endpoint, region| {
        endpoint.call(WAIT_MAX, |peer, tag| Work::Write { peer, tag, local: local(region, 0, BYTES), remote })
    });
    assert_eq!(written.unwrap().unwrap(), 0);
    endpoint.send(b"written", WAIT_MAX).unwrap();
    let peer = endpoint.peer();
    endpoint.fabric().close(peer);
    let ended = endpoint.receive(WAIT_MAX).unwrap_err();
    assert!(matches!(ended, EndpointError::Closed(CloseReason::Local)), "{ended}");
    server.join().unwrap();
}
