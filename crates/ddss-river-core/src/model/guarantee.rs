//! Guarantees for messages of a lost consumer.

/// Guarantee of a queue for messages that a lost consumer has not acknowledged.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Guarantee {
    /// Another consumer gets the message, flagged as redelivered.
    #[default]
    AtLeastOnce,
    /// The message is dropped.
    AtMostOnce,
    /// The flow ends.
    FailStop,
}
