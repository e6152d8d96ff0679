//! Tables: many rows under one name, each with a version of its own.
//!
//! A table is a segment whose [`Spec`] has a [row length](Spec::row_len).

use super::super::named::{Handle, Named};
use super::super::segment::Segment;
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::encoding::Seal;
use crate::error::Error;
use crate::spec::Spec;
use ddss_core::{BadArgument, Failure};

/// A table of rows.
///
/// Each call stays inside one row, and is atomic with all other calls of that row. A snapshot over several rows does not
/// exist.
///
/// ```
/// use ddss::{ErrorKind, Spec};
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// let sessions = client.table("sessions").allocate(Spec::new(1000).row_len(64))?;
/// let seen = sessions.row(7).put(b"alice")?;
/// sessions.row(8).put(b"bob")?;
/// // The put of row 8 does not disturb a conditional put of row 7.
/// sessions.row(7).put_if(seen.version, b"carol")?;
/// assert_eq!(&sessions.row(7).get()?[..5], b"carol");
/// let late = sessions.row(7).put_if(seen.version, b"dave").expect_err("the row has changed");
/// assert_eq!(late.kind(), ErrorKind::VersionMismatch);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Clone, Debug)]
pub struct Table {
    pub(super) segment: Segment,
}

#[twin]
impl Handle for Table {
    fn spec(action: &'static str, name: &str, spec: Spec, _: Seal) -> Result<Spec, Error> {
        if spec.wire().map_err(Error::argument(action, name))?.layout().is_some() {
            return Ok(spec);
        }
        let refused = BadArgument::new("spec", "of a plain segment", "one with a row length", Failure::BadSize);
        Err(Error::bad_argument(action, name, refused))
    }

    async fn of(segment: Segment, _: Option<Spec>, _: Deadline, _: Seal) -> Result<Self, Error> {
        Self::new(segment)
    }
}

#[twin]
impl Client {
    /// Names a table, a segment of rows; sends nothing.
    pub fn table<'c>(&'c self, name: &'c str) -> Named<'c, Table> {
        Named::new(self, name)
    }
}

#[twin]
impl Table {
    /// Makes the table of a segment that is one. A plain segment is refused with [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape).
    pub fn new(segment: Segment) -> Result<Self, Error> {
        if segment.location().row_bytes == 0 {
            return Err(Error::wrong_shape("view as a table", segment.name(), "a plain segment", "a table"));
        }
        Ok(Self { segment })
    }

    /// Returns the segment behind the table: for its lock, permissions and release.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns the number of rows.
    #[allow(clippy::len_without_is_empty, reason = "no table is empty")]
    pub fn len(&self) -> u64 {
        self.segment.len() / self.row_len()
    }

    /// Returns the bytes of one row.
    pub fn row_len(&self) -> u64 {
        self.segment.location().row_bytes.into()
    }

    /// Returns the offset of a range of a row in the table.
    #[inline]
    pub(crate) fn at(&self, action: &'static str, row: u64, offset: u64, bytes: usize) -> Result<u64, Error> {
        self.segment.location().place_in_row(action, row, offset, bytes)
    }
}
