//! A batch of calls, and their replies. Batches know handles of both forms.

use super::call::BatchCall;
use super::map_call::{MapCall, MapCallKind};
use super::put_call::PutCall;
use super::reply::BatchReply;
use super::target::{MapTarget, Target, TargetPlace};
use crate::client::Client;
use crate::encoding::{Encoding, Seal};
use crate::error::Error;
use crate::map::entry::{Entry, PUT};
use crate::options::{EntryOptions, PutOptions};
use crate::value::{Atomic, AtomicResult, Stamp, Value, Written};
use ddss_core::{BadArgument, EntryChangeKind, Failure};
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU64, Ordering};

/// A set of calls that a client submits together; as many as fit are in flight at the same time.
///
/// Each is a call of its own, and is checked when it is added: the calls end in any order, and a failure does not affect
/// the others. They share the timeout of one call of the client. For several ranges of one segment that belong together,
/// use [`put_with`](Self::put_with).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// # client.segment("scores").allocate(64)?;
/// # client.table::<[u8]>("stock").allocate(ddss::Spec::new(10).row_len(16))?;
/// use ddss::{Atomic, Batch, Table};
/// let scores = client.segment("scores").open()?;
/// let stock: Table = client.table("stock").open()?;
/// let mut batch = Batch::new();
/// let head = batch.get(&scores, 0..8)?;
/// let row = batch.put(stock.row(7), 0, b"x")?;
/// let count = batch.atomic(&scores, 16, Atomic::Add(1))?;
/// let mut replies = client.run(batch)?;
/// println!("{:?} {}", replies.take(head)?.value, replies.take(row)?.version);
/// assert_eq!(replies.take(count)?.before, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a batch does nothing until a client runs it"]
pub struct Batch {
    number: u64,
    pub(crate) calls: Vec<BatchedCall>,
}

/// One call of a batch.
pub(crate) struct BatchedCall {
    /// The client of the handle; `None` for calls by name.
    client: Option<Client>,
    pub(crate) call: BatchCall,
}

/// A call of a [`Batch`], whose result [`Replies::take`] returns.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{Batch, Segment, Ticket};
/// let mut batch = Batch::new();
/// let names = (0..100).map(|number| format!("queue/{number}"));
/// let tickets: Vec<Ticket<Segment>> = names.map(|name| batch.allocate(&name, 64)).collect::<Result<_, _>>()?;
/// let mut replies = client.run(batch)?;
/// for ticket in tickets {
///     replies.take(ticket)?.put(0, b"first")?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ticket<T> {
    batch: u64,
    index: usize,
    take: fn(BatchReply) -> Result<T, Error>,
}

/// Results of the calls of a [`Batch`].
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let scores = client.segment("scores").allocate(64)?;
/// let mut batch = ddss::Batch::new();
/// batch.put(&scores, 0, b"hello")?;
/// batch.put(&scores, 8, b"world")?;
/// client.run(batch)?.ok()?;
/// assert_eq!(&scores.get(8..13)?[..], b"world");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a call of the batch may have failed"]
pub struct Replies {
    batch: u64,
    replies: Vec<Option<Result<BatchReply, Error>>>,
}

/// Entry that a get of a map finds.
type Found<M> = Option<Entry<<<M as MapTarget>::Value as Encoding>::Output>>;

