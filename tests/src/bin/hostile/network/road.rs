//! What an attacker from the network knows, and the sockets that it attacks through.

use crate::liar::{Found, must_not, shows_secret, wrong};
use ddss_core::SegmentId;
use rustix::net::sockopt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Long enough for anything that is going to happen on a loaded machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// What one attack sends in one go, at the most.
const ONE_WRITE: Duration = Duration::from_secs(5);

/// Where the attacked node is, and what its good client has there.
pub(crate) struct Target {
    pub(crate) data: SocketAddr,
    pub(crate) control: SocketAddr,
    pub(crate) metrics: SocketAddr,
    /// Where the attacked node looks for node 3. Nobody is there.
    pub(crate) place: SocketAddr,
    /// A segment of another user, full of the secret.
    pub(crate) secret: SegmentId,
    /// One that everybody may use, whose lock the good client holds, and its token.
    pub(crate) held: SegmentId,
    pub(crate) token: u64,
}

impl Target {
    /// From the words of a command line.
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

/// A connection. A door where too many stand opens after a while, and so does that of a node that was started again.
pub(super) fn dial(address: SocketAddr) -> Result<TcpStream, String> {
    let begin = Instant::now();
    let stream = loop {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => break stream,
            Err(error) if begin.elapsed() > PATIENCE => return Err(format!("nobody listens any more: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    prepare(&stream)?;
    Ok(stream)
}

/// Nobody waits for ever on it.
pub(super) fn prepare(stream: &TcpStream) -> Found {
    let ready = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(ONE_WRITE)));
    ready.and_then(|()| stream.set_nodelay(true)).map_err(wrong("a socket"))
}

/// Sends, as far as the other side takes it: it may hang up in the middle.
pub(super) fn send(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

/// Everything that the other side says until it hangs up; an error if it does not.
pub(super) fn until_it_hangs_up(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    let begin = Instant::now();
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => all.extend_from_slice(&part[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err("the connection is kept".to_owned());
            }
            Err(_) => break,
        }
        must_not("it talks without end", all.len() > 16 << 20 || begin.elapsed() > 2 * PATIENCE)?;
    }
    must_not("the secret was sent", shows_secret(&all))?;
    Ok(all)
}

/// The connection ends, and not a byte was said on it.
pub(super) fn is_left_without_a_word(mut stream: TcpStream) -> Found {
    let said = until_it_hangs_up(&mut stream)?;
    must_not(&format!("a stranger was told {} bytes", said.len()), !said.is_empty())
}

/// Ends a connection in the rudest way: what is under way is thrown away.
pub(super) fn reset(stream: TcpStream) -> Found {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).map_err(wrong("a socket"))?;
    drop(stream);
    Ok(())
}

/// So many connections at once, each having said that.
pub(super) fn crowd(address: SocketAddr, count: usize, words: &[u8]) -> Result<Vec<TcpStream>, String> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = dial(address)?;
        send(&mut stream, words);
        all.push(stream);
    }
    Ok(all)
}

/// Bytes without meaning, others each time.
pub(super) fn rubbish(length: usize) -> Vec<u8> {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut state = RandomState::new().build_hasher().finish() | 1;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(byte).collect()
}
