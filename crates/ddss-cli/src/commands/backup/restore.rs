//! The command `cluster restore`: the segments of a snapshot in a new cluster.

use super::archive::{ArchiveReader, Frame};
use super::description::Described;
use crate::arguments::RestoreOptions;
use crate::commands::cluster;
use crate::commands::data::Progress;
use crate::connect::connect_patiently;
use crate::error::CommandError;
use crate::glob::Glob;
use crate::output::table::{format_bytes, format_timestamp};
use crate::output::terminal_text::{print_note, print_sentence, print_warning, sanitize};
use ddss::{Batch, Client, ErrorKind, LockGuard, LockOptions, NodeId, Placement, PutOptions, Segment, Table, Version};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Name of the segment that holds the name of the unfinished segment, and whose lock keeps a second restore out.
pub(super) const JOURNAL_NAME: &str = ".ddss-restore";
/// Bytes of that segment: the longest name, and a zero.
const JOURNAL_BYTES: u64 = 512;
/// Number of existing names that an error shows.
const NAMES_SHOWN_MAX: usize = 5;

/// Contents of a verified snapshot.
struct Verified {
    head: Value,
    segments: BTreeMap<String, Described>,
    missing: u64,
    bytes: u64,
}

/// Reads the whole file once: nothing is made from a damaged one.
fn verify(archive: &mut ArchiveReader) -> Result<Verified, CommandError> {
    let Frame::Head(head) = archive.next_frame()? else { return Err(archive.damaged("no head")) };
    let mut found = Verified { head, segments: BTreeMap::new(), missing: 0, bytes: 0 };
    loop {
        match archive.next_frame()? {
            Frame::Segment(value) => {
                let (name, described) = parse(&value).ok_or_else(|| archive.damaged("no description of a segment"))?;
                if ddss_core::Name::new(&name).is_err() || found.segments.insert(name, described).is_some() {
                    return Err(archive.damaged("a name that cannot be"));
                }
                found.bytes = found.bytes.saturating_add(described.bytes);
                loop {
                    match archive.next_frame()? {
                        Frame::Bytes(offset, bytes) if fits(&described, offset, bytes.len()) => {}
                        Frame::SegmentEnd(_) => break,
                        _ => return Err(archive.damaged("bytes that no segment has")),
                    }
                }
            }
            Frame::Missing(_) => found.missing += 1,
            Frame::Foot(foot) => {
                let counted = (found.segments.len() as u64, found.missing);
                if (foot["segments"].as_u64(), foot["missing"].as_u64()) != (Some(counted.0), Some(counted.1)) {
                    return Err(archive.damaged("other totals"));
                }
                break;
            }
            _ => return Err(archive.damaged("a frame in another place")),
        }
    }
    if !archive.is_at_end()? {
        return Err(archive.damaged("more follows"));
    }
    Ok(found)
}

/// Keeps the segments whose names match. The whole file was verified all the same.
fn keep_only(found: &mut Verified, pattern: &str) -> Result<(), CommandError> {
    let glob = Glob::new(pattern);
    found.segments.retain(|name, _| glob.matches(name));
    found.bytes = found.segments.values().fold(0, |sum, described| described.bytes.saturating_add(sum));
    if found.segments.is_empty() {
        return Err(CommandError::Refused(format!(
            "no segment of the snapshot matches '{}', nothing was restored: `ddss cluster restore FILE --check` counts them",
            sanitize(pattern)
        )));
    }
    Ok(())
}

fn parse(value: &Value) -> Option<(String, Described)> {
    Some((value["name"].as_str()?.to_owned(), Described::parse(value)?))
}

/// Returns true if bytes lie in a segment, in whole rows.
fn fits(described: &Described, offset: u64, length: usize) -> bool {
    let (length, row) = (length as u64, u64::from(described.row_bytes).max(1));
    let end = offset.checked_add(length);
    end.is_some_and(|end| end <= described.bytes) && offset.is_multiple_of(row) && length.is_multiple_of(row)
}

/// A cluster in which segments are restored.
struct Target {
    client: Client,
    /// Its living nodes; only this one if it belongs to no cluster.
    nodes: Vec<u16>,
    done: Done,
}

