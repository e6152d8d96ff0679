//! A segment that holds one value of any type that `serde` knows, in the format of [`postcard`].

use super::segment::Segment;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::plan::postcard_format::{FIRST_READ_BYTES, HEAD_BYTES, encode, encoded_bytes, no_value};
use crate::spec::Spec;
use crate::value::{Stamp, Versioned};
use ddss_core::{Failure, Version};
use serde::{Serialize, de::DeserializeOwned};
use std::marker::PhantomData;

/// A segment with one value of any type that `serde` knows, in the format of `postcard`.
///
/// The value may have another length with each put, up to the segment's size. Each put is one version.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// use ddss::PostcardValue;
/// let first = ("guest".to_owned(), vec![1, 2, 3]);
/// let user: PostcardValue<(String, Vec<u32>)> = PostcardValue::allocate(&client, "user", 1000, &first)?;
/// user.update(|(name, scores)| {
///     name.push_str(" of honour");
///     scores.push(4);
/// })?;
/// let found = PostcardValue::<(String, Vec<u32>)>::open(&client, "user")?.get()?;
/// assert_eq!((found.0.as_str(), found.1.len(), found.stamp.version.0), ("guest of honour", 4, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct PostcardValue<T> {
    segment: Segment,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for PostcardValue<T> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), kind: PhantomData }
    }
}

#[twin]
impl<T> PostcardValue<T> {
    /// Returns the segment behind the value.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }
}

#[twin]
impl<T: Serialize + DeserializeOwned> PostcardValue<T> {
    /// Allocates a segment for values of up to `bytes` bytes, and puts the first one.
    pub async fn allocate(client: &Client, name: &str, bytes: u64, value: &T) -> Result<Self, Error> {
        let bytes = bytes.saturating_add(HEAD_BYTES as u64);
        let encoded = encode(value, name, bytes)?;
        let segment = client.segment(name).allocate(Spec::new(bytes)).await?;
        segment.put(0, &encoded).await?;
        Ok(Self { segment, kind: PhantomData })
    }

    /// Opens a segment by name. Its content is decoded by [`get`](Self::get).
    pub async fn open(client: &Client, name: &str) -> Result<Self, Error> {
        let segment = client.segment(name).open().await?;
        Ok(Self { segment, kind: PhantomData })
    }

    /// Reads the value. A segment that holds no value of this type is refused with
    /// [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape).
    pub async fn get(&self) -> Result<Versioned<T>, Error> {
        self.read(self.segment.time()).await
    }

    async fn read(&self, time: Deadline) -> Result<Versioned<T>, Error> {
        let (name, bytes) = (self.segment.name(), self.segment.len());
        let mut length = bytes.min(FIRST_READ_BYTES);
        loop {
            let mut read = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
            let stamp = self.segment.get_by(time, 0, &mut read).await?;
            let wanted = encoded_bytes(&read).ok_or_else(|| no_value::<T>(name, "nothing that was put as a value"))?;
            if wanted > bytes {
                return Err(no_value::<T>(name, "not the length of a value"));
            }
            if wanted <= length {
                let decoded = postcard::from_bytes(&read[HEAD_BYTES..wanted as usize]);
                let value = decoded.map_err(|error| no_value::<T>(name, &error.to_string()))?;
                return Ok(Versioned { value, stamp });
            }
            // The next read is longer, so this ends.
            length = wanted;
        }
    }

    /// Writes the value as one version.
    pub async fn put(&self, value: &T) -> Result<Stamp, Error> {
        let encoded = encode(value, self.segment.name(), self.segment.len())?;
        self.segment.put(0, &encoded).await
    }

    /// Writes the value if the segment still has that version: [`Segment::put_if`].
    pub async fn put_if(&self, version: Version, value: &T) -> Result<Stamp, Error> {
        let encoded = encode(value, self.segment.name(), self.segment.len())?;
        self.segment.put_if(version, 0, &encoded).await
    }

    /// Reads, changes and writes the value, and repeats until no other put came between. Returns the written value.
    ///
    /// All attempts share the timeout of one call.
    pub async fn update(&self, mut change: impl FnMut(&mut T)) -> Result<Versioned<T>, Error> {
        let time = self.segment.time().started();
        loop {
            let Versioned { mut value, stamp } = self.read(time).await?;
            change(&mut value);
            let encoded = encode(&value, self.segment.name(), self.segment.len())?;
            let conditions = self.segment.location().put_conditions(Some(stamp.version));
            match self.segment.put_by(time, 0, &encoded, conditions).await {
                Err(error) if error.failure() == Some(Failure::VersionMismatch) => {}
                ended => return ended.map(|stamp| Versioned { value, stamp }),
            }
        }
    }
}
