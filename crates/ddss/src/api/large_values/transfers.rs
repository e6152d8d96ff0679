//! Gets and puts of more bytes than one request carries.
//!
//! A large put sends its bytes in parts, which the home stores beside the segment, and then commits all of them as one
//! version. A large get reads parts of one version, and begins again when a put came between.

use crate::api::large_values::upload_guard::UploadGuard;
use crate::async_client::AsyncSegment;
use crate::call::backoff::Backoff;
use crate::calls::calls;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::Segment;
use crate::value::{Stamp, Value};
use ddss_core::limits::TRANSFER_BYTES_MAX;
use ddss_core::{Failure, Operation, Part, PutConditions, Version};
use std::ops::RangeBounds;

/// Attempts of a large get to find all parts in one version.
const GET_ATTEMPTS_MAX: usize = 64;
/// Attempts of a large put whose home lost its parts.
const PUT_ATTEMPTS_MAX: usize = 4;

/// Called with the bytes that have been moved and the bytes of the whole value.
pub(crate) type Progress<'a> = dyn FnMut(u64, u64) + Send + 'a;

/// Options of a large get.
pub(crate) struct LargeGet<'a> {
    pub(crate) offset: u64,
    pub(crate) version: Option<Version>,
    pub(crate) progress: &'a mut Progress<'a>,
}

/// Options of a large put.
pub(crate) struct LargePut<'a> {
    pub(crate) offset: u64,
    pub(crate) conditions: PutConditions,
    pub(crate) progress: &'a mut Progress<'a>,
}

/// Returns true if a put came between two parts of a get.
fn has_moved(error: &Error) -> bool {
    matches!(error.failure(), Some(Failure::VersionGone | Failure::VersionMismatch))
}

/// Returns true if a put did nothing and its parts are gone, or their home is away, which may come back without them.
fn has_lost_parts(error: &Error, retries: bool) -> bool {
    match error {
        Error::Failed { failure: Failure::UploadGone, .. } => true,
        Error::Failed { failure: Failure::NodeDown | Failure::InProgress | Failure::GoingDown, .. } => retries,
        _ => false,
    }
}

