//! The files of a server: a part, and beside it the checksum of each chunk.
//!
//! A part has the name of its generation. While it is written it ends with `.new`; it is complete once both files have their
//! names, the one with the checksums first.

use super::wire::{CHUNK_BYTES, PART_BYTES_MAX, chunks_of, length_of};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// First bytes of a file with checksums.
const FORMAT: [u8; 4] = *b"CRC1";
/// File with the number of the server.
const IDENTITY: &str = "server";

/// Directory of a server.
#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
}

impl Store {
    /// Opens a directory, which is created if it does not exist. Returns the number of its server, which it keeps.
    pub(super) fn open(directory: &Path) -> io::Result<(Self, u64)> {
        fs::create_dir_all(directory)?;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            // Its writer has lost the server that was here before.
            if path.extension().is_some_and(|end| end == "new") {
                fs::remove_file(path)?;
            }
        }
        let path = directory.join(IDENTITY);
        let number = match fs::read_to_string(&path) {
            Ok(text) => u64::from_str_radix(text.trim(), 16).ok().filter(|number| *number != 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let number = match number {
            Some(number) => number,
            None => {
                let number = super::collection::random() | 1;
                let new = directory.join("server.new");
                let mut file = File::create(&new)?;
                writeln!(file, "{number:016x}")?;
                file.sync_all()?;
                fs::rename(new, path)?;
                number
            }
        };
        Ok((Self { directory: directory.to_owned() }, number))
    }

    fn path(&self, generation: u64, end: &str) -> PathBuf {
        self.directory.join(format!("{generation:016x}{end}"))
    }

    /// Begins to write a part.
    pub(super) fn create(&self, generation: u64) -> io::Result<NewPart> {
        let file = File::create(self.path(generation, ".new"))?;
        Ok(NewPart { file, checksums: Vec::new(), generation })
    }

    /// Forgets a part that is not complete.
    pub(super) fn discard(&self, part: &NewPart) {
        let _ = fs::remove_file(self.path(part.generation, ".new"));
    }

    /// Completes a part: afterwards it survives a loss of power.
    pub(super) fn commit(&self, part: &NewPart, bytes: u64) -> io::Result<()> {
        let incomplete = || io::Error::other("a chunk of the part is missing");
        let chunks = chunks_of(bytes) as usize;
        if bytes > PART_BYTES_MAX || part.checksums.len() != chunks {
            return Err(incomplete());
        }
        let mut table = FORMAT.to_vec();
        table.extend_from_slice(&bytes.to_le_bytes());
        for checksum in &part.checksums {
            table.extend_from_slice(&checksum.ok_or_else(incomplete)?.to_le_bytes());
        }
        table.extend_from_slice(&crc32c::crc32c(&table).to_le_bytes());
        part.file.set_len(bytes)?;
        part.file.sync_all()?;
        let new = self.path(part.generation, ".crc.new");
        let mut file = File::create(&new)?;
        file.write_all(&table)?;
        file.sync_all()?;
        fs::rename(new, self.path(part.generation, ".crc"))?;
        fs::rename(self.path(part.generation, ".new"), self.path(part.generation, ".part"))?;
        File::open(&self.directory)?.sync_all()
    }

    /// Opens a complete part.
    pub(super) fn part(&self, generation: u64) -> io::Result<StoredPart> {
        let file = File::open(self.path(generation, ".part"))?;
        let mut table = Vec::new();
        File::open(self.path(generation, ".crc"))?.read_to_end(&mut table)?;
        let damaged = || io::Error::other("the checksums of the part are damaged");
        let (content, checksum) = table.split_last_chunk::<4>().ok_or_else(damaged)?;
        let rest = content.strip_prefix(&FORMAT).ok_or_else(damaged)?;
        let (bytes, checksums) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let bytes = u64::from_le_bytes(*bytes);
        let is_intact = crc32c::crc32c(content) == u32::from_le_bytes(*checksum);
        if !is_intact || bytes > PART_BYTES_MAX || checksums.len() != 4 * chunks_of(bytes) as usize {
            return Err(damaged());
        }
        let checksums = checksums.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        Ok(StoredPart { file, bytes, checksums: checksums.collect() })
    }
}

/// A part that is written.
#[derive(Debug)]
pub(super) struct NewPart {
    file: File,
    checksums: Vec<Option<u32>>,
    generation: u64,
}

impl NewPart {
    /// Writes a chunk.
    pub(super) fn write(&mut self, chunk: u32, bytes: &[u8], checksum: u32) -> io::Result<()> {
        let offset = u64::from(chunk) * u64::from(CHUNK_BYTES);
        if offset >= PART_BYTES_MAX {
            return Err(io::Error::other("the chunk is behind the end of any part"));
        }
        self.file.write_all_at(bytes, offset)?;
        let index = chunk as usize;
        if self.checksums.len() <= index {
            self.checksums.resize(index + 1, None);
        }
        self.checksums[index] = Some(checksum);
        Ok(())
    }
}

/// A complete part.
#[derive(Debug)]
pub(super) struct StoredPart {
    file: File,
    bytes: u64,
    checksums: Vec<u32>,
}

impl StoredPart {
    /// Reads a chunk, with the checksum that it had when it was written.
    pub(super) fn read(&self, chunk: u32) -> io::Result<(Vec<u8>, u32)> {
        let behind = || io::Error::other("the part has no such chunk");
        let checksum = *self.checksums.get(chunk as usize).ok_or_else(behind)?;
        let mut bytes = vec![0; length_of(chunk, self.bytes) as usize];
        self.file.read_exact_at(&mut bytes, u64::from(chunk) * u64::from(CHUNK_BYTES))?;
        Ok((bytes, checksum))
    }
}
