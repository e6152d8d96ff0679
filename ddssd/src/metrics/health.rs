//! Whether this daemon lives, and whether it should be sent work.

use ddss_core::status::{Gauge, State, Status};
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

fn verdict(status: &Status, what: &str, silent: Duration, reasons: &[String]) -> Verdict {
    let state = match status.daemon.state {
        State::Starting => "starting",
        State::Serving => "serving",
        State::Stopping => "stopping",
        State::Stopped => "stopped",
        _ => "unknown",
    };
    let good = reasons.is_empty();
    let node = status.daemon.node.0;
    let text =
        json!({ what: good, "node": node, "state": state, "silent_ms": silent.as_millis() as u64, "reasons": reasons });
    Verdict { good, text: format!("{text}\n") }
}

fn complaints(status: &Status, silent: Duration) -> Vec<String> {
    let mut reasons = Vec::new();
    // While it takes in what an older daemon left, nobody is served yet and nobody waits.
    if silent > SILENT_MAX && status.daemon.state != State::Starting {
        reasons.push(format!("the progress thread has given no sign of life for {} ms", silent.as_millis()));
    }
    if status.daemon.state == State::Stopped {
        reasons.push("it was told to stop".to_owned());
    }
    reasons
}

/// Whether it lives. If not, starting it anew helps.
pub(super) fn health(status: &Status) -> Verdict {
    let silent = silence(status);
    verdict(status, "healthy", silent, &complaints(status, silent))
}

/// Whether clients are served, and names can be made.
pub(super) fn readiness(status: &Status) -> Verdict {
    let silent = silence(status);
    let mut reasons = complaints(status, silent);
    if status.daemon.state == State::Starting {
        reasons.push("it takes in what the last daemon left".to_owned());
    }
    if status.daemon.state == State::Stopping {
        reasons.push("it was told to stop, and takes nothing new".to_owned());
    }
    if status.gauge(Gauge::Clustered) == 1 && status.gauge(Gauge::Leader) == 0 {
        reasons.push("the cluster has no leader that this node knows: no name is made or given back".to_owned());
    }
    verdict(status, "ready", silent, &reasons)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::status::{IdentityWord, Layout};

    fn status(state: State, heartbeat_ns: u64, gauges: &[(Gauge, u64)]) -> Status {
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
        let clustered = (Gauge::Clustered, 1);
        for (state, heartbeat, gauges, healthy, ready) in [
            (State::Serving, now, &[][..], true, true),
            (State::Serving, now, &[clustered, led], true, true),
            (State::Serving, now, &[clustered], true, false),
            (State::Starting, old, &[], true, false),
            (State::Serving, old, &[], false, false),
            (State::Stopping, now, &[], true, false),
            (State::Stopped, now, &[], false, false),
        ] {
            let status = status(state, heartbeat, gauges);
            let found = (health(&status), readiness(&status));
            assert_eq!((found.0.good, found.1.good), (healthy, ready), "{state:?} {gauges:?}: {found:?}");
            let text: serde_json::Value = serde_json::from_str(&found.1.text).unwrap();
            assert_eq!(text["ready"], ready);
            assert_eq!(text["reasons"].as_array().unwrap().is_empty(), ready);
        }
    }
}
