//! Limits of messages: which side checks them, and how many long messages may queue.

use ddss_verbs::limits::{BACKLOG_MESSAGE_BYTES_MAX, MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX, SEND_QUEUE_BYTES};
use ddss_verbs::{CloseReason, Fabric, Iwarp, IwarpConfig, PeerId, PostErrorKind, SendMode, TerminateCode, Work};

use crate::common::{FabricFactory, Loopback, Pair, pattern};

fn limit(bytes: usize) -> IwarpConfig {
    let mut config = IwarpConfig::default();
    config.message_bytes_max = bytes;
    config
}

/// A fabric with long messages, then one with the usual ones.
struct DifferentLimits {
    made: usize,
}

impl FabricFactory for DifferentLimits {
    type Fabric = Iwarp;

    fn fabric(&mut self) -> Iwarp {
        self.made += 1;
        Iwarp::new(if self.made == 1 { limit(MESSAGE_BYTES_MAX) } else { IwarpConfig::default() }).unwrap()
    }

    fn address(&mut self) -> std::net::SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }
}

fn send(peer: PeerId, tag: u64, message: &[u8]) -> Work<'_> {
    Work::Send { peer, tag, message, mode: SendMode::default() }
}

// If this failed, a peer could make a node keep messages that it never agreed to.
#[test]
fn message_beyond_the_receivers_limit_ends_the_connection_at_both_ends() {
    // In one segment, and in several.
    for bytes in [MESSAGE_BYTES_DEFAULT + 1, MESSAGE_BYTES_MAX] {
        let mut pair = Pair::new(DifferentLimits { made: 0 });
        let (there, here) = pair.connect();
        let message = pattern(1, bytes);
        pair.a.fabric.post(&[send(there, 1, &message[..MESSAGE_BYTES_DEFAULT])]).unwrap();
        assert_eq!(pair.wait("the longest one", |pair| pair.b.message()), message[..MESSAGE_BYTES_DEFAULT]);
        pair.a.fabric.post(&[send(there, 2, &message)]).unwrap();
        let reason = pair.wait("b to be closed", |pair| pair.b.closed(here));
        assert_eq!(reason, CloseReason::ProtocolViolation(TerminateCode::DDP_TOO_LONG));
        let reason = pair.wait("a to be closed", |pair| pair.a.closed(there));
        assert_eq!(reason, CloseReason::Terminated(TerminateCode::DDP_TOO_LONG));
        assert_eq!(pair.b.message(), None, "a part of it was delivered");
    }
}

// If this failed, a limit that cannot be sent to a peer would be accepted, and buffers would have another length than
// messages.
#[test]
fn limits_that_no_fabric_has_are_refused() {
    for bytes in [0, 1, MESSAGE_BYTES_DEFAULT / 2, MESSAGE_BYTES_DEFAULT + 1, 2 * MESSAGE_BYTES_MAX, usize::MAX] {
        let refused = Iwarp::new(limit(bytes)).err().unwrap();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{bytes}");
        assert!(refused.to_string().contains(&bytes.to_string()), "{refused}");
    }
    for bytes in [MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX] {
        assert_eq!(Iwarp::new(limit(bytes)).unwrap().capabilities().message_bytes_max, bytes);
    }
}

// If this failed, a slow peer would make the memory of a node grow with the length of its messages.
#[test]
fn long_messages_queue_up_to_a_number_of_bytes() {
    let mut pair = Pair::new(Loopback::of(limit(MESSAGE_BYTES_MAX)));
    let (there, _here) = pair.connect();
    // The peer is not polled, so that its socket fills, then the queue.
    let (mut posted, mut since_progress) = (0_u64, 0);
    let number = |number: u64| pattern(number, MESSAGE_BYTES_MAX);
    while since_progress < 1000 {
        match pair.a.fabric.post(&[send(there, posted, &number(posted))]) {
            Ok(()) => (posted, since_progress) = (posted + 1, 0),
            Err(error) => {
                assert_eq!(error.kind, PostErrorKind::Busy);
                since_progress += 1;
            }
        }
        pair.a.poll();
    }
    let mut done = 0;
    while pair.a.done(done).is_some() {
        done += 1;
    }
    let waiting = (posted - done) as usize * MESSAGE_BYTES_MAX;
    let most = BACKLOG_MESSAGE_BYTES_MAX + SEND_QUEUE_BYTES + 2 * MESSAGE_BYTES_MAX;
    assert!((MESSAGE_BYTES_MAX..=most).contains(&waiting), "{waiting} bytes of {posted} messages wait");
    for message in 0..posted {
        assert!(pair.wait("a message", |pair| pair.b.message()) == number(message), "message {message}");
    }
    for message in done..posted {
        assert_eq!(pair.a_done(message), Ok(0));
    }
}
