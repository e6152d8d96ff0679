//! Mutation tests: the simulator finds each bug that can be planted into the engines of data flow.
//!
//! `cargo test --release -p ddss-sim --features planted --test planted_river`
#![cfg(feature = "planted")]
#![allow(clippy::print_stdout, reason = "the output shows which seed finds each bug")]

use ddss_river_core::Bug;
use ddss_sim::{RiverScenario, run_river};

/// Returns the first seed with a violation, and that violation.
fn first_violation(scenario: &RiverScenario, seeds: u64) -> Option<(u64, String)> {
    (1..=seeds).find_map(|seed| Some((seed, run_river(seed, scenario).violations.into_iter().next()?)))
}

/// Finds a violation that begins with the name of a rule.
fn assert_found(bug: Bug, rule: &str) {
    let scenario = RiverScenario { bug: Some(bug) };
    let (seed, what) = first_violation(&scenario, 2_000).unwrap_or_else(|| panic!("{bug:?} was not found"));
    println!("{bug:?}: seed {seed}: {what}");
    assert!(what.starts_with(rule), "{bug:?}: {what}, and no violation of {rule}");
}

// Otherwise the other tests would prove nothing.
#[test]
fn no_violation_without_a_planted_bug() {
    assert_eq!(first_violation(&RiverScenario::default(), 400), None);
}

macro_rules! each_bug_is_found {
    ($($name:ident: $bug:ident by $rule:literal,)*) => {
        $(
            // Otherwise the engine could have this bug while every campaign passes.
            #[test]
            fn $name() {
                assert_found(Bug::$bug, $rule);
            }
        )*
    };
}

each_bug_is_found! {
    credit_used_twice_is_found: CreditUsedTwice by "memory",
    recalled_message_also_processed_is_found: RecalledProcessed by "doubled",
    end_before_last_acknowledgement_is_found: EndBeforeAcknowledgement by "end",
    unflagged_redelivery_is_found: UnflaggedRedelivery by "doubled",
    message_forgotten_by_loss_is_found: ForgottenByLoss by "end",
    endless_redelivery_is_found: EndlessRedelivery by "end",
    mirror_bytes_of_another_generation_are_found: ForeignGeneration by "unexpected",
    lag_ignored_is_found: LagIgnored by "lag",
    unit_finished_by_a_fenced_worker_is_found: FencedFinish by "fenced",
    claim_that_expires_despite_renewals_is_found: RenewalIgnored by "fenced",
    claim_that_expires_in_an_outage_is_found: OutageCounted by "fenced",
    messages_of_a_dead_producer_that_are_forgotten_are_found: DeadProducerForgotten by "lost",
    chunks_forgotten_by_loss_are_found: ChunksForgotten by "end",
}
