//! Options of a unit queue.

use super::rows::{HEADER_BYTES, Settings};
use crate::error::QueueError;
use ddss::{Model, Spec};
use ddss_river_core::ConfigError;
use ddss_river_core::limits::{RESULT_BYTES_MAX, UNITS_MAX};
use std::time::Duration;

/// Bytes of a unit at most, whatever the options say.
const UNIT_BYTES_MAX: u32 = 64 << 10;
/// Shortest lease: workers renew their claims eight times in it.
const LEASE_MS_MIN: u32 = 100;
/// Longest lease.
const LEASE_MS_MAX: u32 = 600_000;

/// Options of [`UnitQueue::create`](crate::UnitQueue::create).
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct UnitOptions {
    capacity: u32,
    pub(super) copies: u8,
    settings: Settings,
}

impl Default for UnitOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl UnitOptions {
    /// Creates options for at most 16,384 units of at most 256 bytes, on one node.
    pub const fn new() -> Self {
        let settings = Settings { unit_bytes_max: 256, result_bytes_max: 256, lease_ms: 10_000 };
        Self { capacity: 16_384, copies: 1, settings }
    }

    /// Sets the units at most, finished ones included. Their memory is used from the beginning.
    pub const fn capacity(mut self, units: u32) -> Self {
        self.capacity = units;
        self
    }

    /// Sets the bytes of a unit at most, up to 64 KiB.
    pub const fn unit_bytes_max(mut self, bytes: u32) -> Self {
        self.settings.unit_bytes_max = bytes;
        self
    }

    /// Sets the bytes of a result, or of the reason of a failure, at most: up to 4 KiB.
    pub const fn result_bytes_max(mut self, bytes: u32) -> Self {
        self.settings.result_bytes_max = bytes;
        self
    }

    /// Sets the time after which the unit of a dead worker is given to another one. A worker that is stopped, or cut off from the
    /// queue, for longer loses its unit. Default 10 s, 100 ms to 10 minutes.
    pub const fn lease(mut self, lease: Duration) -> Self {
        let ms = lease.as_millis();
        self.settings.lease_ms = if ms > u32::MAX as u128 { u32::MAX } else { ms as u32 };
        self
    }

    /// Sets the number of nodes that store the queue: with 2, it survives each of them.
    pub const fn copies(mut self, copies: u8) -> Self {
        self.copies = copies;
        self
    }

    pub(super) const fn settings(&self) -> Settings {
        self.settings
    }

    pub(super) fn capacity_of(&self) -> u64 {
        self.capacity.into()
    }

    /// Returns the specification of the table.
    pub(super) fn spec(&self) -> Result<Spec, QueueError> {
        self.settings.check()?;
        check("capacity", self.capacity, 1, UNITS_MAX)?;
        let rows = super::rows::FIRST_UNIT + u64::from(self.capacity);
        // While one process adds units, others read how many there are.
        let spec = Spec::new(rows).row_len(self.settings.row_bytes()).model(Model::Write);
        Ok(spec.copies(self.copies))
    }
}

impl Settings {
    /// Refuses settings outside their limits.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        check("unit_bytes_max", self.unit_bytes_max, 1, UNIT_BYTES_MAX)?;
        check("result_bytes_max", self.result_bytes_max, 0, RESULT_BYTES_MAX as u32)?;
        check("lease in ms", self.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)
    }

    /// Returns the bytes of a row.
    pub(super) const fn row_bytes(&self) -> u32 {
        HEADER_BYTES as u32 + self.unit_bytes_max.next_multiple_of(8) + self.result_bytes_max.next_multiple_of(8)
    }

    /// Returns the first setting that differs, and both values.
    pub(super) fn difference(&self, other: &Self) -> Option<(&'static str, u64, u64)> {
        let values = |of: &Self| {
            [
                ("unit_bytes_max", of.unit_bytes_max),
                ("result_bytes_max", of.result_bytes_max),
                ("lease in ms", of.lease_ms),
            ]
        };
        let mut pairs = values(self).into_iter().zip(values(other));
        let found = pairs.find(|(ours, theirs)| ours.1 != theirs.1);
        found.map(|((name, ours), (_, theirs))| (name, ours.into(), theirs.into()))
    }
}

fn check(name: &'static str, value: u32, min: u32, max: u32) -> Result<(), ConfigError> {
    let (value, max) = (u64::from(value), u64::from(max));
    if value < u64::from(min) || value > max { Err(ConfigError { name, value, max }) } else { Ok(()) }
}
