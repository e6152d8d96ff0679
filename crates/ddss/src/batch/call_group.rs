//! Calls of several shards that a thread submits together, each with an end of its own.

use crate::call::channels::NoCompletion;
use crate::call::pipeline::{FinishedCall, Pipeline, run_together};
use crate::call::retry::Retry;
#[cfg(feature = "tracing")]
use crate::call::span;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::plan::CallPlan;
use crate::plan::priority::Priority;
use crate::session::Session;
use ddss_core::Completion;
use std::time::{Duration, Instant};

/// Results of the calls of a group in their order, and the error that kept the whole group from being sent.
pub(crate) type GroupResults = (Vec<Result<(Completion, Vec<u8>), Error>>, Option<Error>);

impl Client {
    /// Runs planned calls, each on its shard, and waits for the last one.
    pub(crate) fn run_group(&self, time: Deadline, plans: Vec<(u8, CallPlan<'_>)>) -> GroupResults {
        #[cfg(feature = "tracing")]
        let span = span::of_group(plans.len()).entered();
        let mut results: Vec<_> = plans.iter().map(|_| None).collect();
        let mut time = time.started();
        let (mut parts, error) = by_shard(self, &mut time, &plans);
        let error = error.or_else(|| run_parts(&mut parts, time).err());
        for ShardGroup { client, indices, plans, results: ended, .. } in parts {
            for ((index, plan), ended) in indices.into_iter().zip(plans).zip(ended) {
                results[index] = Some(client.conclude(ended, plan.action, plan.target));
            }
        }
        let unsent = |(_, plan): (u8, CallPlan<'_>)| Err(self.explain(NoCompletion::NotSent, plan.action, plan.target));
        let results = results.into_iter().zip(plans).map(|(result, plan)| result.unwrap_or_else(|| unsent(plan)));
        let results = (results.collect(), error);
        #[cfg(feature = "tracing")]
        span::record_group_error(&span, &results);
        results
    }
}

/// The calls of a group that go to one shard.
struct ShardGroup<'a> {
    client: Client,
    /// Indices of the calls within the group.
    indices: Vec<usize>,
    plans: Vec<CallPlan<'a>>,
    results: Vec<FinishedCall>,
    /// Indices of the calls that still have to run.
    pending: Vec<usize>,
    retry: Retry,
}

impl<'a> ShardGroup<'a> {
    fn new(client: Client, calls: impl Iterator<Item = (usize, CallPlan<'a>)>) -> Self {
        let (indices, plans): (Vec<_>, Vec<_>) = calls.unzip();
        let results = plans.iter().map(|_| Err(NoCompletion::NotSent)).collect();
        let retry = Retry::new(client.retries());
        Self { client, pending: (0..plans.len()).collect(), indices, plans, results, retry }
    }

    /// Records the results of the pending calls, and selects those to run again: the calls that a daemon in shutdown did
    /// not begin, the calls without side effects whose daemon is gone, and those whose home is away. Returns the pause
    /// before that.
    fn note(&mut self, session: &Session, ended: Vec<FinishedCall>, deadline: Instant) -> Option<Duration> {
        let ended: Vec<(usize, FinishedCall)> = self.pending.drain(..).zip(ended).collect();
        let (before, mut longest) = (self.retry, None);
        for (index, ended) in ended {
            let again = match ended {
                Err(NoCompletion::ShuttingDown) => {
                    session.attachment.set_draining();
                    true
                }
                Err(NoCompletion::Gone) => self.plans[index].is_harmless && self.client.retries(),
                Ok(Err(completion)) => {
                    let mut retry = before;
                    let pause = retry.pause(&self.plans[index], completion.outcome, deadline);
                    if pause.is_some() {
                        (self.retry, longest) = (retry, longest.max(pause));
                    }
                    pause.is_some()
                }
                _ => false,
            };
            self.results[index] = ended;
            self.pending.extend(again.then_some(index));
        }
        longest
    }
}

/// Groups the calls by shard, each group with the client of its shard. With an error, no call is to be sent.
fn by_shard<'a>(
    client: &Client,
    time: &mut Deadline,
    plans: &[(u8, CallPlan<'a>)],
) -> (Vec<ShardGroup<'a>>, Option<Error>) {
    let mut parts = Vec::new();
    for shard in 0..client.shard_count() {
        let mut theirs = plans.iter().enumerate().filter(|(_, (own, _))| *own == shard).peekable();
        if theirs.peek().is_some() {
            match client.at_shard_by(shard, time) {
                Ok(client) => parts.push(ShardGroup::new(client, theirs.map(|(index, (_, plan))| (index, *plan)))),
                Err(error) => return (Vec::new(), Some(error)),
            }
        }
    }
    (parts, None)
}

/// Runs the calls of all shards at the same time. An error means that no call was sent.
fn run_parts(parts: &mut [ShardGroup<'_>], mut time: Deadline) -> Result<(), Error> {
    let mut begun = false;
    loop {
        // No request goes out before all shards are reachable.
        let mut reached = Vec::new();
        for part in parts.iter_mut().filter(|part| !part.pending.is_empty()) {
            match part.client.inner.session(&mut time, || true) {
                Ok(session) => reached.push((part, session)),
                Err(error) if !begun => return Err(error),
                // No daemon came in time: the recorded results stand.
                Err(_) => part.pending.clear(),
            }
        }
        if reached.is_empty() {
            return Ok(());
        }
        begun = true;
        let mut times = vec![Deadline::until(time.deadline()); reached.len()];
        let mut running: Vec<Result<Pipeline<'_>, NoCompletion>> = (reached.iter().zip(&mut times))
            .map(|((part, session), time)| {
                let call = session.channels.call(Priority::Call, time)?;
                Ok(Pipeline::new(call, part.pending.iter().map(|&index| &part.plans[index]).collect()))
            })
            .collect();
        run_together(&mut running.iter_mut().flatten().collect::<Vec<_>>());
        let all = |(running, (part, _)): (Result<Pipeline<'_>, _>, &(&mut ShardGroup<'_>, _))| match running {
            Ok(many) => many.results(),
            Err(none) => part.pending.iter().map(|_| Err(none)).collect(),
        };
        let results: Vec<Vec<FinishedCall>> = running.into_iter().zip(&reached).map(all).collect();
        let deadline = time.deadline();
        let noted = reached.into_iter().zip(results);
        let pause = noted.filter_map(|((part, session), ended)| part.note(&session, ended, deadline)).max();
        pause.into_iter().for_each(std::thread::sleep);
    }
}
