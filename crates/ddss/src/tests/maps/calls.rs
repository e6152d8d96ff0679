//! Calls of a map in the words of a model: a hash map.

use crate::{Encoding, EntryOptions, Error, ErrorKind, Map, Update};
use std::time::Duration;

/// Calls in the words of a model: a hash map.
pub(super) trait Calls<K, V> {
    /// Returns the value of a key.
    fn value(&self, key: &K) -> Option<V>;
    /// Returns the values of keys.
    fn values(&self, keys: &[K]) -> Vec<Option<V>>;
    /// Puts a value, and returns true if the key is new.
    fn insert(&self, key: &K, value: &V) -> Result<bool, Error>;
    fn insert_for(&self, key: &K, value: &V, ttl: Duration) -> Result<bool, Error>;
    /// Puts a value if the key is new, and returns true then.
    fn insert_new(&self, key: &K, value: &V) -> Result<bool, Error>;
    fn insert_new_for(&self, key: &K, value: &V, ttl: Duration) -> Result<bool, Error>;
    /// Changes the value of a key that is present, and returns the new one.
    fn change(&self, key: &K, change: impl FnMut(&mut V)) -> Option<V>;
    /// Lets the home free slots of buckets.
    fn sweep(&self, first: u64, buckets: u64) -> u64;
}

impl<K, V> Calls<K, V> for Map<K, V>
where
    K: Encoding<Input = K>,
    V: Encoding<Input = V, Output = V> + Clone,
{
    fn value(&self, key: &K) -> Option<V> {
        self.get(key).unwrap().map(|entry| entry.value)
    }

    fn values(&self, keys: &[K]) -> Vec<Option<V>> {
        let keys: Vec<&K> = keys.iter().collect();
        self.get_many(&keys).unwrap().into_iter().map(|entry| entry.map(|entry| entry.value)).collect()
    }

    fn insert(&self, key: &K, value: &V) -> Result<bool, Error> {
        self.put(key, value).map(|written| written.is_new)
    }

    fn insert_for(&self, key: &K, value: &V, ttl: Duration) -> Result<bool, Error> {
        self.put_with(key, value, EntryOptions::new().ttl(ttl)).map(|written| written.is_new)
    }

    fn insert_new(&self, key: &K, value: &V) -> Result<bool, Error> {
        is_put(self.put_with(key, value, EntryOptions::new().if_absent()).map(drop))
    }

    fn insert_new_for(&self, key: &K, value: &V, ttl: Duration) -> Result<bool, Error> {
        is_put(self.put_with(key, value, EntryOptions::new().if_absent().ttl(ttl)).map(drop))
    }

    fn change(&self, key: &K, mut change: impl FnMut(&mut V)) -> Option<V> {
        let apply = |old: Option<&crate::Entry<V>>| {
            let Some(old) = old else { return Update::Keep };
            let mut value = old.value.clone();
            change(&mut value);
            Update::Put(value)
        };
        self.update(key, apply).unwrap().map(|entry| entry.value)
    }

    fn sweep(&self, first: u64, buckets: u64) -> u64 {
        self.map.sweep(self.segment().time(), first, buckets).unwrap()
    }
}

fn is_put(ended: Result<(), Error>) -> Result<bool, Error> {
    match ended {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        ended => ended.map(|()| true),
    }
}
