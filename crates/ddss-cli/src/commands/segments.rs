//! The commands that show segments: `ls`, `stat`, `chmod` and `history`.

use super::cluster;
use super::data::resolve_length;
use super::locks::format_holder;
use super::offline;
use crate::arguments::{ChmodOptions, HistoryOptions, ListOptions, SegmentOptions};
use crate::connect::{connect, open};
use crate::error::CommandError;
use crate::glob::Glob;
use crate::output::table::{Table, format_bytes, format_micros, format_timestamp};
use crate::output::terminal_text::{print_field, print_warning};
use ddss::{Failure, Listing, Model, NodeId, ReplicationInfo, Version};
use serde_json::{Value, json};

/// Formats a coherence model as on the command line.
pub(crate) fn format_model(model: Model) -> String {
    match model {
        Model::Null => "null".to_owned(),
        Model::Read => "read".to_owned(),
        Model::Write => "write".to_owned(),
        Model::Strict => "strict".to_owned(),
        Model::Version => "version".to_owned(),
        Model::Delta(versions) => format!("delta={versions}"),
        Model::Temporal(micros) => format!("temporal={micros}"),
        _ => "unknown".to_owned(),
    }
}

/// Formats permission bits as `ls -l` does (`rw-r-----`); the execute bit has no meaning.
pub(crate) fn format_mode(mode: u16) -> String {
    let bit = |shift: u16, letter| if mode >> shift & 1 != 0 { letter } else { '-' };
    [8, 5, 2].iter().flat_map(|&high| [bit(high, 'r'), bit(high - 1, 'w'), bit(high - 2, 'x')]).collect()
}

pub(crate) fn as_json(listing: &Listing) -> Value {
    let info = &listing.info;
    let holder = listing
        .holder
        .map(|holder| json!({ "node": holder.node.0, "client": holder.client, "lease_left_us": holder.lease_left_us }));
    json!({
        "name": listing.name.as_str(),
        "id": info.segment.to_bits(),
        "home": listing.home.0,
        "copies": info.copies,
        "replica": (info.copies > 1).then(|| json!({
            "node": listing.replica.0,
            "state": listing.replication.as_str(),
            "reason": listing.degraded.map(|reason| reason.to_string()),
        })),
        "storage": info.storage.as_str(),
        "bytes": info.bytes,
        "model": format_model(info.model),
        "history": info.history_len,
        "uid": info.permissions.owner.uid,
        "gid": info.permissions.owner.gid,
        "mode": format!("{:03o}", info.permissions.mode),
        "version": listing.version.0,
        "timestamp_us": listing.timestamp.micros(),
        "lock": { "holders": listing.holders, "alone": listing.locked, "waiting": listing.waiting,
            "holder": holder },
        "nodes_reading": listing.readers,
        "live": true,
    })
}

/// Returns all segments that match a pattern, in order of home and name.
pub(crate) fn find_segments(
    place: &crate::arguments::DaemonOptions,
    pattern: Option<&str>,
) -> Result<Vec<Listing>, CommandError> {
    let glob = Glob::new(pattern.unwrap_or("*"));
    let client = connect(place)?;
    let mut found = Vec::new();
    for listing in client.list(glob.prefix())? {
        let listing = listing?;
        if glob.matches(listing.name.as_str()) {
            found.push(listing);
        }
    }
    // The daemon lists them shard by shard.
    found.sort_by(|one, other| (one.home, one.name.as_str()).cmp(&(other.home, other.name.as_str())));
    Ok(found)
}

/// Warns of dead nodes, whose segments are missing in a list, as far as this user may know them.
pub(crate) fn warn_missing_nodes(place: &crate::arguments::DaemonOptions) {
    let Ok(seen) = cluster::fetch(place) else { return };
    let dead: Vec<String> = seen.nodes.iter().filter(|node| !node.alive).map(|node| node.node.to_string()).collect();
    match &dead[..] {
        [] => {}
        [one] => print_warning(&format!("node {one} is unreachable: its segments are not shown")),
        many => print_warning(&format!("nodes {} are unreachable: their segments are not shown", many.join(", "))),
    }
}

/// Returns the note below an empty list.
pub(crate) fn empty_list_note(pattern: Option<&str>) -> &'static str {
    match pattern {
        Some(_) => "no segment matches",
        None => "there is no segment: allocate one with `ddss allocate NAME BYTES`",
    }
}

pub(crate) fn list(options: &ListOptions, json: bool) -> Result<(), CommandError> {
    let found = match find_segments(&options.place, options.pattern.as_deref()) {
        Ok(found) => found,
        Err(error) => {
            let glob = Glob::new(options.pattern.as_deref().unwrap_or("*"));
            let (remains, error) = offline::inspect_offline(error, &options.place)?;
            offline::list(&remains, |name| glob.matches(name), json);
            return Err(error);
        }
    };
    warn_missing_nodes(&options.place);
    if json {
        println!("{}", Value::Array(found.iter().map(as_json).collect()));
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "BYTES", "HOME", "MODEL", "MODE", "UID", "VERSION", "LOCK"]);
    table.align_right(&[1, 2, 5, 6]);
    for listing in &found {
        let info = &listing.info;
        table.row(vec![
            listing.name.to_string(),
            format_bytes(info.bytes),
            listing.home.0.to_string(),
            format_model(info.model),
            format_mode(info.permissions.mode),
            info.permissions.owner.uid.to_string(),
            listing.version.0.to_string(),
            format_lock(listing),
        ]);
    }
    table.print_or(empty_list_note(options.pattern.as_deref()));
    Ok(())
}

