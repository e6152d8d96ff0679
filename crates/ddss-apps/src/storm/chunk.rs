//! Records, and the directory entries of chunks of records.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::datasets::geonames::Place;

/// Number of chunks of a data set, independent of the number of records.
pub const CHUNKS: usize = 128;

/// A record: an observation at a position.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Record {
    /// Degrees east.
    pub longitude: f32,
    /// Degrees north.
    pub latitude: f32,
    /// Number of the record.
    pub number: u32,
    /// Measured value.
    pub value: f32,
}

impl Record {
    /// Returns `count` records at places, ordered from west to east.
    pub fn at(places: &[Place], count: usize) -> Vec<Record> {
        let record = |(number, place): (usize, &Place)| Record {
            longitude: place.at[0] as f32,
            latitude: place.at[1] as f32,
            number: number as u32,
            value: (number % 1000) as f32,
        };
        let mut records: Vec<Record> = places.iter().cycle().take(count).enumerate().map(record).collect();
        records.sort_by(|a, b| a.longitude.total_cmp(&b.longitude));
        records
    }
}

/// Directory entry of a chunk, which fits into a completion.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Chunk {
    /// Offset of its first record.
    pub offset: u64,
    /// Index of its segment.
    pub segment: u32,
    /// Number of records.
    pub records: u32,
    /// Least longitude of the records.
    pub west: f32,
    /// Greatest longitude of the records.
    pub east: f32,
}

const _: () = assert!(size_of::<Chunk>() == 24);
