//! Tag of a work request, which comes back with its completion.

use ddss_engine::{ServedGetId, StepId};

/// Completion tag of a fabric work request; the low bits hold the engine's step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tag {
    /// A read of a remote get.
    RemoteGet(StepId),
    /// The write of a staged put.
    StagedPut(StepId),
    /// The write of a served get.
    ServedGet(ServedGetId),
    /// A message: its completion says nothing that the end of the connection does not.
    Send,
}

impl Tag {
    const REMOTE_GET: u64 = 1;
    const STAGED_PUT: u64 = 2;
    const SERVED_GET: u64 = 3;

    pub(crate) fn to_bits(self) -> u64 {
        match self {
            Tag::RemoteGet(step) => Self::REMOTE_GET << StepId::BITS | step.to_bits(),
            Tag::StagedPut(step) => Self::STAGED_PUT << StepId::BITS | step.to_bits(),
            Tag::ServedGet(hand) => Self::SERVED_GET << StepId::BITS | hand.to_bits(),
            Tag::Send => 0,
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        let step = StepId::from_bits(bits & ((1 << StepId::BITS) - 1));
        match bits >> StepId::BITS {
            Self::REMOTE_GET => Tag::RemoteGet(step),
            Self::STAGED_PUT => Tag::StagedPut(step),
            Self::SERVED_GET => Tag::ServedGet(ServedGetId::from_bits(step.to_bits())),
            _ => Tag::Send,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_survives_encoding() {
        // If this broke, the end of one operation would be taken for the end of another.
        let step = StepId::from_bits((1 << StepId::BITS) - 1);
        for tag in [Tag::RemoteGet(step), Tag::StagedPut(step), Tag::ServedGet(ServedGetId::from_bits(7)), Tag::Send] {
            assert_eq!(Tag::from_bits(tag.to_bits()), tag);
        }
    }
}
