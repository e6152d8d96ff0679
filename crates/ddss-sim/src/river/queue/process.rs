//! Processes with one end of the queue.

use super::event::Event;
use ddss_river_core::{Consumer, Producer, Taken};
use std::collections::BTreeMap;

/// Life of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    pub(crate) is_killed: bool,
    /// True if the coordinator declared the process dead.
    pub(crate) is_dead: bool,
    pub(crate) is_stopped: bool,
    /// Events that wait until the process runs again.
    pub(crate) deferred: Vec<Event>,
}

impl Life {
    /// Returns true if the process executes something, now or later.
    pub(crate) const fn is_alive(&self) -> bool {
        !self.is_killed
    }

    /// Returns true if the process can connect now.
    pub(crate) const fn can_connect(&self) -> bool {
        !self.is_killed && !self.is_dead && !self.is_stopped
    }
}

/// A producer and its program.
#[derive(Clone, Debug)]
pub(crate) struct ProducerProcess {
    pub(crate) life: Life,
    pub(crate) engine: Producer,
    /// Content of the send slots.
    pub(crate) ring: Vec<u64>,
    pub(crate) made: u64,
    pub(crate) is_making: bool,
    pub(crate) is_closed: bool,
    pub(crate) has_ended: bool,
}

/// A consumer and its program.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerProcess {
    pub(crate) life: Life,
    pub(crate) engine: Consumer,
    /// Content of the rings, one for each producer.
    pub(crate) rings: BTreeMap<u16, Vec<u64>>,
    pub(crate) has_started: bool,
    /// Messages that the program may have in work.
    pub(crate) workers: usize,
    pub(crate) in_work: Vec<Taken>,
    pub(crate) has_ended: bool,
    pub(crate) is_fenced: bool,
    pub(crate) service_us: u64,
}
