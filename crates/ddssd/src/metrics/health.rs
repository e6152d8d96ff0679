//! Whether this daemon lives, and whether it should be sent work.

use ddss_core::status::{DaemonState, Gauge, Status};
use ddss_ipc::clock_ns;
use serde_json::json;
use std::time::Duration;

/// The progress thread gives a sign of life each 50 ms. After so long without one it hangs, or gets no time.
const SILENT_MAX: Duration = Duration::from_secs(2);

/// What is answered: whether it is so, and why (not), as one line of JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) good: bool,
    pub(super) text: String,
}

fn silence(status: &Status) -> Duration {
    Duration::from_nanos(clock_ns().saturating_sub(status.daemon.heartbeat_ns))
}

fn verdict(all: &[Status], what: &str, reasons: impl Fn(&Status, Duration) -> Vec<String>) -> Verdict {
    // One thread that hangs is enough: a part of all names is on it. What is told is how the worst of them is.
    let all: Vec<(&Status, Duration)> = all.iter().map(|status| (status, silence(status))).collect();
    let all_reasons: Vec<String> = all
        .iter()
        .flat_map(|&(status, silent)| {
            let plane = status.daemon.plane;
            let whose = if plane.is_only() { String::new() } else { format!("plane {}: ", plane.index()) };
            reasons(status, silent).into_iter().map(move |reason| format!("{whose}{reason}"))
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
    let good = all_reasons.is_empty();
    let silent_ms = silent.as_millis() as u64;
    let text = json!({ what: good, "node": node, "state": state, "silent_ms": silent_ms, "reasons": all_reasons });
    Verdict { good, text: format!("{text}\n") }
}

fn complaints(status: &Status, silent: Duration) -> Vec<String> {
    let mut reasons = Vec::new();
    // While it takes in what an older daemon left, nobody is served yet and nobody waits.
    if silent > SILENT_MAX && status.daemon.state != DaemonState::Starting {
        reasons.push(format!("the progress thread has given no sign of life for {} ms", silent.as_millis()));
    }
    if status.daemon.state == DaemonState::Stopped {
        reasons.push("it was told to stop".to_owned());
    }
    reasons
}

/// Whether it lives, with all its planes. If not, starting it anew helps.
pub(super) fn health(all: &[Status]) -> Verdict {
    verdict(all, "healthy", complaints)
}

/// Whether clients are served, and names can be made.
pub(super) fn readiness(all: &[Status]) -> Verdict {
    verdict(all, "ready", |status, silent| {
        let mut reasons = complaints(status, silent);
        if status.daemon.state == DaemonState::Starting {
            reasons.push("it takes in what the last daemon left".to_owned());
        }
        if status.daemon.state == DaemonState::Stopping {
            reasons.push("it was told to stop, and takes nothing new".to_owned());
        }
        if status.gauge(Gauge::Clustered) == 1 && status.gauge(Gauge::Leader) == 0 {
            reasons.push("the cluster has no leader that this node knows: no name is made or given back".to_owned());
        }
        if status.gauge(Gauge::Clustered) == 1 && status.gauge(Gauge::Majority) == 0 {
            reasons
                .push("no majority of the cluster's voters can be reached: no name is made or given back".to_owned());
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
    fn a_node_that_hangs_starts_or_has_no_leader_is_told_from_a_good_one() {
        // If this broke, work would be sent to a node that does none, or a node that only starts would be killed.
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
            assert_eq!((found.0.good, found.1.good), (healthy, ready), "{state:?} {gauges:?}: {found:?}");
            let text: serde_json::Value = serde_json::from_str(&found.1.text).unwrap();
            assert_eq!(text["ready"], ready);
            assert_eq!(text["reasons"].as_array().unwrap().is_empty(), ready);
        }
    }
    #[test]
    fn one_plane_that_hangs_is_a_node_that_does() {
        // If this broke, a node of which half the names are dead would get all of its work.
        let now = clock_ns();
        let mut all = [status(DaemonState::Serving, now, &[]), status(DaemonState::Serving, now - 3_000_000_000, &[])];
        for (index, status) in (0..).zip(&mut all) {
            status.daemon.plane = Shard::new(index, 2).unwrap();
        }
        let verdict = health(&all);
        assert!(!verdict.good && verdict.text.contains("plane 1: the progress thread"), "{}", verdict.text);
        assert!(!verdict.text.contains("plane 0"), "{}", verdict.text);
        assert!(health(&all[..1]).good);
    }
}
