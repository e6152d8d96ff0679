//! Plan of a change of a map's entry.

use crate::location::SegmentLocation;
use crate::plan::{CallPlan, Outgoing};
use crate::value::first_word;
use ddss_core::{ArenaRange, Completion, EntryChange, EntryState, Operation, Payload, PutConditions, Version};

/// Returns the state of the key before its change, and the version of its bucket after it.
pub(crate) fn entry_changed(completion: &Completion) -> (EntryState, Version) {
    (EntryState::of_word(first_word(completion)), completion.version)
}

impl SegmentLocation {
    /// Plans the change of an entry in the bucket at `offset`. It sends the slot's word, the key and the value.
    pub(crate) fn plan_entry_change<'a>(
        &'a self,
        action: &'static str,
        offset: u64,
        change: EntryChange,
        outgoing: Outgoing<'a>,
    ) -> CallPlan<'a> {
        let conditions = PutConditions { entry: Some(change), ..self.put_conditions(None) };
        let (segment, from) = (self.id, Payload::Arena(ArenaRange::NOWHERE));
        self.plan(action, Operation::Put { segment, offset, from, conditions }).sends(outgoing)
    }
}
