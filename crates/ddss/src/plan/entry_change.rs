//! Plan of a change of a map's entry.

use crate::location::SegmentLocation;
use crate::plan::{Decoder, Outgoing, PlannedCall};
use crate::value::first_word;
use ddss_core::{ArenaRange, EntryChange, EntryState, Operation, Payload, PutConditions};

impl SegmentLocation {
    /// Plans the change of an entry in the bucket at `offset`. The pieces are the slot's word, the key and the value.
    pub(crate) fn plan_entry_change<'a>(
        &'a self,
        action: &'static str,
        offset: u64,
        change: EntryChange,
        pieces: &'a [&'a [u8]],
    ) -> PlannedCall<'a, impl Decoder<EntryState>> {
        let conditions = PutConditions { entry: Some(change), ..self.put_conditions(None) };
        let (segment, from) = (self.id, Payload::Arena(ArenaRange::NOWHERE));
        let plan = self.plan(action, Operation::Put { segment, offset, from, conditions });
        plan.sends(Outgoing::Pieces(pieces)).returns(|completion, _| EntryState::of_word(first_word(completion)))
    }
}
