//! The file of a snapshot: a sequence of frames, each with its number and a checksum.
//!
//! A frame is a header of 16 bytes (payload length, kind, number), its payload, and the CRC-32C of both. The numbers
//! show a frame that is missing or stands twice, the last frame shows a file that was cut off.

use crate::error::CommandError;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// First bytes of the file; the digit is the version of the format.
const MAGIC: &[u8; 16] = b"ddss snapshot 1\n";
const HEADER_BYTES: usize = 16;
/// Size limit of the bytes of one frame.
pub(super) const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Size limit of a payload: bytes with their offset, or a description.
const PAYLOAD_BYTES_MAX: usize = CHUNK_BYTES_MAX + 8;

/// One frame. They come in this order: head, then for each segment its description, its bytes and its end, then those
/// that are missing, then the foot.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    /// Description of the snapshot.
    Head(Value),
    /// Description of a segment.
    Segment(Value),
    /// Bytes of that segment from an offset on. What no frame holds is zero.
    Bytes(u64, Vec<u8>),
    /// End of that segment: its version.
    SegmentEnd(Value),
    /// A segment that could not be read.
    Missing(Value),
    /// Totals of the snapshot.
    Foot(Value),
}

impl Frame {
    const BYTES: u8 = 3;

    fn parts(&self) -> (u8, Option<&Value>) {
        match self {
            Self::Head(value) => (1, Some(value)),
            Self::Segment(value) => (2, Some(value)),
            Self::Bytes(..) => (Self::BYTES, None),
            Self::SegmentEnd(value) => (4, Some(value)),
            Self::Missing(value) => (5, Some(value)),
            Self::Foot(value) => (6, Some(value)),
        }
    }

    fn payload(&self) -> Vec<u8> {
        match self {
            Self::Bytes(offset, bytes) => [&offset.to_le_bytes()[..], bytes].concat(),
            other => other.parts().1.map(Value::to_string).unwrap_or_default().into_bytes(),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        if kind == Self::BYTES {
            let (offset, bytes) = payload.split_first_chunk()?;
            return Some(Self::Bytes(u64::from_le_bytes(*offset), bytes.to_vec()));
        }
        let value = serde_json::from_slice(payload).ok()?;
        Some(match kind {
            1 => Self::Head(value),
            2 => Self::Segment(value),
            4 => Self::SegmentEnd(value),
            5 => Self::Missing(value),
            6 => Self::Foot(value),
            _ => return None,
        })
    }
}

fn header(payload_bytes: usize, kind: u8, number: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    header[4] = kind;
    header[8..].copy_from_slice(&number.to_le_bytes());
    header
}

/// Writer of a snapshot. The file appears under its name when it is complete.
pub(super) struct ArchiveWriter {
    path: PathBuf,
    /// Path until then.
    partial: PathBuf,
    file: BufWriter<File>,
    number: u64,
    is_complete: bool,
}

/// Place in a file that is being written.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    at: u64,
    number: u64,
}

impl ArchiveWriter {
    pub(super) fn create(path: &Path) -> Result<Self, CommandError> {
        if path.is_dir() {
            let path = path.display();
            return Err(CommandError::Refused(format!(
                "cannot write the snapshot to {path}, it is a directory: name a file in it"
            )));
        }
        // Two snapshots at a time do not meet.
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".partial-{}", std::process::id()));
        let partial = PathBuf::from(partial);
        // A symbolic link at this path must not redirect the write.
        let _ = std::fs::remove_file(&partial);
        // It holds the bytes of all users.
        let file = File::options().write(true).create_new(true).mode(0o600).open(&partial);
        let file = BufWriter::new(file.map_err(CommandError::file("create", &partial))?);
        let mut archive = Self { path: path.to_owned(), partial, file, number: 0, is_complete: false };
        archive.write(|file| file.write_all(MAGIC))?;
        Ok(archive)
    }

    fn write<T>(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>) -> Result<T, CommandError> {
        write(&mut self.file).map_err(CommandError::file("write", &self.partial))
    }

    pub(super) fn append(&mut self, frame: &Frame) -> Result<(), CommandError> {
        let payload = frame.payload();
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a frame of {} bytes", payload.len());
        let header = header(payload.len(), frame.parts().0, self.number);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header), &payload);
        self.number += 1;
        self.write(|file| {
            file.write_all(&header)?;
            file.write_all(&payload)?;
            file.write_all(&crc.to_le_bytes())
        })
    }

    /// Returns the present end, to go [back](Self::rewind) to.
    pub(super) fn mark(&mut self) -> Result<Mark, CommandError> {
        let number = self.number;
        self.write(|file| Ok(Mark { at: file.stream_position()?, number }))
    }

    /// Removes what was appended since the mark.
    pub(super) fn rewind(&mut self, mark: Mark) -> Result<(), CommandError> {
        self.number = mark.number;
        self.write(|file| {
            file.seek(SeekFrom::Start(mark.at))?;
            file.get_ref().set_len(mark.at)
        })
    }

    /// Completes the file, and gives it its name.
    pub(super) fn finish(mut self) -> Result<(), CommandError> {
        self.write(|file| {
            file.flush()?;
            file.get_ref().sync_all()
        })?;
        std::fs::rename(&self.partial, &self.path).map_err(CommandError::file("replace", &self.path))?;
        self.is_complete = true;
        // The name itself survives a loss of power only if its directory is written.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(CommandError::file("write", folder))
    }
}

