//! Mutation tests: the simulator finds each bug that can be planted into the engine of page-based shared memory.
//!
//! `cargo test --release -p ddss-sim --features planted --test planted_dsm`
#![cfg(feature = "planted")]
#![allow(clippy::print_stdout, reason = "the output shows which seed finds each bug")]

use ddss_dsm_core::{Bug, Ordering, Protocol};
use ddss_sim::{DsmScenario, run_dsm};

/// Returns the first seed with a violation, and that violation.
fn first_violation(scenario: &DsmScenario, seeds: u64) -> Option<(u64, String)> {
    (1..=seeds).find_map(|seed| Some((seed, run_dsm(seed, scenario).violations.into_iter().next()?)))
}

fn assert_found(bug: Bug, scenario: DsmScenario) {
    let scenario = DsmScenario { bug: Some(bug), ..scenario };
    let (seed, what) = first_violation(&scenario, 20_000).unwrap_or_else(|| panic!("{bug:?} was not found"));
    println!("{bug:?}: seed {seed}: {what}");
}

/// Settings in which most rules matter.
fn stamped() -> DsmScenario {
    DsmScenario { protocol: Some(Protocol::NewGenDsm), ordering: Some(Ordering::Stamped), ..DsmScenario::default() }
}

fn placed() -> DsmScenario {
    DsmScenario { ordering: Some(Ordering::Placed), ..stamped() }
}

/// Records are overwritten soon.
fn tiny_log() -> DsmScenario {
    DsmScenario { has_tiny_log: true, ..stamped() }
}

fn with_deaths() -> DsmScenario {
    DsmScenario { deaths: true, ..DsmScenario::default() }
}

// Otherwise the other tests would prove nothing.
#[test]
fn no_violation_without_a_planted_bug() {
    for scenario in [stamped(), placed(), tiny_log(), with_deaths()] {
        assert_eq!(first_violation(&scenario, 200), None);
    }
}

macro_rules! each_bug_is_found {
    ($($name:ident: $bug:ident in $scenario:ident,)*) => {
        $(
            // Otherwise the engine could have this bug while every campaign passes.
            #[test]
            fn $name() {
                assert_found(Bug::$bug, $scenario());
            }
        )*
    };
}

each_bug_is_found! {
    invalidated_before_close_is_found: InvalidatedBeforeClose in stamped,
    diff_before_unmap_is_found: DiffBeforeUnmap in stamped,
    joined_runs_are_found: JoinedRuns in stamped,
    stale_twin_is_found: StaleTwin in stamped,
    direct_behind_packed_is_found: DirectBehindPacked in stamped,
    overlapping_writes_are_found: OverlappingWrites in stamped,
    page_before_line_is_found: PageBeforeLine in stamped,
    stamp_before_diff_is_found: StampBeforeDiff in stamped,
    unchecked_line_is_found: UncheckedLine in stamped,
    coarse_unplaced_is_found: CoarseUnplaced in stamped,
    overwritten_unplaced_is_found: OverwrittenUnplaced in tiny_log,
    claim_without_word_is_found: ClaimWithoutWord in stamped,
    own_page_too_early_is_found: OwnPageTooEarly in stamped,
    lost_notice_is_found: LostNotice in stamped,
    only_granter_notices_is_found: OnlyGranterNotices in stamped,
    lock_granted_twice_is_found: LockGrantedTwice in stamped,
    barrier_too_early_is_found: BarrierTooEarly in stamped,
    unplaced_release_is_found: UnplacedRelease in placed,
    notice_during_fetch_is_found: NoticeDuringFetch in placed,
    fetch_behind_packed_is_found: FetchBehindPacked in stamped,
    counter_without_acquire_is_found: CounterWithoutAcquire in stamped,
    second_waiter_lost_is_found: SecondWaiterLost in stamped,
    wait_outlives_rank_is_found: WaitOutlivesRank in with_deaths,
}
