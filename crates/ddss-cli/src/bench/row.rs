//! Figures of one kind of call.

use ddss::Strategy;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Figures of one kind of call.
pub(super) struct Row {
    /// Name of the call: null, get or put.
    pub(super) call: &'static str,
    pub(super) bytes: usize,
    /// Path of the call: local (read in place), daemon (through a channel) or remote (on another node).
    pub(super) path: &'static str,
    pub(super) strategy: String,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) per_second: f64,
}

impl Row {
    pub(super) fn new(
        call: &'static str,
        bytes: usize,
        path: &'static str,
        strategy: Strategy,
        times: &Histogram<u64>,
    ) -> Self {
        let us = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        let per_second = if times.mean() > 0.0 { 1e9 / times.mean() } else { 0.0 };
        Self { call, bytes, path, strategy: strategy.to_string(), p50_us: us(0.5), p99_us: us(0.99), per_second }
    }

    /// Returns a short label.
    pub(super) fn label(&self) -> String {
        let Self { call, bytes, path, strategy, .. } = self;
        match *call {
            "null" => format!("null call, {strategy}"),
            _ => format!("{call} {bytes} B, {path}"),
        }
    }

    pub(super) fn as_json(&self) -> Value {
        json!({ "call": self.call, "bytes": self.bytes, "path": self.path, "strategy": self.strategy,
            "p50_us": self.p50_us, "p99_us": self.p99_us, "per_second": self.per_second })
    }
}

/// Returns an empty histogram of times in nanoseconds.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that fit")
}
