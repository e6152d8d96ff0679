//! One process of an application that is checkpointed.

use std::time::{Duration, Instant};

use ddss::{Client, ErrorKind, GetOptions, Model, Placement, Segment, Spec, Version};
use ddss_testkit::Random;

use super::state::{STATE_BYTES_MIN, State};
use crate::Error;

/// Probability that a process fails in one round, as in the paper.
const FAILURE_PROBABILITY: f64 = 0.001;
/// Versions before the newest one that are kept to restart from.
const HISTORY: u16 = 2;

/// Counters of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitCounts {
    /// Commits.
    pub commits: u64,
    /// Commits that were refused, because another process committed first.
    pub conflicts: u64,
    /// Simulated failures, in which the process loses its state.
    pub failures: u64,
    /// States that were read at restarts, each proven consistent.
    pub restarts: u64,
    /// Restarts that also read the version before the newest one, and verified that one follows from the other.
    pub chains: u64,
}

impl CommitCounts {
    /// Adds the counters of another process.
    #[must_use]
    pub fn with(self, other: CommitCounts) -> CommitCounts {
        CommitCounts {
            commits: self.commits + other.commits,
            conflicts: self.conflicts + other.conflicts,
            failures: self.failures + other.failures,
            restarts: self.restarts + other.restarts,
            chains: self.chains + other.chains,
        }
    }
}

/// A process of an application.
#[derive(Debug)]
pub struct Member {
    segment: Segment,
    id: u64,
    sequence: u64,
    state: State,
    bytes: Vec<u8>,
    random: Random,
    tally: CommitCounts,
}

impl Member {
    /// Allocates the segment of an application with a state of `bytes` bytes.
    pub fn allocate(client: &Client, name: &str, bytes: usize, placement: Placement) -> Result<Segment, Error> {
        let bytes = bytes.max(STATE_BYTES_MIN) as u64;
        Ok(client
            .segment(name)
            .allocate(Spec::new(bytes).model(Model::Version).placement(placement).history(HISTORY))?)
    }

    /// Joins an application, and begins with its last checkpoint. No two processes have the same `id`.
    pub fn join(segment: Segment, id: u64) -> Result<Member, Error> {
        let bytes = vec![0; usize::try_from(segment.len()).unwrap_or(usize::MAX)];
        let (state, tally) = (State::EMPTY, CommitCounts::default());
        let mut member = Member { segment, id, sequence: 0, state, bytes, random: Random::new(id), tally };
        member.restart()?;
        Ok(member)
    }

    /// Returns the counters so far.
    pub fn tally(&self) -> CommitCounts {
        self.tally
    }

    /// Works for a random time of at most `work`, then commits or fails. Returns the duration of the commit or restart.
    pub fn turn(&mut self, work: Duration) -> Result<Duration, Error> {
        let until = Instant::now() + work.mul_f64(self.random.unit());
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let begin = Instant::now();
        if self.random.unit() < FAILURE_PROBABILITY {
            self.tally.failures += 1;
            self.restart_in_chain()?;
        } else {
            self.commit()?;
        }
        Ok(begin.elapsed())
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.sequence += 1;
        let next = self.state.next(self.id, self.sequence);
        next.encode(&mut self.bytes);
        match self.segment.put_if(self.state.version, 0, &self.bytes) {
            Ok(stamp) if stamp.version == next.version => {
                self.state = next;
                self.tally.commits += 1;
                Ok(())
            }
            Ok(stamp) => Err(Error::Inconsistent(format!("{} was committed as {}", next.version, stamp.version))),
            Err(error) if error.kind() == ErrorKind::VersionMismatch => {
                self.tally.conflicts += 1;
                self.restart()
            }
            // It may have taken effect: the segment's content shows it.
            Err(error) if error.is_indeterminate() => self.restart(),
            Err(error) => Err(error.into()),
        }
    }

    /// Restarts from the newest checkpoint.
    fn restart(&mut self) -> Result<(), Error> {
        let stamp = self.segment.get_into(0, &mut self.bytes)?;
        let state = State::decode(&self.bytes, stamp.version)?;
        if state.version < self.state.version {
            let (now, before) = (state.version, self.state.version);
            return Err(Error::Inconsistent(format!("the newest state is {now} after {before} was there")));
        }
        self.state = state;
        self.tally.restarts += 1;
        Ok(())
    }

    /// Restarts, and also checks the checkpoint before, if it is still in the history.
    fn restart_in_chain(&mut self) -> Result<(), Error> {
        self.restart()?;
        let Some(before) = self.state.version.0.checked_sub(1).filter(|&before| before > 0).map(Version) else {
            return Ok(());
        };
        match self.segment.get_with(.., GetOptions::new().at_version(before)) {
            Ok(value) => {
                let previous = State::decode(&value, before)?;
                if !self.state.follows(&previous) {
                    return Err(Error::Inconsistent(format!("{:?} does not follow from {previous:?}", self.state)));
                }
                self.tally.chains += 1;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::VersionGone => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
