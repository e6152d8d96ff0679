//! State that all instances of a process share: the graph, the options, and the queues that are open.

use super::edge::Edge;
use crate::error::QueueError;
use crate::flow::error::FlowError;
use crate::flow::options::FlowOptions;
use crate::flow::tables::edge_name;
use crate::queue::Queue;
use crate::units::{UnitOptions, UnitQueue, after};
use ddss::Client;
use ddss_group::JoinError;
use ddss_river_core::{Each, EdgeId, FlowGraph, ModuleId};
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Time between two attempts to open an edge.
const PAUSE: Duration = Duration::from_millis(20);

/// State that all instances of a process share.
pub(crate) struct Ground {
    pub(crate) flow: String,
    pub(crate) client: Client,
    pub(crate) graph: FlowGraph,
    pub(crate) edges: Vec<Edge>,
    pub(crate) options: FlowOptions,
    queues: Mutex<Queues>,
    /// For each module, whether it has ended in all members.
    ended: Vec<AtomicBool>,
    /// The flow fails or is cancelled: all calls end.
    is_ending: AtomicBool,
    rounds: Mutex<Rounds>,
}

/// Rounds of the thread of this member, and the calls that wait for the next one.
#[derive(Default)]
struct Rounds {
    count: u64,
    waiting: Vec<Waker>,
}

/// Open queues, by edge and addressed instance.
#[derive(Default)]
struct Queues {
    open: HashMap<(EdgeId, Option<u16>), Queue>,
    is_aborted: bool,
}

impl Ground {
    pub(crate) fn new(flow: String, client: Client, graph: FlowGraph, edges: Vec<Edge>, options: FlowOptions) -> Self {
        let ended = graph.modules().map(|_| AtomicBool::new(false)).collect();
        let (queues, rounds, is_ending) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Self { flow, client, graph, edges, options, queues, ended, is_ending, rounds }
    }

    /// Returns the queue of an edge, or that of an instance which its messages name.
    pub(crate) fn queue(&self, edge: EdgeId, instance: Option<u16>) -> Result<Queue, FlowError> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.is_aborted {
            return Err(self.ending());
        }
        if let Some(queue) = queues.open.get(&(edge, instance)) {
            return Ok(queue.clone());
        }
        let name = match instance {
            Some(instance) => format!("{}/{instance}", edge_name(&self.flow, edge)),
            None => edge_name(&self.flow, edge),
        };
        let queue = self.patiently(|| Queue::open_any(&self.client, &name, self.options.queue))?;
        queues.open.insert((edge, instance), queue.clone());
        if self.graph.edges().any(|(id, from, ..)| id == edge && self.has_ended(from)) {
            queue.close_here();
        }
        Ok(queue)
    }

    /// Returns the list of work of an edge.
    pub(crate) fn units(&self, edge: EdgeId, from: ModuleId) -> Result<UnitQueue, FlowError> {
        let units = match self.graph.each(from) {
            Each::Outside => self.patiently(|| UnitQueue::open(&self.client, self.graph.name(from)))?,
            _ => {
                let options: UnitOptions = self.edges[edge.0 as usize].units.copies(self.options.queue.copies);
                let name = edge_name(&self.flow, edge);
                self.patiently(|| UnitQueue::create_any(&self.client, &name, options))?
            }
        };
        Ok(units.with_timeout(self.options.queue.endpoint.timeout))
    }

    /// Opens an edge, again and again while a daemon is away: its restart must not end the flow.
    fn patiently<T>(&self, open: impl Fn() -> Result<T, QueueError>) -> Result<T, FlowError> {
        let deadline = after(self.options.queue.endpoint.timeout);
        loop {
            match open() {
                Err(QueueError::Client(error) | QueueError::Join(JoinError::Client(error)))
                    if (error.is_retryable() || error.is_indeterminate()) && Instant::now() < deadline =>
                {
                    if self.is_ending() {
                        return Err(self.ending());
                    }
                    std::thread::sleep(PAUSE);
                }
                other => return Ok(other?),
            }
        }
    }

    /// Records that a module has ended in all members, and closes its queues. Calls that put into it end.
    pub(crate) fn end_module(&self, module: ModuleId) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: a queue that is opened later is closed at once.
        if !self.ended[module.index()].swap(true, Ordering::AcqRel) {
            let leaves = |edge: EdgeId| self.graph.edges().any(|(id, from, ..)| id == edge && from == module);
            queues.open.iter().filter(|((edge, _), _)| leaves(*edge)).for_each(|(_, queue)| queue.close_here());
            // It has returned before the end of its input.
            let is_unwanted = |edge: EdgeId| {
                self.graph.edges().any(|(id, from, to, _)| id == edge && to == module && !self.has_ended(from))
            };
            queues.open.iter().filter(|((edge, _), _)| is_unwanted(*edge)).for_each(|(_, queue)| queue.abort());
        }
    }

    pub(crate) fn has_ended(&self, module: ModuleId) -> bool {
        self.ended[module.index()].load(Ordering::Acquire)
    }

    /// Ends all calls with an error.
    pub(crate) fn abort(&self) {
        self.is_ending.store(true, Ordering::Release);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.is_aborted = true;
        queues.open.values().for_each(Queue::abort);
        drop(queues);
        self.begin_round();
    }

    /// Wakes the calls that wait for the next round of the thread of this member.
    pub(crate) fn begin_round(&self) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.count += 1;
        let waiting = std::mem::take(&mut rounds.waiting);
        drop(rounds);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for the next round of the thread of this member: units have no notices, so that a call looks for them in each round.
    pub(crate) async fn next_round(&self) {
        let lock = || self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let present = lock().count;
        poll_fn(|context| {
            let mut rounds = lock();
            if rounds.count != present || self.is_ending() {
                return Poll::Ready(());
            }
            if !rounds.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                rounds.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Leaves all queues that no instance uses.
    pub(crate) fn leave(&self) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let open = std::mem::take(&mut queues.open);
        queues.is_aborted = true;
        drop(queues);
        drop(open);
    }

    /// Takes the messages of this process that have failed.
    pub(crate) fn failed(&self) -> Vec<Vec<u8>> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.open.values().flat_map(Queue::failed).collect()
    }

    /// Returns the error of calls of a flow that ends.
    pub(crate) fn ending(&self) -> FlowError {
        FlowError::Ending { flow: self.flow.clone() }
    }
}
