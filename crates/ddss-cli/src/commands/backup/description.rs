//! Properties of a segment that stand beside its bytes in a file.

use crate::arguments::model;
use crate::error::CommandError;
use crate::output::listing::format_model;
use ddss::{Mode, Model, SegmentInfo, Spec, Storage};
use serde_json::{Value, json};

/// Format of the description.
const FORMAT: u64 = 1;

/// Properties of a segment, from the file with its bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Described {
    pub(super) bytes: u64,
    /// Bytes of a row of a table or of a bucket of a map; 0 for a plain segment.
    pub(super) row_bytes: u32,
    pub(super) model: Model,
    pub(super) mode: Mode,
    pub(super) owner: (u32, u32),
    pub(super) copies: u8,
    pub(super) history: u16,
    pub(super) storage: Storage,
}

/// Returns the description of a segment.
pub(super) fn describe(listing: &SegmentInfo) -> Value {
    let permissions = listing.permissions;
    json!({
        "format": FORMAT,
        "bytes": listing.len,
        "row_bytes": listing.row_len,
        "model": format_model(listing.model),
        "mode": format!("{:03o}", permissions.mode.0),
        "uid": permissions.uid,
        "gid": permissions.gid,
        "copies": listing.copies,
        "history": listing.history,
        "storage": listing.storage.as_str(),
    })
}

impl Described {
    /// Parses a description; `None` if it is damaged or of another format.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        let number = |key: &str| value[key].as_u64();
        let text = |key: &str| value[key].as_str();
        (number("format")? == FORMAT).then_some(())?;
        let described = Self {
            bytes: number("bytes")?,
            row_bytes: number("row_bytes")?.try_into().ok()?,
            model: model(text("model")?).ok()?,
            mode: Mode(u16::from_str_radix(text("mode")?, 8).ok()?),
            owner: (number("uid")?.try_into().ok()?, number("gid")?.try_into().ok()?),
            copies: number("copies")?.try_into().ok()?,
            history: number("history")?.try_into().ok()?,
            storage: text("storage")?.parse().ok()?,
        };
        (described.row_bytes == 0 || described.bytes.is_multiple_of(described.row_bytes.into())).then_some(described)
    }

    /// Checks that an existing segment is of the same kind: rows, or the buckets of a map, in other places would be garbage.
    pub(super) fn check_target(&self, found: &SegmentInfo) -> Result<(), CommandError> {
        let is_table = self.row_bytes != 0;
        if found.row_len == self.row_bytes && (!is_table || found.len == self.bytes) {
            return Ok(());
        }
        let shape = |bytes: u64, row_bytes: u32| match bytes.checked_div(row_bytes.into()) {
            None => format!("a plain segment of {bytes} bytes"),
            Some(rows) => format!("{rows} rows of {row_bytes} bytes"),
        };
        Err(CommandError::Refused(format!(
            "{} is {}, and the file holds {}: import under another name, or release the segment first",
            found.name,
            shape(found.len, found.row_len),
            shape(self.bytes, self.row_bytes)
        )))
    }

    /// Returns the specification of an equal segment, which this user owns.
    pub(super) fn own_spec(&self) -> Spec {
        let rows = self.bytes.checked_div(self.row_bytes.into());
        let spec = Spec::new(rows.unwrap_or(self.bytes)).row_len(self.row_bytes);
        let spec = spec.model(self.model).mode(self.mode).copies(self.copies).storage(self.storage);
        spec.history(self.history)
    }

    /// Returns the specification of an equal segment with the same owner. A user other than root owns the new segment:
    /// the flag then is false.
    pub(super) fn spec(&self) -> (Spec, bool) {
        let spec = self.own_spec();
        let (uid, gid) = self.owner;
        match (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()) {
            ours if ours == self.owner => (spec, true),
            (0, _) => (spec.owner(uid, gid), true),
            _ => (spec, false),
        }
    }
}
