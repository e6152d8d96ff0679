//! Calls of a [`Client`] that make or find a segment by its name.

use super::segment::Segment;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::location::shape_of;
use crate::plan::{CallPlan, Outgoing, Reply};
use crate::spec::Spec;
use ddss_core::{ArenaRange, Completion, Failure, Name, OpenedSegment, Operation};
use std::time::{Duration, Instant};

pub(crate) fn checked_name(name: &str, action: &'static str) -> Result<Name, Error> {
    Name::new(name).map_err(|failure| Error::failed(action, format!("{name:?}"), failure))
}

#[twin]
impl Client {
    /// Allocates a segment. The name must be unused in the cluster, as far as this node can reach it.
    pub async fn allocate(&self, name: &str, spec: Spec) -> Result<Segment, Error> {
        self.allocate_by(self.time(), name, spec).await
    }

    pub(crate) async fn allocate_by(&self, time: Deadline, name: &str, spec: Spec) -> Result<Segment, Error> {
        let wire = spec.wire();
        wire.check().map_err(Error::argument("allocate", name))?;
        let Some(owner) = spec.other_owner() else { return self.allocate_own(time, name, &wire).await };
        let made = self.allocate_own(time, name, &wire.mode(0)).await?;
        if let Err(error) = made.set_owner_and_mode(owner, wire.mode).await {
            // The segment is still unused. If its release fails too, the first error says more.
            drop(made.release().await);
            return Err(error);
        }
        // The bytes have moved to an area that their readers may map.
        self.open_by(time, name).await
    }

    /// Allocates a segment of this process's user, whose specification is checked.
    async fn allocate_own(&self, time: Deadline, name: &str, spec: &ddss_core::Spec) -> Result<Segment, Error> {
        let checked = checked_name(name, "allocate")?;
        let text = [&spec.encode()[..], checked.as_str().as_bytes()].concat();
        let operation = Operation::Allocate { spec_and_name: ArenaRange::NOWHERE };
        let plan = CallPlan::new("allocate", name, operation).sends(Outgoing::Bytes(&text));
        self.segment_by(time, &checked, plan).await
    }

    /// Opens a segment by name, wherever in the cluster its home is.
    pub async fn open(&self, name: &str) -> Result<Segment, Error> {
        self.open_by(self.time(), name).await
    }

    pub(crate) async fn open_by(&self, time: Deadline, name: &str) -> Result<Segment, Error> {
        let checked = checked_name(name, "open")?;
        let operation = Operation::Open { name: ArenaRange::NOWHERE };
        let plan = CallPlan::new("open", name, operation).sends(Outgoing::Bytes(checked.as_str().as_bytes()));
        self.segment_by(time, &checked, plan).await
    }

    /// Opens a segment, or allocates it if the name is unused. All attempts share the timeout of one call.
    ///
    /// An existing segment of another kind, size or model is refused with [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape); its other
    /// properties stay, whatever the specification says. If several processes make this
    /// call at the same time, one of them allocates the segment and the others open it.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// let made = client.open_or_allocate("scores", ddss::Spec::new(64))?;
    /// let found = client.open_or_allocate("scores", ddss::Spec::new(64))?;
    /// assert_eq!(made.id(), found.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn open_or_allocate(&self, name: &str, spec: Spec) -> Result<Segment, Error> {
        let wire = spec.wire();
        wire.check().map_err(Error::argument("allocate", name))?;
        let time = self.time().started();
        // Ends at the deadline: another process may release the segment after each allocation.
        loop {
            match self.open_by(time, name).await {
                Err(error) if error.has_failed_with(Failure::NotFound) => {}
                Ok(found) => {
                    let location = found.location();
                    let wanted = (wire.bytes, wire.row_bytes, wire.model);
                    if (location.bytes, location.row_bytes, location.model) != wanted {
                        let wanted = shape_of(wire.bytes, wire.row_bytes, wire.model);
                        return Err(Error::wrong_shape("open or allocate", name, location.shape(), wanted));
                    }
                    return Ok(found);
                }
                Err(error) => return Err(error),
            }
            match self.allocate_by(time, name, spec).await {
                Err(error) if error.has_failed_with(Failure::AlreadyExists) => {}
                ended => return ended,
            }
        }
    }

    /// Waits until another process has allocated the segment, and opens it. At the deadline of one call it fails
    /// with [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// # let allocator = client.clone();
    /// let other = std::thread::spawn(move || allocator.allocate("scores", ddss::Spec::new(64)));
    /// let scores = client.wait_for("scores")?;
    /// assert_eq!(scores.len(), 64);
    /// # other.join().expect("it does not panic")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_for(&self, name: &str) -> Result<Segment, Error> {
        /// Pause between two attempts.
        const OPEN_INTERVAL: Duration = Duration::from_millis(5);
        let mut time = self.time().started();
        loop {
            match self.open_by(time, name).await {
                Err(error) if error.has_failed_with(Failure::NotFound) => {}
                ended => return ended,
            }
            if Instant::now() + OPEN_INTERVAL >= time.deadline() {
                let (action, target) = ("wait for", name.to_owned());
                return Err(Error::failed(action, target, Failure::TimedOut));
            }
            self.pause(OPEN_INTERVAL).await;
        }
    }

    /// Runs a call of the shard that serves the name, and makes the handle of the segment that it returns.
    pub(crate) async fn segment_by(&self, time: Deadline, name: &Name, plan: CallPlan<'_>) -> Result<Segment, Error> {
        let client = self.at_shard_of(name)?;
        let opened = |completion: &Completion, _: &Reply<'_>| OpenedSegment::decode(&completion.data);
        let opened = client.run(time, plan.returns(opened)).await?;
        Ok(client.into_segment(plan.target, opened))
    }

    /// Makes one round trip to a progress thread, without any effect.
    pub async fn ping(&self) -> Result<(), Error> {
        let plan = CallPlan::new("reach", "the daemon", Operation::Null);
        self.run(self.time(), plan.returns(|_, _| ())).await
    }
}
