//! A stream between two control planes: the handshake, then encrypted messages in frames, with size limits and
//! deadlines.
//!
//! ```text
//!   0        2                       2+1                    
//!  +--------+-----------------------+------------------------------+
//!  | length | more to come (0 or 1) | up to 60,000 bytes           |   then the next frame
//!  +--------+-----------------------+------------------------------+
//!   u16      \______________________ sealed ______________________/
//! ```

use crate::auth::{Channel, HELLO_BYTES, HandshakeError, Initiator, Purpose, SEAL_BYTES, agree, refusal, respond};
use crate::control::handshake_limit::HandshakeLimit;
use ddss_admin::ClusterKey;
use ddss_core::PeerHello;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum idle time of a stream.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// Maximum time of a connection and its handshake.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Maximum size of a message.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
const PART_BYTES: usize = 60_000;

const _: () = assert!(PART_BYTES + 1 + SEAL_BYTES <= u16::MAX as usize);

/// One stream after its handshake.
#[derive(Debug)]
pub(crate) struct RpcStream {
    stream: TcpStream,
    channel: Channel,
}

fn broken(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Runs `work` with a time limit; fails with `TimedOut` after it.
pub(crate) async fn with_timeout<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl RpcStream {
    /// Connects to a peer; success proves that the peer has the cluster key.
    pub(crate) async fn connect(
        address: SocketAddr,
        key: &ClusterKey,
        ours: &PeerHello,
    ) -> io::Result<(PeerHello, RpcStream)> {
        with_timeout(CONNECT_MAX, async {
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (shake, hello) = Initiator::begin(key, Purpose::Control, ours).map_err(broken)?;
            stream.write_all(&hello).await?;
            let mut answer = [0; HELLO_BYTES];
            stream.read_exact(&mut answer).await.map_err(|error| match error.kind() {
                // A node says why it refuses: this one ended, or has no place.
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    broken("closed the connection before it answered: is it a ddssd, and what does its log say?")
                }
                _ => error,
            })?;
            let (theirs, channel) = shake.finish(&answer).map_err(broken)?;
            Ok((theirs, RpcStream { stream, channel }))
        })
        .await
    }

    /// Accepts a connection, at the rate of its address. Until the first message decrypts, the handshake may be a
    /// replay. Returns the index of the peer's key.
    pub(crate) async fn accept(
        mut stream: TcpStream,
        from: IpAddr,
        handshake_limit: &HandshakeLimit,
        keys: &[&ClusterKey],
        ours: &PeerHello,
    ) -> io::Result<(PeerHello, usize, RpcStream)> {
        with_timeout(CONNECT_MAX, async {
            stream.set_nodelay(true)?;
            let mut hello = [0; HELLO_BYTES];
            stream.read_exact(&mut hello).await?;
            let respond_with = || {
                let mut refused = Err(HandshakeError::WrongKey);
                for (index, key) in keys.iter().enumerate() {
                    refused = respond(key, Purpose::Control, ours, &hello).map(|answer| (index, answer));
                    if !matches!(refused, Err(HandshakeError::WrongKey)) {
                        break;
                    }
                }
                refused
            };
            let verified = handshake_limit.verify(from, respond_with).await;
            let (index, answer) = match verified {
                Ok(verified) => verified,
                Err(error) => {
                    if let Some(refusal) = refusal(&error) {
                        // Without it the peer could not tell another key or release from a lost connection.
                        let _ = stream.write_all(&refusal).await;
                    }
                    return Err(broken(error));
                }
            };
            stream.write_all(&answer.message).await?;
            agree(ours, &answer.theirs).map_err(broken)?;
            Ok((answer.theirs, index, RpcStream { stream, channel: answer.channel }))
        })
        .await
    }

    /// Sends a message.
    pub(crate) async fn send<T: Serialize>(&mut self, word: &T) -> io::Result<()> {
        let bytes = serde_json::to_vec(word).map_err(broken)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(broken("the message exceeds the size limit"));
        }
        let mut parts = bytes.chunks(PART_BYTES).peekable();
        let (mut plain, mut frame) = (Vec::with_capacity(PART_BYTES + 1), vec![0; PART_BYTES + 3 + SEAL_BYTES]);
        while let Some(part) = parts.next() {
            plain.clear();
            plain.push(u8::from(parts.peek().is_some()));
            plain.extend_from_slice(part);
            let length = self.channel.seal(&plain, &mut frame[2..]).map_err(broken)?;
            frame[..2].copy_from_slice(&(length as u16).to_le_bytes());
            self.stream.write_all(&frame[..length + 2]).await?;
        }
        Ok(())
    }

    /// Receives a message.
    pub(crate) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut word = Vec::new();
        loop {
            let length = usize::from(self.stream.read_u16_le().await?);
            if length <= SEAL_BYTES {
                return Err(broken("a frame is too short"));
            }
            let mut sealed = vec![0; length];
            self.stream.read_exact(&mut sealed).await?;
            let mut plain = vec![0; length];
            let length = self.channel.open(&sealed, &mut plain).map_err(broken)?;
            let Some((&more, part)) = plain[..length].split_first() else { return Err(broken("a frame is empty")) };
            word.extend_from_slice(part);
            if word.len() > MESSAGE_BYTES_MAX {
                return Err(broken("the message exceeds the size limit"));
            }
            if more == 0 {
                return serde_json::from_slice(&word).map_err(broken);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::NodeId;
    use tokio::net::TcpListener;

    fn hello(node: u16) -> PeerHello {
        PeerHello { node: NodeId(node), run: 1, shards: 1 }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn messages_of_every_length_arrive_and_wrong_key_is_refused() {
        // If this broke, nodes could not talk to each other, or an unauthenticated peer could listen.
        block_on(async {
            let key = ClusterKey::generate().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let theirs = key.clone();
            let server = tokio::spawn(async move {
                let limit = HandshakeLimit::default();
                for _ in 0..2 {
                    let (stream, from) = listener.accept().await.unwrap();
                    let accepted = RpcStream::accept(stream, from.ip(), &limit, &[&theirs], &hello(2)).await;
                    let Ok((_, _, mut wire)) = accepted else { continue };
                    while let Ok(word) = wire.receive::<String>().await {
                        wire.send(&word).await.unwrap();
                    }
                }
            });
            let (theirs, mut wire) = RpcStream::connect(address, &key, &hello(1)).await.unwrap();
            assert_eq!(theirs.node, NodeId(2));
            for length in [0, 1, PART_BYTES - 2, PART_BYTES - 1, PART_BYTES, 3 * PART_BYTES, 1 << 20] {
                let word = "w".repeat(length);
                wire.send(&word).await.unwrap();
                assert!(wire.receive::<String>().await.unwrap() == word, "{length} letters");
            }
            assert!(wire.send(&"w".repeat(MESSAGE_BYTES_MAX)).await.is_err());
            drop(wire);
            let other = ClusterKey::generate().unwrap();
            let error = RpcStream::connect(address, &other, &hello(1)).await.unwrap_err().to_string();
            assert!(error.contains("another cluster key"), "{error}");
            server.await.unwrap();
        });
    }
}