impl std::fmt::Debug for Batch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Batch").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Ticket<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ticket").field("index", &self.index).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Replies {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left = self.replies.iter().flatten();
        out.debug_struct("Replies")
            .field("failed", &left.filter(|reply| reply.is_err()).count())
            .finish_non_exhaustive()
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self { number: NUMBERS.fetch_add(1, Ordering::Relaxed), calls: Vec::new() }
    }

    /// Adds a get.
    pub fn get(&mut self, target: impl Target, range: impl RangeBounds<u64>) -> Result<Ticket<Value>, Error> {
        let place = target.place(Seal);
        let (offset, length) = match place.row {
            None => place.location.place_in_transfer(range)?,
            Some(row) => place.location.place_of_row(row, range)?,
        };
        let call = BatchCall::Get { location: place.location.clone(), offset, length };
        Ok(self.add(Some(place.client), call, BatchReply::got))
    }

    /// Adds a put.
    pub fn put(&mut self, target: impl Target, offset: u64, bytes: &[u8]) -> Result<Ticket<Stamp>, Error> {
        self.put_with(target, &[(offset, bytes)], PutOptions::new())
    }

    /// Adds a put of parts, which are one version, with these options. A batch reports no progress.
    pub fn put_with(
        &mut self,
        target: impl Target,
        parts: &[(u64, &[u8])],
        options: PutOptions<'_>,
    ) -> Result<Ticket<Stamp>, Error> {
        let place = target.place(Seal);
        if options.progress.is_some() {
            let refused = BadArgument::new("options", "progress", "none in a batch", Failure::Unsupported);
            return Err(Error::bad_argument("put", &place.location.name, refused));
        }
        let mut placed = Vec::with_capacity(parts.len());
        for &(offset, bytes) in parts {
            placed.push((place.at("put", offset, bytes.len())?, bytes));
        }
        let call = PutCall::new(place.location, &placed, options.if_version)?;
        Ok(self.add(Some(place.client), BatchCall::Put(call), BatchReply::stamp))
    }

    /// Adds an atomic operation on the word at `offset`, a multiple of 8: [`Word`](crate::Word).
    pub fn atomic(&mut self, target: impl Target, offset: u64, change: Atomic) -> Result<Ticket<AtomicResult>, Error> {
        let place = target.place(Seal);
        let offset = place.location.place_of_word(change.action(), place.row, offset)?;
        let call = BatchCall::Atomic { location: place.location.clone(), offset, change };
        Ok(self.add(Some(place.client), call, BatchReply::atomic))
    }

    /// Adds a get of the entry of a key: [`Map::get`](crate::Map::get).
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// use ddss::{Batch, EntryOptions, Map};
    /// let stock: Map<u64, u64> = client.map("stock").allocate(100)?;
    /// stock.put(&4711, &12)?;
    /// let mut batch = Batch::new();
    /// let item = batch.map_get(&stock, &4711)?;
    /// let added = batch.map_put(&stock, &4712, &7, EntryOptions::new().if_absent())?;
    /// let gone = batch.map_remove(&stock, &4713)?;
    /// let mut replies = client.run(batch)?;
    /// assert_eq!(replies.take(item)?.map(|entry| entry.value), Some(12));
    /// assert!(replies.take(added)?.is_new && !replies.take(gone)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_get<M: MapTarget>(
        &mut self,
        map: M,
        key: &<M::Key as Encoding>::Input,
    ) -> Result<Ticket<Found<M>>, Error> {
        self.add_map_call(&map, MapCallKind::Get, key, &[], BatchReply::entry::<M::Value>)
    }

    /// Adds a put of the entry of a key: [`Map::put_with`](crate::Map::put_with). A time to live counts from here on. With
    /// [`if_version`](EntryOptions::if_version) the batch reads the entry first, so the batch ends a round trip later.
    pub fn map_put<M: MapTarget>(
        &mut self,
        map: M,
        key: &<M::Key as Encoding>::Input,
        value: &<M::Value as Encoding>::Input,
        options: EntryOptions,
    ) -> Result<Ticket<Written>, Error> {
        let place = map.place(Seal);
        options.check().map_err(Error::argument(PUT, &place.location.name))?;
        let value = place.shape.value::<M::Value>((PUT, &place.location.name), value)?;
        let kind = match options.if_version {
            Some(version) => MapCallKind::PutIf(version, options.expiry()),
            None if options.if_absent => MapCallKind::Put(EntryChangeKind::Insert, options.expiry()),
            None => MapCallKind::Put(EntryChangeKind::Write, options.expiry()),
        };
        self.add_map_call(&map, kind, key, &value, BatchReply::written)
    }

    /// Adds the removal of a key: [`Map::remove`](crate::Map::remove).
    pub fn map_remove<M: MapTarget>(
        &mut self,
        map: M,
        key: &<M::Key as Encoding>::Input,
    ) -> Result<Ticket<bool>, Error> {
        self.add_map_call(&map, MapCallKind::Remove, key, &[], BatchReply::removed)
    }

    fn add_map_call<M: MapTarget, T>(
        &mut self,
        map: &M,
        kind: MapCallKind,
        key: &<M::Key as Encoding>::Input,
        value: &[u8],
        take: fn(BatchReply) -> Result<T, Error>,
    ) -> Result<Ticket<T>, Error> {
        let place = map.place(Seal);
        let key = place.shape.key::<M::Key>((kind.action(), &place.location.name), key)?;
        let call = BatchCall::Map(Box::new(MapCall::new(&place, kind, &key, value)));
        Ok(self.add(Some(place.client), call, take))
    }

    /// Adds the release of a segment: [`Segment::release`](crate::Segment::release). A row is refused.
    pub fn release(&mut self, segment: impl Target) -> Result<Ticket<()>, Error> {
        let TargetPlace { client, location, row } = segment.place(Seal);
        if row.is_some() {
            return Err(Error::wrong_shape("release", &location.name, "a row", "the segment of the table"));
        }
        Ok(self.add(Some(client), BatchCall::Release { location: location.clone() }, BatchReply::done))
    }

    pub(crate) fn add<T>(
        &mut self,
        client: Option<&Client>,
        call: BatchCall,
        take: fn(BatchReply) -> Result<T, Error>,
    ) -> Ticket<T> {
        self.calls.push(BatchedCall { client: client.cloned(), call });
        Ticket { batch: self.number, index: self.calls.len() - 1, take }
    }

    /// Returns the replies for the results of all calls in their order.
    pub(crate) fn replies(&self, replies: Vec<Option<Result<BatchReply, Error>>>) -> Replies {
        Replies { batch: self.number, replies }
    }
}

