//! State of an application, with the data that proves its consistency.

use ddss::Version;
use ddss_testkit::Random;

use crate::Error;

/// Minimum size of a state in bytes.
pub(crate) const STATE_BYTES_MIN: usize = 64;
/// Bytes of the header in front of the payload.
const FRONT: usize = 40;

/// State that a process commits.
///
/// ```text
///  0         8        16         24      32      40
/// +---------+--------+----------+-------+-------+--------------------------------+
/// | version | writer | sequence | chain | check | what writer and sequence make  |
/// +---------+--------+----------+-------+-------+--------------------------------+
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The version that the segment gets with this state.
    pub version: Version,
    /// Number of the writer.
    pub writer: u64,
    /// Number of the writer's commit.
    pub sequence: u64,
    /// Follows from the chain of the state before, the writer and the sequence.
    pub chain: u64,
}

fn mix(a: u64, b: u64) -> u64 {
    let sum = (a.rotate_left(23) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    sum ^ (sum >> 31)
}

impl State {
    /// Returns the state before the first commit.
    pub const EMPTY: State = State { version: Version(0), writer: 0, sequence: 0, chain: 0 };

    /// Returns the next state, committed by `writer`.
    #[must_use]
    pub fn next(&self, writer: u64, sequence: u64) -> State {
        let chain = mix(mix(self.chain, writer), sequence);
        State { version: Version(self.version.0 + 1), writer, sequence, chain }
    }

    /// Returns true if this state follows `before`.
    pub fn follows(&self, before: &State) -> bool {
        *self == before.next(self.writer, self.sequence)
    }

    /// Encodes the state into all of `bytes`.
    pub fn encode(&self, bytes: &mut [u8]) {
        let mut random = Random::new(mix(self.writer, self.sequence));
        for word in bytes[FRONT..].chunks_mut(8) {
            word.copy_from_slice(&random.word().to_le_bytes()[..word.len()]);
        }
        let words = [self.version.0, self.writer, self.sequence, self.chain];
        for (word, at) in words.iter().zip(bytes.chunks_exact_mut(8)) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        let check = check(bytes);
        bytes[32..FRONT].copy_from_slice(&check.to_le_bytes());
    }

    /// Decodes the content of a segment at `version`, and verifies that a process committed it as that version.
    pub fn decode(bytes: &[u8], version: Version) -> Result<State, Error> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if version == Version(0) && bytes.iter().all(|&byte| byte == 0) {
            return Ok(State::EMPTY);
        }
        let state = State { version: Version(word(0)), writer: word(8), sequence: word(16), chain: word(24) };
        if word(32) != check(bytes) {
            return Err(Error::Inconsistent(format!("the state of {version} is not whole: {state:?}")));
        }
        if state.version != version {
            return Err(Error::Inconsistent(format!("the state of {version} is that of {}", state.version)));
        }
        Ok(state)
    }
}

/// Returns the checksum of all bytes except the checksum.
fn check(bytes: &[u8]) -> u64 {
    let low = crc32c::crc32c(&bytes[..32]);
    u64::from(crc32c::crc32c_append(low, &bytes[FRONT..])) | (bytes.len() as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncommitted_state_is_detected() {
        // Otherwise a restart from half a state would pass for one from a checkpoint.
        let state = State::EMPTY.next(7, 1).next(8, 1);
        assert!(state.follows(&State::EMPTY.next(7, 1)) && !state.follows(&State::EMPTY.next(7, 2)));
        let (mut bytes, mut other) = (vec![0; 200], vec![0; 200]);
        assert_eq!(State::decode(&bytes, Version(0)).unwrap(), State::EMPTY);
        state.encode(&mut bytes);
        state.next(9, 4).encode(&mut other);
        assert_eq!(State::decode(&bytes, Version(2)).unwrap(), state);
        assert!(State::decode(&bytes, Version(3)).is_err());
        for cut in [1, 8, 39, 40, 100, 199] {
            let torn = [&other[..cut], &bytes[cut..]].concat();
            assert!(State::decode(&torn, Version(2)).is_err(), "torn at {cut}");
            assert!(State::decode(&torn, Version(3)).is_err(), "torn at {cut}");
        }
    }
}
