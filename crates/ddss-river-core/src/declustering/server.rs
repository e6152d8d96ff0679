//! Selects the reader that a file server serves next.

use crate::fault_injection::planted;
use crate::limits::{CHUNK_SLOTS_MAX, CHUNK_WINDOW_MAX, CHUNKS_MAX, READERS_MAX};
use crate::model::{ChunkRequest, Progress, ReaderId};
use std::collections::VecDeque;

/// Chunks that a reader may get ahead of another one before the server changes to that: each change costs a seek.
const LEAD_MAX: u32 = 2;

/// A request that no honest reader sends: the driver ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The reader is not connected.
    #[error("cannot serve {0}: it is not connected; close the connection")]
    Unknown(ReaderId),
    /// The reader has as many requests here as it may.
    #[error("cannot serve {0}: it has {CHUNK_WINDOW_MAX} requests here; close the connection")]
    Full(ReaderId),
    /// A field is outside its limit.
    #[error("cannot serve {0} with {1} {2}: close the connection")]
    Field(ReaderId, &'static str, u64),
}

/// A reader, as a server knows it.
#[derive(Clone, Debug)]
struct Client {
    id: ReaderId,
    progress: Progress,
    /// Requests with the numbers of their arrival.
    requests: VecDeque<(u64, ChunkRequest)>,
}

/// Selects the reader that a file server serves next: the one with the smallest part done.
#[derive(Clone, Debug, Default)]
pub struct ChunkServer {
    /// In the order of their numbers.
    clients: Vec<Client>,
    arrivals: u64,
    /// The reader that was served last.
    last: Option<ReaderId>,
    #[cfg(feature = "planted")]
    bug: Option<crate::fault_injection::Bug>,
}

impl ChunkServer {
    /// Adds a bug.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::fault_injection::Bug) {
        self.bug = Some(bug);
    }

    /// Adds a reader, or forgets its requests if it is known. Returns false if there are [`READERS_MAX`] others.
    pub fn connect(&mut self, reader: ReaderId) -> bool {
        match self.clients.binary_search_by_key(&reader, |client| client.id) {
            Ok(position) => self.clients[position].requests.clear(),
            Err(_) if self.clients.len() == READERS_MAX => return false,
            Err(position) => {
                let requests = VecDeque::with_capacity(CHUNK_WINDOW_MAX.into());
                let progress = Progress { done: 0, total: 1 };
                self.clients.insert(position, Client { id: reader, progress, requests });
            }
        }
        true
    }

    /// Forgets a reader and its requests.
    pub fn disconnect(&mut self, reader: ReaderId) {
        self.clients.retain(|client| client.id != reader);
    }

    /// Adds a request.
    ///
    /// # Errors
    /// A request that no honest reader sends.
    pub fn add(&mut self, request: ChunkRequest) -> Result<(), RequestError> {
        let ChunkRequest { reader, chunk, slot, progress: Progress { done, total }, .. } = request;
        let position = self.clients.binary_search_by_key(&reader, |client| client.id);
        let client = &mut self.clients[position.map_err(|_| RequestError::Unknown(reader))?];
        let limits = [
            ("chunks", total, 1, CHUNKS_MAX),
            ("chunk", chunk, 0, total.saturating_sub(1)),
            ("progress", done, 0, total),
            ("slot", slot.into(), 0, u32::from(CHUNK_SLOTS_MAX) - 1),
        ];
        if let Some((name, value, ..)) = limits.into_iter().find(|(_, value, min, max)| value < min || value > max) {
            return Err(RequestError::Field(reader, name, value.into()));
        }
        if client.requests.len() == usize::from(CHUNK_WINDOW_MAX) {
            return Err(RequestError::Full(reader));
        }
        client.progress = request.progress;
        client.requests.push_back((self.arrivals, request));
        self.arrivals += 1;
        Ok(())
    }

    /// Takes the request that the disk reads next.
    pub fn take(&mut self) -> Option<ChunkRequest> {
        let position = self.select()?;
        let client = &mut self.clients[position];
        self.last = Some(client.id);
        client.requests.pop_front().map(|(_, request)| request)
    }

    fn select(&self) -> Option<usize> {
        let waiting = || self.clients.iter().enumerate().filter(|(_, client)| !client.requests.is_empty());
        let arrival = |client: &Client| client.requests.front().map(|(arrival, _)| *arrival);
        if planted!(self, LagIgnored) {
            return waiting().min_by_key(|(_, client)| arrival(client)).map(|(position, _)| position);
        }
        let (slowest, behind) = waiting().reduce(|best, other| {
            let (one, two) = (best.1.progress, other.1.progress);
            let is_first = two.is_behind(one, 0) || !one.is_behind(two, 0) && arrival(other.1) < arrival(best.1);
            if is_first { other } else { best }
        })?;
        let last = waiting().find(|(_, client)| Some(client.id) == self.last);
        let stays = last.filter(|(_, client)| !behind.progress.is_behind(client.progress, LEAD_MAX));
        Some(stays.map_or(slowest, |(position, _)| position))
    }
}
