//! Mutation tests: the simulator finds each bug that can be planted into the engine, within a minute.
//!
//! `cargo test --release -p ddss-sim --features planted --test planted`
#![cfg(feature = "planted")]
#![allow(clippy::print_stdout, reason = "the output shows which seed finds each bug")]

use ddss_engine::Bug;
use ddss_sim::{Scenario, run};

/// Returns the first seed with a violation, and that violation.
fn first_violation(bug: Option<Bug>, seeds: u64) -> Option<(u64, String)> {
    let plan = Scenario { operations: 2000, bug, ..Scenario::default() };
    (1..=seeds).find_map(|seed| Some((seed, run(seed, &plan).violations.into_iter().next()?)))
}

fn assert_found(bug: Bug) {
    let (seed, what) = first_violation(Some(bug), 3000).unwrap_or_else(|| panic!("{bug:?} was not found"));
    println!("{bug:?}: seed {seed}: {what}");
}

// Otherwise the other tests would prove nothing.
#[test]
fn no_violation_without_a_planted_bug() {
    assert_eq!(first_violation(None, 60), None);
}

macro_rules! each_bug_is_found {
    ($($name:ident: $bug:ident,)*) => {
        $(
            // Otherwise the engine could have this bug while every campaign passes.
            #[test]
            fn $name() {
                assert_found(Bug::$bug);
            }
        )*
    };
}

each_bug_is_found! {
    skipped_version_is_found: SkippedVersion,
    forgotten_refusal_is_found: ForgottenRefusal,
    unchecked_unlock_is_found: UncheckedUnlock,
    unrecorded_renewal_is_found: UnrecordedRenewal,
    stale_generation_is_found: StaleGeneration,
    early_completion_is_found: EarlyCompletion,
    torn_accepted_is_found: TornAccepted,
    single_state_read_is_found: SingleStateRead,
    history_lost_is_found: HistoryLost,
    unchecked_token_is_found: UncheckedToken,
    waiter_dropped_is_found: WaiterDropped,
    eternal_copy_is_found: EternalCopy,
    unspoilt_copy_is_found: UnspoiltCopy,
    unseen_lock_is_found: UnseenLock,
    read_together_is_found: ReadTogether,
    early_reclaim_is_found: EarlyReclaim,
    no_snapshot_is_found: NoSnapshot,
    unchecked_version_is_found: UncheckedVersion,
    first_range_only_is_found: FirstRangeOnly,
    early_acknowledgement_is_found: EarlyAcknowledgement,
    unparted_replica_is_found: UnpartedReplica,
    unfenced_home_is_found: UnfencedHome,
    stale_copy_is_found: StaleCopy,
    unchecked_permission_is_found: UncheckedPermission,
    short_way_past_lock_is_found: ShortWayPastLock,
    short_way_unkept_is_found: ShortWayUnkept,
    standing_clock_is_found: StandingClock,
    deaf_clock_is_found: DeafClock,
    unmarked_commit_is_found: UnmarkedCommit,
    ungated_commit_is_found: UngatedCommit,
    entry_twice_is_found: EntryTwice,
    replaced_unseen_is_found: ReplacedUnseen,
    row_not_resent_is_found: RowNotResent,
    row_version_of_table_is_found: RowVersionOfTable,
    untold_row_change_is_found: UntoldRowChange,
    row_changes_of_earlier_term_are_found: RowChangesOfEarlierTerm,
    ignored_row_lock_is_found: IgnoredRowLock,
    unmarked_row_lock_is_found: UnmarkedRowLock,
    join_during_commit_is_found: JoinDuringCommit,
    uncommitted_parts_are_found: UncommittedParts,
}

// Otherwise a large put could be acknowledged with one copy, and the death of one node would lose it.
#[test]
fn alone_after_refusal_is_found() {
    assert_parted(Bug::AloneAfterRefusal);
}

// Otherwise a put could be acknowledged with one copy after a home found no memory to commit what its replica has.
#[test]
fn unreserved_undo_is_found() {
    assert_parted(Bug::UnreservedUndo);
}

/// Asserts that homes with a bug part from their replicas without a fault.
fn assert_parted(bug: Bug) {
    let plan = Scenario { operations: 2000, bug: Some(bug), ..Scenario::scarce() };
    let first = |seed| run(seed, &plan).violations.into_iter().find(|what| what.contains("parted from its replica"));
    let (seed, what) = (1..=100).find_map(|seed| Some((seed, first(seed)?))).expect("the bug was not found");
    println!("{bug:?}: seed {seed}: {what}");
}

// Otherwise the two copies of a map could differ after a sweep.
#[test]
fn unforwarded_sweep_is_found() {
    let bug = Some(Bug::UnforwardedSweep);
    let plan = Scenario { operations: 4000, segments: 2, replicated: 1, tables: 6, bug, ..Scenario::default() };
    let first = |seed| run(seed, &plan).violations.into_iter().next();
    let (seed, what) = (1..=1000).find_map(|seed| Some((seed, first(seed)?))).expect("the bug was not found");
    println!("UnforwardedSweep: seed {seed}: {what}");
}

// Otherwise an abandoned lock could block its segment forever.
#[test]
fn endless_lease_is_found() {
    let starved = |bug| {
        let plan = Scenario { operations: 2000, faults: false, bug, ..Scenario::default() };
        (1..=10).map(|seed| run(seed, &plan).starved).sum::<u64>()
    };
    let (without, with) = (starved(None), starved(Some(Bug::EndlessLease)));
    println!("calls past a long deadline: {without} without the bug, {with} with it");
    assert!(with > 100 && with > 10 * without, "{with} against {without}");
}
