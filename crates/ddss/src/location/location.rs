//! Identity and options of a segment handle, and the plans of its calls.

use crate::error::Error;
use crate::error::reason::Reason;
use crate::location::local_read::{LocalReadRules, LocalRow, MappedSegment};
use crate::plan::{CallPlan, Decoder, Outgoing, PlannedCall};
use crate::value::{Stamp, first_word};
use ddss_core::limits::{INLINE_REPLY_BYTES_MAX, TRANSFER_BYTES_MAX, VALUE_BYTES_MAX};
use ddss_core::{
    ArenaRange, BadArgument, Failure, LockToken, Model, Name, OpenedSegment, Operation, Part, Payload, PutConditions,
    ReadOptions, RowList, SegmentId, UploadId, Version,
};
use ddss_ipc::SharedMemory;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

/// State of a handle: the segment's identity and the options of its calls.
#[derive(Clone, Debug)]
pub(crate) struct SegmentLocation {
    pub(crate) name: Arc<str>,
    pub(crate) id: SegmentId,
    pub(crate) bytes: u64,
    /// Bytes of one row of a table; 0 for a plain segment.
    pub(crate) row_bytes: u32,
    /// Its coherence model.
    pub(crate) model: Model,
    /// The model that calls ask for.
    pub(crate) requested_model: Option<Model>,
    /// Token of the lock under which its calls change bytes.
    pub(crate) token: Option<LockToken>,
    mapped: Option<Arc<MappedSegment>>,
    /// Rules for the handle's local reads.
    rules: LocalReadRules,
}

impl SegmentLocation {
    /// Creates the state of a handle, which reads in place if the segment's area is mapped.
    pub(crate) fn new(name: &str, opened: OpenedSegment, area: Option<&SharedMemory>) -> Self {
        let mapped = area.and_then(|area| MappedSegment::find(area, &opened)).map(Arc::new);
        let (id, bytes, rules) = (opened.segment, opened.bytes, LocalReadRules::None);
        let (name, row_bytes, model) = (name.into(), opened.row_bytes, opened.model);
        let (requested_model, token) = (None, None);
        Self { name, id, bytes, row_bytes, model, requested_model, token, mapped, rules }.with_model(None)
    }

    /// Writes the identity of a handle: name, id and size.
    pub(crate) fn describe(&self, out: &mut std::fmt::Formatter<'_>, kind: &str) -> std::fmt::Result {
        let Self { name, id, bytes, .. } = self;
        out.debug_struct(kind).field("name", name).field("id", id).field("bytes", bytes).finish()
    }

    /// Describes kind and size.
    pub(crate) fn shape(&self) -> String {
        shape_of(self.bytes, self.row_bytes, self.model)
    }

    /// Returns a handle whose calls ask for this model.
    pub(crate) fn with_model(&self, requested_model: Option<Model>) -> Self {
        let rules = self.mapped.as_ref().map_or(LocalReadRules::None, |mapped| mapped.rules(requested_model));
        Self { requested_model, rules, ..self.clone() }
    }

    /// Returns a handle whose calls are made under this lock.
    pub(crate) fn with_token(&self, token: LockToken) -> Self {
        Self { token: Some(token), ..self.clone() }
    }

    /// Returns true if a local read is worth an attempt.
    pub(crate) fn can_read_locally(&self) -> bool {
        self.rules != LocalReadRules::None
    }

    /// Reads a range in place; `None` if the daemon has to serve the get, or the range is invalid.
    #[inline(always)]
    pub(crate) fn read_locally(&self, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let mapped = self.mapped.as_ref().filter(|_| into.len() <= VALUE_BYTES_MAX)?;
        mapped.get(self.rules, offset, into)
    }

    /// Reads bytes of one row in place; `None` if they are being written, or the daemon has to serve the get, or the range is invalid.
    #[inline(always)]
    pub(crate) fn read_row_locally(&self, row: u64, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let row = self.begin_row(row)?;
        row.read(usize::try_from(offset).ok()?, into)?;
        let stamp = row.stamp()?;
        row.is_whole().then_some(stamp)
    }

