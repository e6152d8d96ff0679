//! Directories, which store the location of each chunk.

use std::mem::size_of;

use ddss::{Array, Client, Model, Placement, Spec};
use zerocopy::{FromZeros, IntoBytes};

use super::chunk::{CHUNKS, Chunk};
use crate::Error;
use crate::storage::RedisClient;

/// A directory of chunks.
pub trait Directory {
    /// Returns the entry of the `index`-th chunk.
    fn chunk(&mut self, index: usize) -> Result<Chunk, Error>;

    /// Returns the entries of all chunks in the minimum of round trips.
    fn chunks(&mut self) -> Result<Vec<Chunk>, Error> {
        (0..CHUNKS).map(|index| self.chunk(index)).collect()
    }
}

/// A directory in a DDSS segment.
#[derive(Debug)]
pub struct SharedDirectory {
    chunks: Array<Chunk>,
}

impl SharedDirectory {
    /// Creates a directory.
    pub fn create(
        client: &Client,
        name: &str,
        placement: Placement,
        chunks: &[Chunk],
    ) -> Result<SharedDirectory, Error> {
        let spec = Spec::new((CHUNKS * size_of::<Chunk>()) as u64).model(Model::Write).placement(placement);
        let shared = client.segment(name).allocate(spec)?.array(0)?;
        shared.put_slice(0, chunks)?;
        Ok(SharedDirectory { chunks: shared })
    }

    /// Opens an existing directory.
    pub fn open(client: &Client, name: &str) -> Result<SharedDirectory, Error> {
        Ok(SharedDirectory { chunks: client.segment(name).open()?.array(0)? })
    }
}

impl Directory for SharedDirectory {
    fn chunk(&mut self, index: usize) -> Result<Chunk, Error> {
        Ok(self.chunks.get(index)?.value)
    }

    fn chunks(&mut self) -> Result<Vec<Chunk>, Error> {
        let mut chunks = vec![Chunk::new_zeroed(); CHUNKS];
        self.chunks.get_into(0, &mut chunks)?;
        Ok(chunks)
    }
}

/// A directory in Redis, one key for each chunk, over one persistent connection.
#[derive(Debug)]
pub struct RedisDirectory {
    client: RedisClient,
    name: String,
}

impl RedisDirectory {
    /// Writes the entries to Redis.
    pub fn create(mut client: RedisClient, name: &str, chunks: &[Chunk]) -> Result<RedisDirectory, Error> {
        for (index, chunk) in chunks.iter().enumerate() {
            client.set(format!("{name}:{index}").as_bytes(), chunk.as_bytes())?;
        }
        Ok(RedisDirectory { client, name: name.to_owned() })
    }
}

impl Directory for RedisDirectory {
    fn chunk(&mut self, index: usize) -> Result<Chunk, Error> {
        let mut chunk = Chunk::new_zeroed();
        let key = format!("{}:{index}", self.name);
        match self.client.get(key.as_bytes(), chunk.as_mut_bytes())? {
            true => Ok(chunk),
            false => Err(Error::Protocol { server: "redis", answer: format!("there is no {key}") }),
        }
    }
}
