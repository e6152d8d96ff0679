//! Repair of a collection: parts that a server has lost are written again.

use super::catalogue::{Catalogue, PartRow};
use super::client::FileClientState;
use super::collection::{CollectionReader, Damage, Files, random};
use super::wire::PART_BYTES_MAX;
use crate::error::QueueError;
use ddss_river_core::limits::GENERATION_MAX;

impl Files {
    /// Writes each part again that is damaged or missing at one of its servers: to the servers that are here, its own ones first.
    /// Readers that have begun go on with the old files, which stay. Returns the damages that there were.
    ///
    /// # Errors
    /// A chunk is lost at both servers, less than two servers are here, one fails, or a call failed. Parts before it are repaired.
    pub fn repair(&mut self, name: &str) -> Result<Vec<Damage>, QueueError> {
        let damages = self.verify(name)?;
        let mut parts: Vec<u32> = damages.iter().map(|damage| damage.part).collect();
        parts.dedup();
        parts.into_iter().try_for_each(|part| self.repair_part(name, part))?;
        Ok(damages)
    }

    fn repair_part(&self, name: &str, number: u32) -> Result<(), QueueError> {
        let catalogue = Catalogue::open(&self.client, name)?;
        let (part, version) = catalogue.part(number)?;
        let servers = self.wait("two file servers did not come", |state| choose(state, &part))?;
        let generation = random() % GENERATION_MAX;
        let mut reader = CollectionReader::new(self, name, number, vec![part]);
        let written = self.load_part(generation, servers, &mut reader, PART_BYTES_MAX);
        drop(reader);
        let replaced = written.and_then(|written| catalogue.replace(number, version, &written));
        self.shared.call(|state| {
            state.writing = None;
            if replaced.is_err() {
                state.abort(generation, servers);
            }
        });
        match replaced {
            // The reader has a reason of its own.
            Err(QueueError::System(error)) => Err(error.downcast().unwrap_or_else(QueueError::System)),
            other => other,
        }
    }
}

/// Returns two servers for a part. `None` while there are less.
fn choose(state: &FileClientState, part: &PartRow) -> Option<[u64; 2]> {
    let own = part.servers.iter().filter(|server| state.servers.contains_key(server));
    let others = state.servers.keys().filter(|server| !part.servers.contains(server));
    let mut servers = own.chain(others).copied();
    Some([servers.next()?, servers.next()?])
}