/// Numbers of segments that were restored.
#[derive(Clone, Copy, Default)]
struct Done {
    restored: usize,
    skipped: usize,
    /// With one copy instead of two.
    one_copy: usize,
    /// With this user as the owner, who may not give them away.
    other_owner: usize,
}

impl Target {
    /// Returns the nodes for a segment: that of its last home first, then each other one in turn.
    fn homes(&self, last: u64, turn: usize) -> Vec<u16> {
        let count = self.nodes.len();
        let mut homes: Vec<u16> = (0..count).map(|step| self.nodes[(turn + step) % count]).collect();
        if let Some(at) = homes.iter().position(|&node| u64::from(node) == last) {
            homes[..=at].rotate_right(1);
        }
        homes
    }

    /// Allocates a segment on the first node that has room.
    fn allocate(&mut self, name: &str, described: &Described, homes: &[u16]) -> Result<Segment, CommandError> {
        let (spec, is_same_owner) = described.spec();
        let mut refused = None;
        for &home in homes {
            let spec = spec.placement(Placement::Node(NodeId(home)));
            let made = match self.client.segment(name).allocate(spec) {
                // One copy is better than none.
                Err(error) if error.kind() == ErrorKind::Unsupported && described.copies > 1 => {
                    let made = self.client.segment(name).allocate(spec.copies(1));
                    self.done.one_copy += usize::from(made.is_ok());
                    made
                }
                made => made,
            };
            match made {
                Err(error) if is_lack_of_room(&error) => refused = Some(error),
                made => {
                    self.done.other_owner += usize::from(!is_same_owner && made.is_ok());
                    return Ok(made?);
                }
            }
        }
        Err(refused.map_or_else(|| CommandError::Refused("no node is alive".to_owned()), CommandError::from))
    }
}

fn is_lack_of_room(error: &ddss::Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::OverQuota | ErrorKind::LimitReached | ErrorKind::NodeDown)
}

/// Puts bytes at their place, whole rows of a table. Each put names the version that it replaces: the model `version` wants
/// that, and another writer is noticed.
fn put(
    client: &Client,
    segment: &Segment,
    described: &Described,
    (offset, bytes): (u64, &[u8]),
    version: Version,
) -> Result<Version, ddss::Error> {
    if described.row_bytes == 0 {
        return segment.put_if(version, offset, bytes).map(|stamp| stamp.version);
    }
    let table = <Table>::try_from(segment.clone())?;
    let mut batch = Batch::new();
    let first = offset / u64::from(described.row_bytes);
    for (row, bytes) in (first..).zip(bytes.chunks(described.row_bytes as usize)) {
        // A new row is zero, and has version 0.
        if bytes.iter().any(|&byte| byte != 0) {
            batch.put_with(table.row(row), &[(0, bytes)], PutOptions::new().if_version(Version(0)))?;
        }
    }
    client.run(batch)?.ok().map(|()| version)
}

/// The segment that names the unfinished one. Its lock is held.
struct Journal(LockGuard<Segment>);

impl Journal {
    fn open(client: &Client) -> Result<Self, CommandError> {
        let segment = client.segment(JOURNAL_NAME).open_or_allocate(JOURNAL_BYTES)?;
        let options = LockOptions::new().keep_alive().timeout(Duration::ZERO);
        match segment.lock_with(options) {
            Err(error) if error.kind() == ErrorKind::Locked => Err(CommandError::Refused(format!(
                "another restore runs: wait for its end, or break the lock of {JOURNAL_NAME} with `ddss locks` if it is dead"
            ))),
            lock => Ok(Self(lock?)),
        }
    }

    /// Returns the name of the segment that an earlier restore did not finish.
    fn unfinished(&self) -> Result<Option<String>, CommandError> {
        let value = self.0.get(..)?;
        let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok((!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned()))
    }

    /// Records a name; an empty one means that all segments are whole.
    fn record(&self, name: &str) -> Result<(), CommandError> {
        let mut bytes = [0; JOURNAL_BYTES as usize];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        self.0.put(0, &bytes)?;
        Ok(())
    }

