//! A client: the road from this process to its node's daemon.

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
/// # let node = ddssd::Ephemeral::start()?;
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
    /// Attaches to the daemon of this node, with everything as usual.
    pub fn connect() -> Result<Self, Error> {
        Self::builder().connect()
    }

    /// Tells more before connecting.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Makes a segment. Its name must be free in the whole cluster, as far as this node can reach it.
    pub fn allocate(&self, name: &str, spec: Spec) -> Result<Segment, Error> {
        let checked = checked_name(name, "allocate")?;
        spec.check().map_err(Error::argument("allocate", name))?;
        let client = self.at_plane_of(&checked)?;
        let mut text = spec.encode().to_vec();
        text.extend_from_slice(checked.as_str().as_bytes());
        let opened = client.by_text("allocate", name, &text, |range| Operation::Allocate { spec_and_name: range })?;
        Ok(Segment::new(client, name, opened))
    }

    /// Finds a segment by its name, wherever in the cluster its home is.
    pub fn open(&self, name: &str) -> Result<Segment, Error> {
        let checked = checked_name(name, "open")?;
        let client = self.at_plane_of(&checked)?;
        let opened =
            client.by_text("open", name, checked.as_str().as_bytes(), |range| Operation::Open { name: range })?;
        Ok(Segment::new(client, name, opened))
    }

    /// One round trip to a progress thread and back that does nothing.
    pub fn ping(&self) -> Result<(), Error> {
        self.with_call(self.time(), Priority::Call, "reach", "the daemon", true, |call| {
            call.run(Operation::Null, None, WaitClass::Polling, |completion, _| completion.outcome)
        })
        .and_then(|outcome| Error::of(outcome, "reach", "the daemon"))
    }

    /// The same client with calls that are futures. It can be had once for each client.
    pub fn to_async(&self) -> Result<AsyncClient, Error> {
        AsyncClient::start(self.clone())
    }

    /// The node that this client is on.
    pub fn node(&self) -> NodeId {
        self.0.last().attachment.node()
    }

    /// How its calls travel.
    pub fn strategy(&self) -> Strategy {
        self.0.last().attachment.strategy()
    }

    /// The socket that it is attached to.
    pub fn socket(&self) -> &Path {
        &self.0.plan.socket
    }

    /// Makes a segment for another user: nobody but root can use it before it is his, and it counts as his from then on.
    /// Root may; anybody else may only say another group of his own process. If this process dies in between, a segment stays
    /// that only root can use, under that name.
    ///
    /// ```
    /// # let node = ddssd::Ephemeral::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # let me = client.allocate("mine", ddss::Spec::new(64))?.stat()?.facts.permissions.owner;
    /// # let alice = me;
    /// let inbox = client.allocate_for("inbox", ddss::Spec::new(64).mode(0o620), alice)?;
    /// assert_eq!(inbox.stat()?.facts.permissions.owner, alice);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allocate_for(&self, name: &str, spec: Spec, owner: Principal) -> Result<Segment, Error> {
        spec.check().map_err(Error::argument("allocate", name))?;
        let made = self.allocate(name, Spec { mode: 0, ..spec })?;
        if let Err(error) = made.hand_over(owner, spec.mode) {
            // Nobody has used it. If it cannot be taken back either, the first error says more.
            drop(made.release());
            return Err(error);
        }
        // Its bytes have moved to where their readers may map them.
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

    /// The time of a call of which nothing else is said.
    pub(crate) fn time(&self) -> Deadline {
        Deadline::of(self.0.timeout)
    }

    /// Runs a call on a lane; says in the caller's words why there was no completion. What leaves nothing behind
    /// (`harmless`) is done again if the daemon ends meanwhile and another one comes in time: in that of the call, which
    /// begins once. It waits for a daemon that was stopped, too; other calls are refused then.
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
            let attached = match self.0.attached(&mut time, harmless) {
                // Nobody has come in the place of the one that said so.
                Err(_) if refused => return Err(self.explain(NoCompletion::GoingDown, action, target)),
                attached => attached?,
            };
            match attached.lanes.call(priority, &mut time).and_then(&mut run) {
                // It has waited, so its deadline stands.
                Err(NoCompletion::Gone) if harmless => {}
                // It was not begun, whatever it is: the next daemon is asked, if one listens there already.
                Err(NoCompletion::GoingDown) => {
                    attached.attachment.set_draining();
                    refused = true;
                }
                ended => return ended.map_err(|none| self.explain(none, action, target)),
            }
        }
    }

    /// Why there was no completion, in the caller's words.
    pub(crate) fn explain(&self, none: NoCompletion, action: &'static str, target: &str) -> Error {
        match none {
            NoCompletion::Gone => self.0.gone(),
            NoCompletion::TooLong(timeout) => match check_timeout(timeout) {
                Err(refused) => Error::argument(action, target)(refused),
                Ok(()) => unreachable!("it was found to be too long"),
            },
            NoCompletion::NotSent => self.0.nobody(std::io::ErrorKind::ConnectionReset),
            NoCompletion::GoingDown => Error::Failed { action, target: target.to_owned(), failure: Failure::GoingDown },
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
