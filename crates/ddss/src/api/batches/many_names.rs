//! Calls that make, find or free many segments: as many requests as fit are in flight at the same time.

use super::super::allocate::checked_name;
use super::super::segment::Segment;
use super::{Client, twin};
use crate::error::Error;
use crate::plan::{CallPlan, Outgoing};
use crate::spec::Spec;
use ddss_core::{ArenaRange, Name, OpenedSegment, Operation};

/// Names whose requests share one deadline, and whose texts are in memory at a time.
const NAMES_PER_GROUP: usize = 1024;

/// A request for the segment of a name.
struct NamedCall<'a> {
    action: &'static str,
    name: &'a str,
    checked: Name,
    operation: Operation,
    text: Vec<u8>,
}

impl<'a> NamedCall<'a> {
    fn allocate(name: &'a str, spec: &Spec) -> Result<Self, Error> {
        let (action, checked) = ("allocate", checked_name(name, "allocate")?);
        let spec = spec.wire_of_own().map_err(Error::argument(action, name))?;
        let text = [&spec.encode()[..], checked.as_str().as_bytes()].concat();
        let operation = Operation::Allocate { spec_and_name: ArenaRange::NOWHERE };
        Ok(Self { action, name, checked, operation, text })
    }

    fn open(name: &'a str) -> Result<Self, Error> {
        let (action, checked) = ("open", checked_name(name, "open")?);
        let text = checked.as_str().as_bytes().to_vec();
        Ok(Self { action, name, checked, operation: Operation::Open { name: ArenaRange::NOWHERE }, text })
    }

    fn plan(&self) -> CallPlan<'_> {
        CallPlan::new(self.action, self.name, self.operation).sends(Outgoing::Bytes(&self.text))
    }
}

#[twin]
impl Client {
    /// Allocates segments, and returns the result of each in the order of the names. Each is a call of its own, and
    /// a failure does not affect the others.
    ///
    /// In a cluster each allocation waits for a majority of the nodes. Here many wait together, so a program that
    /// needs thousands of segments has them in less time than by [`allocate`](crate::Named::allocate). Each 1,024 names
    /// share the timeout of one call.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
    /// let names: Vec<String> = (0..100).map(|number| format!("queue/{number}")).collect();
    /// let wanted: Vec<_> = names.iter().map(|name| (&name[..], ddss::Spec::new(64))).collect();
    /// let queues: Vec<_> = client.allocate_many(&wanted).into_iter().collect::<Result<_, _>>()?;
    /// queues[7].put(0, b"first")?;
    /// assert!(client.release_many(queues).iter().all(Result::is_ok));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn allocate_many(&self, wanted: &[(&str, Spec)]) -> Vec<Result<Segment, Error>> {
        let mut made = Vec::with_capacity(wanted.len());
        for group in wanted.chunks(NAMES_PER_GROUP) {
            let calls = group.iter().map(|(name, spec)| NamedCall::allocate(name, spec)).collect();
            made.append(&mut self.segments_by(calls).await);
        }
        made
    }

    /// Opens segments by name, many requests at a time: [`allocate_many`](Self::allocate_many).
    pub async fn open_many(&self, names: &[&str]) -> Vec<Result<Segment, Error>> {
        let mut found = Vec::with_capacity(names.len());
        for group in names.chunks(NAMES_PER_GROUP) {
            let calls = group.iter().map(|name| NamedCall::open(name)).collect();
            found.append(&mut self.segments_by(calls).await);
        }
        found
    }

    /// Frees segments in the whole cluster, many requests at a time: [`Segment::release`].
    pub async fn release_many(&self, segments: Vec<Segment>) -> Vec<Result<(), Error>> {
        let mut ended = Vec::with_capacity(segments.len());
        for group in segments.chunks(NAMES_PER_GROUP) {
            let mut plans = Vec::with_capacity(group.len());
            for segment in group {
                let plan = segment.location().plan("release", Operation::Release { segment: segment.id() });
                plans.push((segment.client().shard(), plan));
            }
            let (results, _) = self.run_group(self.time(), plans).await;
            ended.extend(results.into_iter().map(|result| result.map(drop)));
        }
        ended
    }

    /// Runs requests for segments, and makes the handles.
    async fn segments_by(&self, calls: Vec<Result<NamedCall<'_>, Error>>) -> Vec<Result<Segment, Error>> {
        let ready = calls.iter().flatten();
        let plans = ready.map(|call| (self.shard_of(&call.checked), call.plan())).collect();
        let (results, _) = self.run_group(self.time(), plans).await;
        let mut results = results.into_iter();
        let mut segment = |call: NamedCall<'_>| {
            let (completion, _) = results.next().expect("each call has a result")?;
            let client = self.at_shard_of(&call.checked)?;
            Ok(client.into_segment(call.name, OpenedSegment::decode(&completion.data)))
        };
        calls.into_iter().map(|call| call.and_then(&mut segment)).collect()
    }
}
