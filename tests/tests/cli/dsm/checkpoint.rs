//! Checkpoints with `ddss dsm run --restart`: this program again, as each rank.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a rank tells its test what it sees")]

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ddss::{Client, LockOptions, Segment};
use ddss_dsm::{Homes, Launch, Space, SpaceError};
use ddss_testkit::{Daemon, DaemonOptions};
use serde_json::json;

use super::run::{TASK, ddss, ranks_of, said, spaces};

const MODULE: &str = "dsm::checkpoint";
const PATIENCE: Duration = Duration::from_secs(60);
/// Deadline of ranks that are to reach it.
const HASTE: Duration = Duration::from_secs(10);
/// Words of the region: with `fill`, two checkpoints of it do not fit into the daemon's memory.
const WORDS: usize = 700_000;

/// Plays a rank, if this process is one: each step adds to some words.
fn is_rank() -> bool {
    let Ok(task) = std::env::var(TASK) else { return false };
    let launch = Launch::from_environment().unwrap();
    let client = Client::connect().unwrap();
    let timeout = if ["alone", "hasty"].contains(&task.as_str()) { HASTE } else { PATIENCE };
    let joined = Space::join(&client, &launch.space, launch.options(8 << 20).timeout(timeout));
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
        if task == "alone" && step == 4 {
            println!("ready");
            while Client::connect().is_ok() {}
        }
        if step % 2 == 0 {
            match space.checkpoint(step) {
                Ok(()) => {}
                Err(error @ (SpaceError::CheckpointFailed { .. } | SpaceError::CheckpointRefused { .. })) => {
                    println!("rank {}: {error}", launch.rank);
                    // The space goes on.
                    space.barrier().unwrap();
                    if task == "alone" {
                        break;
                    }
                    std::process::exit(1);
                }
                Err(error) => panic!("{error}"),
            }
        }
        if task == "late" && step == 6 && launch.rank == 1 {
            std::process::abort();
        }
        if task == "die" && step == 5 && launch.rank == 1 && begin.is_none() {
            std::process::abort();
        }
    }
    if launch.rank == 0 {
        let all = words.read(&space, ..2000).unwrap();
        println!("the sum is {}", all.iter().sum::<u64>());
    }
    if ["fail", "late", "hasty"].contains(&task.as_str()) {
        drop(space);
        std::process::exit(1);
    }
    if let Err(error) = space.leave() {
        println!("rank {} leaves: {error}", launch.rank);
        std::process::exit(1);
    }
    true
}

fn segment(daemon: &Daemon, name: &str) -> Segment {
    let client = Client::connect_with(ddss::ConnectOptions::new().directory(daemon.folder())).unwrap();
    client.segment(name).open().unwrap()
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
        assert_eq!(out.matches(expected).count(), 2, "{expected}: {out}{err}");
    };
    let damage = |name: &str| {
        let part = segment(&daemon, name);
        let last = part.len() - 1;
        let byte = part.get(last..).unwrap()[0];
        part.put(last, &[byte ^ 1]).unwrap();
    };
    begin("begins at None");
    begin("begins at Some(6)");
    damage("dsm-checkpoint/heat");
    begin("its root is damaged, or of another release");
    // The same change again takes the damage back.
    damage("dsm-checkpoint/heat");
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

// If this failed, a restart could go on from pages of two different steps: those of ranks that lived at different times.
#[test]
fn part_of_another_life_is_not_used() {
    if is_rank() {
        return;
    }
    let test = "part_of_another_life_is_not_used";
    let daemon = Daemon::start(1).unwrap();
    let run = |task: &str, expected: &str| {
        let (code, out, err) = said(&mut ranks_of(MODULE, &daemon, &["-n", "2", "--space", "heat"], test, task));
        assert_eq!((code, out.matches(expected).count()), (Some(1), 2), "{out}{err}");
    };
    run("die", "begins at None");
    let names = ["dsm-checkpoint/heat", "dsm-pages/heat/0.0", "dsm-pages/heat/1.0"];
    let read = |name: &str| segment(&daemon, name).get(..).unwrap().to_vec();
    let before = names.map(read);
    run("late", "begins at Some(4)");
    let stale = read(names[2]);
    // As if that life had ended before it named its checkpoint.
    names.iter().zip(&before).for_each(|(name, bytes)| assert!(segment(&daemon, name).put(0, bytes).is_ok()));
    run("late", "begins at Some(4)");
    assert_eq!(read(names[2]).len(), stale.len());
    segment(&daemon, names[2]).put(0, &stale).unwrap();
    run("fail", "begins at Some(4)");
}

