//! The clients of a node: which processes they are, and what they do.

use crate::arguments::Place;
use crate::failure::CommandError;
use crate::page::{now, read, span_in_words};
use crate::table::{Table, bytes_in_words};
use ddss_core::status::ClientRow;
use serde_json::{Value, json};
use std::time::Duration;

/// What a process is called, if it is still there.
pub(crate) fn program(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // A process may call itself whatever it likes.
    let name = name.trim_end().replace(char::is_control, "\u{fffd}");
    if name.is_empty() { "-".to_owned() } else { name }
}

pub(crate) fn run(place: &Place, json: bool) -> Result<(), CommandError> {
    let page = read(place)?;
    page.warn();
    let clients = &page.status.clients;
    if json {
        println!("{}", Value::Array(clients.iter().map(as_json).collect()));
        return Ok(());
    }
    let columns = [
        "CLIENT",
        "PROCESS",
        "PROGRAM",
        "UID",
        "STRATEGY",
        "LANES",
        "CALLS",
        "FAILED",
        "GOT",
        "PUT",
        "UNDER WAY",
        "FOR",
    ];
    let mut table = Table::new(&columns);
    table.right(&[0, 1, 3, 5, 6, 7, 8, 9, 10]);
    table.spare(&[5, 10, 4]);
    for row in clients {
        let since = now().saturating_sub(Duration::from_micros(row.attached_us));
        table.row(vec![
            row.client.index.to_string(),
            row.pid.to_string(),
            program(row.pid),
            row.uid.to_string(),
            row.strategy_name().to_owned(),
            row.lanes.to_string(),
            row.operations.to_string(),
            row.failed.to_string(),
            bytes_in_words(row.bytes_got),
            bytes_in_words(row.bytes_put),
            row.under_way.to_string(),
            span_in_words(since),
        ]);
    }
    table.print();
    Ok(())
}

fn as_json(row: &ClientRow) -> Value {
    json!({ "client": row.client.index, "generation": row.client.generation, "pid": row.pid, "program": program(row.pid),
        "uid": row.uid, "gid": row.gid, "strategy": row.strategy_name(), "lanes": row.lanes,
        "arena_bytes": row.arena_bytes, "attached_us": row.attached_us, "calls": row.operations, "failed": row.failed,
        "bytes_got": row.bytes_got, "bytes_put": row.bytes_put, "under_way": row.under_way })
}