    fn end(self) -> Result<(), CommandError> {
        let segment = Segment::clone(&self.0);
        self.0.unlock()?;
        Ok(segment.release()?)
    }
}

/// Names of a snapshot that exist already.
struct Plan {
    /// They stay as they are.
    skipped: BTreeSet<String>,
    /// The one that an earlier restore did not finish.
    unfinished: Option<String>,
}

/// Compares the names of a snapshot with those of the cluster. A segment that is half filled is not forgotten.
fn plan(
    client: &Client,
    options: &RestoreOptions,
    found: &Verified,
    unfinished: Option<String>,
) -> Result<Plan, CommandError> {
    let mut skipped = BTreeSet::new();
    for info in client.list("") {
        skipped.insert(info?.name);
    }
    if cluster::fetch_if_any(&options.place)?.is_some() {
        // Names whose homes are away are in no list.
        skipped.extend(cluster::fetch_names(&options.place)?.into_iter().map(|report| report.name));
    }
    let (unfinished, elsewhere): (Option<_>, Option<_>) = match unfinished {
        Some(name) if found.segments.contains_key(&name) => (Some(name), None),
        name => (None, name.filter(|name| skipped.contains(name))),
    };
    if let Some(name) = elsewhere {
        return Err(CommandError::Refused(format!(
            "an earlier restore has ended while it filled {name}, nothing was restored: restore {name} first, or release it with \
             `ddss release {name}`"
        )));
    }
    skipped.retain(|name| found.segments.contains_key(name) && unfinished.as_ref() != Some(name));
    let existing = skipped.len();
    if (existing == 0 && unfinished.is_none()) || options.skip_existing {
        return Ok(Plan { skipped, unfinished });
    }
    let shown: Vec<&str> = skipped.iter().chain(&unfinished).take(NAMES_SHOWN_MAX).map(String::as_str).collect();
    let more = if existing > shown.len() { ", .." } else { "" };
    Err(CommandError::Refused(format!(
        "{} of the names exist, nothing was restored ({}{more}): use an empty cluster, or --skip-existing to restore the others",
        existing + usize::from(unfinished.is_some()),
        shown.join(", ")
    )))
}

