//! Who publishes, and who watches.

use std::time::{Duration, Instant};

use ddss::{Client, Model, Segment, Shared, Spec, Version};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Error;
use crate::cache::open_or_allocate;

fn prefix(service: &str) -> String {
    format!("monitor/{service}/")
}

/// One instance of a service, which publishes counters.
#[derive(Debug)]
pub struct Publisher<T> {
    counters: Shared<T>,
}

impl<T: FromBytes + IntoBytes + Immutable> Publisher<T> {
    /// Publishes the first counters of an instance. One that died and came back goes on where it was.
    pub fn start(client: &Client, service: &str, instance: &str, first: &T) -> Result<Publisher<T>, Error> {
        // A reader takes the newest and waits for nobody; others may read.
        let spec = Spec { model: Model::Write, mode: 0o644, ..Spec::new(size_of::<T>() as u64) };
        let segment = open_or_allocate(client, &(prefix(service) + instance), spec)?;
        let publisher = Publisher { counters: Shared::new(segment, 0)? };
        publisher.publish(first)?;
        Ok(publisher)
    }

    /// Publishes new counters.
    pub fn publish(&self, counters: &T) -> Result<(), Error> {
        self.counters.put(counters)?;
        Ok(())
    }
}

/// What an instance published last.
#[derive(Debug, Clone)]
pub struct Reading<T> {
    /// Which instance.
    pub instance: String,
    /// Its counters.
    pub value: T,
    /// How often it has published.
    pub version: Version,
    /// When they were asked for.
    asked: Instant,
    /// When the version was first seen.
    changed: Instant,
}

impl<T> Reading<T> {
    /// How old it may be: what the instance published before that is not missing.
    pub fn age(&self) -> Duration {
        self.asked.elapsed()
    }

    /// For how long nothing new came. An instance that publishes every 5 ms and was silent for a second is in trouble.
    pub fn silent_for(&self) -> Duration {
        self.asked.duration_since(self.changed)
    }
}

/// Who reads the counters of all instances of a service.
#[derive(Debug)]
pub struct Watcher<T> {
    client: Client,
    service: String,
    segments: Vec<Segment>,
    readings: Vec<Reading<T>>,
}

impl<T: FromBytes> Watcher<T> {
    /// Watches nobody yet: [`discover`](Self::discover) does.
    pub fn new(client: &Client, service: &str) -> Watcher<T> {
        let (client, service) = (client.clone(), service.to_owned());
        Watcher { client, service, segments: Vec::new(), readings: Vec::new() }
    }

    /// Looks which instances there are; returns how many. One that is new is read with the next reading.
    pub fn discover(&mut self) -> Result<usize, Error> {
        let mut segments = Vec::new();
        for listing in self.client.list(&prefix(&self.service))? {
            segments.push(self.client.open(listing?.name.as_str())?);
        }
        self.segments = segments;
        self.readings.clear();
        Ok(self.segments.len())
    }

    /// The counters of all instances, none older than `age_max`: read anew if they are. An instance that does not answer
    /// keeps its last reading, whose [`age`](Reading::age) tells; one that never did has none.
    pub fn read(&mut self, age_max: Duration) -> Result<&[Reading<T>], Error> {
        let is_young =
            self.readings.len() == self.segments.len() && self.readings.iter().all(|one| one.age() < age_max);
        if !is_young && !self.segments.is_empty() {
            self.read_anew()?;
        }
        Ok(&self.readings)
    }

    fn read_anew(&mut self) -> Result<(), Error> {
        let (asked, mut batch) = (Instant::now(), self.client.batch());
        for segment in &self.segments {
            batch.get(segment, ..)?;
        }
        let answers = batch.run()?;
        let start = prefix(&self.service).len();
        for (segment, answer) in self.segments.iter().zip(answers) {
            let Ok(answer) = answer else { continue };
            let Ok(value) = T::read_from_bytes(answer.bytes()) else { continue };
            let (instance, version) = (&segment.name()[start..], answer.stamp().version);
            match self.readings.iter_mut().find(|reading| reading.instance == instance) {
                Some(reading) => {
                    let changed = if reading.version == version { reading.changed } else { asked };
                    *reading = Reading { instance: instance.to_owned(), value, version, asked, changed };
                }
                None => {
                    let instance = instance.to_owned();
                    self.readings.push(Reading { instance, value, version, asked, changed: asked });
                }
            }
        }
        Ok(())
    }
}
