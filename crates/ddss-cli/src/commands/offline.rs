//! What can be told of a node whose daemon does not run: the segments in its memory, by their records and headers.

use super::segments::{mode_in_words, model_in_words};
use crate::arguments::Place;
use crate::error::CommandError;
use crate::output::table::{Table, bytes_in_words};
use crate::output::terminal_text::{complain, fact};
use ddss_core::Timestamp;
use ddssd::{OfflineNode, OfflineSegment, Settings};
use serde_json::{Value, json};

/// What the daemon left, if that is why it could not be asked, and the error with which the command ends all the same.
pub(crate) fn after(error: CommandError, place: &Place) -> Result<(OfflineNode, CommandError), CommandError> {
    if !matches!(error, CommandError::Client(ddss::Error::NoDaemon { .. })) {
        return Err(error);
    }
    let (memory_folder, state_folder) = Settings::segment_folders(place.dir.clone());
    match OfflineNode::read_all(&memory_folder, &state_folder) {
        Ok(remains) => {
            complain(&format!("this is what {} left; the next daemon there goes on with it", remains.node));
            Ok((remains, error))
        }
        Err(_) => Err(error),
    }
}

/// The same keys as of a segment that is asked about, so that a script need not care; `live` tells the difference.
pub(crate) fn as_json(remain: &OfflineSegment) -> Value {
    let record = &remain.record;
    let header = remain.header;
    json!({
        "name": record.name.as_str(),
        "id": record.segment.to_bits(),
        "home": record.segment.home().0,
        "copies": record.spec.copies,
        "mirror": null,
        "storage": record.spec.storage.as_str(),
        "bytes": record.spec.bytes,
        "model": model_in_words(record.spec.model),
        "history": record.spec.keeps(),
        "uid": record.permissions.owner.uid,
        "gid": record.permissions.owner.gid,
        "mode": format!("{:03o}", record.permissions.mode),
        "version": header.map(|header| header.state >> 1),
        "timestamp_us": header.map(|header| Timestamp(header.timestamp).micros()),
        "lock": null,
        "nodes_reading": null,
        "live": false,
    })
}

/// What the header says of the newest version.
fn version(remain: &OfflineSegment) -> String {
    match remain.header {
        None => "no header".to_owned(),
        Some(header) if header.state & 1 != 0 => format!("{}, a put to undo", header.state >> 1),
        Some(header) => (header.state >> 1).to_string(),
    }
}

pub(crate) fn list(remains: &OfflineNode, matches: impl Fn(&str) -> bool, json: bool) {
    let found: Vec<&OfflineSegment> =
        remains.segments.iter().filter(|remain| matches(remain.record.name.as_str())).collect();
    if json {
        println!("{}", Value::Array(found.into_iter().map(as_json).collect()));
        return;
    }
    let mut table = Table::new(&["NAME", "BYTES", "HOME", "MODEL", "MODE", "UID", "VERSION"]);
    table.right(&[1, 2, 5]);
    for remain in found {
        let record = &remain.record;
        table.row(vec![
            record.name.to_string(),
            bytes_in_words(record.spec.bytes),
            record.segment.home().0.to_string(),
            model_in_words(record.spec.model),
            mode_in_words(record.permissions.mode),
            record.permissions.owner.uid.to_string(),
            version(remain),
        ]);
    }
    table.print_or("it left no such segment");
}

pub(crate) fn stat(remains: &OfflineNode, name: &str, json: bool) -> Result<(), CommandError> {
    let remain = remains.segments.iter().find(|remain| remain.record.name.as_str() == name);
    let remain =
        remain.ok_or_else(|| CommandError::Refused(format!("{} left no segment called {name}", remains.node)))?;
    if json {
        println!("{}", as_json(remain));
        return Ok(());
    }
    let record = &remain.record;
    let owner = record.permissions.owner;
    fact("name", record.name);
    fact("id", record.segment);
    fact("home", format_args!("{}, which does not run", record.segment.home()));
    fact("bytes", record.spec.bytes);
    fact("model", model_in_words(record.spec.model));
    fact("storage", record.spec.storage.as_str());
    fact("history", format_args!("{} versions before the newest", record.spec.keeps()));
    fact("owner", format_args!("user {} group {}", owner.uid, owner.gid));
    fact("mode", format_args!("{} ({:03o})", mode_in_words(record.permissions.mode), record.permissions.mode));
    fact("version", version(remain));
    if let Some(header) = remain.header {
        fact("written", crate::output::table::time_in_words(Timestamp(header.timestamp).micros()));
    }
    Ok(())
}
