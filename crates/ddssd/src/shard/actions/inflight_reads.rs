//! In-flight reads of remote gets: header, bytes and state word, with one completion.

use ddss_core::Failure;
use ddss_core::limits::OPERATIONS_MAX;
use ddss_engine::StepId;

#[derive(Clone, Copy, Debug, Default)]
struct InflightRead {
    reads: u16,
    failure: Option<Failure>,
}

/// All remote gets in flight, by the index of their step.
#[derive(Debug)]
pub(crate) struct InflightReads(Box<[InflightRead]>);

impl InflightReads {
    pub(crate) fn new() -> Self {
        Self(vec![InflightRead::default(); OPERATIONS_MAX].into_boxed_slice())
    }

    /// Records the number of posted reads; a failure if some could not be posted.
    pub(crate) fn begin(&mut self, step: StepId, reads: u16, failure: Option<Failure>) {
        self.0[step.index()] = InflightRead { reads, failure };
    }

    /// Records the end of one read. Returns the result with the last one.
    pub(crate) fn complete_read(&mut self, step: StepId, failure: Option<Failure>) -> Option<Result<(), Failure>> {
        let fetch = &mut self.0[step.index()];
        assert!(fetch.reads > 0, "the fabric ends each read once");
        fetch.reads -= 1;
        fetch.failure = fetch.failure.or(failure);
        (fetch.reads == 0).then_some(fetch.failure.map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_get_completes_with_last_read_and_reports_failure() {
        // If this broke, a client would get bytes that are still on their way, or that never came.
        let mut inflight_reads = InflightReads::new();
        let step = StepId::from_bits(5);
        inflight_reads.begin(step, 3, None);
        assert_eq!(inflight_reads.complete_read(step, None), None);
        assert_eq!(inflight_reads.complete_read(step, Some(Failure::NodeDown)), None);
        assert_eq!(inflight_reads.complete_read(step, None), Some(Err(Failure::NodeDown)));
        inflight_reads.begin(step, 1, None);
        assert_eq!(inflight_reads.complete_read(step, None), Some(Ok(())));
    }
}
