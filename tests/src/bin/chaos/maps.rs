//! Calls of maps. Each key is changed by one worker and read by all, so that its changes have one order.

use crate::log::{End, Kind, Log, Record, now_ns};
use crate::worker::{BYTES, COUNTERS, PATIENCE, VALUES, mark, name, patiently, whole};
use ddss::{Client, Error, Spec};
use ddss_ipc::MemoryError;
use ddss_testkit::Random;
use std::time::Instant;

pub(crate) type Map = ddss::Map<u64, [u8; BYTES]>;

/// Number of maps. Their places are behind all others.
pub(crate) const MAPS: usize = 3;
pub(crate) const KEYS_OF_WORKER: u64 = 16;
/// Maximum number of workers.
const WORKERS_MAX: u64 = 16;
/// Place of the first map.
pub(crate) const FIRST_MAP: usize = VALUES + COUNTERS;
/// Value of a key that is absent.
pub(crate) const ABSENT: u64 = 0;

/// Returns the specification of a map.
pub(crate) fn spec() -> Spec {
    Spec::new(KEYS_OF_WORKER * WORKERS_MAX).entry_len(size_of::<u64>(), BYTES)
}

pub(crate) fn open_maps(client: &Client) -> Result<Vec<Map>, Error> {
    let until = Instant::now() + PATIENCE;
    (FIRST_MAP..FIRST_MAP + MAPS).map(|index| patiently(until, || client.map(&name(index)).open())).collect()
}

/// Returns the value of a key, as a mark.
pub(crate) fn find(map: &Map, key: u64) -> Result<u64, Error> {
    Ok(map.get(&key)?.map_or(ABSENT, |entry| whole(&entry.value)))
}

/// Maps of one worker, and the number of its last insert.
pub(crate) struct MapWorker {
    maps: Vec<Map>,
    worker: u16,
    life: u16,
    sequence: u32,
}

impl MapWorker {
    pub(crate) fn new(client: &Client, worker: u16, life: u16) -> Result<Self, Error> {
        Ok(Self { maps: open_maps(client)?, worker, life, sequence: 0 })
    }

    /// Makes one call of the map in a place, and records it; returns its end. A change is recorded before it begins, too: if
    /// the worker is killed in it, the checker knows that it may have happened.
    pub(crate) fn call(&mut self, place: usize, random: &mut Random, log: &mut Log) -> Result<End, MemoryError> {
        let map = &self.maps[place - FIRST_MAP];
        let mine = |random: &mut Random| u64::from(self.worker) * KEYS_OF_WORKER + random.below(KEYS_OF_WORKER);
        let (kind, key) = match random.below(6) {
            0..3 => (Kind::Find, random.below(WORKERS_MAX * KEYS_OF_WORKER)),
            3..5 => (Kind::Insert, mine(random)),
            _ => (Kind::Remove, mine(random)),
        };
        self.sequence += u32::from(kind == Kind::Insert);
        let value = if kind == Kind::Insert { mark(self.worker, self.life, self.sequence) } else { ABSENT };
        let began_ns = now_ns();
        let begun = Record { kind, end: End::Begun, segment: place, began_ns, ended_ns: began_ns, version: key, value };
        if kind != Kind::Find {
            log.add(&begun)?;
        }
        let result = match kind {
            Kind::Insert => {
                let mut bytes = [0; BYTES];
                bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
                map.put(&key, &bytes).map(|_| value)
            }
            Kind::Remove => map.remove(&key).map(|_| value),
            _ => find(map, key),
        };
        let end = match &result {
            Ok(_) => End::Done,
            Err(error) if error.is_indeterminate() => End::Unknown,
            Err(_) => End::Failed,
        };
        log.add(&Record { end, ended_ns: now_ns(), value: result.unwrap_or(value), ..begun })?;
        Ok(end)
    }
}
