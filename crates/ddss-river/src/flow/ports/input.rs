//! The taking end of a module.

use super::ground::Ground;
use super::message::{Acknowledged, Message, Taken};
use super::output::{Mark, Outputs};
use crate::error::QueueError;
use crate::flow::error::FlowError;
use crate::queue::{Consumer, Message as QueueMessage, block_on};
use crate::units::UnitQueue;
use ddss_river_core::{EdgeKind, ModuleId};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

enum Source {
    Queue(Consumer),
    Units(UnitQueue),
}

/// One edge that enters a module.
struct Inlet {
    from: ModuleId,
    name: Arc<str>,
    source: Source,
    has_ended: bool,
}

/// Result of a wait.
enum Event {
    Taken(usize, Result<Option<QueueMessage>, QueueError>),
    Settled(Result<(), FlowError>),
    /// There may be another unit.
    Round,
}

/// Takes messages from the edges that enter a module.
pub struct Input {
    ground: Arc<Ground>,
    module: ModuleId,
    inlets: Vec<Inlet>,
    outputs: Arc<Outputs>,
    acknowledged: Arc<Acknowledged>,
    /// Edge that is read first at the next attempt.
    turn: usize,
}

impl Input {
    /// Opens the edges that enter a module.
    pub(crate) fn open(
        ground: &Arc<Ground>,
        module: ModuleId,
        instance: u16,
        outputs: &Arc<Outputs>,
    ) -> Result<Self, FlowError> {
        let mut inlets = Vec::new();
        for (edge, from, _, kind) in ground.graph.edges().filter(|(_, _, to, _)| *to == module) {
            let source = match kind {
                EdgeKind::Units => Source::Units(ground.units(edge, from)?),
                EdgeKind::Queue => Source::Queue(ground.queue(edge, None)?.consumer()?),
                _ => Source::Queue(ground.queue(edge, Some(instance))?.consumer()?),
            };
            inlets.push(Inlet { from, name: ground.graph.name(from).into(), source, has_ended: false });
        }
        let (outputs, acknowledged) = (outputs.clone(), Arc::default());
        Ok(Self { ground: ground.clone(), module, inlets, outputs, acknowledged, turn: 0 })
    }

    /// Takes the next message of any edge; waits for it. `None` means that all edges have ended.
    ///
    /// # Errors
    /// The flow ends, or a queue failed.
    pub fn take(&mut self) -> Result<Option<Message>, FlowError> {
        block_on(self.next(None))
    }

    /// Takes the next message of the edge from a module; waits for it. `None` means that this edge has ended.
    ///
    /// # Errors
    /// There is no such edge, or as for [`take`](Self::take).
    pub fn take_from(&mut self, module: &str) -> Result<Option<Message>, FlowError> {
        if !self.inlets.iter().any(|inlet| &*inlet.name == module) {
            let (module, other) = (self.ground.graph.name(self.module).to_owned(), module.to_owned());
            return Err(FlowError::NoEdge { module, direction: "from", other });
        }
        block_on(self.next(Some(module)))
    }

