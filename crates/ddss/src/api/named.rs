//! Handles by name: a client names a segment or a table, and one of four verbs opens or allocates it.

use super::segment::Segment;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::encoding::Seal;
use crate::error::Error;
use crate::location::shape_of;
use crate::spec::Spec;
use ddss_core::Failure;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// A handle that [`Client`] opens by its name: [`Segment`](crate::Segment), [`Table`](crate::Table) or
/// [`Map`](crate::Map).
///
/// ```
/// use ddss::{Error, Handle, Named};
///
/// fn open_both<H: Handle>(left: Named<'_, H>, right: Named<'_, H>) -> Result<(H, H), Error> {
///     Ok((left.open()?, right.open()?))
/// }
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # client.segment("left").allocate(64)?;
/// # client.segment("right").allocate(64)?;
/// let (left, right) = open_both(client.segment("left"), client.segment("right"))?;
/// # assert_ne!(left.id(), right.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[allow(async_fn_in_trait, reason = "the trait is sealed, and futures of its types are `Send`")]
pub trait Handle: Sized {
    /// Completes the specification, or refuses that of another kind, before anything is sent.
    #[doc(hidden)]
    fn spec(action: &'static str, name: &str, spec: Spec, _: Seal) -> Result<Spec, Error>;

    /// Makes the handle of a segment, unless that is of another kind. A segment that this client has allocated comes with
    /// its specification.
    #[doc(hidden)]
    async fn of(segment: Segment, spec: Option<Spec>, time: Deadline, _: Seal) -> Result<Self, Error>;
}

#[twin]
impl Handle for Segment {
    fn spec(_action: &'static str, _name: &str, spec: Spec, _: Seal) -> Result<Spec, Error> {
        Ok(spec)
    }

    async fn of(segment: Segment, _: Option<Spec>, _: Deadline, _: Seal) -> Result<Self, Error> {
        Ok(segment)
    }
}

/// The name of a segment, and the client that opens or allocates it: [`Client::segment`], [`Client::table`],
/// [`Client::map`].
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let made = client.segment("scores").open_or_allocate(64)?;
/// let found = client.segment("scores").open()?;
/// assert_eq!(made.id(), found.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[must_use = "a name does nothing until it is opened or allocated"]
pub struct Named<'c, H> {
    client: &'c Client,
    name: &'c str,
    handle: PhantomData<fn() -> H>,
}

impl<H> std::fmt::Debug for Named<'_, H> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Named").field("name", &self.name).finish_non_exhaustive()
    }
}

#[twin]
impl Client {
    /// Names a segment, which is bytes to this client; sends nothing.
    pub fn segment<'c>(&'c self, name: &'c str) -> Named<'c, Segment> {
        Named::new(self, name)
    }
}

#[twin]
impl<'c, H> Named<'c, H> {
    pub(super) fn new(client: &'c Client, name: &'c str) -> Self {
        Self { client, name, handle: PhantomData }
    }
}

#[twin]
impl<H: Handle> Named<'_, H> {
    /// Opens the segment of this name, on whichever node its home is. A table refuses a plain segment, and a map one with other
    /// lengths of entries: [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape). A [`Segment`] opens every kind.
    pub async fn open(self) -> Result<H, Error> {
        let time = self.client.time().started();
        H::of(self.client.open_by(time, self.name).await?, None, time, Seal).await
    }

    /// Allocates a segment of this name. A number is a size in bytes, for a map a number of keys; a table needs a [`Spec`] with a
    /// [row length](Spec::row_len). The name must be unused in the cluster, as far as this node can reach it.
    pub async fn allocate(self, spec: impl Into<Spec>) -> Result<H, Error> {
        let (spec, time) = (H::spec("allocate", self.name, spec.into(), Seal)?, self.client.time().started());
        let made = self.client.allocate_by(time, self.name, spec).await?;
        H::of(made, Some(spec), time, Seal).await.map_err(Error::after_effect)
    }

    /// Opens the segment, or allocates it if the name is unused. All attempts share the timeout of one call.
    ///
    /// An existing segment of another kind, size or model is refused with
    /// [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape); its other properties stay, whatever the specification says.
    /// If several processes make this call at the same time, one of them allocates the segment and the others open it.
    pub async fn open_or_allocate(self, spec: impl Into<Spec>) -> Result<H, Error> {
        let Self { client, name, .. } = self;
        let spec = H::spec("open or allocate", name, spec.into(), Seal)?;
        let wire = spec.wire().map_err(Error::argument("allocate", name))?;
        let time = client.time().started();
        // Ends at the deadline: another process may release the segment after each allocation.
        loop {
            match client.open_by(time, name).await {
                Err(error) if error.has_failed_with(Failure::NotFound) => {}
                Ok(found) => {
                    let location = found.location();
                    let wanted = (wire.bytes, wire.row_bytes, wire.model);
                    if (location.bytes, location.row_bytes, location.model) != wanted {
                        let wanted = shape_of(wire.bytes, wire.row_bytes, wire.model);
                        return Err(Error::wrong_shape("open or allocate", name, location.shape(), wanted));
                    }
                    return H::of(found, Some(spec), time, Seal).await;
                }
                Err(error) => return Err(error),
            }
            match client.allocate_by(time, name, spec).await {
                Err(error) if error.has_failed_with(Failure::AlreadyExists) => {}
                made => return H::of(made?, Some(spec), time, Seal).await.map_err(Error::after_effect),
            }
        }
    }

    /// Waits until another process has allocated the segment, and opens it. At the deadline of one call it fails with
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let allocator = client.clone();
    /// let other = std::thread::spawn(move || allocator.segment("scores").allocate(64));
    /// let scores = client.segment("scores").wait()?;
    /// assert_eq!(scores.len(), 64);
    /// # other.join().expect("it does not panic")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait(self) -> Result<H, Error> {
        /// Pause between two attempts.
        const OPEN_INTERVAL: Duration = Duration::from_millis(5);
        let Self { client, name, .. } = self;
        let mut time = client.time().started();
        loop {
            match client.open_by(time, name).await {
                Err(error) if error.has_failed_with(Failure::NotFound) => {}
                ended => return H::of(ended?, None, time, Seal).await,
            }
            if Instant::now() + OPEN_INTERVAL >= time.deadline() {
                return Err(Error::failed("wait for", name.to_owned(), Failure::TimedOut));
            }
            client.pause(OPEN_INTERVAL).await;
        }
    }
}