calls! {
    impl Segment, AsyncSegment {
        /// Reads a range like [`get`](Self::get), and calls `progress` with the bytes read so far and the bytes of the
        /// range after each part. A read that begins again starts from 0.
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// let image = client.allocate("image", ddss::Spec::new(3 << 20))?;
        /// let mut parts = Vec::new();
        /// let put = image.put_with_progress(0, &vec![7; 3 << 20], |done, total| parts.push((done >> 20, total >> 20)))?;
        /// assert_eq!(parts, [(1, 3), (2, 3), (3, 3)]);
        /// let value = image.get_with_progress(.., |_, _| ())?;
        /// assert_eq!((value.version(), value.len()), (put.version, 3 << 20));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn get_with_progress(
            &self,
            range: impl RangeBounds<u64>,
            mut progress: impl FnMut(u64, u64) + Send,
        ) -> Result<Value, Error> {
            let (offset, length) = self.location().place(range)?;
            let mut bytes = vec![0; length];
            if let Some(stamp) = self.location().read_locally(offset, &mut bytes) {
                progress(length as u64, length as u64);
                wait!(self.spend_budget(1, length));
                return Ok(Value::new(bytes, stamp));
            }
            let parts = LargeGet { offset, version: None, progress: &mut progress };
            let stamp = wait!(self.get_large(self.time(), &mut bytes, parts))?;
            Ok(Value::new(bytes, stamp))
        }

        /// Writes bytes like [`put`](Self::put), and calls `progress` with the bytes sent so far and the bytes of the
        /// value after each part. The value is committed after the last part; nothing of it is visible before.
        pub async fn put_with_progress(
            &self,
            offset: u64,
            bytes: &[u8],
            mut progress: impl FnMut(u64, u64) + Send,
        ) -> Result<Stamp, Error> {
            let conditions = self.location().put_conditions(None, None);
            wait!(self.put_large(self.time(), bytes, LargePut { offset, conditions, progress: &mut progress }))
        }

        /// Writes bytes like [`put_if`](Self::put_if), with the progress of
        /// [`put_with_progress`](Self::put_with_progress).
        pub async fn put_if_with_progress(
            &self,
            version: Version,
            offset: u64,
            bytes: &[u8],
            mut progress: impl FnMut(u64, u64) + Send,
        ) -> Result<Stamp, Error> {
            let conditions = self.location().put_conditions(Some(version), None);
            wait!(self.put_large(self.time(), bytes, LargePut { offset, conditions, progress: &mut progress }))
        }

        /// Reads a range in parts of one version.
        pub(crate) async fn get_large(&self, time: Deadline, into: &mut [u8], get: LargeGet<'_>) -> Result<Stamp, Error> {
            let LargeGet { offset, version, progress } = get;
            self.location().check_value("get", offset, u128::from(offset) + into.len() as u128)?;
            let (time, total) = (time.started(), into.len() as u64);
            for _ in 0..GET_ATTEMPTS_MAX {
                let mut stamp: Option<Stamp> = None;
                let mut done = 0;
                let mut moved = false;
                while (done as u64) < total || stamp.is_none() {
                    let length = TRANSFER_BYTES_MAX.min(into.len() - done);
                    // The first part obeys the model; the others are of the same version.
                    let wanted = version.or(stamp.map(|stamp| stamp.version));
                    let part = &mut into[done..done + length];
                    let plan = self.location().get(offset + done as u64, part, wanted)?;
                    match wait!(self.client().run(time, plan)) {
                        Ok(found) => stamp = Some(found),
                        Err(error) if version.is_none() && stamp.is_some() && has_moved(&error) => {
                            moved = true;
                            break;
                        }
                        Err(error) => return Err(error),
                    }
                    done += length;
                    progress(done as u64, total);
                }
                if let Some(stamp) = stamp.filter(|_| !moved) {
                    return Ok(stamp);
                }
            }
            Err(Error::Failed { action: "get", target: self.name().to_owned(), failure: Failure::Contended })
        }

        /// Sends a value in parts and commits it. A home that has lost the parts, or that went away with them, has not
        /// committed them, so the put begins again.
        pub(crate) async fn put_large(&self, time: Deadline, bytes: &[u8], put: LargePut<'_>) -> Result<Stamp, Error> {
            let LargePut { offset, conditions, progress } = put;
            self.location().check_value("put", offset, u128::from(offset) + bytes.len() as u128)?;
            let time = time.started();
            if bytes.len() <= TRANSFER_BYTES_MAX {
                let stamp = wait!(self.client().run(time, self.location().put(offset, bytes, conditions)?))?;
                progress(bytes.len() as u64, bytes.len() as u64);
                return Ok(stamp);
            }
            let mut attempts = 1;
            loop {
                let put = LargePut { offset, conditions, progress: &mut *progress };
                match wait!(self.put_large_once(time, bytes, put)) {
                    Err(error)
                        if has_lost_parts(&error, self.client().retries())
                            && attempts < PUT_ATTEMPTS_MAX
                            && !time.remaining().is_zero() =>
                    {
                        attempts += 1;
                    }
                    ended => return ended,
                }
            }
        }

        async fn put_large_once(&self, time: Deadline, bytes: &[u8], put: LargePut<'_>) -> Result<Stamp, Error> {
            let LargePut { offset, conditions, progress } = put;
            let (mut parts, mut done, mut backoff) = (UploadGuard::new(self), 0, Backoff::default());
            while done < bytes.len() {
                let part = &bytes[done..bytes.len().min(done + TRANSFER_BYTES_MAX)];
                let place = Part { upload: parts.upload, at: done as u32, total: bytes.len() as u32 };
                match wait!(self.client().run(time, self.location().plan_part(place, part))) {
                    Ok(begun) => parts.upload = begun,
                    // Other puts use the memory between the nodes.
                    Err(error) if matches!(error.failure(), Some(Failure::Busy(_))) && !time.remaining().is_zero() => {
                        backoff.note(true);
                        if let Some(pause) = backoff.pause() {
                            wait!(self.pause(pause.min(time.remaining())));
                        }
                        continue;
                    }
                    Err(error) => return Err(error.without_effect()),
                }
                backoff.note(false);
                done += part.len();
                progress(done as u64, bytes.len() as u64);
            }
            let (segment, upload) = (self.id(), parts.upload);
            let commit = Operation::CommitUpload { segment, offset, upload, conditions };
            let plan = self.location().plan("put", commit).returns(|completion, _| Stamp::of(completion));
            let stamp = wait!(self.client().run(time, plan))?;
            parts.commit();
            Ok(stamp)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on};
    use crate::{Failure, Segment, Spec};

    const BYTES: usize = 5 * Segment::TRANSFER_BYTES_MAX / 2;

    fn pattern(seed: u8) -> Vec<u8> {
        (0..BYTES).map(|at| (at / 1000) as u8 ^ seed).collect()
    }

    fn large_node() -> TestNode {
        TestNode::start_with(|config| config.pool_bytes = 64 << 20)
    }

    #[test]
    fn large_value_is_one_version_for_both_clients() {
        // If this broke, a large put would be visible in parts, or a large get would return two versions.
        let node = large_node();
        let segment = node.client().allocate("large", Spec::new(BYTES as u64 + 8)).unwrap();
        let first = segment.put(4, &pattern(1)).unwrap();
        assert_eq!(first.version.0, 1);
        for client in [node.client(), node.local_read_client()] {
            let value = client.open("large").unwrap().get(4..4 + BYTES as u64).unwrap();
            assert!(value[..] == pattern(1)[..] && value.stamp() == first);
        }
        let client = node.client().to_async().unwrap();
        block_on(async {
            let segment = client.open("large").await.unwrap();
            let stale = segment.put_if(crate::Version(0), 0, &pattern(2)).await.unwrap_err();
            assert_eq!(stale.failure(), Some(Failure::VersionMismatch));
            let mut calls = 0;
            let second = segment.put_with_progress(8, &pattern(2), |_, _| calls += 1).await.unwrap();
            assert_eq!((second.version.0, calls), (2, 3));
            let value = segment.get_at(second.version, 8..).await.unwrap();
            assert!(value[..] == pattern(2)[..]);
            let gone = segment.get_at(first.version, 8..).await.unwrap_err();
            assert_eq!(gone.failure(), Some(Failure::VersionGone));
            assert!(segment.put(9, &pattern(3)).await.unwrap_err().to_string().contains("2621448"));
        });
        let guard = segment.lock().unwrap();
        assert_eq!(guard.put(0, &pattern(4)).unwrap().version.0, 3);
        guard.unlock().unwrap();
        assert!(segment.get(0..BYTES as u64).unwrap()[..] == pattern(4)[..]);
    }

    #[test]
    fn reader_of_large_values_never_sees_two_versions() {
        // If this broke, a reader would take the beginning of one put and the end of another for a value.
        let node = large_node();
        let segment = node.client().allocate("large", Spec::new(BYTES as u64)).unwrap();
        segment.put(0, &pattern(0)).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = [node.client(), node.local_read_client()]
                .into_iter()
                .map(|client| {
                    let is_over = &is_over;
                    scope.spawn(move || {
                        let (segment, mut seen) = (client.open("large").unwrap(), 0);
                        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                            match segment.get(..) {
                                Ok(value) => {
                                    let seed = value[0];
                                    assert_eq!(u64::from(seed), (value.version().0 - 1) % 200);
                                    assert!(value[..] == pattern(seed)[..], "version {}", value.version());
                                    seen += 1;
                                }
                                Err(error) => assert_eq!(error.failure(), Some(Failure::Contended)),
                            }
                        }
                        seen
                    })
                })
                .collect();
            for seed in 1..40 {
                segment.put(0, &pattern(seed)).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            for reader in readers {
                assert!(reader.join().unwrap() > 0);
            }
        });
    }

    #[test]
    fn refused_large_put_frees_its_memory() {
        // If this broke, a few refused puts would leave no memory for any other large put.
        let node = large_node();
        let client = node.client();
        let segment = client.allocate("large", Spec::new(BYTES as u64)).unwrap();
        for _ in 0..40 {
            let refused = segment.put_if(crate::Version(9), 0, &pattern(1)).unwrap_err();
            assert_eq!(refused.failure(), Some(Failure::VersionMismatch));
        }
        segment.put(0, &pattern(2)).unwrap();
        let whole = client.allocate("too large", Spec::new(20 << 20)).unwrap();
        let refused = whole.put(0, &vec![1; 17 << 20]).unwrap_err();
        assert_eq!(refused.failure(), Some(Failure::UploadsFull), "a quarter of the pool for one client: {refused}");
        whole.put(0, &vec![1; 16 << 20]).unwrap();
    }
}
