//! The two frames of the handshake between a client and its daemon.
//!
//! Each is one packet of fixed size on a `SOCK_SEQPACKET` socket, so a frame arrives whole or not at all. A packet of
//! another length is not a DDSS frame.
//!
//! ```text
//!  hello, 64 bytes                        reply, 256 bytes
//!   0  magic          u64                  0  magic          u64
//!   8  version        u32                  8  version        u32
//!  12  strategy       u32   (map: ~0)     12  kind           u32   1 welcome, 2 refusal, 3 area
//!  16  channels       u32   (map: area)   16  node           u32   | refusal: code u32
//!  20  zero           u32                 20  client index   u32   |          text bytes u32
//!  24  arena bytes    u64                 24  generation     u32   |          text
//!  32  zero ..                            28  channels       u32
//!                                         32  arena bytes    u64
//!                                         40  reply queue    u64   System V queue id + 1, 0 none
//!                                         48  request queue  u64   the same
//!                                         56  shards         u32   0 is one
//! ```
//!
//! A process that only maps an area of the node's memory requests it in place of the strategy. It gets a descriptor
//! with the reply, and the connection ends. Magic and version stay at their offsets in every version, so that both
//! sides can report both versions when they differ.

use ddss_core::limits::SHARDS_MAX;
use ddss_core::{ClientId, NodeId};

use crate::shm::layout::{LAYOUT_VERSION, MAGIC};
use crate::strategy::Strategy;

/// Bytes of a hello.
pub(crate) const HELLO_BYTES: usize = 64;
/// Bytes of a reply.
pub(crate) const ANSWER_BYTES: usize = 256;
const REFUSAL_TEXT_OFFSET: usize = 24;
const REFUSAL_TEXT_BYTES_MAX: usize = ANSWER_BYTES - REFUSAL_TEXT_OFFSET;

const KIND_WELCOME: u32 = 1;
const KIND_REFUSAL: u32 = 2;
const KIND_AREA: u32 = 3;
const MAP_AREA: u32 = u32::MAX;

/// Parameters that a client requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) strategy: Strategy,
    pub(crate) channels: u32,
    pub(crate) arena_bytes: u64,
}

/// Request of a connecting process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeRequest {
    /// Attach as a client.
    Attach(Hello),
    /// Map an area of the node's memory.
    MapArea {
        /// Index of the area.
        area: u32,
    },
}

/// Parameters that the daemon grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Welcome {
    pub(crate) node: NodeId,
    pub(crate) client: ClientId,
    pub(crate) channels: u32,
    pub(crate) arena_bytes: u64,
    pub(crate) reply_queue: Option<i32>,
    pub(crate) request_queue: Option<i32>,
    /// Number of shards of the daemon; each has its own socket.
    pub(crate) shards: u8,
}

/// Reasons for which the daemon refuses a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Refusal {
    /// The versions of the two sides differ.
    Version = 1,
    /// The frame is malformed.
    Malformed = 2,
    /// A resource is exhausted.
    Busy = 3,
    /// The user may not access the area.
    Forbidden = 4,
}

/// The daemon's decoded reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeReply {
    Welcome(Welcome),
    Refusal { code: u32, text: String },
    Area,
}

/// Reasons for which a frame cannot be decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BadFrame {
    /// A DDSS frame of another version.
    Version {
        version: u32,
        /// Text of a refusal, or empty.
        text: String,
    },
    /// The bytes are not a DDSS frame.
    Malformed(&'static str),
}

fn u32_at(frame: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&frame[offset..offset + 4]);
    u32::from_ne_bytes(word)
}

fn u64_at(frame: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&frame[offset..offset + 8]);
    u64::from_ne_bytes(word)
}

/// Returns the text of a refusal, which is at one place in every version. It may be of any process: without controls.
fn refusal_text(frame: &[u8]) -> Option<String> {
    if frame.len() != ANSWER_BYTES || u32_at(frame, 12) != KIND_REFUSAL {
        return None;
    }
    let text = frame[REFUSAL_TEXT_OFFSET..].get(..u32_at(frame, 20) as usize)?;
    Some(String::from_utf8_lossy(text).chars().filter(|letter| !letter.is_control()).collect())
}

