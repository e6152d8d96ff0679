//! Optional columns of a row, beyond the contract.

use super::Sample;

/// The columns behind those of the contract, in order.
pub const EXTRA_COLUMNS: [&str; 14] = [
    "p999_us",
    "of_limit",
    "rate_of_limit",
    "fair",
    "longest_ms",
    "client_cpu_us",
    "service_cpu_us",
    "home_cpu_us",
    "client_calls",
    "service_calls",
    "home_calls",
    "wire_bytes",
    "line_us",
    "notes",
];

/// Optional columns; `None` where a value was not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ExtraColumns {
    /// Smallest share of a client, relative to the even share.
    pub fair: Option<f64>,
    /// The longest call, in milliseconds.
    pub longest_ms: Option<f64>,
    /// Processor time of the clients for each operation, in microseconds; of an idle node for each second.
    pub client_cpu_us: Option<f64>,
    /// Processor time of the clients' own daemons for each operation.
    pub service_cpu_us: Option<f64>,
    /// Processor time of the home's daemon for each operation.
    pub home_cpu_us: Option<f64>,
    /// System calls of the clients for each operation; of an idle node for each second.
    pub client_calls: Option<f64>,
    /// System calls of the clients' own daemons for each operation.
    pub service_calls: Option<f64>,
    /// System calls of the home's daemon for each operation.
    pub home_calls: Option<f64>,
    /// Bytes on the wire, both ways, for each operation.
    pub wire_bytes: Option<f64>,
    /// Round trip of a bare cache line during the measurement: it shows if these were two cores or two threads of one.
    pub line_us: Option<f64>,
}

impl ExtraColumns {
    /// In the order of [`EXTRA_COLUMNS`], from `fair` to `line_us`.
    pub(crate) fn values(&self) -> [Option<f64>; 10] {
        [
            self.fair,
            self.longest_ms,
            self.client_cpu_us,
            self.service_cpu_us,
            self.home_cpu_us,
            self.client_calls,
            self.service_calls,
            self.home_calls,
            self.wire_bytes,
            self.line_us,
        ]
    }
}

/// Result of a measurement outside the harness.
#[derive(Debug, Clone)]
pub struct StandaloneResult {
    /// Times and rates.
    pub sample: Sample,
    /// Further numbers.
    pub more: ExtraColumns,
    /// Further notes.
    pub notes: Vec<String>,
}

impl StandaloneResult {
    /// Times and rates, without notes.
    pub fn new(sample: Sample) -> StandaloneResult {
        StandaloneResult { sample, more: ExtraColumns::default(), notes: Vec::new() }
    }
}
