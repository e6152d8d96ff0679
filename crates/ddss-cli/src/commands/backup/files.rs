//! The commands export and import: the bytes of a segment in a file, and its properties beside it.

use super::description::{Described, describe};
use crate::arguments::FileOptions;
use crate::commands::data::{Pieces, Progress};
use crate::connect::{connect, open};
use crate::error::CommandError;
use crate::output::terminal_text::print_note;
use ddss::{LockOptions, Segment, SegmentInfo, Spec};
use serde_json::json;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size limit of a description.
const DESCRIPTION_BYTES_MAX: u64 = 64 << 10;
/// Maximum time to import a file: the longest lease of a lock.
const IMPORT_MAX: Duration = Duration::from_secs(600);
fn description_path(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".segment.json");
    path.into()
}

fn remove_description(file: &Path) -> Result<(), CommandError> {
    let path = description_path(file);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(CommandError::file("remove", &path)(error)),
        _ => Ok(()),
    }
}

/// Writes the properties of a segment beside its exported bytes.
fn write_description(listing: &SegmentInfo, file: &Path) -> Result<(), CommandError> {
    let path = description_path(file);
    let description = describe(listing);
    let written = File::create(&path).and_then(|mut out| {
        writeln!(out, "{description:#}")?;
        out.sync_all()
    });
    written.map_err(CommandError::file("write", &path))
}

/// Reads the description of a file, if there is one.
fn read_description(file: &Path) -> Result<Option<Described>, CommandError> {
    let path = description_path(file);
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(DESCRIPTION_BYTES_MAX).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(CommandError::file("read", &path))?,
    };
    let described = serde_json::from_str(&text).ok().and_then(|value| Described::parse(&value));
    described.map(Some).ok_or_else(|| {
        let path = path.display();
        CommandError::Refused(format!(
            "{path} does not describe a segment: export it again, or remove that file to import plain bytes"
        ))
    })
}

/// Checks that the bytes are those that were exported together with their description.
fn check_file(described: &Described, bytes: u64, file: &Path) -> Result<(), CommandError> {
    if bytes == described.bytes {
        return Ok(());
    }
    let (file, beside) = (file.display(), description_path(file));
    Err(CommandError::Refused(format!(
        "{file} has {bytes} bytes, but {} describes {}: export it again, or remove that file to import plain bytes",
        beside.display(),
        described.bytes
    )))
}

/// Returns the specification of an equal segment. A user other than root owns what it imports.
fn spec_to_import(described: &Described) -> Spec {
    let ((uid, gid), (spec, is_same_owner)) = (described.owner, described.spec());
    if !is_same_owner {
        let owner = format!("the owner was user {uid} group {gid}, and is you now");
        print_note(&format!("{owner}: only root may give segments away"));
    }
    spec
}

pub(crate) fn export(options: &FileOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&options.named)?;
    let listing = segment.stat()?;
    // Never a new file beside an old description.
    remove_description(&options.file)?;
    let mut file = File::create(&options.file).map_err(CommandError::file("create", &options.file))?;
    let progress = Progress::new(segment.len());
    let (mut at, mut stamps, pieces) = (0, Vec::new(), Pieces::of(&segment));
    while at < segment.len() {
        let value = segment.get(at..pieces.end(at, segment.len()))?;
        file.write_all(&value).map_err(CommandError::file("write", &options.file))?;
        at += value.len() as u64;
        stamps.push(value.stamp);
        progress.at(at);
    }
    file.sync_all().map_err(CommandError::file("write", &options.file))?;
    write_description(&listing, &options.file)?;
    drop(progress);
    let whole = stamps.windows(2).all(|pair| pair[0].version == pair[1].version);
    let version = stamps.last().map_or(0, |stamp| stamp.version.0);
    if json {
        println!("{}", json!({ "bytes": at, "version": version, "one_version": whole }));
    } else {
        println!("{at} bytes to {}, version {version}", options.file.display());
    }
    if whole || !pieces.share_version() { Ok(()) } else { Err(CommandError::MixedVersions) }
}

pub(crate) fn import(options: &FileOptions, json: bool) -> Result<(), CommandError> {
    // Only a regular file is opened: opening a named pipe would block until a writer comes.
    let found = std::fs::metadata(&options.file).map_err(CommandError::file("open", &options.file))?;
    if !found.is_file() {
        let path = options.file.display();
        let way = "use `ddss put NAME -` for a pipe";
        return Err(CommandError::Refused(format!(
            "cannot import {path}, it is not a regular file of known size: {way}"
        )));
    }
    let mut file = File::open(&options.file).map_err(CommandError::file("open", &options.file))?;
    let bytes = file.metadata().map_err(CommandError::file("inspect", &options.file))?.len();
    let described = read_description(&options.file)?;
    if let Some(described) = &described {
        check_file(described, bytes, &options.file)?;
    }
    let client = connect(&options.named.place)?;
    let segment = match client.segment(&options.named.name).open() {
        Err(error) if error.kind() == ddss::ErrorKind::NotFound => {
            let copies = described.map_or(1, |described| described.copies);
            let spec = described.map_or(Spec::new(bytes), |described| spec_to_import(&described));
            match client.segment(&options.named.name).allocate(spec) {
                // A node alone, after the loss of its cluster: one copy is better than none.
                Err(error) if error.kind() == ddss::ErrorKind::Unsupported && copies > 1 => {
                    print_note("this node belongs to no cluster: the segment has one copy here, and had two");
                    client.segment(&options.named.name).allocate(spec.copies(1))?
                }
                made => made?,
            }
        }
        found => {
            let found = found?;
            if let Some(described) = &described {
                described.check_target(&found.stat()?)?;
            }
            found
        }
    };
    if bytes > segment.len() {
        return Err(CommandError::InvalidInput(format!(
            "{} has {bytes} bytes, but {} only {}: release the segment, so that import allocates a larger one",
            options.file.display(),
            segment.name(),
            segment.len()
        )));
    }
    let progress = Progress::new(bytes);
    // Without the lock, other readers would see the old end behind the new beginning.
    // The lock ends with this process, so a crash does not block others for this long lease.
    let lock = segment.lock_with(LockOptions::new().lease(IMPORT_MAX))?;
    let (mut at, mut version, pieces) = (0, lock.version(), Pieces::of(&segment));
    let mut buffer = vec![0; Segment::TRANSFER_BYTES_MAX];
    while at < bytes {
        let room = (pieces.end(at, bytes) - at) as usize;
        let length = file.read(&mut buffer[..room]).map_err(CommandError::file("read", &options.file))?;
        if length == 0 {
            break;
        }
        version = lock.put(at, &buffer[..length])?.version;
        at += length as u64;
        progress.at(at);
    }
    drop(progress);
    lock.unlock()?;
    if json {
        println!("{}", json!({ "bytes": at, "version": version.0 }));
    } else {
        println!("{at} bytes into {}, now {version}", segment.name());
    }
    Ok(())
}
