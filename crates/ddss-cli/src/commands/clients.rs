//! The clients of a node: which processes they are, and what they do.

use crate::arguments::Place;
use crate::error::CommandError;
use crate::output::table::{Table, bytes_in_words};
use crate::status_page::{now, read, read_planes, span_in_words};
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
    // A process has a row in each plane that it is attached to.
    let planes = read_planes(place)?;
    let clients = planes.iter().flat_map(|status| status.clients.iter().map(|row| (status.daemon.plane.index(), row)));
    if json {
        println!("{}", Value::Array(clients.map(|(plane, row)| as_json(plane, row)).collect()));
        return page.verdict();
    }
    let columns = [
        "PLANE",
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
    // Where there is one plane nobody asks for its number.
    let skipped = usize::from(planes.len() == 1);
    let mut table = Table::new(&columns[skipped..]);
    table.right(&[0, 1, 2, 4, 6, 7, 8, 9, 10, 11].map(|column: usize| column.saturating_sub(skipped)));
    table.spare(&[6, 11, 5].map(|column: usize| column - skipped));
    for (plane, row) in clients {
        let since = now().saturating_sub(Duration::from_micros(row.attached_us));
        let cells = vec![
            plane.to_string(),
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
        ];
        table.row(cells[skipped..].to_vec());
    }
    table.print_or("no client is attached");
    page.verdict()
}

fn as_json(plane: u8, row: &ClientRow) -> Value {
    json!({ "plane": plane, "client": row.client.index, "generation": row.client.generation, "pid": row.pid, "program": program(row.pid),
        "uid": row.uid, "gid": row.gid, "strategy": row.strategy_name(), "lanes": row.lanes,
        "arena_bytes": row.arena_bytes, "attached_us": row.attached_us, "calls": row.operations, "failed": row.failed,
        "bytes_got": row.bytes_got, "bytes_put": row.bytes_put, "under_way": row.under_way })
}