impl Drop for ArchiveWriter {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// Reader of a snapshot.
pub(super) struct ArchiveReader {
    path: PathBuf,
    file: BufReader<File>,
    number: u64,
    at: u64,
}

impl ArchiveReader {
    pub(super) fn open(path: &Path) -> Result<Self, CommandError> {
        let file = BufReader::new(File::open(path).map_err(CommandError::file("open", path))?);
        let mut archive = Self { path: path.to_owned(), file, number: 0, at: 0 };
        let mut magic = [0; MAGIC.len()];
        let read = archive.file.read_exact(&mut magic);
        match read {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                return Err(CommandError::file("read", path)(error));
            }
            Ok(()) if magic == *MAGIC => {}
            _ => {
                let path = path.display();
                return Err(CommandError::Refused(format!(
                    "{path} is no snapshot of this release: use a file that `ddss cluster snapshot` wrote"
                )));
            }
        }
        archive.at = MAGIC.len() as u64;
        Ok(archive)
    }

    /// Begins with the first frame again.
    pub(super) fn restart(&mut self) -> Result<(), CommandError> {
        self.file.seek(SeekFrom::Start(MAGIC.len() as u64)).map_err(CommandError::file("read", &self.path))?;
        (self.number, self.at) = (0, MAGIC.len() as u64);
        Ok(())
    }

    /// Returns an error that names the file and the place of the damage.
    pub(super) fn damaged(&self, what: &str) -> CommandError {
        let (path, at) = (self.path.display(), self.at);
        CommandError::Refused(format!("{path} is damaged at byte {at} ({what}): use another snapshot"))
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), CommandError> {
        match self.file.read_exact(into) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(self.damaged("it ends here")),
            read => read.map_err(CommandError::file("read", &self.path)),
        }
    }

    /// Returns the next frame. A caller stops after the foot.
    pub(super) fn next_frame(&mut self) -> Result<Frame, CommandError> {
        let mut found = [0; HEADER_BYTES];
        self.fill(&mut found)?;
        let length = u32::from_le_bytes([found[0], found[1], found[2], found[3]]) as usize;
        if length > PAYLOAD_BYTES_MAX || found != header(length, found[4], self.number) {
            return Err(self.damaged("no frame begins here"));
        }
        let (mut payload, mut crc) = (vec![0; length], [0; 4]);
        self.fill(&mut payload)?;
        self.fill(&mut crc)?;
        if u32::from_le_bytes(crc) != crc32c::crc32c_append(crc32c::crc32c(&found), &payload) {
            return Err(self.damaged("wrong checksum"));
        }
        let frame = Frame::decode(found[4], &payload).ok_or_else(|| self.damaged("an unknown frame"))?;
        self.number += 1;
        self.at += (HEADER_BYTES + length + crc.len()) as u64;
        Ok(frame)
    }

    /// Returns true if nothing follows.
    pub(super) fn is_at_end(&mut self) -> Result<bool, CommandError> {
        let mut next = [0];
        Ok(self.file.read(&mut next).map_err(CommandError::file("read", &self.path))? == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn damage_of_any_byte_is_found() {
        // If this broke, a snapshot with a flipped bit would come back as a segment with another value.
        let folder = std::env::temp_dir().join(format!("ddss-archive-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("snapshot");
        let frames = [
            Frame::Head(json!({ "node": 1 })),
            Frame::Segment(json!({ "name": "a" })),
            Frame::Bytes(8, vec![7; 40]),
            Frame::SegmentEnd(json!({ "version": 3 })),
            Frame::Missing(json!({ "name": "b" })),
            Frame::Foot(json!({ "segments": 1 })),
        ];
        let mut archive = ArchiveWriter::create(&path).unwrap();
        archive.append(&frames[0]).unwrap();
        let mark = archive.mark().unwrap();
        archive.append(&Frame::Bytes(0, vec![1; 100_000])).unwrap();
        archive.rewind(mark).unwrap();
        for frame in &frames[1..] {
            archive.append(frame).unwrap();
        }
        assert!(!path.exists(), "the file has its name before it is complete");
        archive.finish().unwrap();
        let read_all = |path: &Path| {
            let mut archive = ArchiveReader::open(path)?;
            let mut found = Vec::new();
            while !matches!(found.last(), Some(Frame::Foot(_))) {
                found.push(archive.next_frame()?);
            }
            if archive.is_at_end()? { Ok(found) } else { Err(archive.damaged("more follows")) }
        };
        assert_eq!(read_all(&path).unwrap(), frames);
        let whole = std::fs::read(&path).unwrap();
        let other = folder.join("other");
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(&other, &flipped).unwrap();
            assert!(read_all(&other).is_err(), "byte {at} was changed");
            std::fs::write(&other, &whole[..at]).unwrap();
            assert!(read_all(&other).is_err(), "only {at} bytes are left");
        }
        std::fs::write(&other, [&whole[..], b"x"].concat()).unwrap();
        assert!(read_all(&other).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
