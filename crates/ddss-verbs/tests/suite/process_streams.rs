//! Streams of the Sockets Direct Protocol between two processes: every byte comes back, and death is no end.

use std::io::{Read, Write};
use std::net::SocketAddr;

use ddss_verbs::Fabric;

use crate::common::{EndpointError, EndpointStream, HelperProcess, Memory, helper_task, pattern, print_line};

/// Bytes of a stream.
const STREAM_BYTES: usize = 2 << 20;
/// Parts in which a stream is sent until its peer is killed.
const TURNS: usize = 64;
/// Processes that are killed.
const KILLS: u64 = 6;
/// Beginning of the line with the address of the helper process.
const LISTENS: &str = "listens at ";

/// Sends back what arrives, in the helper process.
fn echo<F: Fabric>(mut fabric: F, address: SocketAddr) {
    let address = fabric.listen(address).unwrap();
    print_line(&format!("{LISTENS}{address}"));
    let mut stream = EndpointStream::accept(fabric).unwrap();
    let mut room = vec![0; 10_000];
    loop {
        let read = stream.read(&mut room).unwrap();
        if read == 0 {
            break;
        }
        stream.write_all(&room[..read]).unwrap();
    }
    stream.shutdown().unwrap();
    stream.wait_closed();
}

/// Starts a process with a stream that sends everything back. `None` in that process, when it is done.
fn start<F: Fabric>(
    test: &str,
    open: &impl Fn(bool) -> F,
    address: SocketAddr,
) -> Option<(HelperProcess, EndpointStream<F>)> {
    if helper_task(8).is_some() {
        echo(open(true), address);
        return None;
    }
    let mut process = HelperProcess::start(test, "echo", &Memory::new(8));
    let address = process.wait_for_rest_of_line(LISTENS).parse().unwrap();
    Some((process, EndpointStream::connect(open(false), address).unwrap()))
}

/// `test` is the full name of the calling test; `open` makes the fabric of this process, or that of the helper process.
pub(crate) fn bytes_come_back_from_another_process<F: Fabric>(
    test: &str,
    open: impl Fn(bool) -> F,
    address: SocketAddr,
) {
    // If this failed, a stream would work only where both ends are driven by one thread.
    let Some((_process, mut stream)) = start(test, &open, address) else { return };
    let bytes = pattern(11, STREAM_BYTES);
    let (mut done, mut back, most) = (0, vec![0; STREAM_BYTES], stream.window_bytes());
    for length in [1, 100, most, 5000].into_iter().cycle() {
        let end = (done + length.min(most)).min(STREAM_BYTES);
        stream.write_all(&bytes[done..end]).unwrap();
        stream.read_exact(&mut back[done..end]).unwrap();
        done = end;
        if done == STREAM_BYTES {
            break;
        }
    }
    assert!(back == bytes, "other bytes came back");
    stream.shutdown().unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "something stands behind the last byte");
    let ledger = stream.ledger();
    assert_eq!((ledger.written, ledger.read), (STREAM_BYTES as u64, STREAM_BYTES as u64));
}

/// Kills the other process during a stream: the survivor reads a prefix of what was written.
pub(crate) fn killed_process_leaves_a_prefix<F: Fabric>(test: &str, open: impl Fn(bool) -> F, address: SocketAddr) {
    // If this failed, the death of a peer would look like the end of its bytes, or its survivor would wait forever.
    for round in 0..KILLS {
        let Some((mut process, mut stream)) = start(test, &open, address) else { return };
        let bytes = pattern(round, STREAM_BYTES);
        let (mut written, mut read) = (0, 0);
        let mut room = vec![0; stream.window_bytes().min(STREAM_BYTES / TURNS)];
        // Some die before a write, some while its bytes are on their way in both directions.
        let kill_at = round as usize * 7 % TURNS;
        let ended = (0..TURNS).find_map(|turn| {
            if turn == kill_at && round % 2 == 0 {
                process.kill();
            }
            let end = written + room.len();
            if let Err(error) = stream.write_all(&bytes[written..end]) {
                return Some(error);
            }
            written = end;
            if turn == kill_at && round % 2 == 1 {
                process.kill();
            }
            while read < written {
                match stream.read(&mut room) {
                    Ok(0) => panic!("round {round}: the end of a stream that nobody closed, behind {read} bytes"),
                    Ok(count) => {
                        assert!(bytes[read..written].starts_with(&room[..count]), "round {round}: no prefix at {read}");
                        read += count;
                    }
                    Err(error) => return Some(error),
                }
            }
            // What was on its way may be everything.
            assert!(turn < kill_at + round as usize % 2, "round {round}: a dead process sent bytes back");
            None
        });
        let ended = ended.unwrap_or_else(|| panic!("round {round}: no error after {TURNS} turns"));
        let cause = ended.get_ref().and_then(|cause| cause.downcast_ref::<EndpointError>());
        let is_end = matches!(cause, Some(EndpointError::Closed(_) | EndpointError::Work(_)));
        assert!(is_end, "round {round}: {ended}");
    }
}
