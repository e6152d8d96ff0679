//! The command `cluster restore`: the segments of a snapshot in a new cluster.

use super::archive::{ArchiveReader, Frame};
use super::description::Described;
use crate::arguments::RestoreOptions;
use crate::commands::cluster;
use crate::commands::data::Progress;
use crate::connect::connect_patiently;
use crate::error::CommandError;
use crate::output::table::{format_bytes, format_timestamp};
use crate::output::terminal_text::{print_note, print_sentence};
use ddss::{Batch, Client, ErrorKind, Mode, NodeId, Permissions, Placement, Segment, Table};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Mode of a segment until it has all its bytes: no other user reads it, and the next restore makes it anew.
const UNFINISHED: Mode = Mode(0o200);
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
fn verify(options: &RestoreOptions) -> Result<Verified, CommandError> {
    let mut archive = ArchiveReader::open(&options.file)?;
    let Frame::Head(head) = archive.next_frame()? else { return Err(archive.damaged("no head")) };
    let mut found = Verified { head, segments: BTreeMap::new(), missing: 0, bytes: 0 };
    loop {
        match archive.next_frame()? {
            Frame::Segment(value) => {
                let (name, described) = parse(&value).ok_or_else(|| archive.damaged("no description of a segment"))?;
                if ddss_core::Name::new(&name).is_err() || found.segments.insert(name, described).is_some() {
                    return Err(archive.damaged("a name that cannot be"));
                }
                found.bytes += described.bytes;
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
        self.done.other_owner += usize::from(!is_same_owner);
        let spec = spec.mode(UNFINISHED);
        let mut refused = None;
        for &home in homes {
            let spec = spec.placement(Placement::Node(NodeId(home)));
            let made = match self.client.segment(name).allocate(spec) {
                // One copy is better than none.
                Err(error) if error.kind() == ErrorKind::Unsupported && described.copies > 1 => {
                    self.done.one_copy += 1;
                    self.client.segment(name).allocate(spec.copies(1))
                }
                made => made,
            };
            match made {
                Err(error) if is_lack_of_room(&error) => refused = Some(error),
                made => return Ok(made?),
            }
        }
        Err(refused.map_or_else(|| CommandError::Refused("no node is alive".to_owned()), CommandError::from))
    }
}

fn is_lack_of_room(error: &ddss::Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::OverQuota | ErrorKind::LimitReached | ErrorKind::NodeDown)
}

/// Puts bytes at their place, whole rows of a table.
fn put(
    client: &Client,
    segment: &Segment,
    described: &Described,
    offset: u64,
    bytes: &[u8],
) -> Result<(), ddss::Error> {
    if described.row_bytes == 0 {
        return segment.put(offset, bytes).map(drop);
    }
    let table = <Table>::try_from(segment.clone())?;
    let mut batch = Batch::new();
    let first = offset / u64::from(described.row_bytes);
    for (row, bytes) in (first..).zip(bytes.chunks(described.row_bytes as usize)) {
        // A new row is zero.
        if bytes.iter().any(|&byte| byte != 0) {
            batch.put(table.row(row), 0, bytes)?;
        }
    }
    client.run(batch)?.ok()
}

/// Names of a snapshot that exist already.
struct Plan {
    /// Existing names, which stay as they are.
    skipped: BTreeSet<String>,
    /// Names of an earlier restore that did not finish them.
    unfinished: BTreeSet<String>,
}

/// Compares the names of a snapshot with those of the cluster.
fn plan(client: &Client, options: &RestoreOptions, found: &Verified) -> Result<Plan, CommandError> {
    let mut plan = Plan { skipped: BTreeSet::new(), unfinished: BTreeSet::new() };
    for info in client.list("") {
        let info = info?;
        let Some(described) = found.segments.get(&info.name) else { continue };
        let is_unfinished = info.permissions.mode == UNFINISHED && described.mode != UNFINISHED;
        let names = if is_unfinished { &mut plan.unfinished } else { &mut plan.skipped };
        names.insert(info.name);
    }
    if cluster::fetch(&options.place).is_ok() {
        // Names whose homes are away are in no list.
        let names = cluster::fetch_names(&options.place)?.into_iter().map(|report| report.name);
        let names = names.filter(|name| found.segments.contains_key(name) && !plan.unfinished.contains(name));
        plan.skipped.extend(names.collect::<Vec<_>>());
    }
    let existing = plan.skipped.len() + plan.unfinished.len();
    if existing == 0 || options.skip_existing {
        return Ok(plan);
    }
    let shown: Vec<&str> = plan.skipped.union(&plan.unfinished).take(NAMES_SHOWN_MAX).map(String::as_str).collect();
    let more = if existing > shown.len() { ", .." } else { "" };
    Err(CommandError::Refused(format!(
        "{existing} of the names exist, nothing was restored ({}{more}): use an empty cluster, or --skip-existing to restore the others",
        shown.join(", ")
    )))
}

/// Reads the file again, and makes the segments.
fn make_segments(
    target: &mut Target,
    options: &RestoreOptions,
    found: &Verified,
    plan: &Plan,
) -> Result<(), CommandError> {
    let mut archive = ArchiveReader::open(&options.file)?;
    let progress = Progress::new(found.bytes);
    let (mut done, mut turn) = (0, 0);
    loop {
        let value = match archive.next_frame()? {
            Frame::Segment(value) => value,
            Frame::Foot(_) => return Ok(()),
            _ => continue,
        };
        let changed = || archive_changed(options);
        let (name, described) = parse(&value).ok_or_else(changed)?;
        // Another file than the verified one may stand here now.
        if found.segments.get(&name) != Some(&described) {
            return Err(archive_changed(options));
        }
        done += described.bytes;
        if plan.skipped.contains(&name) {
            continue;
        }
        let failed = |error: CommandError| CommandError::Restore { name: name.clone(), source: Box::new(error) };
        if plan.unfinished.contains(&name) {
            let left = target.client.segment(&name).open().and_then(|segment| segment.release());
            left.map_err(|error| failed(error.into()))?;
        }
        let homes = target.homes(value["home"].as_u64().unwrap_or_default(), turn);
        turn += 1;
        let segment = target.allocate(&name, &described, &homes).map_err(&failed)?;
        let filled = fill(&mut archive, target, &segment, &described);
        if let Err(error) = filled {
            // The next restore would release it as well.
            let _ = segment.release();
            return Err(failed(error));
        }
        target.done.restored += 1;
        progress.at(done);
    }
}

fn archive_changed(options: &RestoreOptions) -> CommandError {
    let file = options.file.display();
    CommandError::Refused(format!(
        "{file} has changed since it was verified: run the command again with --skip-existing"
    ))
}

/// Puts the bytes of one segment, and then gives it its mode.
fn fill(
    archive: &mut ArchiveReader,
    target: &Target,
    segment: &Segment,
    described: &Described,
) -> Result<(), CommandError> {
    while let Frame::Bytes(offset, bytes) = archive.next_frame()? {
        if !fits(described, offset, bytes.len()) {
            return Err(archive.damaged("bytes that no segment has"));
        }
        put(&target.client, segment, described, offset, &bytes)?;
    }
    let own = segment.stat()?.permissions;
    Ok(segment.set_permissions(Permissions { mode: described.mode, ..own })?)
}

pub(crate) fn run(options: &RestoreOptions, json: bool) -> Result<(), CommandError> {
    let found = verify(options)?;
    let mut done = Done::default();
    if !options.check {
        let client = connect_patiently(&options.place)?;
        let nodes = cluster::fetch(&options.place).map_or_else(
            |_| vec![client.node().0],
            |view| view.nodes.iter().filter(|node| node.alive).map(|node| node.node).collect(),
        );
        let plan = plan(&client, options, &found)?;
        let mut target = Target { client, nodes, done };
        make_segments(&mut target, options, &found, &plan)?;
        done = target.done;
        done.skipped = plan.skipped.len();
    }
    if json {
        let Done { restored, skipped, one_copy, other_owner } = done;
        let (segments, bytes, missing) = (found.segments.len(), found.bytes, found.missing);
        println!(
            "{}",
            json!({
                "snapshot": found.head, "segments": segments, "bytes": bytes, "missing": missing,
                "restored": restored, "skipped": skipped, "one_copy": one_copy, "other_owner": other_owner,
            })
        );
    } else if options.check {
        print_contents(&found);
    } else {
        print_done(&done);
    }
    Ok(())
}

fn print_contents(found: &Verified) {
    let taken = found.head["taken_unix_s"].as_u64().unwrap_or_default();
    let taken = format_timestamp(taken.saturating_mul(1_000_000));
    let (segments, bytes) = (found.segments.len(), format_bytes(found.bytes));
    print_sentence(&format!("the file is whole: {segments} segments of {bytes} bytes, taken {taken}"), 2);
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
