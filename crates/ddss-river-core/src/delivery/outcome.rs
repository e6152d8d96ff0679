//! Rules for a message that its consumer did not acknowledge.

use super::strikes::Strikes;
use crate::limits::ATTEMPTS_MAX;
use crate::model::Guarantee;

/// Fate of a message that its consumer did not acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The next consumer gets the message, flagged as redelivered.
    Redelivered,
    /// The message waits until its suspected consumers are dead or back.
    Suspended,
    /// The message is kept aside.
    Failed,
    /// The message is dropped.
    Dropped,
    /// The flow ends.
    EndsFlow,
}

/// Returns the fate of a message whose consumer is lost.
pub(crate) const fn after_loss(guarantee: Guarantee, strikes: Strikes, attempts: u16) -> Outcome {
    match guarantee {
        Guarantee::AtMostOnce => Outcome::Dropped,
        Guarantee::FailStop => Outcome::EndsFlow,
        Guarantee::AtLeastOnce if strikes.is_failed() || attempts >= ATTEMPTS_MAX => Outcome::Failed,
        Guarantee::AtLeastOnce if strikes.is_suspect() => Outcome::Suspended,
        Guarantee::AtLeastOnce => Outcome::Redelivered,
    }
}

/// Returns the fate of a message that the application gave back behind its begin.
pub(crate) const fn after_return(guarantee: Guarantee) -> Outcome {
    match guarantee {
        Guarantee::AtMostOnce => Outcome::Dropped,
        Guarantee::FailStop | Guarantee::AtLeastOnce => Outcome::Redelivered,
    }
}

/// Returns the fate of a message that the application dropped.
pub(crate) const fn after_rejection(guarantee: Guarantee, strikes: Strikes, attempts: u16) -> Outcome {
    match guarantee {
        Guarantee::AtMostOnce => Outcome::Dropped,
        // A consumer that lives has lost nothing: the rule of redelivery holds.
        Guarantee::FailStop | Guarantee::AtLeastOnce => after_loss(Guarantee::AtLeastOnce, strikes, attempts),
    }
}
