//! The commands that look at segments as a whole: which there are, what they are, who holds them.

use super::cluster;
use super::data::length_of;
use super::locks::holder_in_words;
use super::offline;
use crate::arguments::{ChmodOptions, HistoryOptions, ListOptions, Named};
use crate::connect::{connect, open};
use crate::error::CommandError;
use crate::glob::Glob;
use crate::output::table::{Table, bytes_in_words, seconds_in_words, time_in_words};
use crate::output::terminal_text::{complain, fact};
use ddss::{Failure, Listing, Model, NodeId, ReplicationInfo, Version};
use serde_json::{Value, json};

/// A model as it is written on the command line.
pub(crate) fn model_in_words(model: Model) -> String {
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

/// `rw-r-----`, as `ls -l` writes it (execution has no meaning here).
pub(crate) fn mode_in_words(mode: u16) -> String {
    let bit = |shift: u16, letter| if mode >> shift & 1 != 0 { letter } else { '-' };
    [8, 5, 2].iter().flat_map(|&high| [bit(high, 'r'), bit(high - 1, 'w'), bit(high - 2, 'x')]).collect()
}

pub(crate) fn as_json(listing: &Listing) -> Value {
    let facts = &listing.facts;
    let holder = listing
        .holder
        .map(|holder| json!({ "node": holder.node.0, "client": holder.client, "lease_left_us": holder.lease_left_us }));
    json!({
        "name": listing.name.as_str(),
        "id": facts.segment.to_bits(),
        "home": listing.home.0,
        "copies": facts.copies,
        "mirror": (facts.copies > 1).then(|| json!({
            "node": listing.mirror.0,
            "state": listing.mirroring.as_str(),
            "reason": listing.degraded.map(|reason| reason.to_string()),
        })),
        "storage": facts.storage.as_str(),
        "bytes": facts.bytes,
        "model": model_in_words(facts.model),
        "history": facts.keeps,
        "uid": facts.permissions.owner.uid,
        "gid": facts.permissions.owner.gid,
        "mode": format!("{:03o}", facts.permissions.mode),
        "version": listing.version.0,
        "timestamp_us": listing.timestamp.micros(),
        "lock": { "holders": listing.holders, "alone": listing.locked, "waiting": listing.waiting,
            "holder": holder },
        "nodes_reading": listing.readers,
        "live": true,
    })
}

/// Everything that a pattern names, in order of home and name.
pub(crate) fn matching(place: &crate::arguments::Place, pattern: Option<&str>) -> Result<Vec<Listing>, CommandError> {
    let glob = Glob::new(pattern.unwrap_or("*"));
    let client = connect(place)?;
    let mut found = Vec::new();
    for listing in client.list(glob.prefix())? {
        let listing = listing?;
        if glob.matches(listing.name.as_str()) {
            found.push(listing);
        }
    }
    // They come plane by plane.
    found.sort_by(|one, other| (one.home, one.name.as_str()).cmp(&(other.home, other.name.as_str())));
    Ok(found)
}

/// A list is of the nodes that answer. Says which do not, as far as this user may know.
pub(crate) fn note_missing(place: &crate::arguments::Place) {
    let Ok(seen) = cluster::look(place) else { return };
    let dead: Vec<String> = seen.nodes.iter().filter(|node| !node.alive).map(|node| node.node.to_string()).collect();
    match &dead[..] {
        [] => {}
        [one] => complain(&format!("node {one} does not answer: its segments are not shown")),
        many => complain(&format!("nodes {} do not answer: their segments are not shown", many.join(", "))),
    }
}

/// What is said where no segment is listed.
pub(crate) fn nothing(pattern: Option<&str>) -> &'static str {
    match pattern {
        Some(_) => "no segment has such a name",
        None => "there is no segment: `ddss allocate NAME BYTES` makes one",
    }
}

pub(crate) fn list(wanted: &ListOptions, json: bool) -> Result<(), CommandError> {
    let found = match matching(&wanted.place, wanted.pattern.as_deref()) {
        Ok(found) => found,
        Err(error) => {
            let glob = Glob::new(wanted.pattern.as_deref().unwrap_or("*"));
            let (remains, error) = offline::after(error, &wanted.place)?;
            offline::list(&remains, |name| glob.matches(name), json);
            return Err(error);
        }
    };
    note_missing(&wanted.place);
    if json {
        println!("{}", Value::Array(found.iter().map(as_json).collect()));
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "BYTES", "HOME", "MODEL", "MODE", "UID", "VERSION", "LOCK"]);
    table.right(&[1, 2, 5, 6]);
    for listing in &found {
        let facts = &listing.facts;
        table.row(vec![
            listing.name.to_string(),
            bytes_in_words(facts.bytes),
            listing.home.0.to_string(),
            model_in_words(facts.model),
            mode_in_words(facts.permissions.mode),
            facts.permissions.owner.uid.to_string(),
            listing.version.0.to_string(),
            lock_in_words(listing),
        ]);
    }
    table.print_or(nothing(wanted.pattern.as_deref()));
    Ok(())
}

