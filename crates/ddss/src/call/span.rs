//! Spans of calls, for programs that trace: the feature `tracing`.

use crate::error::Error;
use crate::plan::CallPlan;
use tracing::{Span, debug_span, field};

/// Creates the span of a call that leaves the process. Reads in place are no calls.
pub(crate) fn of_call(plan: &CallPlan<'_>) -> Span {
    debug_span!("ddss_call", action = plan.action, target = plan.target, error = field::Empty)
}

/// Creates the span of calls that are in flight together.
pub(crate) fn of_group(calls: usize) -> Span {
    debug_span!("ddss_calls", calls, error = field::Empty)
}

/// Records why a call failed.
pub(crate) fn record_error(span: &Span, error: Option<&Error>) {
    if let Some(error) = error {
        span.record("error", field::display(error));
    }
}

/// Records why the first call of a group failed, or the whole group.
pub(crate) fn record_group_error<T>(span: &Span, (results, error): &(Vec<Result<T, Error>>, Option<Error>)) {
    record_error(span, error.as_ref().or_else(|| results.iter().find_map(|result| result.as_ref().err())));
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on};
    use crate::{Batch, PutOptions, Spec, Version};
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::fmt::format::FmtSpan;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        /// Returns the spans that have ended: name, action, whether an error is recorded.
        fn spans(&self) -> Vec<(String, String, bool)> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            let span = |line: &str| {
                let span = serde_json::from_str::<serde_json::Value>(line).unwrap()["span"].clone();
                let field = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
                (field("name"), field("action"), span["error"].is_string())
            };
            text.lines().map(span).collect()
        }
    }

    #[test]
    fn each_call_of_both_clients_has_a_span_that_names_it() {
        // If this broke, a trace would not show which call of which segment took the time, or that it failed.
        let node = TestNode::start();
        let segment = node.client().segment("traced").allocate(Spec::new(8)).unwrap();
        let (lines, tasks) = (Lines::default(), segment.client().aio().unwrap());
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().json().with_max_level(tracing::Level::DEBUG);
        let subscriber = subscriber.with_span_events(FmtSpan::CLOSE).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            segment.put(0, &[1; 8]).unwrap();
            segment.put_if(Version(9), 0, &[2; 8]).unwrap_err();
            block_on(async { tasks.segment("traced").open().await.unwrap().put(0, &[3; 8]).await.unwrap() });
            let mut batch = Batch::new();
            batch.put(&segment, 0, &[4; 8]).unwrap();
            batch.put(&segment, 0, &[5; 8]).unwrap();
            segment.client().run(batch).unwrap().ok().unwrap();
            let mut batch = Batch::new();
            batch.put_with(&segment, &[(0, &[6; 8])], PutOptions::new().if_version(Version(9))).unwrap();
            segment.client().run(batch).unwrap().ok().unwrap_err();
        });
        let call = |action: &str, failed| ("ddss_call".to_owned(), action.to_owned(), failed);
        let group = |failed| ("ddss_calls".to_owned(), String::new(), failed);
        let wanted =
            [call("put", false), call("put", true), call("open", false), call("put", false), group(false), group(true)];
        assert_eq!(lines.spans(), wanted);
    }
}
