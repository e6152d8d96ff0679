//! Liveness and readiness of this daemon.

use ddss_core::status::{DaemonState, Gauge, Status};
use ddss_ipc::clock_ns;
use serde_json::json;
use std::time::Duration;

/// Longest silence of a healthy progress thread, which gives a sign of life each 50 ms.
const SILENT_MAX: Duration = Duration::from_secs(2);

/// Result of a check, and its reasons as one line of JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) is_good: bool,
    pub(super) text: String,
}

fn silence(status: &Status) -> Duration {
    Duration::from_nanos(clock_ns().saturating_sub(status.daemon.heartbeat_ns))
}

fn verdict(all: &[Status], what: &str, reasons: impl Fn(&Status, Duration) -> Vec<String>) -> Verdict {
    // One hanging thread makes the node unhealthy: it serves a part of all names. The text reports the worst shard.
    let all: Vec<(&Status, Duration)> = all.iter().map(|status| (status, silence(status))).collect();
    let all_reasons: Vec<String> = all
        .iter()
        .flat_map(|&(status, silent)| {
            let shard = status.daemon.shard;
            let identity = if shard.is_only() { String::new() } else { format!("shard {}: ", shard.index()) };
            reasons(status, silent).into_iter().map(move |reason| format!("{identity}{reason}"))
        })
        .collect();
    let bad = all.iter().find(|(status, silent)| !reasons(status, *silent).is_empty()).or(all.first());
    let silent = all.iter().map(|&(_, silent)| silent).max().unwrap_or_default();
    let state = match bad.map(|(status, _)| status.daemon.state) {
        Some(DaemonState::Starting) => "starting",
        Some(DaemonState::Serving) => "serving",
        Some(DaemonState::Stopping) => "stopping",
        Some(DaemonState::Stopped) => "stopped",
        _ => "unknown",
    };
    let node = all.first().map(|(status, _)| status.daemon.node.0);
    let is_good = all_reasons.is_empty();
    let silent_ms = silent.as_millis() as u64;
    let text = json!({ what: is_good, "node": node, "state": state, "silent_ms": silent_ms, "reasons": all_reasons });
    Verdict { is_good, text: format!("{text}\n") }
}

fn liveness_problems(status: &Status, silent: Duration) -> Vec<String> {
    let mut reasons = Vec::new();
    // A starting daemon restores segments, and no client waits for it yet.
    if silent > SILENT_MAX && status.daemon.state != DaemonState::Starting {
        reasons.push(format!("the progress thread has given no sign of life for {} ms", silent.as_millis()));
    }
    if status.daemon.state == DaemonState::Stopped {
        reasons.push("it has stopped".to_owned());
    }
    reasons
}

/// Checks that all shards are alive. A restart helps if they are not.
pub(super) fn health(all: &[Status]) -> Verdict {
    verdict(all, "healthy", liveness_problems)
}

/// Checks that clients are served and that names can be created.
pub(super) fn readiness(all: &[Status]) -> Verdict {
    verdict(all, "ready", |status, silent| {
        let mut reasons = liveness_problems(status, silent);
        if status.daemon.state == DaemonState::Starting {
            reasons.push("it restores the segments of the last daemon".to_owned());
        }
        if status.daemon.state == DaemonState::Stopping {
            reasons.push("it is stopping, and refuses new requests".to_owned());
        }
        if status.gauge(Gauge::Clustered) == 1 && status.gauge(Gauge::Leader) == 0 {
            reasons.push("no leader of the cluster is known: names cannot be claimed or released".to_owned());
        }
        if status.gauge(Gauge::Clustered) == 1 && status.gauge(Gauge::Majority) == 0 {
            reasons.push(
                "no majority of the cluster's voters is reachable, or this node has not received the directory: names cannot be claimed or released".to_owned(),
            );
        }
        reasons
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::Shard;
    use ddss_core::status::{IdentityWord, Layout};
    use std::slice::from_ref;

    fn status(state: DaemonState, heartbeat_ns: u64, gauges: &[(Gauge, u64)]) -> Status {
        let mut page = vec![0; Layout::BYTES];
        let mut set = |at: usize, word: u64| page[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        Layout::begin(&mut set);
        set(IdentityWord::State.at(), state.code());
        set(IdentityWord::HeartbeatNs.at(), heartbeat_ns);
        gauges.iter().for_each(|&(gauge, value)| set(Layout::gauge_at(gauge), value));
        Status::decode(&page).unwrap()
    }

    #[test]
    fn hanging_starting_and_leaderless_nodes_are_distinguished() {
        // If this broke, work would go to a dead node, or a starting node would be killed.
        let now = clock_ns();
        let (old, led) = (now - 3_000_000_000, (Gauge::Leader, 2));
        let (clustered, followed) = ((Gauge::Clustered, 1), (Gauge::Majority, 1));
        for (state, heartbeat, gauges, healthy, ready) in [
            (DaemonState::Serving, now, &[][..], true, true),
            (DaemonState::Serving, now, &[clustered, led, followed], true, true),
            (DaemonState::Serving, now, &[clustered, followed], true, false),
            (DaemonState::Serving, now, &[clustered, led], true, false),
            (DaemonState::Starting, old, &[], true, false),
            (DaemonState::Serving, old, &[], false, false),
            (DaemonState::Stopping, now, &[], true, false),
            (DaemonState::Stopped, now, &[], false, false),
        ] {
            let status = status(state, heartbeat, gauges);
            let found = (health(from_ref(&status)), readiness(from_ref(&status)));
            assert_eq!((found.0.is_good, found.1.is_good), (healthy, ready), "{state:?} {gauges:?}: {found:?}");
            let text: serde_json::Value = serde_json::from_str(&found.1.text).unwrap();
            assert_eq!(text["ready"], ready);
            assert_eq!(text["reasons"].as_array().unwrap().is_empty(), ready);
        }
    }
    #[test]
    fn one_hanging_shard_makes_node_unhealthy() {
        // If this broke, a node with half of its names dead would get all of its work.
        let now = clock_ns();
        let mut all = [status(DaemonState::Serving, now, &[]), status(DaemonState::Serving, now - 3_000_000_000, &[])];
        for (index, status) in (0..).zip(&mut all) {
            status.daemon.shard = Shard::new(index, 2).unwrap();
        }
        let verdict = health(&all);
        assert!(!verdict.is_good && verdict.text.contains("shard 1: the progress thread"), "{}", verdict.text);
        assert!(!verdict.text.contains("shard 0"), "{}", verdict.text);
        assert!(health(&all[..1]).is_good);
    }
}
