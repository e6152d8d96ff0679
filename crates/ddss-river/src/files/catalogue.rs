//! The catalogue of a collection: its table.
//!
//! Row 0 is written last: a collection without it is not complete, and nobody reads it.

use super::wire::{CHUNK_BYTES, PART_BYTES_MAX};
use crate::error::QueueError;
use ddss::{Client, ErrorKind, Model, Spec, Table, Version};

/// Parts of a collection at most.
pub(super) const PARTS_MAX: u32 = 4096;
const ROW_BYTES: u32 = 64;
const COLLECTION: [u8; 4] = *b"COL1";
const PART: [u8; 4] = *b"PRT1";

/// A part of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PartRow {
    pub(super) bytes: u64,
    pub(super) generation: u64,
    /// Numbers of the servers that have it.
    pub(super) servers: [u64; 2],
}

impl PartRow {
    fn encode(&self) -> [u8; 40] {
        let mut row = [0; 40];
        row[..4].copy_from_slice(&PART);
        let longs = [self.bytes, self.generation, self.servers[0], self.servers[1]];
        row[8..].chunks_exact_mut(8).zip(longs).for_each(|(part, long)| part.copy_from_slice(&long.to_le_bytes()));
        row
    }

    fn decode(row: &[u8]) -> Option<Self> {
        let long = |at: usize| Some(u64::from_le_bytes(*row.get(at..)?.first_chunk::<8>()?));
        let part = Self { bytes: long(8)?, generation: long(16)?, servers: [long(24)?, long(32)?] };
        (row[..4] == PART && part.bytes <= PART_BYTES_MAX && part.generation < u64::MAX).then_some(part)
    }
}

/// Table of a collection.
#[derive(Debug)]
pub(super) struct Catalogue {
    name: String,
    table: Table,
}

impl Catalogue {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn table_name(name: &str) -> String {
        format!("river/files/{name}")
    }

    fn damaged(&self, row: u64) -> QueueError {
        QueueError::Row { queue: self.name.clone(), row }
    }

    /// Returns the names of the collections.
    pub(super) fn names(client: &Client) -> Result<Vec<String>, QueueError> {
        let prefix = Self::table_name("");
        let name = |segment: ddss::SegmentInfo| segment.name.strip_prefix(&prefix).map(str::to_owned);
        Ok(client.list(&prefix).filter_map(|segment| segment.map(name).transpose()).collect::<Result<_, _>>()?)
    }

    /// Creates the catalogue of a new collection.
    pub(super) fn create(client: &Client, name: &str, copies: u8) -> Result<Self, QueueError> {
        let spec = Spec::new(1 + u64::from(PARTS_MAX)).row_len(ROW_BYTES).model(Model::Write).copies(copies);
        let table = match client.table::<[u8]>(&Self::table_name(name)).allocate(spec) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(QueueError::CollectionExists { collection: name.to_owned() });
            }
            other => other?,
        };
        Ok(Self { name: name.to_owned(), table })
    }

    /// Adds the next part.
    pub(super) fn add(&self, number: u32, part: &PartRow) -> Result<(), QueueError> {
        self.table.row(1 + u64::from(number)).put_if(Version(0), &part.encode())?;
        Ok(())
    }

    /// Completes the collection.
    pub(super) fn complete(&self, parts: u32) -> Result<(), QueueError> {
        let mut row = [0; 16];
        row[..4].copy_from_slice(&COLLECTION);
        row[4..8].copy_from_slice(&CHUNK_BYTES.to_le_bytes());
        row[8..12].copy_from_slice(&parts.to_le_bytes());
        self.table.row(0).put_if(Version(0), &row)?;
        Ok(())
    }

    /// Removes a collection that could not be completed. Returns false if it may be left.
    pub(super) fn remove(self) -> bool {
        self.table.segment().clone().release().is_ok()
    }

    /// Opens the catalogue of a collection.
    pub(super) fn open(client: &Client, name: &str) -> Result<Self, QueueError> {
        match client.table::<[u8]>(&Self::table_name(name)).open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(QueueError::UnknownCollection { collection: name.to_owned() })
            }
            other => Ok(Self { name: name.to_owned(), table: other? }),
        }
    }

    /// Returns a part, with the version of its row.
    pub(super) fn part(&self, number: u32) -> Result<(PartRow, Version), QueueError> {
        let at = 1 + u64::from(number);
        let row = self.table.row(at).get()?;
        Ok((PartRow::decode(&row).ok_or_else(|| self.damaged(at))?, row.version()))
    }

    /// Replaces a part, unless another process has done so since its row was read.
    pub(super) fn replace(&self, number: u32, version: Version, part: &PartRow) -> Result<(), QueueError> {
        self.table.row(1 + u64::from(number)).put_if(version, &part.encode())?;
        Ok(())
    }

    /// Reads the parts of a complete collection.
    pub(super) fn read(client: &Client, name: &str) -> Result<Vec<PartRow>, QueueError> {
        let catalogue = Self::open(client, name)?;
        let row = catalogue.table.row(0).get()?;
        if row.version() == Version(0) {
            return Err(QueueError::Incomplete { collection: name.to_owned() });
        }
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| row[at + byte]));
        if row.len() < 16 || row[..4] != COLLECTION || word(4) != CHUNK_BYTES || word(8) > PARTS_MAX {
            return Err(catalogue.damaged(0));
        }
        (0..word(8)).map(|number| catalogue.part(number).map(|(part, _)| part)).collect()
    }
}
