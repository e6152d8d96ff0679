//! Selections.

use std::time::{Duration, Instant};

use ddss::{Client, Model, NodeId, Placement, Segment, Spec};
use zerocopy::{FromBytes, IntoBytes};

use super::chunk::{CHUNKS, Chunk, Record};
use super::directory::Directory;
use crate::Error;
use crate::cache::open_or_allocate;
use crate::datasets::geonames::Place;

/// Origin of the distances.
const FROM: [f64; 2] = [7.44744, 46.94809];

/// Result of a selection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Found {
    /// Number of records.
    pub records: u64,
    /// The sum of their values.
    pub values: f64,
    /// Sum of the distances from one place to all records, in kilometres.
    pub kilometres: f64,
}

impl Found {
    fn add(&mut self, record: &Record) {
        self.records += 1;
        self.values += f64::from(record.value);
        self.kilometres += Place::distance_km(FROM, [record.longitude.into(), record.latitude.into()]);
    }

    /// Selects from records in local memory.
    pub fn scan(records: &[Record], west: f32, east: f32) -> Found {
        let mut found = Found::default();
        let inside = records.iter().filter(|record| (west..=east).contains(&record.longitude));
        inside.for_each(|record| found.add(record));
        found
    }
}

/// A data set whose records are spread on nodes.
#[derive(Debug)]
pub struct Storm {
    data: Vec<Segment>,
    bytes: Vec<u8>,
}

fn name(name: &str, part: usize) -> String {
    format!("{name}/data/{part}")
}

impl Storm {
    /// Spreads records over nodes, in chunks; returns the entries for the directory. It can be called again if it
    /// failed.
    pub fn create(client: &Client, set: &str, nodes: &[NodeId], records: &[Record]) -> Result<Vec<Chunk>, Error> {
        let per_chunk = records.len().div_ceil(CHUNKS).max(1);
        let part_bytes = (per_chunk * CHUNKS.div_ceil(nodes.len()) * size_of::<Record>()) as u64;
        let allocate = |(part, &node): (usize, &NodeId)| {
            let spec = Spec::new(part_bytes).model(Model::Write).placement(Placement::Node(node));
            open_or_allocate(client, &name(set, part), spec)
        };
        let data = nodes.iter().enumerate().map(allocate).collect::<Result<Vec<_>, _>>()?;
        let chunk = |index: usize| {
            let records = records.chunks(per_chunk).nth(index).unwrap_or_default();
            let (segment, offset) = (index % data.len(), (index / data.len() * per_chunk * size_of::<Record>()) as u64);
            if !records.is_empty() {
                data[segment].put(offset, records.as_bytes())?;
            }
            // No selection reads a chunk without records.
            let ends = records.first().zip(records.last());
            let (west, east) = ends.map_or((f32::MAX, f32::MIN), |(first, last)| (first.longitude, last.longitude));
            Ok(Chunk { offset, segment: segment as u32, records: records.len() as u32, west, east })
        };
        (0..CHUNKS).map(chunk).collect()
    }

    /// Opens a data set that is spread over `nodes` nodes.
    pub fn open(client: &Client, set: &str, nodes: usize) -> Result<Storm, Error> {
        let data = (0..nodes).map(|part| client.segment(&name(set, part)).open()).collect::<Result<Vec<_>, _>>()?;
        Ok(Storm { data, bytes: Vec::new() })
    }

    /// Finds all records between two longitudes; returns the time that the directory needed, with one request for each
    /// chunk.
    pub fn select(&mut self, directory: &mut dyn Directory, west: f32, east: f32) -> Result<(Found, Duration), Error> {
        let begin = Instant::now();
        let chunks = (0..CHUNKS).map(|index| directory.chunk(index)).collect::<Result<Vec<_>, _>>()?;
        let took = begin.elapsed();
        self.read(&chunks, west, east).map(|found| (found, took))
    }

    /// Finds the records after reading the whole directory in the minimum of round trips.
    pub fn select_at_once(
        &mut self,
        directory: &mut dyn Directory,
        west: f32,
        east: f32,
    ) -> Result<(Found, Duration), Error> {
        let begin = Instant::now();
        let chunks = directory.chunks()?;
        let took = begin.elapsed();
        self.read(&chunks, west, east).map(|found| (found, took))
    }

    fn read(&mut self, chunks: &[Chunk], west: f32, east: f32) -> Result<Found, Error> {
        let mut found = Found::default();
        for chunk in chunks.iter().filter(|chunk| chunk.west <= east && chunk.east >= west) {
            let unknown = || Error::Inconsistent(format!("{chunk:?} lies in a segment that is none"));
            let segment = self.data.get(chunk.segment as usize).ok_or_else(unknown)?;
            self.bytes.resize(chunk.records as usize * size_of::<Record>(), 0);
            segment.get_into(chunk.offset, &mut self.bytes)?;
            for record in self.bytes.chunks_exact(size_of::<Record>()) {
                let record = Record::read_from_bytes(record).expect("a record has as many bytes");
                if (west..=east).contains(&record.longitude) {
                    found.add(&record);
                }
            }
        }
        Ok(found)
    }
}
