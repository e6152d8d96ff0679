//! The command `cluster snapshot`: all segments of a running cluster in one file.

use super::archive::{ArchiveWriter, CHUNK_BYTES_MAX, Frame};
use super::description::describe;
use super::restore::JOURNAL_NAME;
use crate::arguments::SnapshotOptions;
use crate::commands::cluster::{self, ClusterView};
use crate::commands::data::Progress;
use crate::connect::connect_patiently;
use crate::error::CommandError;
use crate::glob::Glob;
use crate::output::table::format_bytes;
use crate::output::terminal_text::{print_sentence, print_warning};
use ddss::{Batch, Client, ErrorKind, GetOptions, LockOptions, Model, Segment, Stamp, Table};
use ddss_admin::{NameReport, Release};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of times that a segment is read without its lock. One that is larger than a transfer may change each time.
const FREE_READS_MAX: usize = 3;
/// Number of rows that are read together.
const ROWS_TOGETHER_MAX: usize = 256;

/// Error of one segment: that of the file ends the snapshot, that of the segment is recorded.
enum ReadError {
    Segment(ddss::Error),
    /// It changed during each attempt. Puts of the models `null` and `read` do not wait for its lock.
    Changed,
    Fatal(CommandError),
}

impl From<ddss::Error> for ReadError {
    fn from(error: ddss::Error) -> Self {
        Self::Segment(error)
    }
}

impl From<CommandError> for ReadError {
    fn from(error: CommandError) -> Self {
        Self::Fatal(error)
    }
}

/// Names of a snapshot, with the length if it is known.
struct Contents {
    cluster: Option<ClusterView>,
    /// Length and home of each.
    names: BTreeMap<String, (u64, u16)>,
    /// Names that cannot be read, with the reasons.
    missing: BTreeMap<String, String>,
}

/// Appends bytes of a segment; zeros need no frame.
fn append_bytes(archive: &mut ArchiveWriter, offset: u64, bytes: &[u8]) -> Result<(), CommandError> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    archive.append(&Frame::Bytes(offset, bytes.to_vec()))
}

/// Reads a plain segment at one version. `None` means that it changed meanwhile.
fn read_plain(archive: &mut ArchiveWriter, segment: &Segment) -> Result<Option<Stamp>, ReadError> {
    let mut reader = segment.reader(.., GetOptions::new())?;
    let (mut at, mut chunk) = (0, vec![0; CHUNK_BYTES_MAX]);
    while at < segment.len() {
        let length = usize::try_from(segment.len() - at).unwrap_or(usize::MAX).min(chunk.len());
        match reader.read_exact(&mut chunk[..length]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => return Ok(None),
            Err(error) => match error.downcast::<ddss::Error>() {
                Ok(error) => return Err(error.into()),
                Err(error) => return Err(CommandError::system("read a segment")(error).into()),
            },
        }
        append_bytes(archive, at, &chunk[..length])?;
        at += length as u64;
    }
    Ok(reader.stamp())
}

/// Reads a table, each row at one version.
fn read_rows(archive: &mut ArchiveWriter, client: &Client, table: &Table) -> Result<(), ReadError> {
    let row_bytes = table.row_len();
    let together = (CHUNK_BYTES_MAX as u64 / row_bytes).clamp(1, ROWS_TOGETHER_MAX as u64);
    let mut first = 0;
    while first < table.len() {
        let rows = first..table.len().min(first + together);
        let mut batch = Batch::new();
        let tickets: Result<Vec<_>, _> = rows.clone().map(|row| batch.get(table.row(row), ..)).collect();
        let (tickets, mut replies) = (tickets?, client.run(batch)?);
        let mut bytes = Vec::new();
        for ticket in tickets {
            bytes.extend_from_slice(&replies.take(ticket)?);
        }
        append_bytes(archive, first * row_bytes, &bytes)?;
        first = rows.end;
    }
    Ok(())
}

/// Reads the bytes of a segment whose lock is held if that is necessary. Returns its version; that of a table's first
/// row means nothing.
fn read_bytes(
    archive: &mut ArchiveWriter,
    client: &Client,
    segment: &Segment,
    is_locked: bool,
) -> Result<Option<Stamp>, ReadError> {
    let shared = || segment.lock_with(LockOptions::new().shared().keep_alive());
    if let Ok(table) = <Table>::try_from(segment.clone()) {
        let lock = if is_locked { Some(shared()?) } else { None };
        read_rows(archive, client, &table)?;
        // A lock that was lost meanwhile let others put.
        lock.map_or(Ok(()), |lock| lock.unlock())?;
        return Ok(None);
    }
    let mark = archive.mark()?;
    for attempt in 0..=FREE_READS_MAX {
        let lock = if attempt == FREE_READS_MAX { Some(shared()?) } else { None };
        let stamp = read_plain(archive, segment)?;
        lock.map_or(Ok(()), |lock| lock.unlock())?;
        if stamp.is_some() {
            return Ok(stamp);
        }
        archive.rewind(mark)?;
    }
    Err(ReadError::Changed)
}

