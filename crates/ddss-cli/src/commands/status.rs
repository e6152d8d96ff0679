//! One look at a node: does its daemon run, what does it hold, how is its cluster.

use super::cluster;
use super::offline;
use crate::arguments::Place;
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::table::bytes_in_words;
use crate::output::terminal_text::fact;
use ddss::Client;
use ddssd::OfflineNode;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// What there is of segments.
#[derive(Default)]
struct Held {
    count: usize,
    bytes: u64,
    locks: usize,
}

impl Held {
    /// Those at home on the client's own node.
    fn at_home(client: &Client) -> Result<Self, CommandError> {
        let mut held = Self::default();
        for listing in client.list("")? {
            let listing = listing?;
            if listing.home == client.node() {
                held.count += 1;
                held.bytes += listing.facts.bytes;
                held.locks += usize::from(listing.holders > 0);
            }
        }
        Ok(held)
    }

    fn left(remains: &OfflineNode) -> Self {
        let bytes = remains.segments.iter().map(|remain| remain.record.spec.bytes).sum();
        Self { count: remains.segments.len(), bytes, locks: 0 }
    }

    fn as_json(&self) -> Value {
        json!({ "count": self.count, "bytes": self.bytes, "locked": self.locks })
    }
}

pub(crate) fn run(place: &Place, json: bool) -> Result<(), CommandError> {
    match connect(place) {
        Ok(client) => alive(&client, place, json),
        Err(error) => {
            let folder = place.folder();
            let (remains, error) = offline::after(error, place)?;
            dead(&remains, &folder, json);
            Err(error)
        }
    }
}

fn alive(client: &Client, place: &Place, json: bool) -> Result<(), CommandError> {
    client.ping()?;
    let begin = Instant::now();
    client.ping()?;
    let micros = begin.elapsed().as_secs_f64() * 1e6;
    let held = Held::at_home(client)?;
    let folder = place.folder();
    let cluster = cluster::look(place);
    if json {
        let cluster = cluster.ok().map(|seen| {
            let (alive, voters) = (seen.alive(), seen.voters());
            json!({ "leader": seen.leader, "nodes": seen.nodes.len(), "alive": alive, "voters": voters,
                "names": seen.names, "majority": seen.majority })
        });
        println!(
            "{}",
            json!({ "daemon": "alive", "node": client.node().0, "folder": folder, "round_trip_us": micros,
                "planes": client.shard_count(), "segments": held.as_json(), "cluster": cluster })
        );
        return Ok(());
    }
    fact("daemon", format_args!("alive: {} answered in {micros:.1} µs ({})", client.node(), client.strategy()));
    if client.shard_count() > 1 {
        fact("threads", format_args!("{}: segments are shared out among them by their names", client.shard_count()));
    }
    fact("folder", folder.display());
    fact(
        "segments",
        format_args!("{} at home here, {}; {} locked", held.count, bytes_in_words(held.bytes), held.locks),
    );
    match cluster {
        Ok(seen) => fact("cluster", seen.in_words()),
        Err(CommandError::Alone { .. }) => fact("cluster", "none: this node is alone"),
        Err(error) => fact("cluster", ddssd::format_error_chain(&error)),
    }
    Ok(())
}

fn dead(remains: &OfflineNode, folder: &Path, json: bool) {
    let held = Held::left(remains);
    if json {
        let (node, segments) = (remains.node.0, held.as_json());
        println!(
            "{}",
            json!({ "daemon": "dead", "node": node, "folder": folder, "round_trip_us": null, "planes": null, "segments": segments,
                "cluster": null })
        );
        return;
    }
    fact("daemon", format_args!("dead: {} does not run", remains.node));
    fact("folder", folder.display());
    fact("segments", format_args!("{} left, {}", held.count, bytes_in_words(held.bytes)));
    fact("next", format_args!("ddssd --dir {}", folder.display()));
}
