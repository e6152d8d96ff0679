//! The first message to each peer: the windows of this rank's areas.

use super::areas::SHARED;
use ddss_dsm_core::Area;
use ddss_verbs::{RemoteRange, Window};

const WINDOW_BYTES: usize = 20;
/// Bytes of the message.
pub(super) const HANDOVER_BYTES: usize = SHARED.len() * WINDOW_BYTES;

/// Windows over a peer's areas.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerWindows([Window; SHARED.len()]);

impl PeerWindows {
    /// Returns the address of a range of an area. `None` if it is outside the window: the peer has another size.
    pub(super) fn address(&self, area: Area, offset: u64, bytes: u64) -> Option<RemoteRange> {
        let Window { key, base, bytes: size } = self.0[area as usize];
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= size);
        is_inside.then(|| RemoteRange { key, address: base + offset })
    }
}

/// Encodes the windows that a peer gets, in the order of [`SHARED`].
pub(super) fn encode(windows: &[Window; SHARED.len()]) -> [u8; HANDOVER_BYTES] {
    let mut out = [0; HANDOVER_BYTES];
    for (part, window) in out.chunks_exact_mut(WINDOW_BYTES).zip(windows) {
        part[..4].copy_from_slice(&window.key.to_le_bytes());
        part[4..12].copy_from_slice(&window.base.to_le_bytes());
        part[12..].copy_from_slice(&window.bytes.to_le_bytes());
    }
    out
}

/// Decodes the windows of a peer. `None` if the message has another length, or a window wraps around.
pub(super) fn decode(bytes: &[u8]) -> Option<PeerWindows> {
    if bytes.len() != HANDOVER_BYTES {
        return None;
    }
    let word = |part: &[u8]| part.try_into().map(u64::from_le_bytes).unwrap_or_default();
    let mut windows = [Window { key: 0, base: 0, bytes: 0 }; SHARED.len()];
    for (window, part) in windows.iter_mut().zip(bytes.chunks_exact(WINDOW_BYTES)) {
        let key = u32::from_le_bytes([part[0], part[1], part[2], part[3]]);
        *window = Window { key, base: word(&part[4..12]), bytes: word(&part[12..]) };
        window.base.checked_add(window.bytes)?;
    }
    Some(PeerWindows(windows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_survive_and_ranges_outside_them_have_no_address() {
        // If this broke, pages would be written to a wrong place of a peer's memory.
        let windows = [1, 2, 3, 4, 5_u32].map(|key| Window { key, base: u64::from(key) << 40, bytes: 4096 });
        let message = encode(&windows);
        let peer = decode(&message).unwrap();
        for (area, window) in SHARED.into_iter().zip(windows) {
            assert_eq!(peer.address(area, 4088, 8), Some(RemoteRange { key: window.key, address: window.base + 4088 }));
            assert_eq!(peer.address(area, 4089, 8), None);
            assert_eq!(peer.address(area, u64::MAX, 8), None);
        }
        assert!(decode(&message[1..]).is_none());
        let wraps = encode(&[Window { key: 1, base: u64::MAX, bytes: 2 }; SHARED.len()]);
        assert!(decode(&wraps).is_none());
    }
}
