//! Settings of a queue.

use super::guarantee::Guarantee;
use crate::limits::{MESSAGE_BYTES_MAX, SEND_SLOTS_MAX, WINDOW_MAX};

/// Settings of a queue, the same at all its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// Messages of one producer at one consumer at most.
    pub window: u16,
    /// Messages that a producer holds until they are acknowledged, at most.
    pub send_slots: u16,
    /// Bytes of a message at most.
    pub message_bytes_max: u32,
    /// Guarantee for messages of a lost consumer.
    pub guarantee: Guarantee,
    /// True if an idle producer takes back messages that its slowest consumer has not begun. A recalled message may reach
    /// a consumer behind a later one, and is flagged.
    pub has_recall: bool,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            // One message in work and one behind it hide the way of the acknowledgement; more only lengthen the tail.
            window: 2,
            send_slots: 64,
            message_bytes_max: 1 << 20,
            guarantee: Guarantee::AtLeastOnce,
            has_recall: true,
        }
    }
}

/// A setting outside its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name} is {value}: use 1 to {max}")]
pub struct ConfigError {
    /// Setting.
    pub name: &'static str,
    /// Value.
    pub value: u64,
    /// Largest value.
    pub max: u64,
}

impl QueueConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first setting outside its limits.
    pub fn check(&self) -> Result<(), ConfigError> {
        let limits = [
            ("window", self.window.into(), WINDOW_MAX.into()),
            ("send_slots", self.send_slots.into(), SEND_SLOTS_MAX.into()),
            ("message_bytes_max", self.message_bytes_max.into(), u64::from(MESSAGE_BYTES_MAX)),
        ];
        let refused = limits.into_iter().find(|(_, value, max)| *value == 0 || value > max);
        refused.map_or(Ok(()), |(name, value, max)| Err(ConfigError { name, value, max }))
    }
}
