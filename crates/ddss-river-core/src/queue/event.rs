//! Events of both ends.

use crate::model::{ConsumerId, Header, ProducerId, ToConsumer, ToProducer};

/// Something that happened to a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducerEvent {
    /// A connection to a consumer begins.
    Connected(ConsumerId),
    /// The connection to a consumer ended. The consumer may come back.
    Lost(ConsumerId),
    /// The coordinator declared a consumer dead. It never comes back under this number.
    Dead(ConsumerId),
    /// A consumer has left in order. It never comes back under this number.
    Left(ConsumerId),
    /// A notice arrived.
    Notice {
        /// Sender.
        from: ConsumerId,
        /// Notice.
        notice: ToProducer,
    },
}

/// Something that happened to a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsumerEvent {
    /// A producer joined the edge.
    Joined(ProducerId),
    /// A connection to a producer begins, which joins if it has not.
    Connected(ProducerId),
    /// The connection to a producer ended. The producer may come back.
    Lost(ProducerId),
    /// The coordinator declared a producer dead. It never comes back under this number.
    Dead(ProducerId),
    /// A producer has left in order. It never comes back under this number.
    Left(ProducerId),
    /// A header arrived: the bytes are in the ring.
    Message {
        /// Sender.
        from: ProducerId,
        /// Header.
        header: Header,
    },
    /// A notice arrived.
    Notice {
        /// Sender.
        from: ProducerId,
        /// Notice.
        notice: ToConsumer,
    },
    /// The coordinator declared this consumer dead: others have its messages.
    Fenced,
}