/// Appends a segment with its description. Returns its length, or `None` if it was released meanwhile.
fn append_segment(
    archive: &mut ArchiveWriter,
    client: &Client,
    name: &str,
    options: &SnapshotOptions,
) -> Result<Option<u64>, ReadError> {
    let segment = match client.segment(name).open() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    // The newest value, whatever copies its model allows.
    let segment = segment.with_model(Model::Write);
    let info = segment.stat()?;
    let mut described = describe(&info);
    described["name"] = name.into();
    described["home"] = info.home.0.into();
    archive.append(&Frame::Segment(described))?;
    let mut stamp = Some(info.stamp);
    if !options.no_bytes {
        stamp = read_bytes(archive, client, &segment, options.lock)?;
    }
    let version = stamp.map(|stamp| stamp.version.0);
    let end = json!({ "version": version, "timestamp_us": stamp.map(|stamp| stamp.timestamp.micros()) });
    archive.append(&Frame::SegmentEnd(end))?;
    Ok(Some(segment.len()))
}

/// Finds the segments of the cluster. The directory also has the names that no node can show now.
fn find_contents(client: &Client, options: &SnapshotOptions) -> Result<Contents, CommandError> {
    let glob = Glob::new(options.only.as_deref().unwrap_or("*"));
    let mut names = BTreeMap::new();
    for info in client.list(glob.prefix()) {
        let info = info?;
        if glob.matches(&info.name) && info.name != JOURNAL_NAME {
            names.insert(info.name, (info.len, info.home.0));
        }
    }
    let cluster = cluster::fetch_if_any(&options.place)?;
    let mut missing = BTreeMap::new();
    if let Some(view) = &cluster {
        let living: BTreeSet<u16> = view.nodes.iter().filter(|node| node.alive).map(|node| node.node).collect();
        for NameReport { name, home } in cluster::fetch_names(&options.place)? {
            if names.contains_key(&name) || !glob.matches(&name) {
                continue;
            }
            match living.contains(&home) {
                true => drop(names.insert(name, (0, home))),
                false => drop(missing.insert(name, format!("its home, node {home}, is unreachable"))),
            }
        }
    }
    Ok(Contents { cluster, names, missing })
}

fn head(client: &Client, options: &SnapshotOptions, cluster: Option<&ClusterView>) -> Value {
    let taken = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "release": Release::name(),
        "taken_unix_s": taken.as_secs(),
        "node": client.node().0,
        "members": cluster.map(|view| &view.nodes),
        "only": options.only,
        "has_bytes": !options.no_bytes,
    })
}

pub(crate) fn run(options: &SnapshotOptions, json: bool) -> Result<(), CommandError> {
    let client = connect_patiently(&options.place)?;
    let mut archive = ArchiveWriter::create(&options.file)?;
    let Contents { cluster, names, mut missing } = find_contents(&client, options)?;
    archive.append(&Frame::Head(head(&client, options, cluster.as_ref())))?;
    let progress = Progress::new(if options.no_bytes { 0 } else { names.values().map(|(length, _)| length).sum() });
    let (mut segments, mut bytes) = (0_u64, 0);
    // Each call to such a node would wait until its deadline.
    let mut lost_nodes = BTreeSet::new();
    for (name, (_, home)) in &names {
        if lost_nodes.contains(home) {
            missing.insert(name.clone(), format!("its home, node {home}, is unreachable"));
            continue;
        }
        let mark = archive.mark()?;
        match append_segment(&mut archive, &client, name, options) {
            Ok(None) => {}
            Ok(Some(length)) => (segments, bytes) = (segments + 1, bytes + length),
            Err(ReadError::Fatal(error)) => return Err(error),
            Err(ReadError::Changed) => {
                archive.rewind(mark)?;
                missing.insert(name.clone(), "it changed whenever it was read".to_owned());
            }
            Err(ReadError::Segment(error)) => {
                archive.rewind(mark)?;
                if error.kind() == ErrorKind::NodeDown {
                    lost_nodes.insert(*home);
                }
                // Released since it was found.
                if error.kind() != ErrorKind::NotFound {
                    missing.insert(name.clone(), ddss_admin::format_error_chain(&error));
                }
            }
        }
        progress.at(bytes);
    }
    for (name, reason) in &missing {
        archive.append(&Frame::Missing(json!({ "name": name, "reason": reason })))?;
    }
    archive.append(&Frame::Foot(json!({ "segments": segments, "bytes": bytes, "missing": missing.len() })))?;
    archive.finish()?;
    drop(progress);
    report(options, segments, bytes, &missing, json);
    match missing.len() {
        0 => Ok(()),
        count => Err(CommandError::Incomplete { count }),
    }
}

fn report(options: &SnapshotOptions, segments: u64, bytes: u64, missing: &BTreeMap<String, String>, json: bool) {
    if json {
        let missing = missing.iter().map(|(name, reason)| json!({ "name": name, "reason": reason }));
        let missing: Vec<Value> = missing.collect();
        println!("{}", json!({ "segments": segments, "bytes": bytes, "missing": missing }));
        return;
    }
    let file = options.file.display();
    let words = if segments == 1 { "segment" } else { "segments" };
    print_sentence(&format!("{segments} {words} of {} in {file}", format_bytes(bytes)), 2);
    for (name, reason) in missing {
        print_warning(&format!("{name} is not in the snapshot: {reason}"));
    }
}
