//! Tables: many rows under one name, each with a version of its own.
//!
//! A table is a segment whose [`Spec`] has a [row length](Spec::row_len).

use super::super::named::{Handle, Named};
use super::super::segment::Segment;
use super::super::{Watch, watch_rows};
use super::{Client, twin};
use crate::deadline::Deadline;
use crate::encoding::{Encoding, Seal};
use crate::error::Error;
use crate::segment_info::RowEvent;
use crate::spec::Spec;
use ddss_core::{BadArgument, Failure};
use std::marker::PhantomData;

/// A table of rows, each with a value of type `T`; without a type its rows are bytes.
///
/// Each call stays inside one row, and is atomic with all other calls of that row. A snapshot over several rows does not
/// exist.
///
/// ```
/// use ddss::{ErrorKind, Spec, Table};
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let sessions: Table = client.table("sessions").allocate(Spec::new(1000).row_len(64))?;
/// let seen = sessions.row(7).put(b"alice")?;
/// sessions.row(8).put(b"bob")?;
/// // The put of row 8 does not disturb a conditional put of row 7.
/// sessions.row(7).put_if(seen.version, b"carol")?;
/// assert_eq!(&sessions.row(7).get()?[..5], b"carol");
/// let late = sessions.row(7).put_if(seen.version, b"dave").expect_err("the row has changed");
/// assert_eq!(late.kind(), ErrorKind::VersionMismatch);
///
/// let stock: Table<[u64; 2]> = client.table("stock").allocate(100)?;
/// stock.row(3).put(&[10, 0])?;
/// let sold = stock.row(3).update(|[left, sold]| (*left, *sold) = (*left - 1, *sold + 1))?;
/// assert_eq!((sold.value, sold.stamp.version.0), ([9, 1], 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
#[derive(Debug)]
pub struct Table<T: ?Sized = [u8]> {
    segment: Segment,
    kind: PhantomData<fn(&T)>,
}

impl<T: ?Sized> Clone for Table<T> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), kind: PhantomData }
    }
}

#[twin]
impl<T: Encoding + ?Sized> Handle for Table<T> {
    fn spec(action: &'static str, name: &str, spec: Spec, _: Seal) -> Result<Spec, Error> {
        let spec = T::LEN.map_or(spec, |len| spec.row_len_or(u32::try_from(len).unwrap_or(u32::MAX)));
        let row_bytes = spec.wire().map_err(Error::argument(action, name))?.row_bytes;
        let least = T::LEN.unwrap_or(0);
        let (found, wanted) = match row_bytes {
            0 => ("of a plain segment".to_owned(), "one with a row length".to_owned()),
            bytes if least > bytes as usize => {
                (format!("with rows of {bytes} bytes"), format!("rows of {least} bytes"))
            }
            _ => return Ok(spec),
        };
        Err(Error::bad_argument(action, name, BadArgument::new("spec", found, wanted, Failure::BadSize)))
    }

    async fn of(segment: Segment, _: Option<Spec>, _: Deadline, _: Seal) -> Result<Self, Error> {
        Self::try_from(segment)
    }
}

/// Views a segment as a table; sends nothing. A plain segment, and rows that are too short for the type, are refused with
/// [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape).
#[twin]
impl<T: Encoding + ?Sized> TryFrom<Segment> for Table<T> {
    type Error = Error;

    fn try_from(segment: Segment) -> Result<Self, Error> {
        let least = T::LEN.unwrap_or(0);
        let found = match segment.location().row_bytes {
            0 => "a plain segment".to_owned(),
            bytes if least > bytes as usize => format!("rows of {bytes} bytes"),
            _ => return Ok(Self { segment, kind: PhantomData }),
        };
        let wanted = if least > 0 { format!("a table of rows of {least} bytes") } else { "a table".to_owned() };
        Err(Error::wrong_shape("view as a table", segment.name(), found, wanted))
    }
}

#[twin]
impl Client {
    /// Names a table, a segment of rows; sends nothing. `let rows: Table = client.table(name).open()?` is of bytes.
    pub fn table<'c, T: ?Sized>(&'c self, name: &'c str) -> Named<'c, Table<T>> {
        Named::new(self, name)
    }
}

#[twin]
impl<T: ?Sized> Table<T> {
    /// Returns the table of a segment whose shape another handle has checked.
    pub(super) fn of_segment(segment: Segment) -> Self {
        Self { segment, kind: PhantomData }
    }

    /// Returns the segment behind the table: for its lock, permissions and release.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Watches all rows: first comes [`RowEvent::Missed`], then each change in the order of the home's commits. The client does
    /// not poll, and each event is one request. To a watcher that is late by more than 1024 changes, and after a restart or a
    /// move of the home, the home reports `Missed` once more.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// use ddss::{RowEvent, Table};
    /// let stock: Table<u64> = client.table("stock").allocate(100)?;
    /// let mut watch = stock.watch();
    /// assert_eq!(watch.next().transpose()?, Some(RowEvent::Missed));
    /// stock.row(7).put(&12)?;
    /// assert_eq!(watch.next().transpose()?, Some(RowEvent::Changed { row: 7 }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(&self) -> Watch<RowEvent> {
        watch_rows(self.segment.clone())
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
