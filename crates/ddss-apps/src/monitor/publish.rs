//! Publishers and readers of counters.

use std::time::{Duration, Instant};

use ddss::{Batch, Cell, Client, Mode, Model, Segment, Spec, Version};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Error;
use crate::cache::open_or_allocate;

fn prefix(service: &str) -> String {
    format!("monitor/{service}/")
}

/// One instance of a service, which publishes counters.
#[derive(Debug)]
pub struct Publisher<T> {
    counters: Cell<T>,
}

impl<T: FromBytes + IntoBytes + Immutable + 'static> Publisher<T> {
    /// Publishes the first counters of an instance. A restarted instance continues its segment.
    pub fn start(client: &Client, service: &str, instance: &str, first: &T) -> Result<Publisher<T>, Error> {
        // A reader gets the newest version and waits for no client; other users may read.
        let spec = Spec::new(size_of::<T>() as u64).model(Model::Write).mode(Mode(0o644));
        let segment = open_or_allocate(client, &(prefix(service) + instance), spec)?;
        let publisher = Publisher { counters: segment.cell(0)? };
        publisher.publish(first)?;
        Ok(publisher)
    }

    /// Publishes new counters.
    pub fn publish(&self, counters: &T) -> Result<(), Error> {
        self.counters.put(counters)?;
        Ok(())
    }
}

/// Last publication of an instance.
#[derive(Debug, Clone)]
pub struct Reading<T> {
    /// Number of the instance.
    pub instance: String,
    /// Its counters.
    pub value: T,
    /// Number of publications.
    pub version: Version,
    /// Time of the request.
    asked: Instant,
    /// Time at which the version was first seen.
    changed: Instant,
}

impl<T> Reading<T> {
    /// Maximum age: publications before that time are included.
    pub fn age(&self) -> Duration {
        self.asked.elapsed()
    }

    /// Time of the request.
    pub fn asked_at(&self) -> Instant {
        self.asked
    }

    /// Returns the time since the last new publication. An instance that publishes every 5 ms and was silent for a
    /// second has failed.
    pub fn silent_for(&self) -> Duration {
        self.asked.duration_since(self.changed)
    }
}

/// Reader of the counters of all instances of a service. It waits for an instance whose node does not answer as long as the
/// client's calls may take: give the watcher a client with a short timeout.
#[derive(Debug)]
pub struct Watcher<T> {
    client: Client,
    service: String,
    segments: Vec<Segment>,
    /// Time until which each unresponsive instance is skipped.
    silent: Vec<Option<Instant>>,
    readings: Vec<Reading<T>>,
}

impl<T: FromBytes> Watcher<T> {
    /// Creates a watcher without instances; [`discover`](Self::discover) finds them.
    pub fn new(client: &Client, service: &str) -> Watcher<T> {
        let (client, service) = (client.clone(), service.to_owned());
        Watcher { client, service, segments: Vec::new(), silent: Vec::new(), readings: Vec::new() }
    }

    /// Finds the instances of the service and returns their number. The next reading includes new ones.
    pub fn discover(&mut self) -> Result<usize, Error> {
        let mut segments = Vec::new();
        for listing in self.client.list(&prefix(&self.service)) {
            segments.push(self.client.segment(listing?.name.as_str()).open()?);
        }
        self.silent = vec![None; segments.len()];
        self.segments = segments;
        self.readings.clear();
        Ok(self.segments.len())
    }

    /// Returns the counters of all instances, read again if they are older than `age_max`. An unresponsive instance
    /// keeps its last reading, which shows its [`age`](Reading::age), and is skipped for some time, so that it does not
    /// delay the others.
    pub fn read(&mut self, age_max: Duration) -> Result<&[Reading<T>], Error> {
        let is_young = !self.segments.is_empty()
            && (0..self.segments.len()).all(|index| {
                self.silent[index].is_some_and(|until| Instant::now() < until)
                    || self.reading_of(index).is_some_and(|reading| reading.age() < age_max)
            });
        if !is_young && !self.segments.is_empty() {
            let begin = Instant::now();
            if !self.read_anew()? && begin.elapsed() >= age_max {
                // The readings of the other instances have aged while one did not answer.
                self.read_anew()?;
            }
        }
        Ok(&self.readings)
    }

    fn reading_of(&self, index: usize) -> Option<&Reading<T>> {
        let instance = &self.segments[index].name()[prefix(&self.service).len()..];
        self.readings.iter().find(|reading| reading.instance == instance)
    }

    /// Reads all instances that are not skipped; returns true if all of them answered.
    fn read_anew(&mut self) -> Result<bool, Error> {
        /// Factor between the time that an unresponsive instance took and the time for which it is skipped.
        const REST: u32 = 16;
        let (asked, mut batch) = (Instant::now(), Batch::new());
        let is_asked = |until: &Option<Instant>| until.is_none_or(|until| until <= asked);
        let whom: Vec<usize> = (0..self.segments.len()).filter(|&index| is_asked(&self.silent[index])).collect();
        let tickets = whom.iter().map(|&index| batch.get(&self.segments[index], ..)).collect::<Result<Vec<_>, _>>()?;
        let mut answers = self.client.run(batch)?;
        let (waited, start) = (asked.elapsed(), prefix(&self.service).len());
        let mut all = true;
        for (index, ticket) in whom.into_iter().zip(tickets) {
            self.silent[index] = None;
            let Ok(answer) = answers.take(ticket) else {
                (all, self.silent[index]) = (false, Some(Instant::now() + waited * REST));
                continue;
            };
            let Ok(value) = T::read_from_bytes(&answer) else { continue };
            let (instance, version) = (&self.segments[index].name()[start..], answer.version());
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
        Ok(all)
    }
}
