//! Version and timestamp of a segment's bytes, and the checks that every get and put has to pass on each path.
//!
//! A version changes in one of two ways: a commit makes it one higher, with a later timestamp, or a replica starts over
//! with the bytes of its home.

use crate::state::segments::Segment;
use ddss_core::{Access, Failure, Header, HybridClock, Principal, PutConditions, Timestamp, Version};

impl Segment {
    #[inline(always)]
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    #[inline(always)]
    pub(crate) fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// Returns version and timestamp.
    #[inline(always)]
    pub(crate) fn stamp(&self) -> (Version, Timestamp) {
        (self.version, self.timestamp)
    }

    /// Returns true if the bytes belong to a version. Those of an incomplete replica do not.
    pub(crate) fn is_whole(&self) -> bool {
        self.timestamp.0 != 0
    }

    /// Returns true if that stamp may follow the current one.
    #[inline(always)]
    pub(crate) fn is_followed_by(&self, (version, timestamp): (Version, Timestamp)) -> bool {
        version.0 == self.version.0 + 1 && timestamp > self.timestamp
    }

    /// Checks that a user may read or write a range, and that the range lies inside.
    #[inline(always)]
    pub(crate) fn check_access(
        &self,
        principal: Principal,
        access: Access,
        offset: u64,
        bytes: u32,
    ) -> Result<(), Failure> {
        self.permissions.allow(principal, access)?;
        self.check_range(offset, bytes)
    }

    /// Checks that a put names a version if its model demands it.
    #[inline(always)]
    pub(crate) fn check_names_version(&self, conditions: &PutConditions) -> Result<(), Failure> {
        let is_named = conditions.version.is_some() || !self.spec.model.put_names_version(conditions.requested_model);
        if is_named { Ok(()) } else { Err(Failure::VersionMismatch) }
    }

    /// Checks that a put which names a version names the current one.
    #[inline(always)]
    pub(crate) fn check_version(&self, named: Option<Version>) -> Result<(), Failure> {
        if named.is_none_or(|version| version == self.version) { Ok(()) } else { Err(Failure::VersionMismatch) }
    }

    /// Returns the stamp of the next commit.
    #[inline(always)]
    pub(crate) fn next_stamp(&self, clock: &mut HybridClock, wall_us: u64) -> (Version, Timestamp) {
        (Version(self.version.0 + 1), clock.next(wall_us))
    }

    /// Advances to the stamp of a commit.
    #[inline(always)]
    pub(crate) fn advance(&mut self, stamp: (Version, Timestamp)) {
        assert!(self.is_followed_by(stamp), "a commit makes the next version, later than the one before");
        (self.version, self.timestamp) = stamp;
    }

    /// Starts over with bytes of that stamp and without history; a timestamp of 0 means that they are incomplete.
    pub(crate) fn start_over(&mut self, stamp: (Version, Timestamp)) {
        (self.version, self.timestamp) = stamp;
        if self.has_history() {
            self.rare_mut().oldest = self.version;
        }
    }

    /// Returns true if older versions are saved.
    #[inline(always)]
    pub(crate) fn has_history(&self) -> bool {
        !self.rare().history_timestamps.is_empty()
    }

    /// Records the timestamp of the current version for as long as the history holds it.
    #[inline(always)]
    pub(crate) fn record_timestamp(&mut self) {
        if self.has_history() {
            self.record_timestamp_in_history();
        }
    }

    fn record_timestamp_in_history(&mut self) {
        let timestamp = self.timestamp;
        if let Some(place) = self.version.0.checked_rem(self.rare().history_timestamps.len() as u64) {
            self.rare_mut().history_timestamps[place as usize] = timestamp;
        }
    }

