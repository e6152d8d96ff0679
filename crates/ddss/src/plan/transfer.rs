//! Options of large gets and puts, and the errors after which they begin again.

use crate::error::Error;
use crate::error::reason::Reason;
use ddss_core::{Failure, PutConditions, Version};

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
pub(crate) fn has_moved(error: &Error) -> bool {
    matches!(error.failure(), Some(Failure::VersionGone | Failure::VersionMismatch))
}

/// Returns true if a put did nothing and its parts are gone, or their home is away, which may come back without them.
pub(crate) fn has_lost_parts(error: &Error, retries: bool) -> bool {
    match *error.reason() {
        Reason::Failed { failure: Failure::UploadGone, .. } => true,
        Reason::Failed { failure: Failure::NodeDown | Failure::InProgress | Failure::GoingDown, .. } => retries,
        _ => false,
    }
}
