//! A network attacker's knowledge and sockets.

use super::noise::HELLO_BYTES;
use crate::byzantine_client::{AttackResult, contains_secret, context, expect_failure};
use ddss_core::SegmentId;
use ddss_testkit::Random;
use rustix::net::sockopt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Time limit for any event on a loaded machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Time limit of one write.
const ONE_WRITE: Duration = Duration::from_secs(5);

/// Addresses of the attacked node and the segments of its legitimate client.
pub(crate) struct Target {
    pub(crate) data: SocketAddr,
    pub(crate) control: SocketAddr,
    pub(crate) metrics: SocketAddr,
    /// Address where the attacked node expects node 3. No process listens there.
    pub(crate) place: SocketAddr,
    /// A segment of another user, full of the secret.
    pub(crate) secret: SegmentId,
    /// A segment open to all users, whose lock the legitimate client holds, and the lock token.
    pub(crate) held: SegmentId,
    pub(crate) token: u64,
}

impl Target {
    /// Parses the words of a command line.
    pub(crate) fn parse(words: &[String]) -> Result<Target, String> {
        let [data, control, metrics, place, secret, held, token] = words else {
            return Err("an attack from the network takes seven words".to_owned());
        };
        let address = |word: &String| word.parse::<SocketAddr>().map_err(|error| format!("{word}: {error}"));
        let number = |word: &String| word.parse::<u64>().map_err(|error| format!("{word}: {error}"));
        Ok(Target {
            data: address(data)?,
            control: address(control)?,
            metrics: address(metrics)?,
            place: address(place)?,
            secret: SegmentId::from_bits(number(secret)?),
            held: SegmentId::from_bits(number(held)?),
            token: number(token)?,
        })
    }
}

/// Connects, with retries: a port with too many connections accepts again after a while, and so does the port of a
/// restarted node.
pub(super) fn dial(address: SocketAddr) -> Result<TcpStream, String> {
    let begin = Instant::now();
    let stream = loop {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => break stream,
            Err(error) if begin.elapsed() > PATIENCE => return Err(format!("the port refuses connections: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    prepare(&stream)?;
    Ok(stream)
}

/// Sets the time limits of a socket, so that no attack waits forever.
pub(super) fn prepare(stream: &TcpStream) -> AttackResult {
    let ready = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(ONE_WRITE)));
    ready.and_then(|()| stream.set_nodelay(true)).map_err(context("a socket"))
}

/// Sends as much as the peer accepts; the peer may close in the middle.
pub(super) fn send(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

/// Returns all bytes that the peer sends before it closes. Returns an error if it does not close.
pub(super) fn read_until_close(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    let begin = Instant::now();
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => all.extend_from_slice(&part[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err("the connection stays open".to_owned());
            }
            Err(_) => break,
        }
        expect_failure("it talks without end", all.len() > 16 << 20 || begin.elapsed() > 2 * PATIENCE)?;
    }
    expect_failure("the secret was sent", contains_secret(&all))?;
    Ok(all)
}

/// Expects that the connection ends without a byte from the peer.
pub(super) fn expect_silent_close(mut stream: TcpStream) -> AttackResult {
    let said = read_until_close(&mut stream)?;
    expect_failure(&format!("an unauthenticated peer received {} bytes", said.len()), !said.is_empty())
}

/// Checks that a peer without the key learns that it is refused, and nothing else.
pub(super) fn expect_bare_refusal(mut stream: TcpStream) -> AttackResult {
    let said = read_until_close(&mut stream)?;
    // Behind the two bytes that are in the clear in each first message there is no text.
    let says_more = said.len() > HELLO_BYTES || said.iter().skip(2).any(|byte| *byte != 0);
    expect_failure(&format!("an unauthenticated peer received {said:?}"), says_more)
}

/// Resets a connection, which discards its bytes in flight.
pub(super) fn reset(stream: TcpStream) -> AttackResult {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).map_err(context("a socket"))?;
    drop(stream);
    Ok(())
}

/// Opens `count` connections at the same time and sends `bytes` on each.
pub(super) fn open_connections(address: SocketAddr, count: usize, words: &[u8]) -> Result<Vec<TcpStream>, String> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = dial(address)?;
        send(&mut stream, words);
        all.push(stream);
    }
    Ok(all)
}

/// Returns random bytes, different ones at each call.
pub(super) fn random_bytes(length: usize) -> Vec<u8> {
    use std::hash::{BuildHasher, Hasher, RandomState};
    Random::new(RandomState::new().build_hasher().finish()).bytes(length)
}
