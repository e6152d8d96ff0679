//! The files of a server: a part, and beside it the checksum of each chunk.
//!
//! A part has the name of its generation. While it is written it ends with `.new`; it is complete once both files have their
//! names, the one with the checksums first. Only the user of the server reads them.

use super::wire::{CHUNK_BYTES, PART_BYTES_MAX, chunks_of, length_of};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// First bytes of a file with checksums.
const FORMAT: [u8; 4] = *b"CRC1";
/// File with the number of the server.
const IDENTITY: &str = "server";

/// Directory of a server.
#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
    /// The directory, locked against other servers.
    _lock: File,
}

impl Store {
    /// Opens a directory, which is created if it does not exist. Returns the number of its server, which it keeps. A directory
    /// with other files, or of a server that runs, is refused and stays as it is.
    pub(super) fn open(directory: &Path) -> io::Result<(Self, u64)> {
        let refused = |why| io::Error::other(format!("cannot serve {}: {why}", directory.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let lock = File::open(directory)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => refused("another file server uses it"),
            TryLockError::Error(error) => error,
        })?;
        let entries: Vec<_> =
            fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
        let (unfinished, others): (Vec<_>, Vec<_>) =
            entries.iter().partition(|name| name.to_str().is_some_and(is_unfinished));
        let path = directory.join(IDENTITY);
        let number = match fs::read_to_string(&path) {
            Ok(text) => {
                let number = u64::from_str_radix(text.trim(), 16).ok().filter(|number| *number != 0);
                Some(number.ok_or_else(|| refused("its file `server` does not have the number of a file server"))?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && others.is_empty() => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refused("it has files, but none of a file server: name an empty directory"));
            }
            Err(error) => return Err(error),
        };
        // Their writers have lost the server that was here before.
        unfinished.into_iter().try_for_each(|name| fs::remove_file(directory.join(name)))?;
        let number = match number {
            Some(number) => number,
            None => {
                let number = super::collection::random() | 1;
                let new = directory.join("server.new");
                let mut file = create_private(&new)?;
                writeln!(file, "{number:016x}")?;
                file.sync_all()?;
                fs::rename(new, path)?;
                number
            }
        };
        Ok((Self { directory: directory.to_owned(), _lock: lock }, number))
    }

    fn path(&self, generation: u64, end: &str) -> PathBuf {
        self.directory.join(format!("{generation:016x}{end}"))
    }

    /// Begins to write a part. One that is complete, or written by another member, stays as it is.
    pub(super) fn create(&self, generation: u64) -> io::Result<NewPart> {
        if [".crc", ".part"].into_iter().any(|end| self.path(generation, end).exists()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = create_private(&self.path(generation, ".new"))?;
        Ok(NewPart { file, checksums: Vec::new(), generation })
    }

    /// Forgets a part that is not complete.
    pub(super) fn discard(&self, part: &NewPart) {
        for end in [".new", ".crc.new"] {
            let _ = fs::remove_file(self.path(part.generation, end));
        }
    }

    /// Removes a complete part, the file that makes it one first.
    pub(super) fn remove(&self, generation: u64) {
        for end in [".part", ".crc"] {
            let _ = fs::remove_file(self.path(generation, end));
        }
    }

    /// Completes a part: afterwards it survives a loss of power.
    pub(super) fn commit(&self, part: &NewPart, bytes: u64) -> io::Result<()> {
        if bytes > PART_BYTES_MAX || part.checksums.len() != chunks_of(bytes) as usize {
            return Err(io::Error::other("the part does not have so many chunks"));
        }
        let mut table = FORMAT.to_vec();
        table.extend_from_slice(&bytes.to_le_bytes());
        for checksum in &part.checksums {
            table.extend_from_slice(&checksum.to_le_bytes());
        }
        table.extend_from_slice(&crc32c::crc32c(&table).to_le_bytes());
        part.file.set_len(bytes)?;
        part.file.sync_all()?;
        let new = self.path(part.generation, ".crc.new");
        let mut file = create_private(&new)?;
        file.write_all(&table)?;
        file.sync_all()?;
        fs::rename(new, self.path(part.generation, ".crc"))?;
        fs::rename(self.path(part.generation, ".new"), self.path(part.generation, ".part"))?;
        File::open(&self.directory)?.sync_all()
    }

    /// Opens a complete part.
    pub(super) fn part(&self, generation: u64) -> io::Result<StoredPart> {
        let file = File::open(self.path(generation, ".part"))?;
        let (mut table, mut checksums) = (Vec::new(), File::open(self.path(generation, ".crc"))?);
        checksums.read_to_end(&mut table)?;
        let files = [FileId::of(&file.metadata()?), FileId::of(&checksums.metadata()?)];
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
        Ok(StoredPart { file, files, bytes, checksums: checksums.collect() })
    }

    /// Returns true if an open part is still the one that its names lead to.
    pub(super) fn is_current(&self, generation: u64, part: &StoredPart) -> bool {
        let is_same = |(end, file): (&str, FileId)| {
            fs::metadata(self.path(generation, end)).is_ok_and(|found| FileId::of(&found) == file)
        };
        [".part", ".crc"].into_iter().zip(part.files).all(is_same)
    }
}

/// Creates a file that only the user of this process may read.
fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Identity of a file, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(found: &fs::Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// Returns true for the name of a file that a server did not complete.
fn is_unfinished(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".new") else { return false };
    let generation = stem.strip_suffix(".crc").unwrap_or(stem);
    let is_digit = |digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    stem == IDENTITY || generation.len() == 16 && generation.bytes().all(is_digit)
}

/// A part that is written.
#[derive(Debug)]
pub(super) struct NewPart {
    file: File,
    /// Of the chunks that are written, so that a member has to send as much as it makes the server keep.
    checksums: Vec<u32>,
    generation: u64,
}

impl NewPart {
    /// Writes the next chunk.
    pub(super) fn write(&mut self, chunk: u32, bytes: &[u8], checksum: u32) -> io::Result<()> {
        let offset = u64::from(chunk) * u64::from(CHUNK_BYTES);
        if offset >= PART_BYTES_MAX || chunk as usize != self.checksums.len() {
            return Err(io::Error::other("the chunk does not follow the one before it"));
        }
        self.file.write_all_at(bytes, offset)?;
        self.checksums.push(checksum);
        Ok(())
    }
}

/// A complete part.
#[derive(Debug)]
pub(super) struct StoredPart {
    file: File,
    /// Files with the bytes and with the checksums.
    files: [FileId; 2],
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ddss-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn refusal(folder: &Path) -> String {
        Store::open(folder).map(drop).unwrap_err().to_string()
    }

