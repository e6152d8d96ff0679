//! Notices between a producer and a consumer.

use super::header::Attempt;

/// The load of a consumer, as it reports it with each acknowledgement.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Load {
    /// Messages of all producers that it has and has not acknowledged.
    pub messages: u32,
    /// Estimated time of one message.
    pub service_us: u32,
}

impl Load {
    /// Returns the time until the consumer has processed its messages and `more`.
    #[must_use]
    pub fn wait_us(self, more: u32) -> u64 {
        (u64::from(self.messages) + u64::from(more)) * u64::from(self.service_us)
    }
}

/// A notice of a producer to a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToConsumer {
    /// Takes back a message that is not begun.
    Recall(Attempt),
    /// All messages are acknowledged, and no message follows.
    Closed,
}

/// A notice of a consumer to a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToProducer {
    /// The consumer asks for messages: all slots of the ring are free.
    Ask,
    /// The application has processed the message. Its slot is free.
    Acknowledged {
        /// Transfer.
        attempt: Attempt,
        /// Load of the consumer.
        load: Load,
    },
    /// The application has begun the message. Sent for a redelivered message, in place of [`ToProducer::Recalled`], and before it
    /// for a message that the application gives back.
    Begun(Attempt),
    /// The message is given back. Its slot is free. The application has not processed it, and has begun it if the consumer said so.
    Recalled(Attempt),
    /// The application dropped the message. Its slot is free.
    Rejected(Attempt),
    /// The consumer takes no more messages. Those that it had are given back or rejected.
    Withdrawn,
}
