//! Result of one call of a batch, before its ticket gives it a type.

use crate::client::Client;
use crate::encoding::Encoding;
use crate::error::Error;
use crate::location::SegmentLocation;
use crate::map::entry::Entry;
use crate::map::shape::decoded_value;
use crate::value::{AtomicResult, Stamp, Value, Written};
use std::sync::Arc;

/// Result of one call of a batch.
pub(crate) enum BatchReply {
    Got(Value),
    Stamp(Stamp),
    Atomic(AtomicResult),
    /// The client of the segment's shard, and the segment.
    Opened(Client, SegmentLocation),
    /// The name of the map, and the entry of a key.
    Entry(Arc<str>, Option<Entry<Vec<u8>>>),
    Written(Written),
    /// True if the key was present.
    Removed(bool),
    Done,
}

impl BatchReply {
    pub(super) fn got(self) -> Result<Value, Error> {
        if let Self::Got(value) = self { Ok(value) } else { self.is_of_another_call() }
    }

    pub(super) fn stamp(self) -> Result<Stamp, Error> {
        if let Self::Stamp(stamp) = self { Ok(stamp) } else { self.is_of_another_call() }
    }

    pub(super) fn atomic(self) -> Result<AtomicResult, Error> {
        if let Self::Atomic(result) = self { Ok(result) } else { self.is_of_another_call() }
    }

    pub(super) fn done(self) -> Result<(), Error> {
        if let Self::Done = self { Ok(()) } else { self.is_of_another_call() }
    }

    pub(super) fn entry<V: Encoding + ?Sized>(self) -> Result<Option<Entry<V::Output>>, Error> {
        let Self::Entry(name, entry) = self else { self.is_of_another_call() };
        entry.map(|entry| Ok(entry.with_value(decoded_value::<V>(&name, &entry.value)?))).transpose()
    }

    pub(super) fn written(self) -> Result<Written, Error> {
        match self {
            Self::Written(written) => Ok(written),
            // The put of an entry that had the version.
            Self::Stamp(stamp) => Ok(Written { is_new: false, version: stamp.version }),
            other => other.is_of_another_call(),
        }
    }

    pub(super) fn removed(self) -> Result<bool, Error> {
        if let Self::Removed(was_present) = self { Ok(was_present) } else { self.is_of_another_call() }
    }

    pub(crate) fn is_of_another_call(&self) -> ! {
        unreachable!("the reply is that of the ticket's call")
    }
}
