//! Fair shares of the users that call at the same time.
//!
//! A user may have many clients, and each of those many channels. While only one user calls, all its channels are
//! served as requests come. When several users call, each has a fixed share of a round over the hot channels, whatever
//! it has pending. A user that fills all its rings only delays itself.
//!
//! Requests are weighed in units of a small request. A request heavier than the user's share (a segment, a mebibyte) is
//! served immediately. The user then gets nothing until the others have received as much or want nothing.

/// Share of one user in a round over the hot channels, when several users call. A call behind those of another user
/// waits less than twice as long as one that is alone.
const USER_SHARE: usize = 4;

/// Share of one user.
#[derive(Debug, Default)]
struct UserShare {
    uid: u32,
    channels: usize,
    hot_channels: usize,
    /// Round to which `remaining` applies.
    round: u32,
    remaining: usize,
    /// Weight that the user has received, and weight that the others must have received before it gets more.
    received: u64,
    resume_at: u64,
}

impl UserShare {
    /// Returns the weight that the others have received, given the total.
    fn received_by_others(&self, all: u64) -> u64 {
        all - self.received
    }

    /// Returns true if the user has to wait for the others, given the total.
    fn is_waiting(&self, all: u64, is_idle: bool) -> bool {
        !is_idle && self.received_by_others(all) < self.resume_at
    }
}

/// Shares of a server's users, each at an index that is stable while the user has a channel.
#[derive(Debug, Default)]
pub(crate) struct FairShare {
    users: Vec<UserShare>,
    round: u32,
    /// Number of users with a hot channel.
    calling_users: usize,
    /// Weight that all users have received while several called.
    received: u64,
    /// Only users that have to wait had requests for a while.
    is_idle: bool,
}

impl FairShare {
    /// Adds a channel of a user. Returns the index of its share.
    pub(crate) fn add_channel(&mut self, uid: u32) -> u32 {
        let is_same_user = |user: &UserShare| user.channels > 0 && user.uid == uid;
        let index =
            self.users.iter().position(is_same_user).or_else(|| self.users.iter().position(|user| user.channels == 0));
        let index = index.unwrap_or_else(|| {
            self.users.push(UserShare::default());
            self.users.len() - 1
        });
        let user = &mut self.users[index];
        user.uid = uid;
        if user.channels == 0 {
            (user.received, user.resume_at) = (0, 0);
        }
        user.channels += 1;
        index as u32
    }

    /// Removes a channel that is not hot.
    pub(crate) fn remove_channel(&mut self, index: u32) {
        self.users[index as usize].channels -= 1;
    }

    /// Records that a channel has become hot.
    pub(crate) fn add_hot_channel(&mut self, index: u32) {
        let user = &mut self.users[index as usize];
        user.hot_channels += 1;
        self.calling_users += usize::from(user.hot_channels == 1);
    }

    /// Records that a channel is no longer hot.
    pub(crate) fn remove_hot_channel(&mut self, index: u32) {
        let user = &mut self.users[index as usize];
        user.hot_channels -= 1;
        self.calling_users -= usize::from(user.hot_channels == 0);
    }

    /// Returns true if several users call.
    #[inline(always)]
    pub(crate) fn has_several_users(&self) -> bool {
        self.calling_users > 1
    }

    /// Begins another round. `is_idle` states that recent rounds found no request for a while.
    #[inline]
    pub(crate) fn begin_round(&mut self, is_idle: bool) {
        self.round = self.round.wrapping_add(1);
        self.is_idle = is_idle;
    }

    /// Returns the weight that the user may still receive in this round.
    #[cold]
    #[inline(never)]
    pub(crate) fn remaining_share(&mut self, index: u32) -> usize {
        let user = &mut self.users[index as usize];
        if user.round != self.round {
            user.round = self.round;
            user.remaining = if user.is_waiting(self.received, self.is_idle) { 0 } else { USER_SHARE };
        }
        user.remaining
    }

    /// Returns true if the user gets nothing before the others have received as much.
    #[cold]
    #[inline(never)]
    pub(crate) fn has_to_wait(&self, index: u32) -> bool {
        self.users[index as usize].is_waiting(self.received, self.is_idle)
    }

    /// Charges a weight to the user.
    #[cold]
    #[inline(never)]
    pub(crate) fn charge(&mut self, index: u32, weight: usize) {
        let user = &mut self.users[index as usize];
        let beyond = weight.saturating_sub(user.remaining) as u64;
        user.remaining = user.remaining.saturating_sub(weight);
        user.received += weight as u64;
        self.received += weight as u64;
        if beyond > 0 {
            user.resume_at = user.received_by_others(self.received) + beyond;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_a_user_is_independent_of_its_channel_count() {
        // If this failed, one user's full rings would take all polls.
        let mut shares = FairShare::default();
        let (one, other) = (shares.add_channel(7), shares.add_channel(8));
        assert_eq!(shares.add_channel(7), one, "one share for all channels of a user");
        shares.add_hot_channel(one);
        shares.add_hot_channel(one);
        assert!(!shares.has_several_users());
        shares.add_hot_channel(other);
        assert!(shares.has_several_users());
        shares.begin_round(false);
        assert_eq!((shares.remaining_share(one), shares.remaining_share(other)), (USER_SHARE, USER_SHARE));
        shares.charge(one, USER_SHARE);
        assert_eq!((shares.remaining_share(one), shares.remaining_share(other)), (0, USER_SHARE));
        shares.begin_round(false);
        assert_eq!(shares.remaining_share(one), USER_SHARE);
    }

    #[test]
    fn heavy_user_waits_until_others_catch_up_or_are_idle() {
        // If this failed, calls of other users would wait for heavy requests, or heavy requests would starve.
        let mut shares = FairShare::default();
        let (one, other) = (shares.add_channel(7), shares.add_channel(8));
        shares.begin_round(false);
        assert_eq!(shares.remaining_share(one), USER_SHARE);
        shares.charge(one, USER_SHARE + 3);
        for _ in 0..3 {
            shares.begin_round(false);
            assert_eq!((shares.remaining_share(one), shares.remaining_share(other)), (0, USER_SHARE));
            shares.charge(other, 1);
        }
        shares.begin_round(false);
        assert_eq!(shares.remaining_share(one), USER_SHARE, "the other user has received as much");
        shares.charge(one, 100);
        shares.begin_round(false);
        assert_eq!(shares.remaining_share(one), 0);
        shares.begin_round(true);
        assert_eq!(shares.remaining_share(one), USER_SHARE, "the other user is idle");
    }

    #[test]
    fn departed_user_frees_its_entry() {
        // If this failed, users that come and go would make each check slower, or a new user would inherit an old
        // account.
        let mut shares = FairShare::default();
        let first = shares.add_channel(1);
        shares.add_hot_channel(first);
        shares.remove_hot_channel(first);
        shares.remove_channel(first);
        assert!(!shares.has_several_users());
        let second = shares.add_channel(2);
        assert_eq!((first, shares.users.len()), (second, 1));
        shares.add_hot_channel(second);
        let third = shares.add_channel(1);
        shares.add_hot_channel(third);
        assert!(shares.has_several_users() && third != second);
    }
}
