//! Options of a queue.

use ddss_group::{Endpoint, NOTE_BYTES, Note};
use ddss_river_core::{Guarantee, QueueConfig};
use std::net::IpAddr;
use std::time::Duration;

/// First bytes of the settings in the directory, with the release of their format.
const FORMAT: [u8; 4] = *b"QUE1";

/// Options of [`Queue::open`](crate::Queue::open). All processes of a queue need the same limits and the same guarantee.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct QueueOptions {
    pub(crate) config: QueueConfig,
    pub(crate) members: u16,
    pub(crate) endpoint: Endpoint,
    pub(crate) copies: u8,
    pub(super) is_existing: bool,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl QueueOptions {
    /// Creates options for messages of at most 1 MiB, delivered at least once, between at most 16 processes of one machine.
    pub fn new() -> Self {
        let endpoint = Endpoint::default();
        Self { config: QueueConfig::default(), members: 16, endpoint, copies: 1, is_existing: false }
    }

    /// Sets the bytes of a message at most. The memory of a process is bounded by this times its send slots, and times the
    /// window of each other process.
    pub fn message_bytes_max(mut self, bytes: u32) -> Self {
        self.config.message_bytes_max = bytes;
        self
    }

    /// Sets the messages that wait at a consumer for each producer, at most. Default 2.
    pub fn window(mut self, messages: u16) -> Self {
        self.config.window = messages;
        self
    }

    /// Sets the messages that this process keeps until they are acknowledged, at most. Default 64.
    pub fn send_slots(mut self, messages: u16) -> Self {
        self.config.send_slots = messages;
        self
    }

    /// Sets what happens to messages of a lost consumer. Default: another one gets them, flagged.
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.config.guarantee = guarantee;
        self
    }

    /// Sets the processes of the queue at most, 1 to 64. Default 16.
    pub fn members(mut self, members: u16) -> Self {
        self.members = members;
        self
    }

    /// Sets the address at which the other processes reach this one. Default: the loopback address, for processes on one
    /// machine.
    pub fn listen(mut self, address: IpAddr) -> Self {
        self.endpoint.listen = address;
        self
    }

    /// Sets the deadline of each call. Default: a minute.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.endpoint.timeout = timeout;
        self
    }

    /// Sets the time after which a process that is stopped is lost. Default 10 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.endpoint.lease = lease;
        self
    }

    /// Sets the number of nodes that store the table of the queue: with 2, it can be joined and closed without each of them.
    pub fn copies(mut self, copies: u8) -> Self {
        self.copies = copies;
        self
    }

    /// Refuses to create the queue.
    pub fn existing(mut self) -> Self {
        self.is_existing = true;
        self
    }

    /// Returns the settings that all processes have to agree on, with their names.
    fn shared(&self) -> [(&'static str, u32); 5] {
        let QueueConfig { window, message_bytes_max, guarantee, has_recall, send_slots: _ } = self.config;
        let guarantee = match guarantee {
            Guarantee::AtLeastOnce => 0,
            Guarantee::AtMostOnce => 1,
            Guarantee::FailStop => 2,
        };
        [
            ("window", window.into()),
            ("message_bytes_max", message_bytes_max),
            ("guarantee", guarantee),
            ("recall", has_recall.into()),
            // A process that joins leaves the place of a living one for a part of its lease.
            ("lease in ms", self.endpoint.lease.as_millis().try_into().unwrap_or(u32::MAX)),
        ]
    }

    pub(super) fn encode(&self) -> Note {
        let mut note = [0; NOTE_BYTES];
        note[..4].copy_from_slice(&FORMAT);
        for (part, (_, value)) in note[4..].chunks_exact_mut(4).zip(self.shared()) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        note
    }

    /// Returns options with these settings. `None` if they are of another release or of no queue.
    pub(super) fn decode(note: &Note) -> Option<Self> {
        let word = |index: usize| u32::from_le_bytes(std::array::from_fn(|byte| note[4 + 4 * index + byte]));
        let guarantee = match word(2) {
            0 => Guarantee::AtLeastOnce,
            1 => Guarantee::AtMostOnce,
            2 => Guarantee::FailStop,
            _ => return None,
        };
        let options = Self::new().window(u16::try_from(word(0)).ok()?).message_bytes_max(word(1)).guarantee(guarantee);
        let mut options = options.lease(Duration::from_millis(word(4).into()));
        options.config.has_recall = word(3) != 0;
        (options.encode() == *note && options.config.check().is_ok()).then_some(options)
    }

    /// Returns the first setting that differs, the value of the queue, and that of this process.
    pub(super) fn difference(&self, theirs: &Note) -> (&'static str, u64, u64) {
        let value = |part: &[u8]| u32::from_le_bytes([part[0], part[1], part[2], part[3]]);
        let settings = self.shared().into_iter().zip(theirs[4..].chunks_exact(4));
        let mut different = settings.map(|((name, ours), theirs)| (name, value(theirs).into(), ours.into()));
        different
            .find(|(_, theirs, ours): &(_, u64, u64)| theirs != ours)
            // If no setting differs, the format does.
            .unwrap_or(("format", value(&theirs[..4]).into(), value(&FORMAT).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_setting_that_differs_is_named() {
        // If this broke, a process with other limits would be refused without a reason.
        let theirs = QueueOptions::new().message_bytes_max(99).guarantee(Guarantee::FailStop).encode();
        assert_eq!(QueueOptions::new().difference(&theirs), ("message_bytes_max", 99, 1 << 20));
        assert_eq!(QueueOptions::new().message_bytes_max(99).difference(&theirs), ("guarantee", 2, 0));
        assert_eq!(QueueOptions::new().send_slots(9).encode(), QueueOptions::new().encode());
        // A process that joins by the settings of the queue has the same.
        assert_eq!(QueueOptions::decode(&theirs).map(|options| options.encode()), Some(theirs));
        assert!(QueueOptions::decode(&[0; NOTE_BYTES]).is_none());
    }
}
