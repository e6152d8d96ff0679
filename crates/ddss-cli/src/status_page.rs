//! The status page of a daemon: a shared mapping of its counters. It outlives the daemon, so it can be read afterwards.

use crate::arguments::DaemonOptions;
use crate::error::CommandError;
use crate::output::table::{format_micros, format_timestamp};
use crate::output::terminal_text::print_warning;
use ddss_admin::Liveness;
use ddss_core::status::Status;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Status page of a daemon, and whether that daemon still runs.
pub(crate) struct StatusPage {
    pub(crate) status: Status,
    pub(crate) life: Liveness,
}

/// Reads the status of all shards of the daemon, added up.
pub(crate) fn read(place: &DaemonOptions) -> Result<StatusPage, CommandError> {
    let all = ddss_admin::read_all_statuses(&place.folder())?;
    let status = Status::sum(&all).expect("a daemon has at least one shard");
    let life = Liveness::of(&status);
    Ok(StatusPage { status, life })
}

/// Reads the status of each shard.
pub(crate) fn read_shards(place: &DaemonOptions) -> Result<Vec<Status>, CommandError> {
    Ok(ddss_admin::read_all_statuses(&place.folder())?)
}

impl StatusPage {
    /// Returns true if the daemon has ended, so that the page changes no more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.life, Liveness::Stopped | Liveness::Dead)
    }

    /// Returns the state of the daemon as one word.
    pub(crate) fn life_name(&self) -> &'static str {
        match self.life {
            Liveness::Starting => "starting",
            Liveness::Serving => "serving",
            Liveness::Silent(_) => "silent",
            Liveness::Stopped => "stopped",
            Liveness::Dead => "dead",
        }
    }

    /// Warns if the daemon's process exists without a recent heartbeat.
    pub(crate) fn warn(&self) {
        let daemon = &self.status.daemon;
        if let Liveness::Silent(silent) = self.life {
            print_warning(&format!(
                "{} (process {}) has sent no heartbeat for {}: check whether the process is stopped",
                daemon.node,
                daemon.pid,
                format_duration(silent)
            ));
        }
    }

    /// Returns an error if the daemon does not run. Commands call it after they have printed the page.
    pub(crate) fn require_running(&self) -> Result<(), CommandError> {
        let node = self.status.daemon.node;
        let last = format_timestamp(self.status.daemon.heartbeat_us);
        let sentence = match self.life {
            Liveness::Starting | Liveness::Serving | Liveness::Silent(_) => return Ok(()),
            Liveness::Stopped => format!("{node} was stopped; this is its last status, of {last}"),
            Liveness::Dead => {
                format!("{node} is dead; this is its last status, of {last}: restart it with ddssd")
            }
        };
        Err(CommandError::DaemonEnded(sentence))
    }

    /// Formats the identity and the state of the daemon as one line.
    pub(crate) fn headline(&self) -> String {
        let daemon = &self.status.daemon;
        let core = daemon.core.map_or_else(|| "not pinned to a core".to_owned(), |core| format!("core {core}"));
        let shards = daemon.shard.count();
        let core = if shards == 1 { core } else { format!("{shards} progress threads, the first on {core}") };
        let end = if self.has_ended() { Duration::from_micros(daemon.heartbeat_us) } else { now() };
        let up = format_duration(end.saturating_sub(Duration::from_micros(daemon.started_us)));
        let ran = if self.has_ended() { "ran" } else { "up" };
        let life = self.life_name();
        format!("{}  {life}  process {}  {core}  release {}  {ran} {up}", daemon.node, daemon.pid, daemon.release)
    }

    /// Formats the identity and the state of the daemon as JSON.
    pub(crate) fn as_json(&self) -> Value {
        let daemon = &self.status.daemon;
        json!({ "node": daemon.node.0, "life": self.life_name(), "pid": daemon.pid, "core": daemon.core,
            "release": daemon.release, "run": daemon.run, "started_us": daemon.started_us,
            "heartbeat_us": daemon.heartbeat_us })
    }
}

/// Returns the time since the Unix epoch.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Formats a duration of any length.
pub(crate) fn format_duration(span: Duration) -> String {
    match span.as_secs() {
        0..60 => format_micros(span.as_micros() as u32),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Formats nanoseconds as microseconds for a table.
pub(crate) fn format_us(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e3))
}

/// Converts nanoseconds to microseconds for JSON.
pub(crate) fn us(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e3)
}

/// Formats a count with an SI suffix (`1.2k`, `3.4M`).
pub(crate) fn format_count(count: f64) -> String {
    match count {
        ..10.0 if count.fract() > 0.05 => format!("{count:.1}"),
        ..10_000.0 => format!("{count:.0}"),
        ..1e6 => format!("{:.1}k", count / 1e3),
        ..1e9 => format!("{:.1}M", count / 1e6),
        _ => format!("{:.1}G", count / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_in_few_characters() {
        // A long number would push the other columns out of the terminal.
        assert_eq!(
            [0.0, 0.5, 7.0, 9_999.0, 12_345.0, 2.5e6, 7e9].map(format_count),
            ["0", "0.5", "7", "9999", "12.3k", "2.5M", "7.0G"]
        );
        assert_eq!(format_duration(Duration::from_secs(3_661)), "1 h 1 min");
        assert_eq!(format_duration(Duration::from_secs(59)), "59.0 s");
        assert_eq!(format_us(Some(1_234)), "1.23");
    }
}