fn check_header(frame: &[u8], bytes: usize) -> Result<(), BadFrame> {
    if frame.len() < 16 {
        return Err(BadFrame::Malformed("the frame is too short"));
    }
    if u64_at(frame, 0) != MAGIC {
        return Err(BadFrame::Malformed("the frame does not start with the magic word"));
    }
    let version = u32_at(frame, 8);
    if version != LAYOUT_VERSION {
        return Err(BadFrame::Version { version, text: refusal_text(frame).unwrap_or_default() });
    }
    if frame.len() != bytes {
        return Err(BadFrame::Malformed("the frame has the wrong length"));
    }
    Ok(())
}

impl Hello {
    fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut frame = [0; HELLO_BYTES];
        frame[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
        frame[8..12].copy_from_slice(&LAYOUT_VERSION.to_ne_bytes());
        frame[12..16].copy_from_slice(&self.strategy.code().to_ne_bytes());
        frame[16..20].copy_from_slice(&self.channels.to_ne_bytes());
        frame[24..32].copy_from_slice(&self.arena_bytes.to_ne_bytes());
        frame
    }

    fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        let strategy = Strategy::from_code(u32_at(frame, 12)).ok_or(BadFrame::Malformed("unknown strategy code"))?;
        Ok(Self { strategy, channels: u32_at(frame, 16), arena_bytes: u64_at(frame, 24) })
    }
}

impl HandshakeRequest {
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        match self {
            Self::Attach(hello) => hello.encode(),
            Self::MapArea { area } => {
                let mut frame = Hello { strategy: Strategy::Auto, channels: *area, arena_bytes: 0 }.encode();
                frame[12..16].copy_from_slice(&MAP_AREA.to_ne_bytes());
                frame
            }
        }
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        check_header(frame, HELLO_BYTES)?;
        match u32_at(frame, 12) {
            MAP_AREA => Ok(Self::MapArea { area: u32_at(frame, 16) }),
            _ => Hello::decode(frame).map(Self::Attach),
        }
    }
}

fn queue_word(queue: Option<i32>) -> u64 {
    queue.and_then(|queue| u64::try_from(queue).ok()).map_or(0, |queue| queue + 1)
}

fn queue_at(frame: &[u8], offset: usize) -> Option<i32> {
    i32::try_from(u64_at(frame, offset).checked_sub(1)?).ok()
}

