//! The page on which a daemon shows what it does. It outlives its daemon, so whatever reads it works without one, too.

use crate::arguments::Place;
use crate::error::CommandError;
use crate::output::table::{seconds_in_words, time_in_words};
use crate::output::terminal_text::complain;
use ddss_core::status::Status;
use ddssd::Liveness;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A daemon's page, and how that daemon is.
pub(crate) struct Page {
    pub(crate) status: Status,
    pub(crate) life: Liveness,
}

/// All planes of the daemon as one.
pub(crate) fn read(place: &Place) -> Result<Page, CommandError> {
    let all = ddssd::read_all_statuses(&place.folder())?;
    let status = Status::sum(&all).expect("a daemon has at least one plane");
    let life = Liveness::of(&status);
    Ok(Page { status, life })
}

/// The page of each plane.
pub(crate) fn read_planes(place: &Place) -> Result<Vec<Status>, CommandError> {
    Ok(ddssd::read_all_statuses(&place.folder())?)
}

impl Page {
    /// Whether the daemon is gone, so that nothing on the page changes any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.life, Liveness::Stopped | Liveness::Dead)
    }

    /// One word.
    pub(crate) fn life_word(&self) -> &'static str {
        match self.life {
            Liveness::Starting => "starting",
            Liveness::Serving => "serving",
            Liveness::Silent(_) => "silent",
            Liveness::Stopped => "stopped",
            Liveness::Dead => "dead",
        }
    }

    /// Says of a daemon that runs and does nothing what the page shows of it.
    pub(crate) fn warn(&self) {
        let daemon = &self.status.daemon;
        if let Liveness::Silent(silent) = self.life {
            complain(&format!(
                "{} (process {}) gives no sign of life since {}: is it stopped?",
                daemon.node,
                daemon.pid,
                span_in_words(silent)
            ));
        }
    }

    /// An error after the page was shown, if it is of a daemon that does not run any more.
    pub(crate) fn verdict(&self) -> Result<(), CommandError> {
        let node = self.status.daemon.node;
        let last = time_in_words(self.status.daemon.heartbeat_us);
        let sentence = match self.life {
            Liveness::Starting | Liveness::Serving | Liveness::Silent(_) => return Ok(()),
            Liveness::Stopped => format!("{node} was stopped; this is what its page said last, at {last}"),
            Liveness::Dead => {
                format!("{node} is dead; this is what its page said last, at {last}: start it again with ddssd")
            }
        };
        Err(CommandError::NotServing(sentence))
    }

    /// Who it is and how it is, in one line.
    pub(crate) fn headline(&self) -> String {
        let daemon = &self.status.daemon;
        let core = daemon.core.map_or_else(|| "no core of its own".to_owned(), |core| format!("core {core}"));
        let planes = daemon.plane.count();
        let core = if planes == 1 { core } else { format!("{planes} progress threads, the first on {core}") };
        let end = if self.is_over() { Duration::from_micros(daemon.heartbeat_us) } else { now() };
        let up = span_in_words(end.saturating_sub(Duration::from_micros(daemon.started_us)));
        let ran = if self.is_over() { "ran" } else { "up" };
        let life = self.life_word();
        format!("{}  {life}  process {}  {core}  release {}  {ran} {up}", daemon.node, daemon.pid, daemon.release)
    }

    /// The same for scripts.
    pub(crate) fn as_json(&self) -> Value {
        let daemon = &self.status.daemon;
        json!({ "node": daemon.node.0, "life": self.life_word(), "pid": daemon.pid, "core": daemon.core,
            "release": daemon.release, "run": daemon.run, "started_us": daemon.started_us,
            "heartbeat_us": daemon.heartbeat_us })
    }
}

/// Since 1970 began.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A span of any length.
pub(crate) fn span_in_words(span: Duration) -> String {
    match span.as_secs() {
        0..60 => seconds_in_words(span.as_micros() as u32),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Nanoseconds as microseconds, for a table.
pub(crate) fn us_in_words(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e3))
}

/// The same for scripts.
pub(crate) fn us(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e3)
}

/// 1.2k, 3.4M: for rates.
pub(crate) fn count_in_words(count: f64) -> String {
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
    fn numbers_are_said_in_few_letters() {
        // If this broke, a column of the live view would push the others out of the terminal.
        assert_eq!(
            [0.0, 0.5, 7.0, 9_999.0, 12_345.0, 2.5e6, 7e9].map(count_in_words),
            ["0", "0.5", "7", "9999", "12.3k", "2.5M", "7.0G"]
        );
        assert_eq!(span_in_words(Duration::from_secs(3_661)), "1 h 1 min");
        assert_eq!(span_in_words(Duration::from_secs(59)), "59.0 s");
        assert_eq!(us_in_words(Some(1_234)), "1.23");
    }
}