pub(crate) fn format_lock(listing: &Listing) -> String {
    match (listing.locked, listing.holders, listing.waiting) {
        (_, 0, 0) => "-".to_owned(),
        (_, 0, waiting) => format!("free, {waiting} waiting"),
        (true, _, 0) => "held".to_owned(),
        (true, _, waiting) => format!("held, {waiting} waiting"),
        (false, holders, 0) => format!("shared by {holders}"),
        (false, holders, waiting) => format!("shared by {holders}, {waiting} waiting"),
    }
}

/// Formats the node and the state of the replica.
fn format_replica(listing: &Listing) -> String {
    match (listing.replication, listing.replica) {
        (ReplicationInfo::None, _) => "none".to_owned(),
        (ReplicationInfo::Degraded, NodeId::NONE) => "degraded: no node chosen yet".to_owned(),
        (ReplicationInfo::Degraded, node) => {
            let reason = listing.degraded.map(|reason| format!(": {node} {reason}"));
            format!("degraded{}", reason.unwrap_or_default())
        }
        (state, node) => format!("{} on {node}", state.as_str()),
    }
}

pub(crate) fn stat(named: &SegmentOptions, json: bool) -> Result<(), CommandError> {
    let listing = match open(named) {
        Ok(segment) => segment.stat()?,
        Err(error) => {
            let (remains, error) = offline::inspect_offline(error, &named.place)?;
            return offline::stat(&remains, &named.name, json).and(Err(error));
        }
    };
    if json {
        println!("{}", as_json(&listing));
        return Ok(());
    }
    let info = &listing.info;
    let owner = info.permissions.owner;
    print_field("name", listing.name);
    print_field("id", info.segment);
    print_field("home", listing.home);
    print_field("replica", format_replica(&listing));
    print_field("bytes", info.bytes);
    print_field("model", format_model(info.model));
    print_field("storage", info.storage.as_str());
    print_field("history", format_args!("{} versions before the newest", info.history_len));
    print_field("owner", format_args!("user {} group {}", owner.uid, owner.gid));
    print_field("mode", format_args!("{} ({:03o})", format_mode(info.permissions.mode), info.permissions.mode));
    print_field("version", listing.version.0);
    print_field("written", format_timestamp(listing.timestamp.micros()));
    print_field("lock", format_lock(&listing));
    if let Some(holder) = listing.holder {
        let left = format_micros(holder.lease_left_us);
        print_field("held by", format_args!("{}, for at most {left}", format_holder(holder)));
    }
    match listing.readers {
        0 => print_field("read by", "no other node"),
        1 => print_field("read by", "clients of one other node"),
        many => print_field("read by", format_args!("clients of {many} other nodes")),
    }
    Ok(())
}

pub(crate) fn chmod(options: &ChmodOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&options.named)?;
    segment.set_mode(options.mode)?;
    if json {
        println!("{}", json!({ "name": segment.name(), "mode": format!("{:03o}", options.mode) }));
    } else {
        println!("{}: {}", segment.name(), format_mode(options.mode));
    }
    Ok(())
}

/// Default number of bytes shown of each version.
const HISTORY_BYTES: u64 = 16;

/// Shows the versions in the history, the newest first.
pub(crate) fn history(options: &HistoryOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&options.named)?;
    let length = resolve_length(&segment, 0, options.length, HISTORY_BYTES)?;
    // Other clients may put meanwhile: the first get defines the newest version.
    let mut found = vec![segment.get(0..length)?];
    while let Some(before) = found.last().and_then(|value| value.version().0.checked_sub(1)) {
        match segment.get_at(Version(before), 0..length) {
            Ok(value) => found.push(value),
            Err(error) if error.failure() == Some(Failure::VersionGone) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if json {
        let row = |value: &ddss::Value| {
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "version": value.version().0, "timestamp_us": value.timestamp().micros(), "hex": hex })
        };
        println!("{}", Value::Array(found.iter().map(row).collect()));
        return Ok(());
    }
    let mut table = Table::new(&["VERSION", "WRITTEN", "FIRST BYTES"]);
    table.wrap_last();
    for value in &found {
        let hex: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
        table.row(vec![value.version().0.to_string(), format_timestamp(value.timestamp().micros()), hex.join(" ")]);
    }
    table.print();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_is_formatted_as_by_ls() {
        assert_eq!(format_mode(0o640), "rw-r-----");
        assert_eq!(format_mode(0o777), "rwxrwxrwx");
        assert_eq!(format_mode(0), "---------");
    }
}