    /// Begins to read a row of a table in place; `None` if the daemon has to serve the get.
    #[inline(always)]
    pub(crate) fn begin_row(&self, row: u64) -> Option<LocalRow<'_>> {
        self.mapped.as_ref()?.begin_row(self.rules, row)
    }

    /// Returns the read options of a get.
    pub(crate) fn read_options(&self, version: Option<Version>) -> ReadOptions {
        ReadOptions { requested_model: self.requested_model, version }
    }

    /// Returns the conditions under which a put commits.
    pub(crate) fn put_conditions(&self, version: Option<Version>) -> PutConditions {
        // Delta and Temporal set no condition for a put.
        let requested_model =
            self.requested_model.filter(|model| !matches!(model, Model::Delta(_) | Model::Temporal(_)));
        PutConditions { version, token: self.token, requested_model, entry: None }
    }

    /// Returns offset and length of a range to read.
    pub(crate) fn place(&self, range: impl RangeBounds<u64>) -> Result<(u64, usize), Error> {
        let (offset, end) = bounds(range, self.bytes);
        Ok((offset, self.check_value("get", offset, end)?))
    }

    /// Returns offset and length of a range that a reader goes through.
    pub(crate) fn place_of_stream(&self, range: impl RangeBounds<u64>) -> Result<(u64, u64), Error> {
        let (offset, end) = bounds(range, self.bytes);
        if u128::from(offset) > end || end > u128::from(self.bytes) {
            let (action, target) = ("get", self.name.to_string());
            return Err(Reason::OutOfRange { action, target, offset, end, bytes: self.bytes }.into());
        }
        Ok((offset, (end - u128::from(offset)) as u64))
    }

    /// Returns offset and length of a range of a row.
    pub(crate) fn place_of_row(&self, row: u64, range: impl RangeBounds<u64>) -> Result<(u64, usize), Error> {
        let (offset, end) = bounds(range, self.row_bytes.into());
        let length = end.checked_sub(offset.into()).and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or_else(|| self.row_error("get", row, offset, end))?;
        Ok((self.place_in_row("get", row, offset, length)?, length))
    }

    /// Returns the offset of an aligned word, in the segment or in a row of it.
    pub(crate) fn place_of_word(&self, action: &'static str, row: Option<u64>, offset: u64) -> Result<u64, Error> {
        if !offset.is_multiple_of(8) {
            let refused = BadArgument::new("offset", offset, "a multiple of 8", Failure::Unaligned);
            return Err(Error::bad_argument(action, &self.name, refused));
        }
        if let Some(row) = row {
            return self.place_in_row(action, row, offset, 8);
        }
        self.check(action, offset, u128::from(offset) + 8)?;
        Ok(offset)
    }

    /// Returns offset and length of a range that one request reads.
    pub(crate) fn place_in_transfer(&self, range: impl RangeBounds<u64>) -> Result<(u64, usize), Error> {
        let (offset, end) = bounds(range, self.bytes);
        Ok((offset, self.check("get", offset, end)?))
    }

    /// Checks a range that one request moves, before anything is sent; no sum here can overflow.
    #[inline]
    pub(crate) fn check(&self, action: &'static str, offset: u64, end: u128) -> Result<usize, Error> {
        self.check_length(action, offset, end, TRANSFER_BYTES_MAX)
    }

    /// Checks a range that several requests may move.
    pub(crate) fn check_value(&self, action: &'static str, offset: u64, end: u128) -> Result<usize, Error> {
        self.check_length(action, offset, end, VALUE_BYTES_MAX)
    }

    #[inline]
    fn check_length(&self, action: &'static str, offset: u64, end: u128, longest: usize) -> Result<usize, Error> {
        if u128::from(offset) <= end
            && end <= u128::from(self.bytes)
            && let Ok(length) = usize::try_from(end - u128::from(offset))
            && length <= longest
        {
            return Ok(length);
        }
        Err(self.range_error(action, offset, end))
    }

    #[cold]
    fn range_error(&self, action: &'static str, offset: u64, end: u128) -> Error {
        let target = self.name.to_string();
        if u128::from(offset) > end || end > u128::from(self.bytes) {
            return Reason::OutOfRange { action, target, offset, end, bytes: self.bytes }.into();
        }
        Error::failed(action, target, Failure::TooLarge)
    }

    /// Returns the offset of a range of a row of a table.
    #[inline]
    pub(crate) fn place_in_row(&self, action: &'static str, row: u64, offset: u64, bytes: usize) -> Result<u64, Error> {
        let row_bytes = u64::from(self.row_bytes);
        if let Some(begin) = row.checked_mul(row_bytes)
            && begin < self.bytes
            && offset <= row_bytes
            && bytes as u64 <= row_bytes - offset
        {
            // An empty range at the end of a row would be in the next one.
            return Ok(if bytes == 0 { begin } else { begin + offset });
        }
        Err(self.row_error(action, row, offset, u128::from(offset) + bytes as u128))
    }

    #[cold]
    fn row_error(&self, action: &'static str, row: u64, offset: u64, end: u128) -> Error {
        let bytes = u64::from(self.row_bytes);
        let rows = self.bytes.checked_div(bytes).unwrap_or(0);
        if row < rows {
            return Reason::OutOfRange { action, target: format!("row {row} of {}", self.name), offset, end, bytes }
                .into();
        }
        let refused =
            BadArgument::new("row", row, format_args!("0 to {}", rows.saturating_sub(1)), Failure::OutOfRange);
        Error::bad_argument(action, &self.name, refused)
    }

    /// Plans the renewal of a lock's lease.
    pub(crate) fn plan_renewal(&self, token: LockToken, lease: Duration) -> CallPlan<'_> {
        // A lease above the maximum was refused before the lock was taken.
        let lease_us = u32::try_from(lease.as_micros()).unwrap_or(u32::MAX);
        self.plan("renew the lock of", Operation::Renew { segment: self.id, token, lease_us })
    }

    /// Plans a get of a range that was checked.
    #[inline]
    pub(crate) fn plan_get(&self, offset: u64, length: usize, version: Option<Version>) -> CallPlan<'_> {
        let (segment, into, inline) = (self.id, ArenaRange::NOWHERE, length <= INLINE_REPLY_BYTES_MAX);
        let operation = Operation::Get { segment, offset, into, inline, options: self.read_options(version) };
        self.plan("get", operation).receives(length)
    }

    /// Plans a get, and decodes its reply into the caller's bytes. Always inlined: a plan that is returned is copied.
    #[inline(always)]
    pub(crate) fn get<'a>(
        &'a self,
        offset: u64,
        into: &'a mut [u8],
        version: Option<Version>,
    ) -> Result<PlannedCall<'a, impl Decoder<Stamp>>, Error> {
        let length = self.check("get", offset, u128::from(offset) + into.len() as u128)?;
        Ok(self.plan_get(offset, length, version).returns(|completion, reply| {
            reply.read(0, into);
            Stamp::of(completion)
        }))
    }

    /// Plans a get of rows of a table at another node, whose numbers are `numbers`.
    pub(crate) fn plan_get_rows<'a>(&'a self, list: RowList, numbers: &'a [u8]) -> CallPlan<'a> {
        let (segment, range, requested_model) = (self.id, ArenaRange::NOWHERE, self.requested_model);
        let operation = Operation::GetRows { segment, range, list, requested_model };
        self.plan("get", operation).sends(Outgoing::Bytes(numbers)).receives(list.bytes())
    }

    /// Plans a put of a range that was checked.
    #[inline]
    pub(crate) fn plan_put<'a>(&'a self, offset: u64, bytes: &'a [u8], conditions: PutConditions) -> CallPlan<'a> {
        let inline = Payload::inline(bytes).filter(|_| conditions.allow_inline());
        let outgoing = Outgoing::Bytes(if inline.is_some() { &[] } else { bytes });
        let (segment, from) = (self.id, inline.unwrap_or(Payload::Arena(ArenaRange::NOWHERE)));
        self.plan("put", Operation::Put { segment, offset, from, conditions }).sends(outgoing)
    }

    /// Plans a put. Always inlined, as a get.
    #[inline(always)]
    pub(crate) fn put<'a>(
        &'a self,
        offset: u64,
        bytes: &'a [u8],
        conditions: PutConditions,
    ) -> Result<PlannedCall<'a, impl Decoder<Stamp>>, Error> {
        self.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        Ok(self.plan_put(offset, bytes, conditions).returns(|completion, _| Stamp::of(completion)))
    }

    /// Plans a part of a large put; its reply is the number of the upload.
    pub(crate) fn plan_part<'a>(&'a self, part: Part, bytes: &'a [u8]) -> PlannedCall<'a, impl Decoder<UploadId>> {
        let operation = Operation::UploadPart { segment: self.id, part, from: ArenaRange::NOWHERE };
        let plan = self.plan("put", operation).sends(Outgoing::Bytes(bytes));
        plan.returns(|completion, _| UploadId(first_word(completion) as u32))
    }

    /// Plans an operation without bytes.
    #[inline]
    pub(crate) fn plan(&self, action: &'static str, operation: Operation) -> CallPlan<'_> {
        CallPlan::new(action, &self.name, operation)
    }
}

pub(crate) fn checked_name(name: &str, action: &'static str) -> Result<Name, Error> {
    Name::new(name).map_err(|failure| Error::failed(action, format!("{name:?}"), failure))
}

/// Describes kind, size and model of a segment.
pub(crate) fn shape_of(bytes: u64, row_bytes: u32, model: Model) -> String {
    match bytes.checked_div(row_bytes.into()) {
        None => format!("a plain segment of {bytes} bytes with the model {model:?}"),
        Some(rows) => format!("a table of {rows} rows of {row_bytes} bytes with the model {model:?}"),
    }
}

/// Returns the first byte of a range and the end behind its last.
fn bounds(range: impl RangeBounds<u64>, bytes: u64) -> (u64, u128) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => u128::from(last) + 1,
        Bound::Excluded(&end) => u128::from(end),
        Bound::Unbounded => u128::from(bytes),
    };
    (start, end)
}
