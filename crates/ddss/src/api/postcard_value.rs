//! A segment that holds one value of any type that `serde` knows, in the format of [`postcard`].
//!
//! ```text
//!  0                8
//! +----------------+------------------+
//! | bytes + 1, u64 | the encoded value |   0: no value was put
//! +----------------+------------------+
//! ```

use crate::api::typed::Typed;
use crate::async_client::{AsyncClient, AsyncSegment};
use crate::calls::calls;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::Stamp;
use ddss_core::{BadArgument, Failure, Spec, Version};
use serde::{Serialize, de::DeserializeOwned};
use std::any::type_name;
use std::marker::PhantomData;

/// Bytes in front of the value.
const HEAD_BYTES: usize = 8;
/// Bytes of the first read. A longer value takes a second one.
const FIRST_READ_BYTES: u64 = 4096;

/// A segment with one value of any type that `serde` knows, in the format of `postcard`. `S` is [`Segment`] or
/// [`AsyncSegment`](crate::AsyncSegment).
///
/// The value may have another length with each put, up to the segment's size. Each put is one version.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
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
#[derive(Debug)]
pub struct PostcardValue<T, S = Segment> {
    segment: S,
    kind: PhantomData<fn() -> T>,
}

impl<T, S: Clone> Clone for PostcardValue<T, S> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), kind: PhantomData }
    }
}

impl<T, S> PostcardValue<T, S> {
    /// Returns the segment behind the value.
    pub fn segment(&self) -> &S {
        &self.segment
    }
}

