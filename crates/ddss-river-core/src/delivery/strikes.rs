//! Consumers that a message may have ended.

use crate::limits::STRIKES_MAX;

/// Counts the consumers that a message may have ended.
///
/// A lost consumer is suspected until it is dead, which confirms the strike, or comes back, which takes the strike off.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Strikes {
    confirmed: u8,
    suspected: u8,
}

impl Strikes {
    /// Counts a lost consumer that may have begun the message.
    pub(crate) fn suspect(&mut self) {
        self.suspected = self.suspected.saturating_add(1);
    }

    /// Counts a suspected consumer as dead.
    pub(crate) fn confirm(&mut self) {
        self.absolve();
        self.add();
    }

    /// Forgets a suspected consumer: it is back.
    pub(crate) fn absolve(&mut self) {
        self.suspected = self.suspected.saturating_sub(1);
    }

    /// Counts a consumer that rejected the message.
    pub(crate) fn add(&mut self) {
        self.confirmed = self.confirmed.saturating_add(1);
    }

    /// Returns true if the message has failed.
    pub(crate) const fn is_failed(self) -> bool {
        self.confirmed >= STRIKES_MAX
    }

    /// Returns true if the message has to wait for news of the suspected consumers: the next one could be a victim too.
    pub(crate) const fn is_suspect(self) -> bool {
        self.confirmed.saturating_add(self.suspected) >= STRIKES_MAX
    }
}
