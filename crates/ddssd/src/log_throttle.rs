//! How often the daemon repeats itself in its log.
//!
//! A condition that lasts, such as a member that is away, asks for the same line again and again. Unbounded, such lines fill the disk
//! of the log, and each is a system call of the thread that writes it. [`LogThrottle`] passes the first lines of each kind and then one a
//! second; [`LogThrottle::report`] writes how many it left out.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines of one kind that may be written at once.
const BURST: u32 = 10;
/// The time that allows one more line of a kind.
const SPAN: Duration = Duration::from_secs(1);
/// Kinds of which the daemon keeps count by node; the lines of a callsite behind that count together.
const KINDS_MAX: usize = 4096;
/// Characters of a line that stand for all that were left out.
const LIKE_MAX: usize = 120;

/// Lines that count together: all that one condition repeats.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Kind {
    /// The library of the group: one condition makes many of its parts complain.
    Openraft,
    /// One place in the code, for each node that its lines name; 0 for those that name none.
    Line { callsite: Identifier, node: u64 },
}

/// What was written of one kind, as a bucket of tokens, and what was not.
#[derive(Debug)]
struct Lines {
    tokens: u32,
    refilled: Instant,
    left_out: u64,
    /// The first line that was left out.
    like: String,
}

impl Lines {
    fn new(now: Instant) -> Self {
        Self { tokens: BURST, refilled: now, left_out: 0, like: String::new() }
    }

    /// Whether one more line may be written.
    fn may(&mut self, now: Instant) -> bool {
        let spans = now.saturating_duration_since(self.refilled).as_secs() / SPAN.as_secs();
        if spans > 0 {
            self.tokens = u32::try_from(spans).map_or(BURST, |spans| self.tokens.saturating_add(spans).min(BURST));
            self.refilled = now;
        }
        if self.tokens == 0 {
            self.left_out += 1;
            return false;
        }
        self.tokens -= 1;
        true
    }
}

/// A layer that leaves out lines of a kind that comes too often. Lines of the levels debug and trace all pass: an operator who
/// sets such a level asks for them. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct LogThrottle(Arc<Mutex<HashMap<Kind, Lines>>>);

impl LogThrottle {
    /// How often [`report`](Self::report) is to be called.
    pub const REPORT_EVERY: Duration = Duration::from_secs(10);

    fn lines(&self) -> MutexGuard<'_, HashMap<Kind, Lines>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line for each kind of which lines were left out since the last report.
    pub fn report(&self) {
        let take = |lines: &mut Lines| (std::mem::take(&mut lines.left_out), std::mem::take(&mut lines.like));
        let all: Vec<_> = self.lines().values_mut().filter(|lines| lines.left_out > 0).map(take).collect();
        for (left_out, like) in all {
            tracing::warn!(left_out, like, "left out lines of the log");
        }
    }

    fn passes(&self, event: &Event<'_>) -> bool {
        let mut field = NodeField::default();
        event.record(&mut field);
        let (metadata, node) = (event.metadata(), field.node);
        let is_first = {
            let mut all = self.lines();
            let node = if all.len() < KINDS_MAX { node } else { 0 };
            let (kind, now) = (kind(metadata, node), Instant::now());
            let lines = all.entry(kind).or_insert_with(|| Lines::new(now));
            if lines.may(now) {
                return true;
            }
            lines.left_out == 1
        };
        if is_first {
            // Its words are made without the lock: the code that makes them may log itself.
            let mut words = Message(String::new());
            event.record(&mut words);
            let like = words.0.chars().take(LIKE_MAX).collect();
            let kind = kind(metadata, node);
            if let Some(lines) = self.lines().get_mut(&kind) {
                lines.like = like;
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

fn kind(metadata: &Metadata<'_>, node: u64) -> Kind {
    match metadata.target().split("::").next() {
        Some("openraft") => Kind::Openraft,
        _ => Kind::Line { callsite: metadata.callsite(), node },
    }
}

/// The node that a line names.
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

/// The words of a line.
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

    /// Keeps what passes.
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
    fn a_kind_of_line_has_a_burst_and_then_one_line_a_second() {
        // If this broke, a stranger at a port or a member that is away could fill the disk of the log.
        let begin = Instant::now();
        let mut lines = Lines::new(begin);
        let burst = (0..1000).filter(|_| lines.may(begin)).count();
        assert_eq!((burst, lines.left_out), (10, 990));
        assert!(!lines.may(begin + SPAN / 2));
        let minute = (1..=60).flat_map(|second| [begin + SPAN * second; 100]).filter(|&now| lines.may(now)).count();
        assert_eq!(minute, 60);
        let later = begin + SPAN * 1000;
        assert_eq!((0..1000).filter(|_| lines.may(later)).count(), 10, "a condition that is new is told as such");
    }

    #[test]
    fn left_out_lines_are_counted_and_other_nodes_and_levels_are_heard() {
        // If this broke, one node that comes and goes would hide what the log says of the others.
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
        assert_eq!(count(&lines, "left out lines"), 1, "what was reported is not reported again");
    }

    #[test]
    fn all_parts_of_the_groups_library_count_together() {
        // If this broke, a dead member would be a line a second from each of them.
        let lines = passed(|_| {
            for _ in 0..500 {
                tracing::error!(target: "openraft::replication", "cannot send");
                tracing::error!(target: "openraft::core::raft_core", "timeout");
            }
        });
        assert!(lines.len() < 500, "{}", lines.len());
    }
}
