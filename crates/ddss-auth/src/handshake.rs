//! Handshake of two messages: two processes prove to each other that they have the same key, and exchange their
//! identities.
//!
//! The protocol is Noise, pattern NNpsk0. The key is mixed in first, so that a message of an unauthenticated peer is
//! refused before any costly arithmetic. Both sides send a fresh Diffie-Hellman share, so that recorded traffic stays
//! sealed if the key leaks later. Both messages have the same fixed size:
//!
//! ```text
//!   0     1          2                 34                        40      56
//!  +-----+----------+-----------------+-------------------------+-------+
//!  | 'D' | release  | ephemeral share | identity                |  tag  |
//!  +-----+----------+-----------------+-------------------------+-------+
//!                                      \_ encrypted under the key _/
//! ```
//!
//! 56 bytes is the smallest private data of any fabric (an RDMA connection manager's request over InfiniBand). The
//! first two bytes are in the clear, so that another release can be told from another key. They are bound into the
//! proof, as is the name of the context, so that a handshake for one purpose is invalid for another.
//!
//! The responder cannot know yet if the first message is a replay: the first sealed message that opens proves that it
//! is fresh.
//!
//! A responder that refuses may answer with a message of the same size without a share ([`refusal`]): the initiator finds
//! another release, or a wrong key.

use crate::channel::Channel;
use crate::cipher::Primitives;
use crate::frame::FrameSecrets;
use snow::{Builder, HandshakeState};
use std::fmt;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Bytes of an identity.
pub const IDENTITY_BYTES: usize = 6;
/// Bytes of each of the two messages.
pub const HELLO_BYTES: usize = CLEAR_BYTES + SHARE_BYTES + IDENTITY_BYTES + TAG_BYTES;

/// Secret that both sides have.
pub type Key = [u8; KEY_BYTES];
/// Name of a process among those that have the key; its meaning is the caller's.
pub type Identity = [u8; IDENTITY_BYTES];

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
const CLEAR_BYTES: usize = 2;
const SHARE_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const MARK: u8 = b'D';

const _: () = assert!(HELLO_BYTES == 56);

/// Agreement of both sides before they connect. A handshake of one context is invalid in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// Purpose of the connection.
    pub name: [u8; 10],
    /// Release of the protocol. A peer of another release is told so before its key is tried.
    pub release: u8,
}

impl Context {
    fn prologue(&self) -> [u8; 12] {
        let mut out = [0; 12];
        out[..10].copy_from_slice(&self.name);
        (out[10], out[11]) = (MARK, self.release);
        out
    }
}

/// Failure of a handshake. Both sides may see it: it reveals nothing to an unauthenticated peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The message is no part of this handshake.
    #[error("the message is no handshake of DDSS")]
    NotOurs,
    /// The peer has another release.
    #[error("the peer speaks protocol {theirs}, this one {ours}")]
    OtherRelease {
        /// Release of this side.
        ours: u8,
        /// Release of the peer.
        theirs: u8,
    },
    /// The peer has another key, or connects for another purpose.
    #[error("the peer has another key")]
    WrongKey,
    /// The system has no random bytes, or the cryptography failed.
    #[error("no random bytes, or a failure of the cryptography")]
    Unable,
}

fn builder<'a>(key: &'a Key, prologue: &'a [u8]) -> Result<Builder<'a>, HandshakeError> {
    let pattern = PATTERN.parse().map_err(|_| HandshakeError::Unable)?;
    let builder =
        Builder::with_resolver(pattern, Box::new(Primitives)).psk(0, key).map_err(|_| HandshakeError::Unable)?;
    builder.prologue(prologue).map_err(|_| HandshakeError::Unable)
}

fn write(state: &mut HandshakeState, release: u8, ours: &Identity) -> Result<[u8; HELLO_BYTES], HandshakeError> {
    let mut out = [0; HELLO_BYTES];
    (out[0], out[1]) = (MARK, release);
    let length = state.write_message(ours, &mut out[CLEAR_BYTES..]).map_err(|_| HandshakeError::Unable)?;
    assert_eq!(length, HELLO_BYTES - CLEAR_BYTES, "both messages have one size");
    Ok(out)
}

fn read(state: &mut HandshakeState, release: u8, theirs: &[u8]) -> Result<Identity, HandshakeError> {
    check_clear_part(release, theirs)?;
    let mut plain = [0; HELLO_BYTES];
    let length = state.read_message(&theirs[CLEAR_BYTES..], &mut plain).map_err(|_| HandshakeError::WrongKey)?;
    plain[..length].try_into().map_err(|_| HandshakeError::NotOurs)
}

/// Checks the part of a message that needs no key.
fn check_clear_part(ours: u8, theirs: &[u8]) -> Result<(), HandshakeError> {
    match *theirs {
        [MARK, theirs, ..] if theirs != ours => Err(HandshakeError::OtherRelease { ours, theirs }),
        [MARK, ..] if theirs.len() == HELLO_BYTES => Ok(()),
        _ => Err(HandshakeError::NotOurs),
    }
}

