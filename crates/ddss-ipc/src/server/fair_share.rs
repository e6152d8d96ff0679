//! Whose lanes have requests of late, and what is left for each user in one go around them.
//!
//! A user may have many clients, and each of those many lanes. As long as nobody else calls, all of them are served as they
//! come. Where several users call, each has so much answered in one go around the lanes, whatever he has waiting: who fills
//! all his rings waits longer by that himself, and nobody else does.
//!
//! What is asked for is weighed in requests that ask for little. Who asks for more than his share of a go (a segment, a
//! mebibyte) gets it at once, and then nothing until the others have had as much, or want nothing.

/// What one user gets in a go around the hot lanes, where there are several users. A call that comes behind those of another
/// user waits less than twice as long as one that is alone.
const USER_TURN: usize = 4;

/// One user.
#[derive(Debug, Default)]
struct UserShare {
    uid: u32,
    lanes: usize,
    hot: usize,
    /// The go around in which `left` counts.
    turn: u32,
    left: usize,
    /// What he has got, and what the others have to have got before he gets anything again.
    got: u64,
    waits_for: u64,
}

impl UserShare {
    /// What the others have got, of so much for all.
    fn others(&self, all: u64) -> u64 {
        all - self.got
    }

    /// Whether he has to wait for them, when all got so much.
    fn waits(&self, all: u64, free: bool) -> bool {
        !free && self.others(all) < self.waits_for
    }
}

/// The users of a station, each in a place that stays as long as he has a lane.
#[derive(Debug, Default)]
pub(crate) struct FairShare {
    places: Vec<UserShare>,
    turn: u32,
    /// Users with a hot lane.
    calling: usize,
    /// What all have got since there were several.
    got: u64,
    /// Nobody has wanted anything for a while but who has to wait.
    free: bool,
}

impl FairShare {
    /// A lane of that user comes; his place.
    pub(crate) fn enter(&mut self, uid: u32) -> u32 {
        let is_his = |user: &UserShare| user.lanes > 0 && user.uid == uid;
        let place = self.places.iter().position(is_his).or_else(|| self.places.iter().position(|user| user.lanes == 0));
        let place = place.unwrap_or_else(|| {
            self.places.push(UserShare::default());
            self.places.len() - 1
        });
        let user = &mut self.places[place];
        user.uid = uid;
        if user.lanes == 0 {
            (user.got, user.waits_for) = (0, 0);
        }
        user.lanes += 1;
        place as u32
    }

    /// A lane that is not hot goes.
    pub(crate) fn leave(&mut self, place: u32) {
        self.places[place as usize].lanes -= 1;
    }

    /// A lane has requests again.
    pub(crate) fn warms(&mut self, place: u32) {
        let user = &mut self.places[place as usize];
        user.hot += 1;
        self.calling += usize::from(user.hot == 1);
    }

    /// A lane has had none for a while.
    pub(crate) fn cools(&mut self, place: u32) {
        let user = &mut self.places[place as usize];
        user.hot -= 1;
        self.calling -= usize::from(user.hot == 0);
    }

    /// Whether there is anybody to whom something has to be left.
    #[inline(always)]
    pub(crate) fn are_several(&self) -> bool {
        self.calling > 1
    }

    /// Another go around begins; `free` says that the last ones found nothing for a while.
    #[inline]
    pub(crate) fn begin_turn(&mut self, free: bool) {
        self.turn = self.turn.wrapping_add(1);
        self.free = free;
    }

    /// How much that user may still get in this go around.
    #[cold]
    #[inline(never)]
    pub(crate) fn left(&mut self, place: u32) -> usize {
        let user = &mut self.places[place as usize];
        if user.turn != self.turn {
            user.turn = self.turn;
            user.left = if user.waits(self.got, self.free) { 0 } else { USER_TURN };
        }
        user.left
    }

    /// Whether that user gets nothing before the others had as much, by whichever lane he asks.
    #[cold]
    #[inline(never)]
    pub(crate) fn has_to_wait(&self, place: u32) -> bool {
        self.places[place as usize].waits(self.got, self.free)
    }

    /// He got so much.
    #[cold]
    #[inline(never)]
    pub(crate) fn took(&mut self, place: u32, weight: usize) {
        let user = &mut self.places[place as usize];
        let beyond = weight.saturating_sub(user.left) as u64;
        user.left = user.left.saturating_sub(weight);
        user.got += weight as u64;
        self.got += weight as u64;
        if beyond > 0 {
            user.waits_for = user.others(self.got) + beyond;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_share_in_each_turn_however_many_lanes_are_his() {
        // If this broke, one user's full rings would be all that is looked at.
        let mut users = FairShare::default();
        let (one, other) = (users.enter(7), users.enter(8));
        assert_eq!(users.enter(7), one, "one place for all his lanes");
        users.warms(one);
        users.warms(one);
        assert!(!users.are_several());
        users.warms(other);
        assert!(users.are_several());
        users.begin_turn(false);
        assert_eq!((users.left(one), users.left(other)), (USER_TURN, USER_TURN));
        users.took(one, USER_TURN);
        assert_eq!((users.left(one), users.left(other)), (0, USER_TURN));
        users.begin_turn(false);
        assert_eq!(users.left(one), USER_TURN);
    }

    #[test]
    fn who_asks_for_much_waits_until_others_had_as_much_or_want_nothing() {
        // If this broke, each call of somebody else would wait for a segment that is made, or nobody's would ever be.
        let mut users = FairShare::default();
        let (one, other) = (users.enter(7), users.enter(8));
        users.begin_turn(false);
        assert_eq!(users.left(one), USER_TURN);
        users.took(one, USER_TURN + 3);
        for _ in 0..3 {
            users.begin_turn(false);
            assert_eq!((users.left(one), users.left(other)), (0, USER_TURN));
            users.took(other, 1);
        }
        users.begin_turn(false);
        assert_eq!(users.left(one), USER_TURN, "the other one had as much");
        users.took(one, 100);
        users.begin_turn(false);
        assert_eq!(users.left(one), 0);
        users.begin_turn(true);
        assert_eq!(users.left(one), USER_TURN, "the other one wants nothing");
    }

    #[test]
    fn who_has_gone_takes_no_place() {
        // If this broke, users that come and go would make each look at them longer, or somebody would be the last one's heir.
        let mut users = FairShare::default();
        let first = users.enter(1);
        users.warms(first);
        users.cools(first);
        users.leave(first);
        assert!(!users.are_several());
        let second = users.enter(2);
        assert_eq!((first, users.places.len()), (second, 1));
        users.warms(second);
        let third = users.enter(1);
        users.warms(third);
        assert!(users.are_several() && third != second);
    }
}
