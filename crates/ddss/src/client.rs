//! The client: a process's attachment to the daemon of its node.

use crate::async_client::AsyncClient;
use crate::builder::ClientBuilder;
use crate::call::channels::{Buffer, Call, NoCompletion};
use crate::call::priority::Priority;
use crate::deadline::{Deadline, check_timeout};
use crate::error::Error;
use crate::segment::Segment;
use crate::session::Inner;
use crate::shards::Shards;
use ddss_core::{Completion, Failure, Name, NodeId, OpenedSegment, Operation, Outcome, Principal, Spec};
use ddss_ipc::{SharedMemory, Strategy, WaitClass};
use std::path::Path;
use std::sync::Arc;

/// A process's attachment to the daemon of its node. Clones share it.
///
/// ```
/// use ddss::{Client, Spec};
/// # let node = ddssd::EphemeralNode::start()?;
/// # let folder = node.folder();
/// // `Client::connect()` finds this user's own daemon; here it is another one's folder.
/// let client = Client::builder().folder(folder).connect()?;
/// let segment = client.allocate("counters", Spec::new(64))?;
/// assert_eq!(client.clone().open("counters")?.id(), segment.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<Inner>, pub(crate) Arc<Shards>);

pub(crate) fn checked_name(name: &str, action: &'static str) -> Result<Name, Error> {
    Name::new(name).map_err(|failure| Error::Failed { action, target: format!("{name:?}"), failure })
}

impl Client {
    /// Attaches to the daemon of this node with default options.
    pub fn connect() -> Result<Self, Error> {
        Self::builder().connect()
    }

    /// Returns a builder for other options.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Allocates a segment. The name must be unused in the cluster, as far as this node can reach it.
    pub fn allocate(&self, name: &str, spec: Spec) -> Result<Segment, Error> {
        let checked = checked_name(name, "allocate")?;
        spec.check().map_err(Error::argument("allocate", name))?;
        let client = self.at_shard_of(&checked)?;
        let mut text = spec.encode().to_vec();
        text.extend_from_slice(checked.as_str().as_bytes());
        let opened = client.by_text("allocate", name, &text, |range| Operation::Allocate { spec_and_name: range })?;
        Ok(Segment::new(client, name, opened))
    }

    /// Opens a segment by name, wherever in the cluster its home is.
    pub fn open(&self, name: &str) -> Result<Segment, Error> {
        let checked = checked_name(name, "open")?;
        let client = self.at_shard_of(&checked)?;
        let opened =
            client.by_text("open", name, checked.as_str().as_bytes(), |range| Operation::Open { name: range })?;
        Ok(Segment::new(client, name, opened))
    }

    /// Makes one round trip to a progress thread, without any effect.
    pub fn ping(&self) -> Result<(), Error> {
        self.with_call(self.time(), Priority::Call, "reach", "the daemon", true, |call| {
            call.run(Operation::Null, None, WaitClass::Polling, |completion, _| completion.outcome)
        })
        .and_then(|outcome| Error::of(outcome, "reach", "the daemon"))
    }

    /// Creates the asynchronous client, once for each client.
    pub fn to_async(&self) -> Result<AsyncClient, Error> {
        AsyncClient::start(self.clone())
    }

    /// Returns the id of this client's node.
    pub fn node(&self) -> NodeId {
        self.0.last_session().attachment.node()
    }

    /// Returns the IPC strategy of this client.
    pub fn strategy(&self) -> Strategy {
        self.0.last_session().attachment.strategy()
    }

    /// Returns the socket to which this client is attached.
    pub fn socket(&self) -> &Path {
        &self.0.plan.socket
    }

