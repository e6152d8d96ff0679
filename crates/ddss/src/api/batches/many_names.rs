//! Calls that make, find or free many segments: as many requests as fit are in flight at the same time.

use crate::api::allocate::checked_name;
use crate::async_client::{AsyncClient, AsyncSegment};
use crate::calls::calls;
use crate::client::Client;
use crate::error::Error;
use crate::plan::{CallPlan, Outgoing};
use crate::segment::Segment;
use ddss_core::{ArenaRange, Name, OpenedSegment, Operation, Spec};

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
        spec.check().map_err(Error::argument(action, name))?;
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

calls! {
    impl Client, AsyncClient {
        /// Allocates segments, and returns the result of each in the order of the names. Each is a call of its own, and
        /// a failure does not affect the others.
        ///
        /// In a cluster each allocation waits for a majority of the nodes. Here many wait together, so a program that
        /// needs thousands of segments has them in less time than by [`allocate`](Self::allocate). Each 1,024 names
        /// share the timeout of one call.
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// let names: Vec<String> = (0..100).map(|number| format!("queue/{number}")).collect();
        /// let wanted: Vec<_> = names.iter().map(|name| (&name[..], ddss::Spec::new(64))).collect();
        /// let queues: Vec<_> = client.allocate_many(&wanted).into_iter().collect::<Result<_, _>>()?;
        /// queues[7].put(0, b"first")?;
        /// assert!(client.release_many(queues).iter().all(Result::is_ok));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn allocate_many(&self, wanted: &[(&str, Spec)]) -> Vec<Result<Segment, Error>>
            | Vec<Result<AsyncSegment, Error>>
        {
            let mut made = Vec::with_capacity(wanted.len());
            for group in wanted.chunks(NAMES_PER_GROUP) {
                let calls = group.iter().map(|(name, spec)| NamedCall::allocate(name, spec)).collect();
                made.append(&mut wait!(self.segments_by(calls)));
            }
            made
        }

        /// Opens segments by name, many requests at a time: [`allocate_many`](Self::allocate_many).
        pub async fn open_many(&self, names: &[&str]) -> Vec<Result<Segment, Error>>
            | Vec<Result<AsyncSegment, Error>>
        {
            let mut found = Vec::with_capacity(names.len());
            for group in names.chunks(NAMES_PER_GROUP) {
                let calls = group.iter().map(|name| NamedCall::open(name)).collect();
                found.append(&mut wait!(self.segments_by(calls)));
            }
            found
        }

        /// Frees segments in the whole cluster, many requests at a time: [`Segment::release`].
        pub async fn release_many(&self, segments: Vec<Segment>) | (&self, segments: Vec<AsyncSegment>)
            -> Vec<Result<(), Error>>
        {
            let mut ended = Vec::with_capacity(segments.len());
            for group in segments.chunks(NAMES_PER_GROUP) {
                let mut plans = Vec::with_capacity(group.len());
                for segment in group {
                    let plan = segment.location().plan("release", Operation::Release { segment: segment.id() });
                    plans.push((segment.client().shard(), plan));
                }
                let (results, _) = wait!(self.run_group(self.time(), plans));
                ended.extend(results.into_iter().map(|result| result.map(drop)));
            }
            ended
        }

        /// Runs requests for segments, and makes the handles.
        async fn segments_by(&self, calls: Vec<Result<NamedCall<'_>, Error>>) -> Vec<Result<Segment, Error>>
            | Vec<Result<AsyncSegment, Error>>
        {
            let ready = calls.iter().flatten();
            let plans = ready.map(|call| (self.shard_of(&call.checked), call.plan())).collect();
            let (results, _) = wait!(self.run_group(self.time(), plans));
            let mut results = results.into_iter();
            let mut segment = |call: NamedCall<'_>| {
                let (completion, _) = results.next().expect("each call has a result")?;
                let client = self.at_shard_of(&call.checked)?;
                Ok(client.into_segment(call.name, OpenedSegment::decode(&completion.data)))
            };
            calls.into_iter().map(|call| call.and_then(&mut segment)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;
    use crate::testing::{TestNode, block_on};

    #[test]
    fn many_names_are_made_found_and_freed_each_by_itself() {
        // If this broke, one refused name would take thousands of others with it, or a handle would be another name's.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let client = node.client();
        client.allocate("many/7", Spec::new(8)).unwrap();
        let names: Vec<String> = (0..1500).map(|number| format!("many/{number}")).collect();
        let mut wanted: Vec<_> = names.iter().map(|name| (&name[..], Spec::new(64))).collect();
        wanted[9] = ("", Spec::new(64));
        wanted[11].1 = Spec::new(0);
        let made = client.allocate_many(&wanted);
        let refused: Vec<_> = (0..).zip(&made).filter(|(_, made)| made.is_err()).map(|(index, _)| index).collect();
        assert_eq!(refused, [7, 9, 11]);
        assert_eq!(made[7].as_ref().unwrap_err().failure(), Some(Failure::AlreadyExists));
        for (name, segment) in names.iter().zip(&made).filter_map(|(name, made)| Some((name, made.as_ref().ok()?))) {
            assert_eq!(segment.name(), name);
            segment.put(0, name.as_bytes()).unwrap();
        }
        let known: Vec<&str> = names.iter().map(|name| &name[..]).collect();
        let found = block_on(async { client.to_async().unwrap().open_many(&known).await });
        for (index, (name, found)) in names.iter().zip(&found).enumerate() {
            match found {
                Ok(segment) if index != 7 => {
                    let value = block_on(segment.get(0..name.len() as u64)).unwrap();
                    assert_eq!(&value[..], name.as_bytes());
                }
                Ok(_) => {}
                Err(error) => assert_eq!((index == 9 || index == 11, error.failure()), (true, Some(Failure::NotFound))),
            }
        }
        let ended = client.release_many(made.into_iter().flatten().collect());
        assert!(ended.len() == 1497 && ended.iter().all(Result::is_ok));
        assert_eq!(client.list("many/").unwrap().count(), 1);
        let late =
            block_on(async { client.to_async().unwrap().release_many(found.into_iter().flatten().collect()).await });
        assert_eq!(late.iter().filter(|ended| ended.is_ok()).count(), 1, "one was left");
    }

    #[test]
    fn each_of_many_names_has_an_error_when_no_daemon_runs() {
        // If this broke, a program would take a name for allocated that nobody asked for.
        let node = TestNode::start();
        let client = node.short_timeout_client();
        drop(node);
        // The client knows from here on that there is no daemon. A call that finds it out by itself may have been carried out.
        client.ping().unwrap_err();
        let ended = client.allocate_many(&[("a", Spec::new(8)), ("b", Spec::new(8))]);
        assert!(ended.len() == 2 && ended.iter().all(Result::is_err), "{ended:?}");
        assert!(
            ended.iter().flat_map(|ended| ended.as_ref().err()).all(|error| !error.is_indeterminate()),
            "{ended:?}"
        );
    }
}