    /// Returns data offset, version and timestamp of the newest version, or of a named one.
    pub(crate) fn find(&self, wanted: Option<Version>) -> Result<(u64, Version, Timestamp), Failure> {
        let newest = (self.at + Header::DATA_OFFSET, self.version, self.timestamp);
        let Some(wanted) = wanted.filter(|&wanted| wanted != self.version) else { return Ok(newest) };
        if wanted > self.version {
            return Err(Failure::VersionMismatch);
        }
        if wanted < self.rare().oldest || self.version.0 - wanted.0 > u64::from(self.spec.history_len()) {
            return Err(Failure::VersionGone);
        }
        let line = self.history_offset(wanted).ok_or(Failure::VersionGone)?;
        Ok((line + Header::DATA_OFFSET, wanted, self.recorded_timestamp(wanted)))
    }

    /// Returns the timestamp of a version that the history holds.
    fn recorded_timestamp(&self, version: Version) -> Timestamp {
        let timestamps = &self.rare().history_timestamps;
        timestamps[(version.0 % timestamps.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;
    use crate::requester::Requester;
    use crate::state::segments::Segments;
    use ddss_core::{Name, NodeId, Permissions, SegmentId, Shard, Spec};

    const OWNER: Principal = Principal { uid: 7, gid: 7 };

    fn segments() -> (Segments, SegmentId) {
        let mut segments = Segments::new(&EngineConfig {
            node: NodeId(1),
            shard: Shard::ONLY,
            pool_bytes: 1 << 20,
            peers: Vec::new(),
            first_generation: 1,
            reads_overlap: true,
        });
        let name = Name::new("stamps").expect("it is short");
        let permissions = Permissions { owner: OWNER, mode: 0o600 };
        let made =
            segments.allocate(name, Spec::new(64), permissions, Timestamp(5), Requester::Peer(NodeId(2), 1), None);
        let id = made.expect("the pool is empty").segment;
        assert!(segments.get(id).is_err(), "its memory is not there");
        segments.formed(id).expect("it is in creation");
        (segments, id)
    }

    #[test]
    fn checks_refuse_other_users_ranges_and_versions() {
        // If this broke, one of the paths could let a call pass that another path refuses.
        let (segments, id) = segments();
        let segment = segments.get(id).expect("it was created");
        let other = Principal { uid: 8, gid: 8 };
        assert_eq!(segment.check_access(OWNER, Access::Write, 56, 8), Ok(()));
        assert_eq!(segment.check_access(OWNER, Access::Write, 57, 8), Err(Failure::OutOfRange));
        assert_eq!(segment.check_access(OWNER, Access::Read, u64::MAX, 8), Err(Failure::OutOfRange));
        assert_eq!(
            segment.check_access(other, Access::Read, 57, 8),
            Err(Failure::PermissionDenied),
            "says nothing of its size"
        );
        assert_eq!((segment.check_version(None), segment.check_version(Some(Version(0)))), (Ok(()), Ok(())));
        assert_eq!(segment.check_version(Some(Version(1))), Err(Failure::VersionMismatch));
    }

    #[test]
    fn commit_makes_the_next_version_with_a_later_timestamp() {
        // If this broke, a reader could not tell two values apart.
        let (mut segments, id) = segments();
        let segment = segments.get_mut(id).expect("it was created");
        let mut clock = HybridClock::default();
        let stamp = segment.next_stamp(&mut clock, 1 << 20);
        segment.advance(stamp);
        assert_eq!(segment.stamp(), stamp);
        let (Version(version), Timestamp(timestamp)) = stamp;
        for wrong in [(version, timestamp + 1), (version + 2, timestamp + 1), (version + 1, timestamp)] {
            assert!(!segment.is_followed_by((Version(wrong.0), Timestamp(wrong.1))), "{wrong:?}");
        }
        segment.start_over((Version(0), Timestamp(0)));
        assert!(!segment.is_whole());
    }

    #[test]
    #[should_panic(expected = "a commit makes the next version")]
    fn commit_of_an_old_stamp_is_caught() {
        let (mut segments, id) = segments();
        segments.get_mut(id).expect("it was created").advance((Version(1), Timestamp(5)));
    }
}
