//! Actions of both ends.

use crate::model::{ConsumerId, Header, ProducerId, ToConsumer, ToProducer};

/// A step that the driver of a producer executes. Steps for one consumer are posted in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducerAction {
    /// Writes a message into the producer's ring at a consumer, and sends the header behind it.
    Write {
        /// Consumer.
        to: ConsumerId,
        /// Header, with the send slot and the slot of the ring.
        header: Header,
    },
    /// Sends a notice.
    Send {
        /// Consumer.
        to: ConsumerId,
        /// Notice.
        notice: ToConsumer,
    },
    /// The message is acknowledged: its send slot is free.
    Acknowledged {
        /// Number of the message.
        index: u64,
    },
    /// The message has failed. The driver keeps a copy of its bytes aside; the send slot is free behind this action.
    Failed {
        /// Number of the message.
        index: u64,
        /// Send slot.
        place: u16,
        /// Bytes.
        length: u32,
    },
    /// The message was at a lost consumer and is dropped, by [`Guarantee::AtMostOnce`](crate::Guarantee::AtMostOnce).
    Dropped {
        /// Number of the message.
        index: u64,
    },
    /// All messages are acknowledged, failed or dropped, and none follows.
    Ended,
    /// The flow ends: a consumer is lost, and the guarantee is [`Guarantee::FailStop`](crate::Guarantee::FailStop).
    FlowLost {
        /// Lost consumer.
        consumer: ConsumerId,
    },
}

/// A step that the driver of a consumer executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsumerAction {
    /// Sends a notice.
    Send {
        /// Producer.
        to: ProducerId,
        /// Notice.
        notice: ToProducer,
    },
    /// A message whose producer is dead was rejected too often. The driver keeps a copy of its bytes aside; its slot is free
    /// behind this action.
    Failed {
        /// Producer.
        producer: ProducerId,
        /// Header of the message.
        header: Header,
    },
    /// The flow ends: a producer is dead, and the guarantee is [`Guarantee::FailStop`](crate::Guarantee::FailStop).
    FlowLost {
        /// Dead producer.
        producer: ProducerId,
    },
}
