//! The putting end of a module.

use super::edge::KeyOf;
use super::ground::Ground;
use crate::error::QueueError;
use crate::flow::error::FlowError;
use crate::queue::{Producer, block_on};
use crate::units::UnitQueue;
use ddss_river_core::{EdgeId, EdgeKind, ModuleId, Plan, owner_of};
use std::sync::Arc;

/// One edge that leaves a module.
enum Way {
    Queue(Producer),
    /// A queue for each instance at the end of the edge.
    Instances {
        producers: Vec<Producer>,
        to: Target,
    },
    Units(UnitQueue),
    /// The module at the end wants nothing more.
    Ended,
}

/// Choice of the instances that get a message.
enum Target {
    /// The only queue.
    Only,
    Key(KeyOf),
    All,
}

/// State of the producers of an instance at one moment: numbers of their next messages.
pub(crate) type Mark = Vec<(usize, u64)>;

/// Outputs of an instance.
pub(crate) struct Outputs {
    ground: Arc<Ground>,
    module: ModuleId,
    /// Modules at the ends, and the ways to them.
    ways: Vec<(ModuleId, Way)>,
    /// Producers of all ways, with the modules at the ends.
    producers: Vec<(ModuleId, Producer)>,
}

impl Outputs {
    /// Opens the edges that leave a module.
    pub(crate) fn open(ground: &Arc<Ground>, module: ModuleId, instance: u16, plan: &Plan) -> Result<Self, FlowError> {
        let mut outputs = Self { ground: ground.clone(), module, ways: Vec::new(), producers: Vec::new() };
        for (edge, _, to, kind) in ground.graph.edges().filter(|(_, from, ..)| *from == module) {
            let way = match outputs.open_way(edge, to, kind, instance, plan) {
                Err(_) if ground.has_ended(to) => Way::Ended,
                other => other?,
            };
            match &way {
                Way::Queue(producer) => outputs.producers.push((to, producer.clone())),
                Way::Instances { producers, .. } => {
                    outputs.producers.extend(producers.iter().map(|producer| (to, producer.clone())));
                }
                Way::Units(_) | Way::Ended => {}
            }
            outputs.ways.push((to, way));
        }
        Ok(outputs)
    }

    fn open_way(
        &self,
        edge: EdgeId,
        to: ModuleId,
        kind: EdgeKind,
        instance: u16,
        plan: &Plan,
    ) -> Result<Way, FlowError> {
        let ground = &self.ground;
        let instances = |instances: std::ops::Range<u16>| {
            let open = |instance| Ok(ground.queue(edge, Some(instance))?.producer()?);
            instances.map(open).collect::<Result<Vec<Producer>, FlowError>>()
        };
        let all = 0..plan.total(to);
        Ok(match kind {
            EdgeKind::Queue => Way::Queue(ground.queue(edge, None)?.producer()?),
            EdgeKind::Units => Way::Units(ground.units(edge, self.module)?),
            EdgeKind::OneToOne => Way::Instances { producers: instances(instance..instance + 1)?, to: Target::Only },
            EdgeKind::AllToAll => Way::Instances { producers: instances(all)?, to: Target::All },
            EdgeKind::ByKey => {
                let key = ground.edges[edge.0 as usize].key.clone().expect("the key of an edge by key");
                Way::Instances { producers: instances(all)?, to: Target::Key(key) }
            }
        })
    }

    fn way(&self, to: Option<&str>) -> Result<&(ModuleId, Way), FlowError> {
        let name = |module: ModuleId| self.ground.graph.name(module);
        match to {
            Some(to) => self.ways.iter().find(|(module, _)| name(*module) == to).ok_or_else(|| FlowError::NoEdge {
                module: name(self.module).to_owned(),
                direction: "to",
                other: to.to_owned(),
            }),
            None if self.ways.len() == 1 => Ok(&self.ways[0]),
            None => Err(FlowError::Outputs { module: name(self.module).to_owned(), outputs: self.ways.len() }),
        }
    }