// If this failed, ranks would go back to an older checkpoint, and overwrite the last one, because a node is away for a moment.
#[test]
fn part_that_cannot_be_read_for_now_is_not_given_up() {
    if is_rank() {
        return;
    }
    let test = "part_that_cannot_be_read_for_now_is_not_given_up";
    let daemon = Daemon::start(1).unwrap();
    let run = |task: &str| said(&mut ranks_of(MODULE, &daemon, &["-n", "2", "--space", "heat"], test, task));
    assert!(run("fail").1.contains("begins at None"));
    let part = segment(&daemon, "dsm-pages/heat/1.0");
    let guard = part.lock_with(LockOptions::new().keep_alive()).unwrap();
    let (code, out, err) = run("hasty");
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("rank 1: cannot read the checkpoint: "), "{out}{err}");
    assert!(
        out.contains("rank 0: cannot read the checkpoint: 1 of the other ranks say why; start again later"),
        "{out}"
    );
    assert!(!out.contains("dsm rm"), "{out}");
    guard.unlock().unwrap();
    assert_eq!(run("fail").1.matches("begins at Some(6)").count(), 2);
}

// If this failed, a daemon that is away at a checkpoint, or at the end, would end a space that lives without it.
#[test]
fn space_goes_on_and_ends_in_order_without_its_daemon() {
    if is_rank() {
        return;
    }
    let test = "space_goes_on_and_ends_in_order_without_its_daemon";
    let mut daemon = Daemon::start(1).unwrap();
    let mut command = ranks_of(MODULE, &daemon, &["-n", "2", "--space", "heat"], test, "alone");
    let mut run = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(run.stdout.take().unwrap());
    let (mut text, end) = (String::new(), Instant::now() + PATIENCE);
    while text.matches("ready").count() < 2 {
        assert!(out.read_line(&mut text).unwrap() > 0 && Instant::now() < end, "{text}");
    }
    daemon.kill().unwrap();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(1));
    assert_eq!(
        text.matches("the checkpoint of step 4 was not written, and the one before it stays").count(),
        2,
        "{text}"
    );
    assert!(text.contains("rank 0 leaves: cannot read the checkpoint: "), "only the checkpoint stays: {text}");
    assert!(!text.contains("rank 1 leaves"), "{text}");
}

// If this failed, the second copy of a checkpoint would be of no use: nobody could join the space whose directory is gone.
#[test]
fn space_is_restored_when_the_node_of_its_directory_is_dead() {
    if is_rank() {
        return;
    }
    let test = "space_is_restored_when_the_node_of_its_directory_is_dead";
    let first = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let join = |node| DaemonOptions::new(node).unwrap().joins(first.listen()).start().unwrap();
    let (mut second, _third) = (join(2), join(3));
    let options = ["-n", "2", "--space", "heat", "--ranks"];
    let start = |daemon: &Daemon, rank: &str| {
        let mut command = ranks_of(MODULE, daemon, &[&options[..], &[rank]].concat(), test, "die");
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut at_second = start(&second, "1-1");
    let end = Instant::now() + PATIENCE;
    while spaces(&second)[0]["home"] != 2 {
        assert!(Instant::now() < end, "{}", spaces(&second));
    }
    let mut at_first = start(&first, "0-0");
    assert_eq!([&mut at_first, &mut at_second].map(|run| run.wait().unwrap().code()), [Some(1); 2]);
    second.kill().unwrap();
    let (code, out, err) = said(&mut ranks_of(MODULE, &first, &options[..4], test, "end"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(out.matches("begins at Some(4)").count(), 2, "{out}");
    assert!(out.contains(&format!("the sum is {SUM}")), "{out}");
}