impl BatchedCall {
    /// Returns the result of a call that is not sent: one that is refused, or that a local read answers.
    pub(crate) fn unsent(&self, client: &Client) -> Option<Result<BatchReply, Error>> {
        let location = self.call.location()?;
        let other = self.client.as_ref().filter(|own| !own.is_same(client));
        // Another cluster may have another segment of that id.
        let is_elsewhere = other.is_some_and(|own| own.socket().parent() != client.socket().parent());
        let refused = match other.is_some() && location.token.is_some() {
            _ if is_elsewhere => Some(("of another daemon", "of the daemon of the client that runs the batch")),
            true => Some(("locked by another client", "of the client that runs the batch, or without its lock")),
            false => None,
        };
        if let Some((found, wanted)) = refused {
            let refused = BadArgument::new("segment", found, wanted, Failure::Unsupported);
            return Some(Err(Error::bad_argument("run a batch for", &location.name, refused)));
        }
        self.call.read_locally().map(Ok)
    }

    /// Returns the call if it is one on an entry of a map.
    pub(crate) fn map_call(&self) -> Option<&MapCall> {
        if let BatchCall::Map(call) = &self.call { Some(call) } else { None }
    }

    /// Returns the shard that executes the call.
    pub(crate) fn shard(&self, client: &Client) -> u8 {
        self.client.as_ref().map_or_else(|| self.call.shard_by_name(client), Client::shard)
    }
}

impl Replies {
    /// Returns the result of one call. A ticket of another batch is a [`BadArgument`](crate::ErrorKind::BadArgument).
    pub fn take<T>(&mut self, ticket: Ticket<T>) -> Result<T, Error> {
        if ticket.batch != self.batch {
            let refused = BadArgument::new("ticket", "of another batch", "of this batch", Failure::Malformed);
            return Err(Error::bad_argument("take", "a reply", refused));
        }
        let reply = self.replies[ticket.index].take().expect("each ticket is taken once");
        (ticket.take)(reply?)
    }

    /// Returns the first error of the calls whose results were not taken.
    pub fn ok(self) -> Result<(), Error> {
        self.replies.into_iter().flatten().try_for_each(|reply| reply.map(drop))
    }
}
