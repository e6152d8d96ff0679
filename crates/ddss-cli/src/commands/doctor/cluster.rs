//! Checks of the cluster: what a death would cost now.

use super::finding::{CheckResult, Finding, finding};
use super::memory_file_systems::is_in_memory;
use crate::arguments::DaemonOptions;
use crate::commands::cluster;
use crate::connect::connect;
use crate::error::CommandError;
use ddss::ReplicationInfo;
use ddss_admin::ClusterKey;

/// Checks the other nodes, the copies of segments, and the state directory. A node without a cluster has none of them.
pub(super) fn checks(options: &DaemonOptions) -> Vec<Finding> {
    let seen = match cluster::fetch(options) {
        Ok(seen) => seen,
        Err(CommandError::NoCluster { .. } | CommandError::Client(_)) => return Vec::new(),
        Err(error) => {
            let advice =
                "run it as the daemon's user or as root; if it is, the daemon's log says why it does not answer";
            return vec![finding("cluster", CheckResult::Bad, ddss_admin::format_error_chain(&error), advice)];
        }
    };
    let mut findings = vec![nodes(&seen), clock(&seen), copies(options)];
    findings.extend(state_directory(options));
    findings
}

fn nodes(seen: &cluster::ClusterView) -> Finding {
    let dead = seen.nodes.iter().filter(|report| !report.alive).map(|report| report.node.to_string());
    let dead = dead.collect::<Vec<_>>().join(", ");
    if !seen.majority {
        let advice = "start the daemons of the other voters: until then no segment can be allocated or released";
        return finding("cluster", CheckResult::Bad, "no majority of the voters is reachable", advice);
    }
    let state = if dead.is_empty() { CheckResult::Good } else { CheckResult::Bad };
    let found = match dead.as_str() {
        "" => seen.describe(),
        dead => format!("dead: node {dead}"),
    };
    finding("cluster", state, found, "start its daemon, or take it out for good: ddss cluster remove NODE")
}

/// Checks that timestamps and expiries of this node agree with those of the others.
fn clock(seen: &cluster::ClusterView) -> Finding {
    /// Longest harmless distance from the leader's clock, in microseconds.
    const AHEAD_US_MAX: u64 = 1_000_000;
    let micros = seen.clock_ahead_us;
    let state = if micros.unsigned_abs() > AHEAD_US_MAX { CheckResult::Bad } else { CheckResult::Good };
    let way = if micros < 0 { "behind" } else { "ahead of" };
    let found = format!("{:.3} s {way} the leader's", micros.unsigned_abs() as f64 / 1e6);
    finding(
        "clock",
        state,
        found,
        "start a time service (chrony, systemd-timesyncd): keys of maps expire at the wrong time",
    )
}

/// Checks that each segment of two copies has both.
fn copies(options: &DaemonOptions) -> Finding {
    let listed = connect(options).and_then(|client| Ok(client.list("").collect::<Result<Vec<_>, _>>()?));
    let listed = match listed {
        Ok(listed) => listed,
        Err(error) => {
            let found = ddss_admin::format_error_chain(&error);
            return finding(
                "replicas",
                CheckResult::Bad,
                found,
                "the segments of all nodes cannot be listed: run it again",
            );
        }
    };
    let with_copies = listed.iter().filter(|listing| listing.copies > 1).count();
    let lacks = |state| !matches!(state, ReplicationInfo::None | ReplicationInfo::InSync);
    let names = listed.iter().filter(|listing| lacks(listing.replication)).map(|listing| listing.name.as_str());
    let names: Vec<&str> = names.collect();
    let Some(first) = names.first() else {
        return finding("replicas", CheckResult::Good, format!("{with_copies} segments have a replica"), "");
    };
    let found = format!("{} of {with_copies} segments have one copy now, such as {first}", names.len());
    let advice = format!("the death of their home would lose them: ddss stat {first} says why");
    finding("replicas", CheckResult::Bad, found, &advice)
}

/// Checks that the cluster's decisions and this node's identity survive a reboot.
fn state_directory(options: &DaemonOptions) -> Option<Finding> {
    let folder = cluster::state_folder(None, options);
    // A daemon with another --state-dir, or of another user, is not judged by this one.
    if !folder.join(ClusterKey::FILE_NAME).exists() {
        return None;
    }
    let state = if is_in_memory(&folder)? { CheckResult::Bad } else { CheckResult::Good };
    let advice = "it is gone after a reboot, and the node with it: choose a --state-dir on a disk";
    let kind = if state == CheckResult::Bad { "in memory" } else { "on a disk" };
    Some(finding("state directory", state, format!("{} is {kind}", folder.display()), advice))
}
