//! Options of a flow.

use super::error::FlowError;
use super::tables::MEMBERS_MAX;
use crate::queue::QueueOptions;
use ddss_group::{NOTE_BYTES, Note};
use ddss_river_core::{ConfigError, Guarantee};
use std::env;
use std::net::IpAddr;
use std::time::Duration;

/// First bytes of the settings in the directory, with the release of their format.
const FORMAT: [u8; 4] = *b"FLO2";

/// Options of [`Flow::join_with`](crate::flow::Flow::join_with). All members need the same limits and the same guarantee.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct FlowOptions {
    /// Options of each queue.
    pub(super) queue: QueueOptions,
    pub(super) processes: u16,
    /// Messages that fail end the flow.
    pub(super) ends_with_failed: bool,
}

impl Default for FlowOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl FlowOptions {
    /// Creates options for a flow that one process begins, of at most 16 processes of one machine, with messages of at most
    /// 1 MiB that are delivered at least once.
    pub fn new() -> Self {
        Self { queue: QueueOptions::new(), processes: 1, ends_with_failed: false }
    }

    /// Creates options from what `ddss river run` tells its processes. Without it they are those of [`new`](Self::new).
    ///
    /// # Errors
    /// A variable has another value than it sets.
    pub fn from_environment() -> Result<Self, FlowError> {
        let mut options = Self::new();
        if let Some(processes) = variable("DDSS_RIVER_PROCESSES")? {
            options = options.processes(processes).members(processes.saturating_mul(2).clamp(16, MEMBERS_MAX));
        }
        if let Some(address) = variable("DDSS_RIVER_LISTEN")? {
            options = options.listen(address);
        }
        Ok(options)
    }

    /// Sets the processes that begin the flow: modules run once so many have joined. Others may join later. Default 1.
    pub fn processes(mut self, processes: u16) -> Self {
        self.processes = processes;
        self
    }

    /// Sets the processes of the flow at most, 1 to 64. Default 16.
    pub fn members(mut self, members: u16) -> Self {
        self.queue = self.queue.members(members);
        self
    }

    /// Sets the bytes of a message at most. Default 1 MiB.
    pub fn message_bytes_max(mut self, bytes: u32) -> Self {
        self.queue = self.queue.message_bytes_max(bytes);
        self
    }

    /// Sets the messages that wait at a consumer for each producer, at most. Default 2.
    pub fn window(mut self, messages: u16) -> Self {
        self.queue = self.queue.window(messages);
        self
    }

    /// Sets what the loss of a member does. Default: others repeat what it has not acknowledged. With
    /// [`Guarantee::FailStop`] it ends the flow.
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.queue = self.queue.guarantee(guarantee);
        self
    }

    /// Makes a message that fails end the flow: three consumers were lost with it, or dropped it. Without this the flow goes on, and
    /// [`Running::wait`](crate::flow::Running::wait) reports the message at its end.
    pub fn end_with_failed_messages(mut self) -> Self {
        self.ends_with_failed = true;
        self
    }

    /// Sets the address at which other members reach this process. Default: the loopback address.
    pub fn listen(mut self, address: IpAddr) -> Self {
        self.queue = self.queue.listen(address);
        self
    }

    /// Sets the time in which a consumer makes room for a message, and in which all processes join. Default: a minute.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.queue = self.queue.timeout(timeout);
        self
    }

    /// Sets the time after which a process that is stopped is lost. Default 10 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.queue = self.queue.lease(lease);
        self
    }

    /// Sets the number of nodes that store the tables of the flow: with 2, it goes on without each of them.
    pub fn copies(mut self, copies: u8) -> Self {
        self.queue = self.queue.copies(copies);
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let range = |name, value: u16, max: u16| {
            let is_valid = (1..=max).contains(&value);
            if is_valid { Ok(()) } else { Err(ConfigError { name, value: value.into(), max: max.into() }) }
        };
        range("members", self.queue.members, MEMBERS_MAX)?;
        range("processes", self.processes, self.queue.members)?;
        self.queue.config.check()
    }

    pub(super) fn is_fail_stop(&self) -> bool {
        self.queue.config.guarantee == Guarantee::FailStop
    }

    /// Returns the settings that all members have to agree on, with their names.
    fn shared(&self) -> [(&'static str, u32); 5] {
        let guarantee = match self.queue.config.guarantee {
            Guarantee::AtLeastOnce => 0,
            Guarantee::AtMostOnce => 1,
            Guarantee::FailStop => 2,
        };
        [
            ("window", self.queue.config.window.into()),
            ("message_bytes_max", self.queue.config.message_bytes_max),
            ("guarantee", guarantee),
            ("lease in ms", self.queue.endpoint.lease.as_millis().try_into().unwrap_or(u32::MAX)),
            ("end_with_failed_messages", self.ends_with_failed.into()),
        ]
    }

    /// Returns the settings and the hash of the graph, as the directory has them.
    pub(super) fn encode(&self, hash: u64) -> Note {
        let mut note = [0; NOTE_BYTES];
        note[..4].copy_from_slice(&FORMAT);
        note[4..12].copy_from_slice(&hash.to_le_bytes());
        for (part, (_, value)) in note[12..].chunks_exact_mut(4).zip(self.shared()) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        note
    }

    /// Returns the hash of the graph in settings. `None` if they are of no flow.
    pub(super) fn hash_in(note: &Note) -> Option<u64> {
        (note[..4] == FORMAT).then(|| u64::from_le_bytes(std::array::from_fn(|byte| note[4 + byte])))
    }

    /// Returns the lease of a place in settings. `None` if they are of no flow.
    pub(super) fn lease_in(note: &Note) -> Option<Duration> {
        let ms = u32::from_le_bytes(std::array::from_fn(|byte| note[24 + byte]));
        (note[..4] == FORMAT).then(|| Duration::from_millis(ms.into()))
    }

    /// Returns the first setting that differs, the value of the flow, and that of this process.
    pub(super) fn difference(&self, theirs: &Note) -> Option<(&'static str, u64, u64)> {
        let value = |part: &[u8]| u32::from_le_bytes([part[0], part[1], part[2], part[3]]);
        let settings = self.shared().into_iter().zip(theirs[12..].chunks_exact(4));
        let mut both = settings.map(|((name, ours), theirs)| (name, u64::from(value(theirs)), u64::from(ours)));
        both.find(|(_, theirs, ours)| theirs != ours)
    }
}

fn variable<T: std::str::FromStr>(name: &'static str) -> Result<Option<T>, FlowError> {
    match env::var(name) {
        Ok(value) => value.parse().map(Some).map_err(|_| FlowError::Environment { name, value }),
        Err(_) => Ok(None),
    }
}