    /// Allocates a segment for another user.
    ///
    /// Until the owner is set, only root can use the segment; from then on it counts against the owner's quota. Root
    /// may name any user; other users may only name another group of this process. If this process dies in between, a
    /// segment of that name remains that only root can use.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # let me = client.allocate("mine", ddss::Spec::new(64))?.stat()?.info.permissions.owner;
    /// # let alice = me;
    /// let inbox = client.allocate_for("inbox", ddss::Spec::new(64).mode(0o620), alice)?;
    /// assert_eq!(inbox.stat()?.info.permissions.owner, alice);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allocate_for(&self, name: &str, spec: Spec, owner: Principal) -> Result<Segment, Error> {
        spec.check().map_err(Error::argument("allocate", name))?;
        let made = self.allocate(name, Spec { mode: 0, ..spec })?;
        if let Err(error) = made.set_owner_and_mode(owner, spec.mode) {
            // The segment is still unused. If its release fails too, the first error says more.
            drop(made.release());
            return Err(error);
        }
        // The bytes have moved to an area that their readers may map.
        self.open(name)
    }

    fn by_text(
        &self,
        action: &'static str,
        name: &str,
        text: &[u8],
        operation: impl Fn(ddss_core::ArenaRange) -> Operation,
    ) -> Result<OpenedSegment, Error> {
        let nowhere = ddss_core::ArenaRange { slot: 0, bytes: 0 };
        let harmless = operation(nowhere).is_harmless();
        let completion = self.with_call(self.time(), Priority::Call, action, name, harmless, |mut call| {
            let buffer = call.buffer(text.len())?;
            let range = buffer.range(text.len());
            call.write(range.offset(), text);
            call.run(operation(range), Some(buffer), WaitClass::Sleeping, |completion, _| *completion)
        })?;
        Error::of_completion(&completion, action, name)?;
        Ok(OpenedSegment::decode(&completion.data))
    }

    /// Returns the default deadline of a call.
    pub(crate) fn time(&self) -> Deadline {
        Deadline::of(self.0.timeout)
    }

    /// Runs a call on a channel, and turns a missing completion into an error with the caller's action. A call without
    /// side effects (`harmless`) is repeated if the daemon ends and another one comes before the call's deadline, which
    /// begins once. Such a call also waits for a stopped daemon; other calls are then refused.
    pub(crate) fn with_call<T>(
        &self,
        mut time: Deadline,
        priority: Priority,
        action: &'static str,
        target: &str,
        harmless: bool,
        mut run: impl FnMut(Call<'_>) -> Result<T, NoCompletion>,
    ) -> Result<T, Error> {
        let mut refused = false;
        loop {
            let session = match self.0.session(&mut time, harmless) {
                // No daemon has replaced the one that is shutting down.
                Err(_) if refused => return Err(self.explain(NoCompletion::ShuttingDown, action, target)),
                session => session?,
            };
            match session.channels.call(priority, &mut time).and_then(&mut run) {
                // The deadline has waited once, so it stands.
                Err(NoCompletion::Gone) if harmless => {}
                // The daemon did not begin the call, so the next daemon is asked, if one already listens there.
                Err(NoCompletion::ShuttingDown) => {
                    session.attachment.set_draining();
                    refused = true;
                }
                ended => return ended.map_err(|none| self.explain(none, action, target)),
            }
        }
    }

    /// Builds the error of a call without a completion, with the caller's action.
    pub(crate) fn explain(&self, none: NoCompletion, action: &'static str, target: &str) -> Error {
        match none {
            NoCompletion::Gone => self.0.gone(),
            NoCompletion::TooLong(timeout) => match check_timeout(timeout) {
                Err(refused) => Error::argument(action, target)(refused),
                Ok(()) => unreachable!("it was found to be too long"),
            },
            NoCompletion::NotSent => self.0.no_daemon_error(std::io::ErrorKind::ConnectionReset),
            NoCompletion::ShuttingDown => {
                Error::Failed { action, target: target.to_owned(), failure: Failure::GoingDown }
            }
            NoCompletion::Busy => Error::Failed { action, target: target.to_owned(), failure: Failure::Busy },
            NoCompletion::Late { harmless: true } => {
                Error::Failed { action, target: target.to_owned(), failure: Failure::TimedOut }
            }
            NoCompletion::Late { harmless: false } => {
                Error::Indeterminate { action, target: target.to_owned(), failure: Failure::TimedOut }
            }
        }
    }

    pub(crate) fn polling<T>(
        call: Call<'_>,
        operation: Operation,
        buffer: Option<Buffer>,
        read: impl FnOnce(&Completion, &SharedMemory) -> T,
    ) -> Result<(Outcome, Completion, T), NoCompletion> {
        call.run(operation, buffer, WaitClass::Polling, |completion, arena| {
            (completion.outcome, *completion, read(completion, arena))
        })
    }
}