impl HandshakeReply {
    pub(crate) fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut frame = [0; ANSWER_BYTES];
        frame[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
        frame[8..12].copy_from_slice(&LAYOUT_VERSION.to_ne_bytes());
        match self {
            Self::Welcome(welcome) => {
                frame[12..16].copy_from_slice(&KIND_WELCOME.to_ne_bytes());
                frame[16..20].copy_from_slice(&u32::from(welcome.node.0).to_ne_bytes());
                frame[20..24].copy_from_slice(&welcome.client.index.to_ne_bytes());
                frame[24..28].copy_from_slice(&welcome.client.generation.to_ne_bytes());
                frame[28..32].copy_from_slice(&welcome.channels.to_ne_bytes());
                frame[32..40].copy_from_slice(&welcome.arena_bytes.to_ne_bytes());
                frame[40..48].copy_from_slice(&queue_word(welcome.reply_queue).to_ne_bytes());
                frame[48..56].copy_from_slice(&queue_word(welcome.request_queue).to_ne_bytes());
                frame[56..60].copy_from_slice(&u32::from(welcome.shards).to_ne_bytes());
            }
            Self::Area => frame[12..16].copy_from_slice(&KIND_AREA.to_ne_bytes()),
            Self::Refusal { code, text } => {
                let bytes = text.floor_char_boundary(REFUSAL_TEXT_BYTES_MAX);
                frame[12..16].copy_from_slice(&KIND_REFUSAL.to_ne_bytes());
                frame[16..20].copy_from_slice(&code.to_ne_bytes());
                frame[20..24].copy_from_slice(&(bytes as u32).to_ne_bytes());
                frame[REFUSAL_TEXT_OFFSET..REFUSAL_TEXT_OFFSET + bytes].copy_from_slice(&text.as_bytes()[..bytes]);
            }
        }
        frame
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        check_header(frame, ANSWER_BYTES)?;
        match u32_at(frame, 12) {
            KIND_WELCOME => {
                let node = u16::try_from(u32_at(frame, 16)).map_err(|_| BadFrame::Malformed("node id out of range"))?;
                let shards = u8::try_from(u32_at(frame, 56)).ok().filter(|&shards| usize::from(shards) <= SHARDS_MAX);
                Ok(Self::Welcome(Welcome {
                    shards: shards.ok_or(BadFrame::Malformed("shard count out of range"))?.max(1),
                    node: NodeId(node),
                    client: ClientId { index: u32_at(frame, 20), generation: u32_at(frame, 24) },
                    channels: u32_at(frame, 28),
                    arena_bytes: u64_at(frame, 32),
                    reply_queue: queue_at(frame, 40),
                    request_queue: queue_at(frame, 48),
                }))
            }
            KIND_REFUSAL => {
                let text = refusal_text(frame).ok_or(BadFrame::Malformed("the refusal is longer than its frame"))?;
                Ok(Self::Refusal { code: u32_at(frame, 16), text })
            }
            KIND_AREA => Ok(Self::Area),
            _ => Err(BadFrame::Malformed("unknown kind of reply")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        // If this failed, no client could attach, or a client would map its memory wrongly.
        let hello = Hello { strategy: Strategy::Rmq, channels: 3, arena_bytes: 1 << 40 };
        for asked in [HandshakeRequest::Attach(hello), HandshakeRequest::MapArea { area: 7 }] {
            assert_eq!(HandshakeRequest::decode(&asked.encode()), Ok(asked));
        }
        assert_eq!(HandshakeReply::decode(&HandshakeReply::Area.encode()), Ok(HandshakeReply::Area));
        let client = ClientId { index: 7, generation: 9 };
        let (reply_queue, request_queue) = (Some(0), None);
        let (node, arena_bytes, shards) = (NodeId(5), 4096, 2);
        let welcome = Welcome { node, client, channels: 3, arena_bytes, reply_queue, request_queue, shards };
        assert_eq!(
            HandshakeReply::decode(&HandshakeReply::Welcome(welcome).encode()),
            Ok(HandshakeReply::Welcome(welcome))
        );
        let refusal = HandshakeReply::Refusal { code: 3, text: "é".repeat(500) };
        let Ok(HandshakeReply::Refusal { code: 3, text }) = HandshakeReply::decode(&refusal.encode()) else {
            panic!("lost")
        };
        assert!(text.chars().all(|letter| letter == 'é') && text.len() > 200);
    }

    #[test]
    fn other_version_is_reported_at_any_length() {
        // If this failed, a client of another build would see "malformed" instead of the two versions.
        for bytes in [16, 64, 100, 256] {
            let mut frame = vec![0; bytes];
            frame[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
            frame[8..12].copy_from_slice(&77_u32.to_ne_bytes());
            let other = BadFrame::Version { version: 77, text: String::new() };
            assert_eq!(HandshakeRequest::decode(&frame), Err(other.clone()));
            assert_eq!(HandshakeReply::decode(&frame), Err(other));
        }
        // A refusal says why in every version; a text beyond its frame is none.
        let mut frame = HandshakeReply::Refusal { code: 1, text: "of 0.2.0\n".to_owned() }.encode();
        frame[8..12].copy_from_slice(&77_u32.to_ne_bytes());
        let other = |text: &str| Err(BadFrame::Version { version: 77, text: text.to_owned() });
        assert_eq!(HandshakeReply::decode(&frame), other("of 0.2.0"));
        frame[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(HandshakeReply::decode(&frame), other(""));
    }

    #[test]
    fn garbage_of_any_length_is_rejected() {
        // If this failed, one packet from any local process would kill the daemon.
        for bytes in 0..300 {
            for fill in [0, 1, 0xff] {
                assert!(HandshakeRequest::decode(&vec![fill; bytes]).is_err());
                assert!(HandshakeReply::decode(&vec![fill; bytes]).is_err());
            }
        }
        let mut frame = HandshakeReply::Refusal { code: 1, text: String::new() }.encode();
        frame[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(HandshakeReply::decode(&frame).is_err());
        let client = ClientId { index: 0, generation: 1 };
        let (node, reply_queue, request_queue) = (NodeId(1), None, None);
        let welcome = Welcome { node, client, channels: 1, arena_bytes: 4096, reply_queue, request_queue, shards: 17 };
        assert!(HandshakeReply::decode(&HandshakeReply::Welcome(welcome).encode()).is_err());
    }
}
