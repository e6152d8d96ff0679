//! Gets and puts of more bytes than one request carries.
//!
//! A large put sends its bytes in parts, which the home stores beside the segment, and then commits all of them as one
//! version. A large get reads parts of one version, and begins again when a put came between.

use super::super::segment::Segment;
use super::twin;
use super::upload_guard::UploadGuard;
use crate::call::backoff::Backoff;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::plan::transfer::{LargeGet, LargePut, has_lost_parts, has_moved};
use crate::value::Stamp;
use ddss_core::limits::TRANSFER_BYTES_MAX;
use ddss_core::{Failure, Operation, Part};

/// Attempts of a large get to find all parts in one version.
const GET_ATTEMPTS_MAX: usize = 64;
/// Attempts of a large put whose home lost its parts.
const PUT_ATTEMPTS_MAX: usize = 4;

#[twin]
impl Segment {
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
                match self.client().execute(time, plan).await {
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
        Err(Error::failed("get", self.name(), Failure::Contended))
    }

    /// Sends a value in parts and commits it. A home that has lost the parts, or that went away with them, has not
    /// committed them, so the put begins again.
    pub(crate) async fn put_large(&self, time: Deadline, bytes: &[u8], put: LargePut<'_>) -> Result<Stamp, Error> {
        let LargePut { offset, conditions, progress } = put;
        self.location().check_value("put", offset, u128::from(offset) + bytes.len() as u128)?;
        let time = time.started();
        if bytes.len() <= TRANSFER_BYTES_MAX {
            let stamp = self.client().execute(time, self.location().put(offset, bytes, conditions)?).await?;
            progress(bytes.len() as u64, bytes.len() as u64);
            return Ok(stamp);
        }
        let mut attempts = 1;
        loop {
            let put = LargePut { offset, conditions, progress: &mut *progress };
            match self.put_large_once(time, bytes, put).await {
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
            match self.client().execute(time, self.location().plan_part(place, part)).await {
                Ok(begun) => parts.upload = begun,
                // Other puts use the memory between the nodes.
                Err(error) if matches!(error.failure(), Some(Failure::Busy(_))) && !time.remaining().is_zero() => {
                    backoff.note(true);
                    if let Some(pause) = backoff.pause() {
                        self.pause(pause.min(time.remaining())).await;
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
        let stamp = self.client().execute(time, plan).await?;
        parts.commit();
        Ok(stamp)
    }
}
