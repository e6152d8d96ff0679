//! Edges of a flow.

use crate::units::UnitOptions;
use ddss_river_core::EdgeKind;
use std::fmt;
use std::sync::Arc;

/// Returns the key of a message.
pub(crate) type KeyOf = Arc<dyn for<'a> Fn(&'a [u8]) -> &'a [u8] + Send + Sync>;

/// Way of the messages from the instances of a module to those of another.
#[derive(Clone)]
#[must_use]
pub struct Edge {
    pub(crate) kind: EdgeKind,
    pub(crate) key: Option<KeyOf>,
    pub(crate) units: UnitOptions,
}

impl Edge {
    fn of(kind: EdgeKind) -> Self {
        Self { kind, key: None, units: UnitOptions::new() }
    }

    /// Any instance gets a message: one that asks for it. A slow one gets fewer.
    pub fn queue() -> Self {
        Self::of(EdgeKind::Queue)
    }

    /// Each message is a work unit of at most 256 bytes, in a list that survives every process.
    pub fn units() -> Self {
        Self::of(EdgeKind::Units)
    }

    /// As [`units`](Self::units), with other limits.
    pub fn units_with(options: UnitOptions) -> Self {
        Self { units: options, ..Self::units() }
    }

    /// Instance i gets the messages of instance i, in order. Both modules have equally many.
    pub fn one_to_one() -> Self {
        Self::of(EdgeKind::OneToOne)
    }

    /// All messages with a key get to one instance. `key` returns the part of a message that is its key.
    pub fn by_key(key: impl for<'a> Fn(&'a [u8]) -> &'a [u8] + Send + Sync + 'static) -> Self {
        Self { key: Some(Arc::new(key)), ..Self::of(EdgeKind::ByKey) }
    }

    /// Each instance gets each message.
    pub fn all_to_all() -> Self {
        Self::of(EdgeKind::AllToAll)
    }
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Edge").field(&self.kind).finish()
    }
}
