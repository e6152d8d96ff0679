//! Checkpoints with `ddss dsm run --restart`: this program again, as each rank.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a rank tells its test what it sees")]

use std::time::Duration;

use ddss::Client;
use ddss_dsm::{Homes, Launch, Space, SpaceError};
use ddss_testkit::{Daemon, DaemonOptions};
use serde_json::json;

use super::run::{TASK, ddss, ranks_of, said, spaces};

const MODULE: &str = "dsm::checkpoint";
const PATIENCE: Duration = Duration::from_secs(60);
/// Words of the region: with `fill`, two checkpoints of it do not fit into the daemon's memory.
const WORDS: usize = 700_000;

/// Plays a rank, if this process is one: each step adds to some words.
fn is_rank() -> bool {
    let Ok(task) = std::env::var(TASK) else { return false };
    let launch = Launch::from_environment().unwrap();
    let client = Client::connect().unwrap();
    let joined = Space::join(&client, &launch.space, launch.options(8 << 20).timeout(PATIENCE));
    let mut space = match joined {
        Ok(space) => space,
        Err(error) => {
            println!("rank {}: {error}", launch.rank);
            std::process::exit(1);
        }
    };
    let words = space.region::<u64>("words", WORDS, Homes::FirstTouch).unwrap();
    let part = usize::from(launch.rank) * 512..usize::from(launch.rank) * 512 + 300;
    let begin = space.restored();
    println!("rank {} begins at {begin:?}", launch.rank);
    space.barrier().unwrap();
    for step in begin.unwrap_or(0) + 1..=6 {
        words.write(&space, part.clone()).unwrap().iter_mut().for_each(|word| *word += step);
        if task == "fill" && step == 4 && launch.rank == 1 && begin.is_none() {
            words.write(&space, ..).unwrap()[2000..].fill(7);
        }
        space.barrier().unwrap();
        if step % 2 == 0 {
            match space.checkpoint(step) {
                Ok(()) => {}
                Err(error @ (SpaceError::CheckpointFailed { .. } | SpaceError::CheckpointRefused { .. })) => {
                    println!("rank {}: {error}", launch.rank);
                    // The space goes on.
                    space.barrier().unwrap();
                    std::process::exit(1);
                }
                Err(error) => panic!("{error}"),
            }
        }
        if task == "die" && step == 5 && launch.rank == 1 && begin.is_none() {
            std::process::abort();
        }
    }
    if launch.rank == 0 {
        let all = words.read(&space, ..2000).unwrap();
        println!("the sum is {}", all.iter().sum::<u64>());
    }
    if task == "fail" {
        drop(space);
        std::process::exit(1);
    }
    space.leave().unwrap();
    true
}

/// Sum of the first words after all steps of two ranks.
const SUM: u64 = 2 * 300 * (1 + 2 + 3 + 4 + 5 + 6);

// If this failed, a run would begin again with zeros, or go on from pages of a step that is none.
#[test]
fn restarted_ranks_go_on_from_the_last_checkpoint() {
    if is_rank() {
        return;
    }
    let test = "restarted_ranks_go_on_from_the_last_checkpoint";
    for daemon in [Daemon::start(1).unwrap(), Daemon::pair().map(|[first, _second]| first).unwrap()] {
        for protocol in ["newgendsm", "async"] {
            let options = ["-n", "2", "--restart", "1", "--protocol", protocol];
            let (code, out, err) = said(&mut ranks_of(MODULE, &daemon, &options, test, "die"));
            assert_eq!(code, Some(0), "{out}{err}");
            assert!(err.contains("rank 1 was killed by signal 6: restart 1 of 1"), "{err}");
            assert_eq!(out.matches("begins at None").count(), 2, "{out}");
            assert_eq!(out.matches("begins at Some(4)").count(), 2, "{out}");
            assert!(out.contains(&format!("the sum is {SUM}")), "{out}");
            assert_eq!(spaces(&daemon), json!([]));
        }
    }
}

// If this failed, a checkpoint for which there is no room would destroy the one before it, or end the space.
#[test]
fn checkpoint_without_room_is_an_error_and_the_one_before_stays() {
    if is_rank() {
        return;
    }
    let test = "checkpoint_without_room_is_an_error_and_the_one_before_stays";
    let daemon = DaemonOptions::new(1).unwrap().pool_bytes(4 << 20).start().unwrap();
    let options = ["-n", "2", "--space", "heat"];
    let (code, out, err) = said(&mut ranks_of(MODULE, &daemon, &options, test, "fill"));
    assert_eq!(code, Some(1), "{out}{err}");
    let failed = "rank 1: the checkpoint of step 4 was not written, and the one before it stays: ";
    assert!(out.contains(failed), "{out}");
    assert!(out.contains("no space") || out.contains("memory"), "the reason of the daemon: {out}");
    assert!(out.contains("rank 0: the checkpoint of step 4 was not written"), "{out}");
    assert!(err.contains("the same command goes on from the last checkpoint"), "{err}");
    assert_eq!(
        spaces(&daemon),
        json!([{ "space": "heat", "ranks": null, "live": 0, "home": null, "checkpoint": true }])
    );
    // Other settings are refused with both values, and the checkpoint stays.
    let (code, out, _) = said(&mut ranks_of(MODULE, &daemon, &["-n", "3", "--space", "heat"], test, "end"));
    assert_eq!(code, Some(1));
    assert!(out.contains("rank 0: the checkpoint has 2 ranks, and this space 3"), "{out}");
    // A run that ends well goes on from it, and removes it.
    let (code, out, err) = said(&mut ranks_of(MODULE, &daemon, &options, test, "end"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(out.matches("begins at Some(2)").count(), 2, "{out}");
    assert!(out.contains(&format!("the sum is {SUM}")), "{out}");
    assert_eq!(spaces(&daemon), json!([]));
}

// If this failed, a part that is torn or damaged would become pages of a space, or an older checkpoint would be of no use.
#[test]
fn damaged_checkpoint_is_not_used() {
    if is_rank() {
        return;
    }
    let test = "damaged_checkpoint_is_not_used";
    let daemon = Daemon::start(1).unwrap();
    let options = ["-n", "2", "--space", "heat"];
    let begin = |expected: &str| {
        let (code, out, err) = said(&mut ranks_of(MODULE, &daemon, &options, test, "fail"));
        assert_eq!(code, Some(1), "{out}{err}");
        // The others may learn that rank 0 has ended before they learn why.
        let sayers = if expected.starts_with("begins") { 2 } else { 1 };
        assert!(out.matches(expected).count() >= sayers, "{expected}: {out}{err}");
    };
    let damage = |name: &str| {
        let client = Client::connect_with(ddss::ConnectOptions::new().directory(daemon.folder())).unwrap();
        let part = client.segment(name).open().unwrap();
        let last = part.len() - 1;
        let byte = part.get(last..).unwrap()[0];
        part.put(last, &[byte ^ 1]).unwrap();
    };
    begin("begins at None");
    begin("begins at Some(6)");
    // Attempts 1 to 3 were written to slots 0, 1 and 0.
    damage("dsm-pages/heat/1.0");
    begin("begins at Some(4)");
    // The damaged slot was written again, by attempt 4, and its predecessor is that of step 4.
    damage("dsm-pages/heat/0.0");
    damage("dsm-pages/heat/1.1");
    begin("no checkpoint of this space can be read by all ranks");
    let (code, out, _) = said(&mut ddss(&daemon, &["dsm", "rm", "heat"]));
    assert_eq!((code, out.as_str()), (Some(0), "heat: released\n"));
    begin("begins at None");
}