/// Makes the channel of a handshake after both messages.
fn open_channel(mut state: HandshakeState) -> Result<Channel, HandshakeError> {
    let is_initiator = state.is_initiator();
    let (first, second) = state.dangerously_get_raw_split();
    let (sending, receiving) = if is_initiator { (first, second) } else { (second, first) };
    let state = state.into_transport_mode().map_err(|_| HandshakeError::Unable)?;
    Ok(Channel::new(state, FrameSecrets { sending, receiving }))
}

/// Connecting side of a handshake.
pub struct Initiator {
    state: Box<HandshakeState>,
    release: u8,
}

impl Initiator {
    /// Starts a handshake, and returns its first message.
    pub fn begin(key: &Key, context: &Context, ours: &Identity) -> Result<(Self, [u8; HELLO_BYTES]), HandshakeError> {
        let prologue = context.prologue();
        let mut state = builder(key, &prologue)?.build_initiator().map_err(|_| HandshakeError::Unable)?;
        let message = write(&mut state, context.release, ours)?;
        Ok((Self { state: Box::new(state), release: context.release }, message))
    }

    /// Processes the answer. Returns the peer's identity and a channel whose messages are fresh.
    pub fn finish(mut self, answer: &[u8]) -> Result<(Identity, Channel), HandshakeError> {
        let theirs = read(&mut self.state, self.release, answer)?;
        Ok((theirs, open_channel(*self.state)?))
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator(..)")
    }
}

/// Result of the responder after one message.
#[derive(Debug)]
pub struct Answer {
    /// Peer's identity; fresh only after a sealed message of the channel has opened.
    pub theirs: Identity,
    /// Second message of the handshake.
    pub message: [u8; HELLO_BYTES],
    /// Channel to the peer.
    pub channel: Channel,
}

/// Makes the answer of a responder that refuses the first message. It holds nothing but the release.
pub fn refusal(release: u8) -> [u8; HELLO_BYTES] {
    let mut out = [0; HELLO_BYTES];
    (out[0], out[1]) = (MARK, release);
    out
}