    /// Takes a message as [`take`](Self::take) does, for any executor. A future that is dropped takes none. A look for a unit uses the
    /// thread for the round trips of its claim, and no longer.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub async fn take_async(&mut self) -> Result<Option<Message>, FlowError> {
        self.next(None).await
    }

    /// Returns the edges that have not ended, the one whose turn it is first.
    fn open_inlets<'a>(&'a self, from: Option<&'a str>) -> impl Iterator<Item = usize> + 'a {
        let count = self.inlets.len();
        let turned = (0..count).map(move |index| (self.turn + index) % count);
        turned.filter(move |index| {
            let inlet = &self.inlets[*index];
            !inlet.has_ended && from.is_none_or(|from| *inlet.name == *from)
        })
    }

    /// Waits for a message of these edges, or for their end. A future that is dropped takes none.
    async fn next(&mut self, from: Option<&str>) -> Result<Option<Message>, FlowError> {
        loop {
            if self.ground.is_ending() {
                return Err(self.ground.ending());
            }
            let mark = self.acknowledged.release(&self.outputs)?;
            if let Some(message) = self.claim(from)? {
                return Ok(Some(message));
            }
            if self.open_inlets(from).next().is_none() {
                return Ok(None);
            }
            match self.wait(from, mark).await {
                Event::Round => {}
                Event::Taken(index, Ok(Some(message))) => {
                    self.turn = index + 1;
                    return Ok(Some(self.message(index, Taken::Message(message))));
                }
                Event::Taken(index, Ok(None)) => self.inlets[index].has_ended = true,
                // A module waits for its input, and for those that take its results, as long as the flow goes on.
                Event::Taken(_, Err(QueueError::TimedOut { .. }))
                | Event::Settled(Err(FlowError::Queue(QueueError::TimedOut { .. }))) => {}
                Event::Settled(settled) => settled?,
                Event::Taken(_, Err(error)) => return Err(error.into()),
            }
        }
    }

    /// Waits until a queue has a message or has ended, results are settled, or it is time to look for a unit.
    async fn wait(&self, from: Option<&str>, mark: Option<Mark>) -> Event {
        type Next<'a> = Pin<Box<dyn Future<Output = Result<Option<QueueMessage>, QueueError>> + Send + 'a>>;
        let next = |index: usize| match &self.inlets[index].source {
            Source::Queue(consumer) => Some((index, Box::pin(consumer.next()) as Next<'_>)),
            Source::Units(_) => None,
        };
        let mut queues: Vec<(usize, Next<'_>)> = self.open_inlets(from).filter_map(next).collect();
        let mut settled = pin!(async {
            match &mark {
                Some(mark) => self.outputs.settle(mark).await,
                None => std::future::pending().await,
            }
        });
        let has_units = self.open_inlets(from).any(|index| matches!(self.inlets[index].source, Source::Units(_)));
        let mut round = pin!(async {
            if has_units {
                self.ground.next_round().await;
            } else {
                std::future::pending::<()>().await;
            }
        });
        poll_fn(|context| {
            for (index, queue) in &mut queues {
                if let Poll::Ready(taken) = queue.as_mut().poll(context) {
                    return Poll::Ready(Event::Taken(*index, taken));
                }
            }
            if let Poll::Ready(settled) = settled.as_mut().poll(context) {
                return Poll::Ready(Event::Settled(settled));
            }
            round.as_mut().poll(context).map(|()| Event::Round)
        })
        .await
    }

    /// Claims a unit, and notes the edges of units that have ended.
    fn claim(&mut self, from: Option<&str>) -> Result<Option<Message>, FlowError> {
        let open: Vec<usize> = self.open_inlets(from).collect();
        for index in open {
            let Source::Units(units) = &self.inlets[index].source else { continue };
            // Read first: units that are added later come from a module that has not ended.
            let has_ended = self.ground.has_ended(self.inlets[index].from);
            match units.claim_within(Duration::ZERO) {
                Ok(Some(unit)) => {
                    self.turn = index + 1;
                    return Ok(Some(self.message(index, Taken::Unit(unit))));
                }
                Ok(None) => self.inlets[index].has_ended = has_ended,
                Err(QueueError::TimedOut { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn message(&self, index: usize, taken: Taken) -> Message {
        Message::new(taken, self.inlets[index].name.clone(), self.outputs.clone(), self.acknowledged.clone())
    }

    /// Ends the input of an instance that has failed: what it has processed completely is acknowledged.
    pub(crate) fn abandon(self) {
        // The flow ends with the first error.
        let _ = self.acknowledged.release(&self.outputs);
        self.acknowledged.give_back();
    }

    /// Waits until all that the instance has put is acknowledged, and its input with it.
    pub(crate) fn finish(self) -> Result<(), FlowError> {
        let all = self.outputs.mark();
        loop {
            let mark = self.acknowledged.release(&self.outputs)?;
            if mark.is_none() && self.outputs.is_settled(&all) {
                return self.outputs.check_failed();
            }
            let mark = mark.unwrap_or_else(|| all.clone());
            let before = self.outputs.unsettled(&mark);
            match block_on(self.outputs.settle(&mark)) {
                // A slow consumer is no failure, as long as it goes on.
                Err(FlowError::Queue(QueueError::TimedOut { .. })) if self.outputs.unsettled(&mark) < before => {}
                other => other?,
            }
        }
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("edges", &self.inlets.len()).finish_non_exhaustive()
    }
}
