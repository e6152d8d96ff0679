//! The command `clients`: the client processes of a node and their activity.

use crate::arguments::DaemonOptions;
use crate::error::CommandError;
use crate::output::table::{Table, format_bytes};
use crate::status_page::{format_duration, now, read, read_shards};
use ddss_core::status::ClientRow;
use serde_json::{Value, json};
use std::time::Duration;

/// Returns the name of a process, or `-` if it has ended.
pub(crate) fn program(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // A process chooses its name, which may contain control characters.
    let name = name.trim_end().replace(char::is_control, "\u{fffd}");
    if name.is_empty() { "-".to_owned() } else { name }
}

pub(crate) fn run(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    let page = read(place)?;
    page.warn();
    // A process has a row in each shard that it is attached to.
    let shards = read_shards(place)?;
    let clients = shards.iter().flat_map(|status| status.clients.iter().map(|row| (status.daemon.shard.index(), row)));
    if json {
        println!("{}", Value::Array(clients.map(|(shard, row)| as_json(shard, row)).collect()));
        return page.require_running();
    }
    let columns = [
        "SHARD",
        "CLIENT",
        "PROCESS",
        "PROGRAM",
        "UID",
        "STRATEGY",
        "CHANNELS",
        "CALLS",
        "FAILED",
        "GOT",
        "PUT",
        "UNDER WAY",
        "FOR",
    ];
    // The column is omitted on a daemon with one shard.
    let skipped = usize::from(shards.len() == 1);
    let mut table = Table::new(&columns[skipped..]);
    table.align_right(&[0, 1, 2, 4, 6, 7, 8, 9, 10, 11].map(|column: usize| column.saturating_sub(skipped)));
    table.set_optional(&[6, 11, 5].map(|column: usize| column - skipped));
    for (shard, row) in clients {
        let since = now().saturating_sub(Duration::from_micros(row.attached_us));
        let cells = vec![
            shard.to_string(),
            row.client.index.to_string(),
            row.pid.to_string(),
            program(row.pid),
            row.uid.to_string(),
            row.strategy_name().to_owned(),
            row.channels.to_string(),
            row.operations.to_string(),
            row.failed.to_string(),
            format_bytes(row.bytes_got),
            format_bytes(row.bytes_put),
            row.under_way.to_string(),
            format_duration(since),
        ];
        table.row(cells[skipped..].to_vec());
    }
    table.print_or("no client is attached");
    page.require_running()
}

fn as_json(shard: u8, row: &ClientRow) -> Value {
    json!({ "shard": shard, "client": row.client.index, "generation": row.client.generation, "pid": row.pid, "program": program(row.pid),
        "uid": row.uid, "gid": row.gid, "strategy": row.strategy_name(), "channels": row.channels,
        "arena_bytes": row.arena_bytes, "attached_us": row.attached_us, "calls": row.operations, "failed": row.failed,
        "bytes_got": row.bytes_got, "bytes_put": row.bytes_put, "under_way": row.under_way })
}
