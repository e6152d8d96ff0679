//! The reads of a get that are under way: three a fetch, one end.

use ddss_core::Failure;
use ddss_core::engine::StepId;
use ddss_core::limits::OPERATIONS_MAX;

/// What a tag that comes back from the fabric stands for; the low bits are the engine's step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tag {
    /// A read of a fetch.
    Fetch(StepId),
    /// The write of a staged put.
    Stage(StepId),
    /// A message: its end tells nothing that the connection's end does not.
    Send,
}

impl Tag {
    const FETCH: u64 = 1;
    const STAGE: u64 = 2;

    pub(crate) fn to_bits(self) -> u64 {
        match self {
            Tag::Fetch(step) => Self::FETCH << StepId::BITS | step.to_bits(),
            Tag::Stage(step) => Self::STAGE << StepId::BITS | step.to_bits(),
            Tag::Send => 0,
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        let step = StepId::from_bits(bits & ((1 << StepId::BITS) - 1));
        match bits >> StepId::BITS {
            Self::FETCH => Tag::Fetch(step),
            Self::STAGE => Tag::Stage(step),
            _ => Tag::Send,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Fetch {
    reads: u8,
    failure: Option<Failure>,
}

/// All fetches under way, by the index of their step.
#[derive(Debug)]
pub(crate) struct Fetches(Box<[Fetch]>);

impl Fetches {
    pub(crate) fn new() -> Self {
        Self(vec![Fetch::default(); OPERATIONS_MAX].into_boxed_slice())
    }

    /// So many reads of it went out; a failure if not all of them could.
    pub(crate) fn begin(&mut self, step: StepId, reads: u8, failure: Option<Failure>) {
        self.0[step.index()] = Fetch { reads, failure };
    }

    /// One read ended. With the last one: how the fetch went.
    pub(crate) fn ended(&mut self, step: StepId, failure: Option<Failure>) -> Option<Result<(), Failure>> {
        let fetch = &mut self.0[step.index()];
        assert!(fetch.reads > 0, "the fabric ends each read once");
        fetch.reads -= 1;
        fetch.failure = fetch.failure.or(failure);
        (fetch.reads == 0).then_some(fetch.failure.map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_ends_with_its_last_read_and_remembers_a_failure() {
        // If this broke, a client would be told of bytes that are still on their way, or that never came.
        let mut fetches = Fetches::new();
        let step = StepId::from_bits(5);
        fetches.begin(step, 3, None);
        assert_eq!(fetches.ended(step, None), None);
        assert_eq!(fetches.ended(step, Some(Failure::NodeDown)), None);
        assert_eq!(fetches.ended(step, None), Some(Err(Failure::NodeDown)));
        fetches.begin(step, 1, None);
        assert_eq!(fetches.ended(step, None), Some(Ok(())));
    }

    #[test]
    fn a_tag_comes_back_as_it_went_out() {
        // If this broke, the end of one operation would be taken for the end of another.
        let step = StepId::from_bits((1 << StepId::BITS) - 1);
        for tag in [Tag::Fetch(step), Tag::Stage(step), Tag::Send] {
            assert_eq!(Tag::from_bits(tag.to_bits()), tag);
        }
    }
}