/// Reads the file again, and makes the segments. One that cannot be made does not keep the others out.
fn make_segments(
    target: &mut Target,
    archive: &mut ArchiveReader,
    found: &Verified,
    plan: &Plan,
    journal: &Journal,
) -> Result<Vec<(String, String)>, CommandError> {
    archive.restart()?;
    let progress = Progress::new(found.bytes);
    let (mut done, mut turn, mut failed) = (0_u64, 0, Vec::new());
    if let Some(name) = &plan.unfinished {
        match target.client.segment(name).open().and_then(|segment| segment.release()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    loop {
        let value = match archive.next_frame()? {
            Frame::Segment(value) => value,
            Frame::Foot(_) => break,
            _ => continue,
        };
        let (name, described) = parse(&value).ok_or_else(|| archive.damaged("no description of a segment"))?;
        let Some(verified) = found.segments.get(&name) else { continue };
        // The file may have been written to since it was verified.
        if *verified != described {
            return Err(archive.damaged("it has changed since it was verified"));
        }
        done = done.saturating_add(described.bytes);
        progress.at(done);
        if plan.skipped.contains(&name) {
            continue;
        }
        journal.record(&name)?;
        let homes = target.homes(value["home"].as_u64().unwrap_or_default(), turn);
        turn += 1;
        let segment = match target.allocate(&name, &described, &homes) {
            Ok(segment) => segment,
            Err(error) => {
                failed.push((name, ddss_admin::format_error_chain(&error)));
                continue;
            }
        };
        match fill(archive, target, &segment, &described) {
            Ok(()) => target.done.restored += 1,
            Err(error @ (CommandError::Client(_) | CommandError::Io { .. })) => {
                // If this fails, the next restore does it.
                segment.release()?;
                failed.push((name, ddss_admin::format_error_chain(&error)));
            }
            Err(error) => return Err(error),
        }
    }
    journal.record("")?;
    Ok(failed)
}

/// Puts the bytes of one segment.
fn fill(
    archive: &mut ArchiveReader,
    target: &Target,
    segment: &Segment,
    described: &Described,
) -> Result<(), CommandError> {
    let mut version = Version(0);
    while let Frame::Bytes(offset, bytes) = archive.next_frame()? {
        if !fits(described, offset, bytes.len()) {
            return Err(archive.damaged("bytes that no segment has"));
        }
        version = put(&target.client, segment, described, (offset, &bytes), version)?;
    }
    Ok(())
}

pub(crate) fn run(options: &RestoreOptions, json: bool) -> Result<(), CommandError> {
    let mut archive = ArchiveReader::open(&options.file)?;
    let mut found = verify(&mut archive)?;
    if let Some(pattern) = &options.only {
        keep_only(&mut found, pattern)?;
    }
    let has_bytes = found.head["has_bytes"] != false;
    if !has_bytes && !options.check && !options.empty {
        return Err(CommandError::Refused(
            "the snapshot holds no bytes, nothing was restored: --empty makes its segments with zeros".to_owned(),
        ));
    }
    let (mut done, mut failed) = (Done::default(), Vec::new());
    if !options.check {
        let client = connect_patiently(&options.place)?;
        let nodes = cluster::fetch_if_any(&options.place)?.map_or_else(
            || vec![client.node().0],
            |view| view.nodes.iter().filter(|node| node.alive).map(|node| node.node).collect(),
        );
        let journal = Journal::open(&client)?;
        let plan = match journal.unfinished().and_then(|last| plan(&client, options, &found, last)) {
            Ok(plan) => plan,
            Err(error) => {
                // Left as it was, unless nothing was unfinished.
                if journal.unfinished()?.is_none() {
                    journal.end()?;
                }
                return Err(error);
            }
        };
        let mut target = Target { client, nodes, done };
        failed = make_segments(&mut target, &mut archive, &found, &plan, &journal)?;
        journal.end()?;
        done = target.done;
        done.skipped = plan.skipped.len();
    }
    if json {
        print_json(&found, &done, &failed);
    } else if options.check {
        print_contents(&found, has_bytes);
    } else {
        print_done(&done);
    }
    for (name, reason) in &failed {
        print_warning(&format!("{name} was not restored: {reason}"));
    }
    match failed.len() {
        0 => Ok(()),
        count => Err(CommandError::Unrestored { count }),
    }
}

fn print_json(found: &Verified, done: &Done, failed: &[(String, String)]) {
    let Done { restored, skipped, one_copy, other_owner } = done;
    let (segments, bytes, missing) = (found.segments.len(), found.bytes, found.missing);
    let failed: Vec<Value> = failed.iter().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect();
    println!(
        "{}",
        json!({
            "snapshot": found.head, "segments": segments, "bytes": bytes, "missing": missing, "restored": restored,
            "skipped": skipped, "one_copy": one_copy, "other_owner": other_owner, "failed": failed,
        })
    );
}

fn print_contents(found: &Verified, has_bytes: bool) {
    let taken = found.head["taken_unix_s"].as_u64().unwrap_or_default();
    let taken = format_timestamp(taken.saturating_mul(1_000_000));
    let (segments, bytes) = (found.segments.len(), format_bytes(found.bytes));
    let kind = if has_bytes { "" } else { ", without their bytes" };
    print_sentence(&format!("the file is whole: {segments} segments of {bytes} bytes{kind}, taken {taken}"), 2);
    if found.missing > 0 {
        print_note(&format!("{} segments could not be read when it was taken", found.missing));
    }
}

fn print_done(done: &Done) {
    let Done { restored, skipped, one_copy, other_owner } = done;
    let existed = if *skipped == 0 { String::new() } else { format!("; {skipped} existed and stay") };
    print_sentence(&format!("{restored} segments restored{existed}"), 2);
    if *one_copy > 0 {
        print_note(&format!("{one_copy} segments have one copy, and had two: this node belongs to no cluster"));
    }
    if *other_owner > 0 {
        print_note(&format!("{other_owner} segments had other owners, and are yours: only root may give them away"));
    }
}
