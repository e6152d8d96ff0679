//! Layout of a map, its entries, and the ends of attempts to change them.

use crate::call::backoff::Backoff;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::map::bucket::Bucket;
use crate::value::Stamp;
use ddss_core::{BadArgument, BucketLayout, Failure, MapLayout, Version};
use std::ops::Deref;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Entry of a map: its value and version, and the time until it expires.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use std::time::Duration;
/// let sessions: ddss::Map<u64, u64> = client.map("sessions").allocate(100)?;
/// let put = sessions.put(&4711, &1)?;
/// let entry: ddss::Entry<u64> = sessions.get(&4711)?.expect("it was put");
/// assert_eq!((entry.value, entry.version, entry.ttl()), (1, put.version, None));
/// sessions.touch(&4711, Duration::from_secs(600))?;
/// let ttl = sessions.get(&4711)?.and_then(|entry| entry.ttl());
/// assert!(ttl.expect("it expires") <= Duration::from_secs(600));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry<V> {
    /// The value.
    pub value: V,
    /// The version, which is only compared for equality. It changes with the entry, and may change with another one.
    pub version: Version,
    pub(crate) expiry_ms: u64,
}

impl<V> Deref for Entry<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V> Entry<V> {
    /// Returns the time from now until the entry expires: zero if it has expired since it was read, `None` if it does
    /// not expire.
    pub fn ttl(&self) -> Option<Duration> {
        (self.expiry_ms > 0).then(|| Duration::from_millis(self.expiry_ms.saturating_sub(now_ms())))
    }

    pub(crate) fn with_value<W>(&self, value: W) -> Entry<W> {
        Entry { value, version: self.version, expiry_ms: self.expiry_ms }
    }
}

pub(crate) const HEADER_BYTES: usize = MapLayout::DESCRIPTION_BYTES;
pub(crate) const MAGIC: u64 = MapLayout::MAGIC;
/// Magic of maps whose links had four bytes.
pub(crate) const MAGIC_OF_EARLIER_RELEASE: u64 = u64::from_le_bytes(*b"DDSSMAP1");

/// Returns the layout of a map for keys and values of those sizes, or names the size that no map has.
pub(crate) fn checked_layout(key_bytes: usize, value_bytes: usize) -> Result<BucketLayout, BadArgument> {
    let sizes = [
        ("bytes of the key", key_bytes, 1, BucketLayout::KEY_BYTES_MAX),
        ("bytes of the value", value_bytes, 0, BucketLayout::VALUE_BYTES_MAX),
    ];
    for (argument, bytes, least, most) in sizes {
        if bytes < least || bytes > most {
            return Err(BadArgument::new(argument, bytes, format_args!("{least} to {most}"), Failure::BadSize));
        }
    }
    Ok(BucketLayout::new(key_bytes, value_bytes).expect("these are sizes of a map"))
}

/// Name of a put in errors.
pub(crate) const PUT: &str = "put into";
/// Name of a removal in errors.
pub(crate) const REMOVE: &str = "remove from";
/// Name of a get in errors.
pub(crate) const GET: &str = "get from";

/// Lengths of keys and values that a map has to have; `None` for any.
#[derive(Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) key: Option<usize>,
    pub(crate) value: Option<usize>,
}

impl Lengths {
    /// Returns the layout of the map if both are known, or names a length that no map has.
    pub(crate) fn layout(self) -> Result<Option<BucketLayout>, BadArgument> {
        self.key.zip(self.value).map(|(key, value)| checked_layout(key, value)).transpose()
    }

    pub(crate) fn are_of(self, layout: &BucketLayout) -> bool {
        self.key.is_none_or(|key| key == layout.key_bytes) && self.value.is_none_or(|value| value == layout.value_bytes)
    }
}

impl std::fmt::Display for Lengths {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: Option<usize>| bytes.map_or("any".to_owned(), |bytes| format!("{bytes} byte"));
        write!(out, "a map of {} keys and {} values", text(self.key), text(self.value))
    }
}

/// Returns the number of rows of a map for that many keys, at a load of 0.8.
pub(crate) fn rows_of(layout: BucketLayout, keys: u64) -> u64 {
    keys.saturating_mul(5).div_ceil(4 * layout.slots as u64).max(2) + 1
}

/// Refuses to begin one more attempt after the deadline.
pub(crate) fn check_time(action: &'static str, name: &str, time: Deadline) -> Result<(), Error> {
    if time.remaining() > Duration::ZERO {
        return Ok(());
    }
    Err(Error::failed(action, name, Failure::TimedOut))
}

/// Hash of a key: its bucket, and the bits that words and links hold.
#[derive(Clone, Copy)]
pub(crate) struct KeyHash {
    pub(crate) bucket: u64,
    pub(crate) tag: u64,
}

/// Place of an entry. `image` is its bucket if that is not the bucket of its key.
pub(crate) struct EntryPlace {
    pub(crate) bucket: u64,
    pub(crate) slot: usize,
    pub(crate) image: Option<Bucket>,
}

/// Result of a search behind the links of a bucket.
pub(crate) enum Linked {
    /// Copy of the bucket with the entry, its slot, and the version of the entry.
    At(Bucket, usize, Version),
    Absent,
    /// A change came between, or there was no room for the search.
    Unknown,
}

/// Expiry that a change gives to an entry.
#[derive(Clone, Copy)]
pub(crate) enum Expiry {
    Keep,
    Set(u64),
}

impl Expiry {
    /// Returns the expiry of an entry that is written; 0 for none.
    pub(crate) fn set_ms(self) -> u64 {
        match self {
            Self::Keep => 0,
            Self::Set(expiry_ms) => expiry_ms,
        }
    }

    pub(crate) fn after(time: Duration) -> Self {
        Self::Set(now_ms().saturating_add(time.as_millis().max(1) as u64))
    }
}

/// Change of the entry that a search has found.
pub(crate) enum Change {
    Put(Vec<u8>),
    /// Only if the entry still has its version, even if the value is the present one.
    PutIfUnchanged(Vec<u8>),
    Keep,
    Remove,
}

/// End of a change: whether the key was present, and its entry from now on.
pub(crate) struct ChangeResult {
    pub(crate) was_present: bool,
    pub(crate) entry: Option<Entry<Vec<u8>>>,
}

impl ChangeResult {
    pub(crate) fn to(was_present: bool, entry: Entry<Vec<u8>>) -> Self {
        Self { was_present, entry: Some(entry) }
    }
}

/// End of one attempt of a change.
pub(crate) enum Attempt {
    /// The bucket has this version now.
    Done(Version),
    Changed,
    Full,
}

/// Returns the end of an attempt whose conditional put ended so.
pub(crate) fn attempt(put: Result<Stamp, Error>) -> Result<Attempt, Error> {
    match put {
        Ok(stamp) => Ok(Attempt::Done(stamp.version)),
        Err(error) if error.failure() == Some(Failure::VersionMismatch) => Ok(Attempt::Changed),
        Err(error) => Err(error),
    }
}

/// Attempts of one call that another change came before.
#[derive(Default)]
pub(crate) struct Repeated {
    attempts: u64,
    backoff: Backoff,
}

impl Repeated {
    /// Attempts without a pause: a busy key is changed as often.
    const PROMPT: u64 = 16;

    /// Counts an attempt. Returns the pause before the next one.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        self.attempts += 1;
        self.backoff.note(self.attempts > Self::PROMPT);
        self.backoff.pause()
    }
}

pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
