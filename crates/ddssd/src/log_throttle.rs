//! Rate limit of repeated log lines.
//!
//! A lasting condition, such as an absent member, logs the same line again and again. Without a limit such lines fill
//! the log's disk, and each one costs its thread a system call. [`LogThrottle`] passes the first lines of each kind
//! and then one a second; [`LogThrottle::report`] writes the number of suppressed lines.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines of one kind that pass at once.
const BURST: u32 = 10;
/// Time that allows one more line of a kind.
const SPAN: Duration = Duration::from_secs(1);
/// Kinds that are counted by node; beyond this number the lines of a callsite count together.
const KINDS_MAX: usize = 4096;
/// Characters of the sample that stands for all suppressed lines of a kind.
const SAMPLE_CHARS_MAX: usize = 120;

/// Lines that count together: the repetitions of one condition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum LineKind {
    /// The Raft library: one condition makes many of its parts complain.
    Openraft,
    /// One callsite, for each node that its lines name; 0 for lines without a node.
    Line { callsite: Identifier, node: u64 },
}

/// Token bucket of one kind, and its suppressed lines.
#[derive(Debug)]
struct LineBudget {
    tokens: u32,
    refilled: Instant,
    suppressed: u64,
    /// First suppressed line since the last report.
    sample: String,
}

impl LineBudget {
    fn new(now: Instant) -> Self {
        Self { tokens: BURST, refilled: now, suppressed: 0, sample: String::new() }
    }

    /// Takes a token, or counts the line as suppressed. Returns true if the line may be written.
    fn try_take(&mut self, now: Instant) -> bool {
        let spans = now.saturating_duration_since(self.refilled).as_secs() / SPAN.as_secs();
        if spans > 0 {
            self.tokens = u32::try_from(spans).map_or(BURST, |spans| self.tokens.saturating_add(spans).min(BURST));
            self.refilled = now;
        }
        if self.tokens == 0 {
            self.suppressed += 1;
            return false;
        }
        self.tokens -= 1;
        true
    }
}

/// A layer that suppresses lines of a kind that comes too often. All debug and trace lines pass: an operator who sets
/// such a level wants them. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct LogThrottle(Arc<Mutex<HashMap<LineKind, LineBudget>>>);

impl LogThrottle {
    /// Interval between two calls of [`report`](Self::report).
    pub const REPORT_EVERY: Duration = Duration::from_secs(10);

    fn lines(&self) -> MutexGuard<'_, HashMap<LineKind, LineBudget>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line for each kind with suppressed lines since the last report.
    pub fn report(&self) {
        let take = |lines: &mut LineBudget| (std::mem::take(&mut lines.suppressed), std::mem::take(&mut lines.sample));
        let all: Vec<_> = self.lines().values_mut().filter(|lines| lines.suppressed > 0).map(take).collect();
        for (suppressed, sample) in all {
            tracing::warn!(suppressed, sample, "suppressed repeated log lines");
        }
    }

    fn passes(&self, event: &Event<'_>) -> bool {
        let mut field = NodeField::default();
        event.record(&mut field);
        let (metadata, node) = (event.metadata(), field.node);
        let is_first = {
            let mut all = self.lines();
            let node = if all.len() < KINDS_MAX { node } else { 0 };
            let (kind, now) = (line_kind(metadata, node), Instant::now());
            let lines = all.entry(kind).or_insert_with(|| LineBudget::new(now));
            if lines.try_take(now) {
                return true;
            }
            lines.suppressed == 1
        };
        if is_first {
            // Format the text without the lock: the formatting code may log itself.
            let mut words = Message(String::new());
            event.record(&mut words);
            let sample = words.0.chars().take(SAMPLE_CHARS_MAX).collect();
            let kind = line_kind(metadata, node);
            if let Some(lines) = self.lines().get_mut(&kind) {
                lines.sample = sample;
            }
        }
        false
    }
}

impl<S: Subscriber> Layer<S> for LogThrottle {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        *metadata.level() > Level::INFO || metadata.target() == module_path!() || self.passes(event)
    }
}

fn line_kind(metadata: &Metadata<'_>, node: u64) -> LineKind {
    match metadata.target().split("::").next() {
        Some("openraft") => LineKind::Openraft,
        _ => LineKind::Line { callsite: metadata.callsite(), node },
    }
}

/// Node number in the fields of a line.
#[derive(Default)]
struct NodeField {
    node: u64,
}

impl Visit for NodeField {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "node" {
            self.node = value;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

/// Text of a line.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    /// Collects the lines that pass.
    #[derive(Clone, Default)]
    struct Passed(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Passed {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut words = Message(String::new());
            event.record(&mut words);
            self.0.lock().unwrap().push(words.0);
        }
    }

    fn passed(log: impl FnOnce(&LogThrottle)) -> Vec<String> {
        let (rate, passed) = (LogThrottle::default(), Passed::default());
        let subscriber = tracing_subscriber::registry().with(rate.clone()).with(passed.clone());
        tracing::subscriber::with_default(subscriber, || log(&rate));
        let lines = passed.0.lock().unwrap();
        lines.clone()
    }

    fn count(lines: &[String], words: &str) -> usize {
        lines.iter().filter(|line| line.contains(words)).count()
    }

    #[test]
    fn line_kind_has_burst_then_one_line_a_second() {
        // If this broke, an unauthenticated peer or an absent member could fill the log's disk.
        let begin = Instant::now();
        let mut lines = LineBudget::new(begin);
        let burst = (0..1000).filter(|_| lines.try_take(begin)).count();
        assert_eq!((burst, lines.suppressed), (10, 990));
        assert!(!lines.try_take(begin + SPAN / 2));
        let minute =
            (1..=60).flat_map(|second| [begin + SPAN * second; 100]).filter(|&now| lines.try_take(now)).count();
        assert_eq!(minute, 60);
        let later = begin + SPAN * 1000;
        assert_eq!((0..1000).filter(|_| lines.try_take(later)).count(), 10, "a condition that is new is told as such");
    }

    #[test]
    fn suppressed_lines_are_counted_and_other_nodes_and_levels_pass() {
        // If this broke, one flapping node would hide the log lines of the others.
        let lines = passed(|rate| {
            let away = |node: u64| tracing::warn!(node, "node {node} is away");
            (0..1000).for_each(|_| away(2));
            away(3);
            (0..100).for_each(|_| tracing::debug!("all of these are asked for"));
            rate.report();
            rate.report();
        });
        assert!(count(&lines, "node 2 is away") < 500, "{lines:?}");
        assert_eq!(count(&lines, "node 3 is away"), 1);
        assert_eq!(count(&lines, "all of these"), 100);
        assert_eq!(count(&lines, "suppressed repeated"), 1, "what was reported is not reported again");
    }

    #[test]
    fn raft_library_counts_as_one_kind() {
        // If this broke, a dead member would cost a line a second for each part of the library.
        let lines = passed(|_| {
            for _ in 0..500 {
                tracing::error!(target: "openraft::replication", "cannot send");
                tracing::error!(target: "openraft::core::raft_core", "timeout");
            }
        });
        assert!(lines.len() < 500, "{}", lines.len());
    }
}
