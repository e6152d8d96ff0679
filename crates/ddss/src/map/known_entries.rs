//! Entries of a map that a watch has seen, and their changes.

use crate::map::scan::Scan;
use ddss_core::Version;
use std::collections::{BTreeMap, BTreeSet};

/// Change of one key of a map.
///
/// ```
/// use ddss::{Map, MapEvent};
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let stock: Map<[u8; 4], u64> = client.map("stock").allocate(100)?;
/// let mut watch = stock.watch(b"nut");
/// stock.put(b"nut7", &12)?;
/// assert_eq!(watch.next().transpose()?, Some(MapEvent::Put { key: *b"nut7", value: 12 }));
/// stock.remove(b"nut7")?;
/// assert_eq!(watch.next().transpose()?, Some(MapEvent::Removed { key: *b"nut7" }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MapEvent<K, V> {
    /// The key has this value.
    Put {
        /// The key.
        key: K,
        /// Its present value.
        value: V,
    },
    /// The key was removed, or has expired.
    Removed {
        /// The key.
        key: K,
    },
}

/// Pass over the whole map, at the beginning and after missed changes.
#[derive(Debug)]
pub(crate) struct FirstPass {
    /// Number of the newest change before it.
    pub(crate) number: Version,
    pub(crate) scan: Scan,
    /// Place of the next bucket to report.
    pub(crate) next: u64,
}

/// Key, and its present value.
pub(crate) type Event = (Vec<u8>, Option<Vec<u8>>);

/// Entry with the prefix: its value, and the bucket that it lies in.
pub(crate) type Entry = (Vec<u8>, u64);

/// Entries by key.
pub(crate) type Entries = BTreeMap<Vec<u8>, Entry>;

/// Entries with the prefix that the watcher has seen.
#[derive(Debug, Default)]
pub(crate) struct KnownEntries {
    /// By the bucket to which they belong.
    by_home: BTreeMap<u64, Entries>,
    /// Buckets with an entry of another bucket, and that bucket.
    elsewhere: BTreeSet<(u64, u64)>,
}

impl KnownEntries {
    /// Replaces the entries of a bucket, and returns what has changed.
    pub(crate) fn replace(&mut self, home: u64, found: Entries) -> Vec<Event> {
        let old = self.by_home.remove(&home).unwrap_or_default();
        for (_, place) in old.values() {
            self.elsewhere.remove(&(*place, home));
        }
        let mut events: Vec<Event> =
            old.keys().filter(|&key| !found.contains_key(key)).map(|key| (key.clone(), None)).collect();
        for (key, (value, place)) in &found {
            if old.get(key).is_none_or(|(known, _)| known != value) {
                events.push((key.clone(), Some(value.clone())));
            }
            if *place != home {
                self.elsewhere.insert((*place, home));
            }
        }
        if !found.is_empty() {
            self.by_home.insert(home, found);
        }
        events
    }

    /// Returns the buckets of which entries lie in that bucket.
    pub(crate) fn homes_in(&self, bucket: u64) -> impl Iterator<Item = u64> + '_ {
        self.elsewhere.range((bucket, 0)..=(bucket, u64::MAX)).map(|&(_, home)| home)
    }
}
