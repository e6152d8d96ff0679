//! Windows that members open to each other, as messages carry them.

use ddss_verbs::{RemoteRange, Window};

/// Window over a member's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteWindow(Window);

impl RemoteWindow {
    /// Bytes of a window in a message.
    pub const BYTES: usize = 20;

    /// Encodes a window of this process, for a member.
    #[must_use]
    pub fn encode(window: &Window) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&window.key.to_le_bytes());
        out[4..12].copy_from_slice(&window.base.to_le_bytes());
        out[12..].copy_from_slice(&window.bytes.to_le_bytes());
        out
    }

    /// Decodes the window of a member. `None` if it wraps around.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |part: &[u8]| part.try_into().map(u64::from_le_bytes).unwrap_or_default();
        let key = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let window = Window { key, base: word(&bytes[4..12]), bytes: word(&bytes[12..]) };
        window.base.checked_add(window.bytes)?;
        Some(Self(window))
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Returns the address of a range. `None` if it is outside the window.
    #[must_use]
    pub fn address(&self, offset: u64, bytes: u64) -> Option<RemoteRange> {
        let Window { key, base, bytes: size } = self.0;
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= size);
        is_inside.then(|| RemoteRange { key, address: base + offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_survives_and_ranges_outside_have_no_address() {
        // If this broke, one-sided work would reach a wrong place of a member's memory.
        let window = Window { key: 7, base: 3 << 40, bytes: 4096 };
        let remote = RemoteWindow::decode(&RemoteWindow::encode(&window)).unwrap();
        assert_eq!(remote.address(4088, 8), Some(RemoteRange { key: 7, address: (3 << 40) + 4088 }));
        assert_eq!((remote.address(4089, 8), remote.address(u64::MAX, 8)), (None, None));
        let wraps = Window { key: 1, base: u64::MAX, bytes: 2 };
        assert_eq!(RemoteWindow::decode(&RemoteWindow::encode(&wraps)), None);
    }
}
