//! The command `status`: the daemon, the segments and the cluster of a node.

use super::cluster;
use super::offline;
use crate::arguments::DaemonOptions;
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::table::format_bytes;
use crate::output::terminal_text::print_field;
use ddss::Client;
use ddss_admin::storage::{OfflineNode, last_command};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Totals of the segments of a node.
#[derive(Default)]
struct SegmentTotals {
    count: usize,
    bytes: u64,
    locks: usize,
}

impl SegmentTotals {
    /// Adds up the segments whose home is the client's node.
    fn count_home_segments(client: &Client) -> Result<Self, CommandError> {
        let mut totals = Self::default();
        for listing in client.list("") {
            let listing = listing?;
            if listing.home == client.node() {
                totals.count += 1;
                totals.bytes += listing.len;
                totals.locks += usize::from(listing.lock.holders > 0);
            }
        }
        Ok(totals)
    }

    fn from_offline(offline_node: &OfflineNode) -> Self {
        let bytes = offline_node.segments.iter().map(|remain| remain.record.spec.bytes).sum();
        Self { count: offline_node.segments.len(), bytes, locks: 0 }
    }

    fn as_json(&self) -> Value {
        json!({ "count": self.count, "bytes": self.bytes, "locked": self.locks })
    }
}

pub(crate) fn run(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    match connect(place) {
        Ok(client) => alive(&client, place, json),
        Err(error) => {
            let folder = place.folder();
            let (offline_node, error) = offline::inspect_offline(error, place)?;
            dead(&offline_node, &folder, json);
            Err(error)
        }
    }
}

fn alive(client: &Client, place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    client.ping()?;
    let begin = Instant::now();
    client.ping()?;
    let micros = begin.elapsed().as_secs_f64() * 1e6;
    let totals = SegmentTotals::count_home_segments(client)?;
    let folder = place.folder();
    let cluster = cluster::fetch(place);
    if json {
        let cluster = cluster.ok().map(|seen| {
            let (alive, voters) = (seen.alive(), seen.voters());
            json!({ "leader": seen.leader, "nodes": seen.nodes.len(), "alive": alive, "voters": voters,
                "names": seen.names, "majority": seen.majority })
        });
        println!(
            "{}",
            json!({ "daemon": "alive", "node": client.node().0, "folder": folder, "round_trip_us": micros,
                "shards": client.shard_count(), "segments": totals.as_json(), "cluster": cluster })
        );
        return Ok(());
    }
    print_field("daemon", format_args!("alive: {} answered in {micros:.1} µs ({})", client.node(), client.strategy()));
    if client.shard_count() > 1 {
        print_field(
            "threads",
            format_args!("{} shards; the hash of its name assigns a segment to one", client.shard_count()),
        );
    }
    print_field("folder", folder.display());
    print_field(
        "segments",
        format_args!("{} with their home here, {}; {} locked", totals.count, format_bytes(totals.bytes), totals.locks),
    );
    match cluster {
        Ok(seen) => print_field("cluster", seen.describe()),
        Err(CommandError::NoCluster { .. }) => print_field("cluster", "none: this node belongs to no cluster"),
        Err(error) => print_field("cluster", ddss_admin::format_error_chain(&error)),
    }
    Ok(())
}

fn dead(offline_node: &OfflineNode, folder: &Path, json: bool) {
    let totals = SegmentTotals::from_offline(offline_node);
    if json {
        let (node, segments) = (offline_node.node.0, totals.as_json());
        println!(
            "{}",
            json!({ "daemon": "dead", "node": node, "folder": folder, "round_trip_us": null, "shards": null, "segments": segments,
                "cluster": null })
        );
        return;
    }
    print_field("daemon", format_args!("dead: {} does not run", offline_node.node));
    print_field("folder", folder.display());
    print_field("segments", format_args!("{} stored, {}", totals.count, format_bytes(totals.bytes)));
    let command = last_command(folder).unwrap_or_else(|| format!("ddssd --dir {}", folder.display()));
    print_field("next", command);
}