    // If this failed, a wrong word on a command line would delete files of a user.
    #[test]
    fn files_of_others_stay_as_they_are() {
        let folder = folder("foreign");
        fs::write(folder.join("letter.new"), b"mine").unwrap();
        assert!(refusal(&folder).ends_with("it has files, but none of a file server: name an empty directory"));
        fs::write(folder.join("server"), b"a host").unwrap();
        assert!(refusal(&folder).ends_with("its file `server` does not have the number of a file server"));
        assert_eq!(fs::read(folder.join("server")).unwrap(), b"a host");
        fs::write(folder.join("server"), b"00000000000000a1\n").unwrap();
        let own = ["0123456789abcdef.new", "0123456789abcdef.crc.new", "server.new"];
        let foreign =
            ["letter.new", "0123.new", "0123456789ABCDEF.new", "0123456789abcdef.part.new", "0123456789abcdef.crc"];
        own.iter().chain(&foreign).for_each(|name| fs::write(folder.join(name), b"mine").unwrap());
        assert_eq!(Store::open(&folder).unwrap().1, 0xa1);
        assert!(own.iter().all(|name| !folder.join(name).exists()));
        foreign.iter().for_each(|name| assert!(folder.join(name).exists(), "{name} is gone"));
        fs::remove_dir_all(folder).unwrap();
    }

    // If this failed, a member could destroy the parts of all collections, or make a server keep what it never sent.
    #[test]
    fn a_complete_part_cannot_be_written_again() {
        let folder = folder("again");
        let (store, _) = Store::open(&folder).unwrap();
        let mut part = store.create(7).unwrap();
        assert!(store.create(7).is_err(), "another member writes it");
        assert!(part.write(1, b"bytes", 0).is_err(), "chunk 0 is missing");
        part.write(0, b"bytes", 1).unwrap();
        assert!(part.write(0, b"bytes", 1).is_err(), "it has chunk 0");
        store.commit(&part, 5).unwrap();
        assert!(store.create(7).is_err(), "it is complete");
        assert_eq!(store.part(7).unwrap().read(0).unwrap(), (b"bytes".to_vec(), 1));
        fs::remove_file(folder.join("0000000000000007.part")).unwrap();
        assert!(store.create(7).is_err(), "its checksums are there");
        let mut cut = store.create(8).unwrap();
        cut.write(0, b"bytes", 1).unwrap();
        assert!(store.commit(&cut, u64::from(CHUNK_BYTES) + 1).is_err(), "chunk 1 is missing");
        store.discard(&cut);
        store.create(8).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    // If this failed, other users of the machine would read all collections, whatever the permissions of their tables.
    #[test]
    fn files_are_for_the_user_of_the_server_alone() {
        let folder = folder("modes");
        let directory = folder.join("new/data");
        let (store, _) = Store::open(&directory).unwrap();
        store.commit(&store.create(7).unwrap(), 0).unwrap();
        let _unfinished = store.create(8).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!([mode(&folder.join("new")), mode(&directory)], [0o700; 2]);
        let modes: Vec<u32> = fs::read_dir(&directory).unwrap().map(|entry| mode(&entry.unwrap().path())).collect();
        assert_eq!(modes, [0o600; 4], "the number, a part, its checksums, and one that is written");
        fs::remove_dir_all(folder).unwrap();
    }

    // If this failed, a part that was deleted or replaced would pass for intact until the server ends.
    #[test]
    fn part_whose_files_are_others_is_not_current() {
        let folder = folder("replaced");
        let (store, _) = Store::open(&folder).unwrap();
        store.commit(&store.create(7).unwrap(), 0).unwrap();
        for end in [".part", ".crc"] {
            let part = store.part(7).unwrap();
            assert!(store.is_current(7, &part));
            let (path, aside) = (store.path(7, end), folder.join("aside"));
            fs::rename(&path, &aside).unwrap();
            assert!(!store.is_current(7, &part), "{end} is gone");
            fs::copy(&aside, &path).unwrap();
            assert!(!store.is_current(7, &part), "{end} is another file");
            assert!(store.is_current(7, &store.part(7).unwrap()));
        }
        fs::remove_dir_all(folder).unwrap();
    }

    // If this failed, two servers would have one number, and write over each other's parts.
    #[test]
    fn a_directory_has_one_server() {
        let folder = folder("lock");
        let (first, number) = Store::open(&folder).unwrap();
        assert!(refusal(&folder).ends_with("another file server uses it"));
        drop(first);
        assert_eq!(Store::open(&folder).unwrap().1, number);
        fs::remove_dir_all(folder).unwrap();
    }
}