/// Answers a handshake on the accepting side.
pub fn respond(key: &Key, context: &Context, ours: &Identity, hello: &[u8]) -> Result<Answer, HandshakeError> {
    check_clear_part(context.release, hello)?;
    let prologue = context.prologue();
    let mut state = builder(key, &prologue)?.build_responder().map_err(|_| HandshakeError::Unable)?;
    let theirs = read(&mut state, context.release, hello)?;
    let message = write(&mut state, context.release, ours)?;
    Ok(Answer { theirs, message, channel: open_channel(state)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::SEAL_BYTES;
    use crate::frame::SealError;

    const KEY: Key = [3; 32];
    const OTHER: Key = [4; 32];
    const ONE: Identity = [1, 0, 7, 0, 0, 0];
    const TWO: Identity = [2, 0, 14, 0, 0, 0];

    fn context(name: &[u8; 10]) -> Context {
        Context { name: *name, release: 12 }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn processes_with_one_key_connect_and_each_message_opens_once_in_order() {
        // If this broke, no cluster would form, or an attacker could replay messages.
        let context = context(b"DDSS  data");
        let (initiator, first) = Initiator::begin(&KEY, &context, &ONE).unwrap();
        let mut answer = respond(&KEY, &context, &TWO, &first).unwrap();
        assert_eq!(answer.theirs, ONE);
        let (theirs, mut channel) = initiator.finish(&answer.message).unwrap();
        assert_eq!(theirs, TWO);
        let (mut sealed, mut plain) = ([0; 64], [0; 64]);
        let length = channel.seal(b"one", &mut sealed).unwrap();
        assert_eq!(length, 3 + SEAL_BYTES);
        assert!(!sealed[..length].windows(3).any(|part| part == b"one"));
        let mut altered = sealed;
        altered[1] ^= 1;
        assert_eq!(answer.channel.open(&altered[..length], &mut plain), Err(SealError));
        assert_eq!(answer.channel.open(&sealed[..length], &mut plain), Ok(3));
        assert_eq!(answer.channel.open(&sealed[..length], &mut plain), Err(SealError), "said again");
        assert_eq!(channel.open(&sealed[..length], &mut plain), Err(SealError), "sent back");
    }

    #[test]
    fn wrong_key_wrong_purpose_and_wrong_release_are_refused_with_distinct_errors() {
        // If this broke, an unauthenticated peer could join or read, or an operator would look for the wrong cause.
        let data = context(b"DDSS  data");
        let (initiator, first) = Initiator::begin(&KEY, &data, &ONE).unwrap();
        let refused = |key: &Key, context: &Context, message: &[u8]| respond(key, context, &TWO, message).unwrap_err();
        assert_eq!(refused(&OTHER, &data, &first), HandshakeError::WrongKey);
        assert_eq!(refused(&KEY, &context(b"DDSS  ctrl"), &first), HandshakeError::WrongKey);
        let mut newer = first;
        newer[1] += 1;
        assert_eq!(refused(&KEY, &data, &newer), HandshakeError::OtherRelease { ours: 12, theirs: 13 });
        for message in [&b""[..], b"D", b"GET / HTTP/1.1", &first[..55], &[0; 56]] {
            assert_eq!(refused(&KEY, &data, message), HandshakeError::NotOurs, "{message:?}");
        }
        for index in 2..HELLO_BYTES {
            let mut altered = first;
            altered[index] ^= 0x40;
            assert_eq!(refused(&KEY, &data, &altered), HandshakeError::WrongKey, "byte {index}");
        }
        // A refusal names another release, or is that of another key; neither opens a channel.
        for (release, error) in
            [(13, HandshakeError::OtherRelease { ours: 12, theirs: 13 }), (12, HandshakeError::WrongKey)]
        {
            let (initiator, _) = Initiator::begin(&KEY, &data, &ONE).unwrap();
            assert_eq!(initiator.finish(&refusal(release)).unwrap_err(), error);
        }
        // The connecting side detects a responder without the key.
        let (_, forged) = Initiator::begin(&OTHER, &data, &TWO).unwrap();
        assert_eq!(initiator.finish(&forged).unwrap_err(), HandshakeError::WrongKey);
    }

    #[test]
    fn replayed_hello_opens_no_channel() {
        // If this broke, an attacker that recorded one connection could take a process's place later.
        let context = context(b"DDSS  data");
        let (initiator, first) = Initiator::begin(&KEY, &context, &ONE).unwrap();
        let answer = respond(&KEY, &context, &TWO, &first).unwrap();
        let (_, mut channel) = initiator.finish(&answer.message).unwrap();
        let (mut sealed, mut plain) = ([0; 64], [0; 64]);
        let length = channel.seal(b"welcome", &mut sealed).unwrap();
        let mut again = respond(&KEY, &context, &TWO, &first).unwrap();
        assert_ne!(again.message, answer.message);
        assert_eq!(again.channel.open(&sealed[..length], &mut plain), Err(SealError));
    }

    // The bytes were recorded with the handshake of the daemons before it became this crate.
    #[test]
    fn known_keys_and_shares_make_known_bytes() {
        // If this broke, nodes of two builds of one release could not talk to each other.
        let key: Key = std::array::from_fn(|index| index as u8);
        let rows = [
            (
                b"DDSS  data",
                "440c13be4feaeaf204c7fd3358fc9c00721881d174278128227ec674f37f7fe97b6dc68a687436336671bcab7d973b4978fad142e0727835",
                "440c57db4b359f23ae5e146e4e2512056704722506348c150c14753d0c933d04d4210212e9ff3c0d83e5d65fc280e66e6bf6ef6c78c10c5f",
            ),
            (
                b"DDSS\x23 data",
                "440c13be4feaeaf204c7fd3358fc9c00721881d174278128227ec674f37f7fe97b6dc68a687436332c03a4c745e5143dbeee0160ae422578",
                "440c57db4b359f23ae5e146e4e2512056704722506348c150c14753d0c933d04d4210212e9ff3c0d6c498dd73487e300d3047e54cdb07426",
            ),
            (
                b"DDSS  ctrl",
                "440c13be4feaeaf204c7fd3358fc9c00721881d174278128227ec674f37f7fe97b6dc68a687436339b714f15afca876187b96ed1ef81983c",
                "440c57db4b359f23ae5e146e4e2512056704722506348c150c14753d0c933d04d4210212e9ff3c0d6783d86f50251a38a27df2c4e85a6c72",
            ),
        ];
        for (name, first, second) in rows {
            let prologue = context(name).prologue();
            let fixed = |share| builder(&key, &prologue).unwrap().fixed_ephemeral_key_for_testing_only(share);
            let mut one = fixed(&[7; 32]).build_initiator().unwrap();
            let mut two = fixed(&[9; 32]).build_responder().unwrap();
            let hello = write(&mut one, 12, &ONE).unwrap();
            assert_eq!(hex(&hello), first);
            assert_eq!(read(&mut two, 12, &hello).unwrap(), ONE);
            let answer = write(&mut two, 12, &TWO).unwrap();
            assert_eq!(hex(&answer), second);
            assert_eq!(read(&mut one, 12, &answer).unwrap(), TWO);
            let mut channel = open_channel(one).unwrap();
            let mut sealed = [0; 64];
            let length = channel.seal(b"welcome", &mut sealed).unwrap();
            assert_eq!(hex(&sealed[..length]), "b6e6850ae1e1bc7bbb27776a03be2a093478b3d338c137");
        }
    }
}
