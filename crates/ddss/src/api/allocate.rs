//! Calls of a [`Client`] that make or find a segment by its name.

use super::segment::Segment;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::location::checked_name;
use crate::plan::{CallPlan, Outgoing, Reply};
use crate::spec::Spec;
use ddss_core::{ArenaRange, Completion, Name, OpenedSegment, Operation};

#[twin]
impl Client {
    pub(crate) async fn allocate_by(&self, time: Deadline, name: &str, spec: Spec) -> Result<Segment, Error> {
        let wire = spec.wire().map_err(Error::argument("allocate", name))?;
        let Some(owner) = spec.other_owner() else { return self.allocate_own(time, name, &wire).await };
        let made = self.allocate_own(time, name, &wire.mode(0)).await?;
        if let Err(error) = made.set_owner_and_mode(owner, wire.mode).await {
            // The segment is still unused. If its release fails too, the first error says more, but the name is taken.
            return Err(if made.release().await.is_ok() { error } else { error.after_effect() });
        }
        // The bytes have moved to an area that their readers may map.
        self.open_by(time, name).await.map_err(Error::after_effect)
    }

    /// Allocates a segment of this process's user, whose specification is checked.
    async fn allocate_own(&self, time: Deadline, name: &str, spec: &ddss_core::Spec) -> Result<Segment, Error> {
        let checked = checked_name(name, "allocate")?;
        let text = [&spec.encode()[..], checked.as_str().as_bytes()].concat();
        let operation = Operation::Allocate { spec_and_name: ArenaRange::NOWHERE };
        let plan = CallPlan::new("allocate", name, operation).sends(Outgoing::Bytes(&text));
        self.segment_by(time, &checked, plan).await
    }

    pub(crate) async fn open_by(&self, time: Deadline, name: &str) -> Result<Segment, Error> {
        let checked = checked_name(name, "open")?;
        let operation = Operation::Open { name: ArenaRange::NOWHERE };
        let plan = CallPlan::new("open", name, operation).sends(Outgoing::Bytes(checked.as_str().as_bytes()));
        self.segment_by(time, &checked, plan).await
    }

    /// Runs a call of the shard that serves the name, and makes the handle of the segment that it returns.
    pub(crate) async fn segment_by(&self, time: Deadline, name: &Name, plan: CallPlan<'_>) -> Result<Segment, Error> {
        let (client, time) = (self.at_shard_of(name)?, time.started());
        let opened = |completion: &Completion, _: &Reply<'_>| OpenedSegment::decode(&completion.data);
        let opened = client.execute(time, plan.returns(opened)).await?;
        Ok(client.into_segment(time, plan.target, opened).await)
    }

    /// Makes one round trip to a progress thread, without any effect.
    pub async fn ping(&self) -> Result<(), Error> {
        let plan = CallPlan::new("reach", "the daemon", Operation::Null);
        self.execute(self.time(), plan.returns(|_, _| ())).await
    }
}