pub(crate) fn lock_in_words(listing: &Listing) -> String {
    match (listing.locked, listing.holders, listing.waiting) {
        (_, 0, 0) => "-".to_owned(),
        (_, 0, waiting) => format!("free, {waiting} waiting"),
        (true, _, 0) => "held".to_owned(),
        (true, _, waiting) => format!("held, {waiting} waiting"),
        (false, holders, 0) => format!("shared by {holders}"),
        (false, holders, waiting) => format!("shared by {holders}, {waiting} waiting"),
    }
}

/// Where the second copy is, and whether it can be counted on.
fn mirror_in_words(listing: &Listing) -> String {
    match (listing.mirroring, listing.mirror) {
        (ReplicationInfo::None, _) => "none (one copy)".to_owned(),
        (ReplicationInfo::Degraded, NodeId::NOBODY) => "degraded: no node for it yet".to_owned(),
        (ReplicationInfo::Degraded, node) => {
            let reason = listing.degraded.map(|reason| format!(": {node} {reason}"));
            format!("degraded{}", reason.unwrap_or_default())
        }
        (state, node) => format!("{} on {node}", state.as_str()),
    }
}

pub(crate) fn stat(named: &Named, json: bool) -> Result<(), CommandError> {
    let listing = match open(named) {
        Ok(segment) => segment.stat()?,
        Err(error) => {
            let (remains, error) = offline::after(error, &named.place)?;
            return offline::stat(&remains, &named.name, json).and(Err(error));
        }
    };
    if json {
        println!("{}", as_json(&listing));
        return Ok(());
    }
    let facts = &listing.facts;
    let owner = facts.permissions.owner;
    fact("name", listing.name);
    fact("id", facts.segment);
    fact("home", listing.home);
    fact("mirror", mirror_in_words(&listing));
    fact("bytes", facts.bytes);
    fact("model", model_in_words(facts.model));
    fact("storage", facts.storage.as_str());
    fact("history", format_args!("{} versions before the newest", facts.keeps));
    fact("owner", format_args!("user {} group {}", owner.uid, owner.gid));
    fact("mode", format_args!("{} ({:03o})", mode_in_words(facts.permissions.mode), facts.permissions.mode));
    fact("version", listing.version.0);
    fact("written", time_in_words(listing.timestamp.micros()));
    fact("lock", lock_in_words(&listing));
    if let Some(holder) = listing.holder {
        let left = seconds_in_words(holder.lease_left_us);
        fact("held by", format_args!("{}, for {left} at the most", holder_in_words(holder)));
    }
    match listing.readers {
        0 => fact("read by", "nobody on other nodes"),
        1 => fact("read by", "clients of one other node"),
        many => fact("read by", format_args!("clients of {many} other nodes")),
    }
    Ok(())
}

pub(crate) fn chmod(wanted: &ChmodOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&wanted.named)?;
    segment.set_mode(wanted.mode)?;
    if json {
        println!("{}", json!({ "name": segment.name(), "mode": format!("{:03o}", wanted.mode) }));
    } else {
        println!("{}: {}", segment.name(), mode_in_words(wanted.mode));
    }
    Ok(())
}

/// How many bytes of each version are shown if nothing is said.
const HISTORY_BYTES: u64 = 16;

/// The versions that are kept, the newest first.
pub(crate) fn history(wanted: &HistoryOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&wanted.named)?;
    let length = length_of(&segment, 0, wanted.length, HISTORY_BYTES)?;
    // The newest one is whatever it is when it is read: others may put all the time.
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
    table.flows();
    for value in &found {
        let hex: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
        table.row(vec![value.version().0.to_string(), time_in_words(value.timestamp().micros()), hex.join(" ")]);
    }
    table.print();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_reads_as_in_ls() {
        // If this broke, a person would believe that others cannot read what they can.
        assert_eq!(mode_in_words(0o640), "rw-r-----");
        assert_eq!(mode_in_words(0o777), "rwxrwxrwx");
        assert_eq!(mode_in_words(0), "---------");
    }
}