    async fn put(&self, to: Option<&str>, bytes: &[u8]) -> Result<(), FlowError> {
        if self.ground.is_ending() {
            return Err(self.ground.ending());
        }
        self.check_failed()?;
        let (to, way) = self.way(to)?;
        // All its instances have returned: nothing more is wanted there.
        if self.ground.has_ended(*to) {
            return Ok(());
        }
        match Self::put_into(way, bytes).await {
            Err(FlowError::Queue(QueueError::Ended { .. })) if self.ground.has_ended(*to) => Ok(()),
            other => other,
        }
    }

    async fn put_into(way: &Way, bytes: &[u8]) -> Result<(), FlowError> {
        match way {
            Way::Queue(producer) => producer.send(bytes).await?,
            Way::Units(units) => {
                units.add(&[bytes])?;
            }
            Way::Instances { producers, to: Target::All } => {
                for producer in producers {
                    producer.send(bytes).await?;
                }
            }
            Way::Instances { producers, to: Target::Only } => producers[0].send(bytes).await?,
            Way::Instances { producers, to: Target::Key(key) } => {
                producers[usize::from(owner_of(key(bytes), producers.len() as u16))].send(bytes).await?;
            }
            Way::Ended => {}
        }
        Ok(())
    }

    /// Returns true once the flow fails or is cancelled.
    pub(crate) fn is_ending(&self) -> bool {
        self.ground.is_ending()
    }

    /// Returns the numbers of the next messages.
    pub(crate) fn mark(&self) -> Mark {
        self.producers.iter().map(|(_, producer)| producer.next_index()).enumerate().collect()
    }

    /// Returns true if each message before a mark is acknowledged, or has failed.
    pub(crate) fn is_settled(&self, mark: &Mark) -> bool {
        self.unsettled(mark) == 0
    }

    /// Returns the number of messages of this process before a mark that are neither acknowledged nor failed. Those for a module
    /// that wants nothing more do not count.
    pub(crate) fn unsettled(&self, mark: &Mark) -> usize {
        let held = |(producer, index): &(usize, u64)| {
            let (to, producer) = &self.producers[*producer];
            if self.ground.has_ended(*to) { 0 } else { producer.held_before(*index) }
        };
        mark.iter().map(held).sum()
    }

    /// Waits until each message before a mark is acknowledged, or has failed.
    pub(crate) async fn settle(&self, mark: &Mark) -> Result<(), FlowError> {
        for (producer, index) in mark {
            let (to, producer) = &self.producers[*producer];
            match producer.settle(*index).await {
                Err(_) if self.ground.has_ended(*to) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Fails if a message that this process has put failed, and the flow has to end then.
    pub(crate) fn check_failed(&self) -> Result<(), FlowError> {
        let messages = if self.ground.options.ends_with_failed { self.take_unprocessed() } else { 0 };
        let flow = self.ground.flow.clone();
        if messages == 0 { Ok(()) } else { Err(FlowError::Unprocessed { flow, messages }) }
    }

    /// Takes the number of messages that failed since the last report.
    pub(crate) fn take_unprocessed(&self) -> u64 {
        self.producers.iter().map(|(_, producer)| producer.take_unprocessed()).sum()
    }
}

/// Puts messages into the edges that leave a module.
pub struct Output {
    pub(crate) outputs: Arc<Outputs>,
}

impl Output {
    /// Puts a message into the only edge; waits for room. It returns before the message is delivered. A module whose instances have
    /// all returned gets no more messages.
    ///
    /// # Errors
    /// The module has another number of outputs, the message is too long, no consumer made room in time, or the flow ends.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), FlowError> {
        block_on(self.outputs.put(None, bytes))
    }

    /// Puts a message into the edge to a module.
    ///
    /// # Errors
    /// There is no such edge, or as for [`put`](Self::put).
    pub fn put_to(&mut self, module: &str, bytes: &[u8]) -> Result<(), FlowError> {
        block_on(self.outputs.put(Some(module), bytes))
    }

    /// Puts a message as [`put`](Self::put) does, for any executor. A future that is dropped before it is ready puts the message
    /// to no instance, or to some of an edge to all.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub async fn put_async(&mut self, bytes: &[u8]) -> Result<(), FlowError> {
        self.outputs.put(None, bytes).await
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("edges", &self.outputs.ways.len()).finish_non_exhaustive()
    }
}
