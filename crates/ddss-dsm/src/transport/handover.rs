//! The first message to each peer: the windows of this rank's areas.

use super::areas::SHARED;
use ddss_dsm_core::Area;
use ddss_group::RemoteWindow;
use ddss_verbs::{RemoteRange, Window};

/// Bytes of the message.
pub(super) const HANDOVER_BYTES: usize = SHARED.len() * RemoteWindow::BYTES;

/// Windows over a peer's areas.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerWindows([RemoteWindow; SHARED.len()]);

impl PeerWindows {
    /// Returns the address of a range of an area. `None` if it is outside the window: the peer has another size.
    pub(super) fn address(&self, area: Area, offset: u64, bytes: u64) -> Option<RemoteRange> {
        self.0[area as usize].address(offset, bytes)
    }
}

/// Encodes the windows that a peer gets, in the order of [`SHARED`].
pub(super) fn encode(windows: &[Window; SHARED.len()]) -> [u8; HANDOVER_BYTES] {
    let mut out = [0; HANDOVER_BYTES];
    for (part, window) in out.chunks_exact_mut(RemoteWindow::BYTES).zip(windows) {
        part.copy_from_slice(&RemoteWindow::encode(window));
    }
    out
}

/// Decodes the windows of a peer. `None` if the message has another length, or a window wraps around.
pub(super) fn decode(bytes: &[u8]) -> Option<PeerWindows> {
    let (parts, rest) = bytes.as_chunks::<{ RemoteWindow::BYTES }>();
    let windows = parts.iter().map(RemoteWindow::decode).collect::<Option<Vec<_>>>()?;
    windows.try_into().ok().filter(|_| rest.is_empty()).map(PeerWindows)
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
