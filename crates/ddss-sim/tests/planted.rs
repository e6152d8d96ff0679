//! Tests of the tests: each bug that can be planted into the engine is found by the simulator, within a minute.
//!
//! `cargo test --release -p ddss-sim --features planted --test planted`
#![cfg(feature = "planted")]
#![allow(clippy::print_stdout, reason = "what found it is what a reader wants to know")]

use ddss_core::engine::Bug;
use ddss_sim::{Plan, run};

/// The first seed under which something is found, and what.
fn found(bug: Option<Bug>, seeds: u64) -> Option<(u64, String)> {
    let plan = Plan { operations: 2000, bug, ..Plan::default() };
    (1..=seeds).find_map(|seed| Some((seed, run(seed, &plan).violations.into_iter().next()?)))
}

fn is_found(bug: Bug) {
    let (seed, what) = found(Some(bug), 300).unwrap_or_else(|| panic!("{bug:?} was not found"));
    println!("{bug:?}: seed {seed}: {what}");
}

// If this failed, the others would prove nothing: they would find what is there without any bug.
#[test]
fn without_a_bug_nothing_is_found() {
    assert_eq!(found(None, 60), None);
}

macro_rules! each_is_found {
    ($($name:ident: $bug:ident,)*) => {
        $(
            // If this failed, the engine could have this bug and every campaign would still pass.
            #[test]
            fn $name() {
                is_found(Bug::$bug);
            }
        )*
    };
}

each_is_found! {
    a_skipped_version: SkippedVersion,
    a_refusal_that_is_forgotten: ForgottenRefusal,
    an_unlock_without_a_check: UncheckedUnlock,
    a_stale_generation: StaleGeneration,
    a_completion_before_the_bytes: EarlyCompletion,
    a_torn_read: TornAccepted,
    a_missing_second_look: OneLook,
    a_version_that_was_not_kept: HistoryLost,
    a_token_that_was_not_checked: UncheckedToken,
    a_waiter_that_was_dropped: WaiterDropped,
    a_copy_that_never_grows_old: EternalCopy,
    a_copy_that_outlives_a_put: UnspoiltCopy,
    a_lock_that_was_not_seen: UnseenLock,
    gets_of_read_that_run_together: ReadTogether,
    memory_given_away_too_early: EarlyReclaim,
    bytes_that_change_on_their_way: NoSnapshot,
    a_condition_that_was_not_checked: UncheckedVersion,
    ranges_that_were_not_written: FirstRangeOnly,
    a_put_acknowledged_before_the_mirror_has_it: EarlyAcknowledgement,
    a_mirror_that_takes_over_without_the_newest_puts: UnpartedMirror,
    an_old_home_that_is_not_fenced: UnfencedHome,
    a_mirror_that_has_another_version_than_it_says: StaleCopy,
    a_permission_that_was_not_checked: UncheckedPermission,
    a_short_way_past_a_lock: ShortWayPastLock,
    a_short_way_that_keeps_nothing: ShortWayUnkept,
    a_version_of_the_same_time_as_the_one_before: StandingClock,
    a_version_made_before_what_its_asker_had_seen: DeafClock,
    a_commit_that_does_not_say_that_it_writes: UnmarkedCommit,
}

// If this failed, a lock whose holder forgot it would stand for ever, and nobody would notice.
#[test]
fn a_lease_that_never_ends() {
    let starved = |bug| {
        let plan = Plan { operations: 2000, faults: false, bug, ..Plan::default() };
        (1..=10).map(|seed| run(seed, &plan).starved).sum::<u64>()
    };
    let (without, with) = (starved(None), starved(Some(Bug::EndlessLease)));
    println!("calls that waited in vain: {without} without the bug, {with} with it");
    assert!(with > 100 && with > 10 * without, "{with} against {without}");
}
