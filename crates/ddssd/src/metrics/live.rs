//! The live page of a node: what a browser shows, renewed each second.

use super::health::{health, readiness};
use ddss_admin::Release;
use ddss_admin::storage::{Registry, shard_folder};
use ddss_core::SegmentId;
use ddss_core::status::{Counter, Gauge, Kind, SegmentRow, Status, Step};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// The page: its style and its program are in it.
pub(super) const PAGE: &str = include_str!("live.html");
/// Place in the page of what is shown before the first event comes.
pub(super) const FIRST_EVENT: &str = "{\"first\":null}";
/// Permissions of the page: its own program, and events of this server.
pub(super) const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'";
/// Time between two events.
pub(super) const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a browser gets events in one connection. It then asks again.
pub(super) const EVENTS_MAX: Duration = Duration::from_secs(600);
/// Number of the busiest segments that are shown.
const SEGMENTS_SHOWN: usize = 12;

/// Gauges that are shown, summed over all shards.
const GAUGES: [Gauge; 16] = [
    Gauge::Clients,
    Gauge::Segments,
    Gauge::PoolBytes,
    Gauge::PoolBytesUsed,
    Gauge::FileBytes,
    Gauge::FileBytesUsed,
    Gauge::UnderWay,
    Gauge::LockHolders,
    Gauge::LockWaiters,
    Gauge::ParkedWaits,
    Gauge::ReplicasInSync,
    Gauge::ReplicasCopying,
    Gauge::ReplicasDegraded,
    Gauge::ReplicasUnsure,
    Gauge::Members,
    Gauge::Names,
];

/// Pages of all shards, with the time at which they were copied.
pub(super) struct Moment<'a> {
    pub(super) at: Instant,
    pub(super) all: &'a [Status],
}

/// Returns one event: what happened between two moments, and what is now. `memory_folder` is `None` where names of segments
/// may not be shown.
pub(super) fn event(older: &Moment<'_>, newer: &Moment<'_>, memory_folder: Option<&Path>) -> Option<Value> {
    let (before, now) = (Status::sum(older.all)?, Status::sum(newer.all)?);
    let seconds = newer.at.duration_since(older.at).as_secs_f64();
    let rate = |older: u64, newer: u64| {
        let grown = newer.saturating_sub(older) as f64;
        if seconds > 0.0 { (grown / seconds).round() } else { 0.0 }
    };
    let gauges: BTreeMap<&str, u64> = GAUGES.iter().map(|&gauge| (gauge.name(), now.gauge(gauge))).collect();
    let operations: Vec<Value> = Kind::ALL.iter().filter_map(|&kind| operation(kind, &before, &now, &rate)).collect();
    let (healthy, ready) = (health(newer.all), readiness(newer.all));
    let daemon = &now.daemon;
    Some(json!({
        "node": daemon.node.0,
        "release": daemon.release,
        "commit": Release::COMMIT,
        "started_us": daemon.started_us,
        "healthy": healthy.is_good,
        "ready": ready.is_good,
        "why": serde_json::from_str::<Value>(&ready.text).unwrap_or_default(),
        "cluster": (now.gauge(Gauge::Clustered) == 1).then(|| json!({
            "leader": now.gauge(Gauge::Leader),
            "majority": now.gauge(Gauge::Majority) == 1,
            "members": now.gauge(Gauge::Members),
        })),
        "gauges": gauges,
        "operations": operations,
        "shards": older.all.iter().zip(newer.all).map(|(before, now)| shard(before, now, &rate)).collect::<Vec<_>>(),
        "peers": now.peers.iter().map(|peer| json!({
            "node": peer.node.0,
            "address": peer.address.to_string(),
            "connected": peer.connected,
            "waiting": peer.waiting,
        })).collect::<Vec<_>>(),
        "segments": segments(&before, &now, &rate, memory_folder),
    }))
}

/// Returns the rate and the latency of one kind of request, if there was any.
fn operation(kind: Kind, before: &Status, now: &Status, rate: &impl Fn(u64, u64) -> f64) -> Option<Value> {
    let (count, earlier) = (now.operation(kind), before.operation(kind));
    if count.ended() == 0 {
        return None;
    }
    let total = now.histogram_of(kind, Step::Total).since(&before.histogram_of(kind, Step::Total));
    Some(json!({
        "kind": kind.name(),
        "per_s": rate(earlier.ended(), count.ended()),
        "bytes_per_s": rate(earlier.bytes, count.bytes),
        "failed": count.failed,
        "indeterminate": count.indeterminate,
        "p50_ns": total.percentile_ns(0.5),
        "p99_ns": total.percentile_ns(0.99),
    }))
}

fn shard(before: &Status, now: &Status, rate: &impl Fn(u64, u64) -> f64) -> Value {
    json!({
        "shard": now.daemon.shard.index(),
        "core": now.daemon.core,
        "clients": now.gauge(Gauge::Clients),
        "segments": now.gauge(Gauge::Segments),
        "per_s": rate(before.operations().ended(), now.operations().ended()),
        "parks_per_s": rate(before.counter(Counter::Parks), now.counter(Counter::Parks)),
        "latency_ns": now.gauge(Gauge::LatencyNs),
    })
}

/// Returns the busiest segments between two moments, the busiest first.
fn segments(
    before: &Status,
    now: &Status,
    rate: &impl Fn(u64, u64) -> f64,
    memory_folder: Option<&Path>,
) -> Vec<Value> {
    let earlier: BTreeMap<SegmentId, &SegmentRow> = before.segments.iter().map(|row| (row.segment, row)).collect();
    // A segment that had no row before has got all of its calls meanwhile, or its row again.
    let calls = |row: &SegmentRow| {
        let earlier = earlier.get(&row.segment).map_or(row.calls(), |earlier| earlier.calls());
        row.calls().saturating_sub(earlier)
    };
    let mut busiest: Vec<&SegmentRow> = now.segments.iter().collect();
    busiest.sort_by_key(|row| (std::cmp::Reverse(calls(row)), std::cmp::Reverse(row.calls()), row.segment));
    busiest.truncate(SEGMENTS_SHOWN);
    let names = memory_folder.map(|folder| names(folder, now, &busiest)).unwrap_or_default();
    let row = |row: &&SegmentRow| {
        json!({
            "id": row.segment.to_string(),
            "home": row.segment.home().0,
            "name": names.get(&row.segment),
            "per_s": rate(0, calls(row)),
            "gets": row.gets,
            "puts": row.puts,
            "others": row.others,
        })
    };
    busiest.iter().map(row).collect()
}

/// Returns the names of segments whose home is this node and whose bytes are in memory.
fn names(memory_folder: &Path, now: &Status, rows: &[&SegmentRow]) -> BTreeMap<SegmentId, String> {
    let registries: Vec<Registry> = (0..now.daemon.shard.count())
        .filter_map(|shard| Registry::open_existing(&shard_folder(memory_folder, shard).join(Registry::FILE_NAME)).ok())
        .collect();
    let name = |row: &&SegmentRow| {
        let found = registries.iter().find_map(|registry| registry.record_of(row.segment))?;
        Some((row.segment, found.name.as_str().to_owned()))
    };
    rows.iter().filter(|row| row.segment.home() == now.daemon.node).filter_map(name).collect()
}
