//! A second implementation of the handshake from `docs/protocol.md`. It shares no code with the daemon's.

use crate::byzantine_client::context;
use ddss_core::PeerHello;
use ddss_testkit::TEST_KEY;
use snow::{Builder, HandshakeState, TransportState};

/// Bytes of each of the two messages.
pub(super) const HELLO_BYTES: usize = 56;
/// Purposes of a connection.
pub(super) const DATA: &[u8; 10] = b"DDSS  data";
pub(super) const SECOND_PLANE: &[u8; 10] = b"DDSS! data";
pub(super) const CONTROL: &[u8; 10] = b"DDSS  ctrl";

pub(super) type Key = [u8; 32];

/// The cluster's key.
pub(super) fn right_key() -> Key {
    let digits = TEST_KEY.as_bytes();
    std::array::from_fn(|index| {
        let text = std::str::from_utf8(&digits[2 * index..2 * index + 2]).unwrap_or_default();
        u8::from_str_radix(text, 16).unwrap_or_default()
    })
}

/// A key of another cluster.
pub(super) const OTHER_KEY: Key = [0x42; 32];

fn builder<'a>(key: &'a Key, prologue: &'a [u8]) -> Result<Builder<'a>, String> {
    let pattern = "Noise_NNpsk0_25519_AESGCM_BLAKE2s".parse().map_err(context("the pattern"))?;
    Builder::new(pattern).psk(0, key).and_then(|builder| builder.prologue(prologue)).map_err(context("a handshake"))
}

fn prologue(purpose: &[u8; 10]) -> Vec<u8> {
    [&purpose[..], &[b'D', PeerHello::HANDSHAKE]].concat()
}

fn message(state: &mut HandshakeState, ours: &PeerHello) -> Result<[u8; HELLO_BYTES], String> {
    let mut out = [0; HELLO_BYTES];
    (out[0], out[1]) = (b'D', PeerHello::HANDSHAKE);
    state.write_message(&ours.encode(), &mut out[2..]).map_err(context("a handshake"))?;
    Ok(out)
}

/// Builds the first message, with the state that the answer needs.
pub(super) fn begin(
    key: &Key,
    purpose: &[u8; 10],
    ours: &PeerHello,
) -> Result<(HandshakeState, [u8; HELLO_BYTES]), String> {
    let prologue = prologue(purpose);
    let mut state = builder(key, &prologue)?.build_initiator().map_err(context("a handshake"))?;
    let first = message(&mut state, ours)?;
    Ok((state, first))
}

/// Reads the answer: the peer's identity and the two cipher states.
pub(super) fn finish(mut state: HandshakeState, answer: &[u8]) -> Result<(PeerHello, TransportState), String> {
    let mut plain = [0; HELLO_BYTES];
    let sealed = answer.get(2..HELLO_BYTES).ok_or("the answer is too short")?;
    let length = state.read_message(sealed, &mut plain).map_err(context("the answer does not open"))?;
    let theirs = PeerHello::decode(&plain[..length]).map_err(context("the answer"))?;
    Ok((theirs, state.into_transport_mode().map_err(context("a handshake"))?))
}

/// Answers a first message in the place of a node, with a key that is not the cluster's.
pub(super) fn forged_answer(ours: &PeerHello) -> Result<[u8; HELLO_BYTES], String> {
    // Without the key the first message cannot be decrypted, so the forged answer only has the right shape.
    begin(&OTHER_KEY, DATA, ours).map(|(_, first)| first)
}
