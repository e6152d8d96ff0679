//! A message that a module has taken.

use super::output::{Mark, Outputs};
use crate::error::QueueError;
use crate::queue::Message as QueueMessage;
use crate::units::Unit;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// A message or a unit that a module has taken.
pub(crate) enum Taken {
    Message(QueueMessage),
    Unit(Unit),
}

impl Taken {
    /// Tells the producer, or the list, that it is processed.
    fn acknowledge(self) -> Result<(), QueueError> {
        match self {
            Self::Message(message) => {
                // If its producer does not learn it, it is gone, or has given the message to another one.
                message.acknowledge();
                Ok(())
            }
            Self::Unit(unit) => match unit.done(b"") {
                // Another worker does it again.
                Err(QueueError::UnitFenced { .. }) => Ok(()),
                other => other,
            },
        }
    }

    /// Gives a unit back without a strike.
    fn give_back(self) {
        if let Self::Unit(unit) = self {
            // Without success its claim expires.
            let _ = unit.give_back();
        }
    }
}

/// Messages that a module has acknowledged, and whose results are on their way: their producers learn of it once the results are
/// with others. So nothing is lost if this process dies.
#[derive(Default)]
pub(crate) struct Acknowledged(Mutex<VecDeque<(Taken, Mark)>>);

impl Acknowledged {
    fn add(&self, taken: Taken, mark: Mark) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back((taken, mark));
    }

    /// Gives back what is left. The results of a unit may come twice; the unit itself is not at fault.
    pub(crate) fn give_back(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|(taken, _)| taken.give_back());
    }

    /// Tells the producers of messages whose results are settled. Returns the mark that the next one waits for.
    pub(crate) fn release(&self, outputs: &Outputs) -> Result<Option<Mark>, QueueError> {
        loop {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((_, mark)) = waiting.front() else { return Ok(None) };
            if !outputs.is_settled(mark) {
                return Ok(Some(mark.clone()));
            }
            let settled = waiting.pop_front();
            drop(waiting);
            if let Some((taken, _)) = settled {
                taken.acknowledge()?;
            }
        }
    }
}

/// A message that a module has taken, and the duty to acknowledge it. If it is dropped before, another instance gets it; the
/// third time it has failed. The end of the flow gives it back without that.
pub struct Message {
    taken: Option<Taken>,
    from: Arc<str>,
    outputs: Arc<Outputs>,
    acknowledged: Arc<Acknowledged>,
}

impl Message {
    pub(crate) fn new(taken: Taken, from: Arc<str>, outputs: Arc<Outputs>, acknowledged: Arc<Acknowledged>) -> Self {
        Self { taken: Some(taken), from, outputs, acknowledged }
    }

    /// Returns the name of the module that put the message.
    #[must_use]
    pub fn from(&self) -> &str {
        &self.from
    }

    /// Returns true if another instance may have processed the message, completely or in part. What that one has put comes again
    /// as new messages, which are not flagged.
    #[must_use]
    pub fn is_redelivered(&self) -> bool {
        match &self.taken {
            Some(Taken::Message(message)) => message.is_redelivered(),
            Some(Taken::Unit(unit)) => unit.attempt() > 1,
            None => false,
        }
    }

    /// Says that the message is processed, behind all that this instance has put so far. Its producer learns of it when those
    /// messages are acknowledged.
    pub fn acknowledge(mut self) {
        if let Some(taken) = self.taken.take() {
            self.acknowledged.add(taken, self.outputs.mark());
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // The flow ends for another reason, and the calls of this module fail: its message is not at fault.
        if let Some(taken) = self.taken.take_if(|_| self.outputs.is_ending()) {
            taken.give_back();
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.taken {
            Some(Taken::Message(message)) => message,
            Some(Taken::Unit(unit)) => unit.bytes(),
            None => &[],
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("from", &self.from).field("bytes", &self.len()).finish_non_exhaustive()
    }
}