/// Encodes a value with its length for a segment of that size.
fn encode<T: Serialize>(value: &T, name: &str, bytes: u64) -> Result<Vec<u8>, Error> {
    let refuse = |refused| Error::BadArgument { action: "put", target: name.to_owned(), refused };
    let mut encoded = postcard::to_extend(value, vec![0; HEAD_BYTES])
        .map_err(|error| refuse(BadArgument::new("value", error, "what postcard can encode", Failure::Malformed)))?;
    if encoded.len() as u64 > bytes {
        let (length, most) = (encoded.len() - HEAD_BYTES, bytes.saturating_sub(HEAD_BYTES as u64));
        let range = format_args!("0 to {most} in this segment").to_string();
        return Err(refuse(BadArgument::new("bytes of the value", length, range, Failure::BadSize)));
    }
    let length = (encoded.len() - HEAD_BYTES) as u64 + 1;
    encoded[..HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(encoded)
}

/// Returns the bytes of the value with its head; `None` if no value was put.
fn encoded_bytes(read: &[u8]) -> Option<u64> {
    let (head, _) = read.split_first_chunk::<HEAD_BYTES>()?;
    u64::from_le_bytes(*head).checked_add(HEAD_BYTES as u64 - 1).filter(|_| *head != [0; HEAD_BYTES])
}

/// Returns the error of a segment that holds no value of that type.
fn no_value<T>(name: &str, found: &str) -> Error {
    let range = format!("a value of {}", type_name::<T>());
    let refused = BadArgument::new("content", found, range, Failure::Malformed);
    Error::BadArgument { action: "decode", target: name.to_owned(), refused }
}

calls! {
    impl {T: Serialize + DeserializeOwned} PostcardValue<T>, PostcardValue<T, AsyncSegment> {
        /// Allocates a segment for values of up to `bytes` bytes, and puts the first one.
        pub async fn allocate | allocate_async(client: &Client, name: &str, bytes: u64, value: &T)
            | (client: &AsyncClient, name: &str, bytes: u64, value: &T) -> Result<Self, Error>
        {
            let bytes = bytes.saturating_add(HEAD_BYTES as u64);
            let encoded = encode(value, name, bytes)?;
            let segment = wait!(client.allocate(name, Spec::new(bytes)))?;
            wait!(segment.put(0, &encoded))?;
            Ok(Self { segment, kind: PhantomData })
        }

        /// Opens a segment by name. Its content is decoded by [`get`](Self::get).
        pub async fn open | open_async(client: &Client, name: &str) | (client: &AsyncClient, name: &str)
            -> Result<Self, Error>
        {
            let segment = wait!(client.open(name))?;
            Ok(Self { segment, kind: PhantomData })
        }

        /// Reads the value. A segment that holds no value of this type is refused with
        /// [`Failure::Malformed`](crate::Failure::Malformed).
        pub async fn get(&self) -> Result<Typed<T>, Error> {
            wait!(self.read(self.segment.time()))
        }

        async fn read(&self, time: Deadline) -> Result<Typed<T>, Error> {
            let (name, bytes) = (self.segment.name(), self.segment.bytes());
            let mut length = bytes.min(FIRST_READ_BYTES);
            loop {
                let mut read = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
                let stamp = wait!(self.segment.get_by(time, 0, &mut read))?;
                let wanted = encoded_bytes(&read).ok_or_else(|| no_value::<T>(name, "nothing that was put as a value"))?;
                if wanted > bytes {
                    return Err(no_value::<T>(name, "not the length of a value"));
                }
                if wanted <= length {
                    let decoded = postcard::from_bytes(&read[HEAD_BYTES..wanted as usize]);
                    let value = decoded.map_err(|error| no_value::<T>(name, &error.to_string()))?;
                    return Ok(Typed { value, stamp });
                }
                // The next read is longer, so this ends.
                length = wanted;
            }
        }

        /// Writes the value as one version.
        pub async fn put(&self, value: &T) -> Result<Stamp, Error> {
            let encoded = encode(value, self.segment.name(), self.segment.bytes())?;
            wait!(self.segment.put(0, &encoded))
        }

        /// Writes the value if the segment still has that version: [`Segment::put_if`].
        pub async fn put_if(&self, version: Version, value: &T) -> Result<Stamp, Error> {
            let encoded = encode(value, self.segment.name(), self.segment.bytes())?;
            wait!(self.segment.put_if(version, 0, &encoded))
        }

        /// Reads, changes and writes the value, and repeats until no other put came between. Returns the written value.
        ///
        /// All attempts share the timeout of one call.
        pub async fn update(&self, mut change: impl FnMut(&mut T)) -> Result<Typed<T>, Error> {
            let time = self.segment.time().started();
            loop {
                let Typed { mut value, stamp } = wait!(self.read(time))?;
                change(&mut value);
                let encoded = encode(&value, self.segment.name(), self.segment.bytes())?;
                let conditions = self.segment.location().put_conditions(Some(stamp.version), None);
                match wait!(self.segment.put_by(time, 0, &encoded, conditions)) {
                    Err(error) if error.failure() == Some(Failure::VersionMismatch) => {}
                    ended => return ended.map(|stamp| Typed { value, stamp }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestNode, block_on};
    use std::collections::BTreeMap;

    type Scores = BTreeMap<String, Vec<u32>>;

    #[test]
    fn value_of_any_length_is_read_whole_and_changed_by_two_clients() {
        // If this broke, a value would be cut off at the first read, or an update of another client would be lost.
        let node = TestNode::start();
        let here = PostcardValue::<Scores>::allocate(&node.client(), "scores", 40_000, &Scores::new()).unwrap();
        assert_eq!(here.get().unwrap().value, Scores::new());
        let large: Scores = (0..300).map(|at| (format!("player {at}"), vec![at; 20])).collect();
        let stamp = here.put(&large).unwrap();
        let there = PostcardValue::<Scores>::open(&node.local_read_client(), "scores").unwrap();
        let found = there.get().unwrap();
        assert!(found.value == large && found.stamp == stamp);
        assert_eq!(there.put_if(Version(1), &large).unwrap_err().failure(), Some(Failure::VersionMismatch));
        std::thread::scope(|scope| {
            for value in [&here, &there] {
                scope.spawn(move || {
                    for _ in 0..50 {
                        value.update(|scores| scores.entry("all".to_owned()).or_default().push(1)).unwrap();
                    }
                });
            }
        });
        assert_eq!(here.get().unwrap()["all"].len(), 100);
        block_on(async {
            let client = node.client().to_async().unwrap();
            let value = PostcardValue::<Scores, _>::open_async(&client, "scores").await.unwrap();
            value.update(Scores::clear).await.unwrap();
            assert!(value.get().await.unwrap().is_empty());
        });
    }

    #[test]
    fn wrong_content_and_values_that_do_not_fit_are_refused() {
        // If this broke, bytes of another program would be taken for a value, or a value would be cut off.
        let node = TestNode::start();
        let client = node.client();
        let of = |error: Error| error.failure();
        let refused = PostcardValue::allocate(&client, "short", 3, &"four".to_owned()).unwrap_err();
        assert_eq!(of(refused), Some(Failure::BadSize));
        assert!(client.open("short").is_err(), "nothing was allocated");
        let value = PostcardValue::allocate(&client, "value", 5, &"four".to_owned()).unwrap();
        assert_eq!(of(value.put(&"too long".to_owned()).unwrap_err()), Some(Failure::BadSize));
        assert_eq!(value.get().unwrap().value, "four");
        let other = PostcardValue::<[u64; 7]>::open(&client, "value").unwrap();
        assert_eq!(of(other.get().unwrap_err()), Some(Failure::Malformed));
        let plain = client.allocate("plain", Spec::new(4)).unwrap();
        let none = PostcardValue::<u8>::open(&client, "plain").unwrap().get().unwrap_err();
        assert_eq!(of(none), Some(Failure::Malformed));
        plain.release().unwrap();
        let raw = client.allocate("raw", Spec::new(64)).unwrap();
        let text = PostcardValue::<String>::open(&client, "raw").unwrap();
        for content in [[0u8; 8], [0xff; 8], 100u64.to_le_bytes()] {
            raw.put(0, &content).unwrap();
            assert_eq!(of(text.get().unwrap_err()), Some(Failure::Malformed), "{content:?}");
        }
    }
}
