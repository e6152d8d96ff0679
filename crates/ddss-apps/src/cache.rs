//! A read-through cache that the processes of all nodes share, with a bound on the age of its values.
//!
//! Entries lie in slots of a few segments, each key in the slot that its hash names: a later key takes the place of an
//! earlier one. A slot is written atomically, so no reader sees a torn entry, and no lock is needed: two clients that
//! miss at the same time both load, and one entry remains.
//!
//! The age counts from the call of the loader, on the clock of its node. A difference between the clocks of two nodes
//! shifts the bound; an entry from the future counts as old.
//!
//! ```
//! # let folder = std::env::temp_dir().join(format!("ddss-apps-cache-{}", std::process::id()));
//! # let mut config = ddssd::Config::single(&folder);
//! # config.pool_bytes = 16 << 20;
//! # let node = ddssd::Node::start(config)?;
//! # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(&folder))?;
//! use ddss_apps::cache::{Cache, CacheOptions};
//! use std::time::Duration;
//!
//! let pages = Cache::open(&client, "pages", CacheOptions { age_max: Duration::from_secs(5), ..CacheOptions::default() })?;
//! let page = pages.get_or_load(b"/index.html", || Ok::<_, ddss_apps::Error>(b"<h1>slow</h1>".to_vec()))?;
//! assert_eq!(pages.get(b"/index.html")?.as_deref(), Some(&page[..]));
//! # node.stop()?;
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ddss::{Client, ErrorKind, Model, Placement, Segment, Spec};

use crate::Error;

/// Number of segments of a cache: a write to one does not disturb reads of another.
const STRIPES: u64 = 8;
/// Bytes of the header in front of key and value: load time (µs) and both lengths. The key needs no checksum.
const FRONT: usize = 16;

/// Options of a cache. All clients of a cache must use the same `slots` and `entry_bytes_max`.
#[derive(Debug, Clone, Copy)]
pub struct CacheOptions {
    /// Maximum number of entries.
    pub slots: u64,
    /// Maximum size of a key and its value together, in bytes.
    pub entry_bytes_max: usize,
    /// Maximum age; an older value is loaded again.
    pub age_max: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { slots: 1024, entry_bytes_max: 4000, age_max: Duration::from_secs(60) }
    }
}

/// A cache in DDSS. See the [module](self).
#[derive(Debug, Clone)]
pub struct Cache {
    stripes: Vec<Segment>,
    options: CacheOptions,
}

/// Opens a segment, or allocates it if it does not exist.
pub(crate) fn open_or_allocate(client: &Client, name: &str, spec: Spec) -> Result<Segment, Error> {
    loop {
        match client.segment(name).open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            ended => return Ok(ended?),
        }
        match client.segment(name).allocate(spec) {
            // Another client has allocated it in the meantime.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            ended => return Ok(ended?),
        }
    }
}

fn hash(key: &[u8]) -> u64 {
    let mix = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = key.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    sum ^ (sum >> 29)
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Cache {
    /// Opens the cache called `name`, or creates it, spread over the nodes.
    pub fn open(client: &Client, name: &str, options: CacheOptions) -> Result<Cache, Error> {
        let slot_bytes = (FRONT + options.entry_bytes_max) as u64;
        let bytes = options.slots.div_ceil(STRIPES).max(1) * slot_bytes;
        let spec = Spec::new(bytes).model(Model::Write).placement(Placement::RoundRobin);
        let open = |stripe| open_or_allocate(client, &format!("{name}/{stripe}"), spec);
        let stripes = (0..STRIPES).map(open).collect::<Result<Vec<_>, _>>()?;
        match stripes.iter().find(|stripe| stripe.len() != bytes) {
            None => Ok(Cache { stripes, options }),
            Some(other) => Err(Error::Inconsistent(format!(
                "cache {name} was made with other options: {} and not {bytes} bytes a stripe",
                other.len()
            ))),
        }
    }

    fn slot(&self, key: &[u8]) -> (&Segment, u64) {
        let (hash, slot_bytes) = (hash(key), (FRONT + self.options.entry_bytes_max) as u64);
        let stripe = &self.stripes[(hash % STRIPES) as usize];
        (stripe, hash / STRIPES % (stripe.len() / slot_bytes) * slot_bytes)
    }

    /// Returns the value of a key, if it is present and young enough.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let (stripe, offset) = self.slot(key);
        let slot = stripe.get(offset..offset + (FRONT + self.options.entry_bytes_max) as u64)?;
        let number = |at: usize| u32::from_le_bytes(slot[at..at + 4].try_into().expect("four bytes")) as usize;
        let loaded_us = u64::from_le_bytes(slot[..8].try_into().expect("eight bytes"));
        let (key_end, value_end) = (FRONT + number(8), FRONT + number(8).saturating_add(number(12)));
        let age = now_us().checked_sub(loaded_us).map(Duration::from_micros);
        let young = age.is_some_and(|age| age <= self.options.age_max);
        let same = young && slot.get(FRONT..key_end) == Some(key);
        Ok(if same { slot.get(key_end..value_end).map(<[u8]>::to_vec) } else { None })
    }

    /// Returns the value of a key; loads it if it is missing or too old. A value that is too long is loaded each time.
    pub fn get_or_load<E: From<Error>>(
        &self,
        key: &[u8],
        load: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        if let Some(value) = self.get(key)? {
            return Ok(value);
        }
        let asked_us = now_us();
        let value = load()?;
        self.put_loaded(key, &value, asked_us)?;
        Ok(value)
    }

    /// Stores a value with the present time.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put_loaded(key, value, now_us())
    }

    fn put_loaded(&self, key: &[u8], value: &[u8], loaded_us: u64) -> Result<(), Error> {
        if key.len() + value.len() > self.options.entry_bytes_max {
            return Ok(());
        }
        let mut slot = loaded_us.to_le_bytes().to_vec();
        slot.extend_from_slice(&(key.len() as u32).to_le_bytes());
        slot.extend_from_slice(&(value.len() as u32).to_le_bytes());
        slot.extend_from_slice(key);
        slot.extend_from_slice(value);
        let (stripe, offset) = self.slot(key);
        stripe.put(offset, &slot)?;
        Ok(())
    }

    /// Removes a key for all clients.
    pub fn remove(&self, key: &[u8]) -> Result<(), Error> {
        if self.get(key)?.is_some() {
            let (stripe, offset) = self.slot(key);
            stripe.put(offset, &[0; FRONT])?;
        }
        Ok(())
    }
}
