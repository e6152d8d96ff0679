//! Endpoints over iWARP in user space.

use std::net::TcpListener;
use std::time::Duration;

use ddss_verbs::{CloseReason, Endpoint, EndpointError, Fabric, Iwarp, IwarpConfig};

use crate::common::WAIT_MAX;
use crate::suite::endpoint::endpoint_carries_messages_and_borrowed_memory;

fn fabric() -> Iwarp {
    Iwarp::new(IwarpConfig::default()).unwrap()
}

#[test]
fn endpoint_carries_messages_and_borrowed_memory_over_iwarp() {
    endpoint_carries_messages_and_borrowed_memory(fabric(), fabric(), "127.0.0.1:0".parse().unwrap());
}

// If this failed, a call to a silent peer would never return.
#[test]
fn silent_peer_ends_the_call_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let ended = Endpoint::connect(fabric(), address, b"", Duration::from_millis(50)).err().unwrap();
    assert!(matches!(ended, EndpointError::TimedOut), "{ended}");
    let mut listening = fabric();
    listening.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let ended = Endpoint::accept(listening, Duration::from_millis(50), |_| Ok(Vec::new())).err().unwrap();
    assert!(matches!(ended, EndpointError::TimedOut), "{ended}");
}

// If this failed, a rejected peer would not learn of the rejection.
#[test]
fn rejected_peer_ends_with_a_reason() {
    let mut listening = fabric();
    let address = listening.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = std::thread::spawn(move || Endpoint::accept(listening, WAIT_MAX, |_| Err(b"no".to_vec())).err());
    let ended = Endpoint::connect(fabric(), address, b"", WAIT_MAX).err().unwrap();
    assert!(matches!(ended, EndpointError::Closed(CloseReason::Rejected)), "{ended}");
    assert!(matches!(server.join().unwrap(), Some(EndpointError::Closed(_))));
}
