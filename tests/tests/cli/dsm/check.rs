//! `ddss dsm run --check`: races that are planted in programs, and programs without one.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::time::Duration;

use ddss::Client;
use ddss_dsm::{Homes, Launch, Region, Space};
use ddss_testkit::{Daemon, binary};

use super::run::{TASK, ddss, ranks_of, said};

const PATIENCE: Duration = Duration::from_secs(60);
/// Elements of a page.
const EACH: usize = 512;
const STEPS: usize = 4;

/// Computes some steps of a stencil in one dimension: each rank has a band, and reads one element on both sides.
fn compute(space: &mut Space, plates: [Region<u64>; 2], has_barriers: bool) {
    let (rank, ranks) = (usize::from(space.rank()), usize::from(space.ranks()));
    let own = rank * EACH / ranks..(rank + 1) * EACH / ranks;
    for plate in plates {
        plate.write(space, own.clone()).unwrap().fill(1);
    }
    space.barrier().unwrap();
    for step in 0..STEPS {
        let before = plates[step % 2].read(space, own.start.saturating_sub(1)..(own.end + 1).min(EACH)).unwrap();
        let sum: u64 = before.iter().sum();
        plates[(step + 1) % 2].write(space, own.clone()).unwrap().fill(sum);
        drop(before);
        if has_barriers {
            space.barrier().unwrap();
        }
    }
}

/// Plays a rank, if this process is one.
fn is_rank() -> bool {
    let Ok(task) = std::env::var(TASK) else { return false };
    let launch = Launch::from_environment().unwrap();
    let client = Client::connect().unwrap();
    let mut space = Space::join(&client, &launch.space, launch.options(64 << 10).timeout(PATIENCE)).unwrap();
    let cells = space.region::<u64>("cells", EACH, Homes::FirstTouch).unwrap();
    let other = space.region::<u64>("other cells", EACH, Homes::FirstTouch).unwrap();
    // Opening a region takes a lock, which would order what a fast rank does behind it.
    space.barrier().unwrap();
    let rank = usize::from(launch.rank);
    match task.as_str() {
        "stencil" => compute(&mut space, [cells, other], true),
        "stencil without barriers" => compute(&mut space, [cells, other], false),
        // The same page, and other bytes.
        "false sharing" => {
            for value in 1..=3 {
                cells.put(&space, rank, value).unwrap();
            }
        }
        "lock" | "two locks" | "no lock" => {
            for _ in 0..3 {
                let count = |space: &Space| cells.put(space, 100, cells.get(space, 100).unwrap() + 1).unwrap();
                let lock = if task == "two locks" { u32::from(launch.rank) } else { 0 };
                if task == "no lock" { count(&space) } else { count(&space.lock(lock).unwrap()) }
            }
        }
        "two spaces" => {
            let name = format!("{}-b", launch.space);
            let second = Space::join(&client, &name, launch.options(4096).timeout(PATIENCE)).unwrap();
            cells.put(&space, 100, rank as u64 + 1).unwrap();
            second.leave().unwrap();
        }
        "race, then death" if space.restored().is_none() => {
            cells.put(&space, 100, rank as u64 + 1).unwrap();
            space.checkpoint(1).unwrap();
            if rank == 1 {
                std::process::abort();
            }
            space.barrier().unwrap_err();
            std::process::exit(1);
        }
        "race, then death" => {}
        "no leave" => {
            // The other rank may have ended before it gets the last message.
            drop(space.barrier());
            std::process::exit(0);
        }
        "semaphore" | "late post" if rank == 0 => {
            if task == "late post" {
                space.post(0).unwrap();
            }
            cells.put(&space, 7, 1).unwrap();
            if task == "semaphore" {
                space.post(0).unwrap();
            }
        }
        "semaphore" | "late post" => {
            space.wait(0).unwrap();
            cells.get(&space, 7).unwrap();
        }
        other => panic!("{other}"),
    }
    space.leave().unwrap();
    true
}

// If this failed, a program with a race would look correct, until it computes something else one day.
#[test]
fn planted_races_are_found_with_their_elements() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let test = "planted_races_are_found_with_their_elements";
    let races = [
        // Each rank reads its neighbour's last or first element while that one writes.
        ("stencil without barriers", "race: rank 0 writes and rank 1 reads other cells[255..256]"),
        ("stencil without barriers", "race: rank 1 writes and rank 0 reads other cells[256..257]"),
        ("stencil without barriers", "race: rank 0 writes and rank 1 reads cells[255..256] behind barrier 2"),
        ("no lock", "race: ranks 0 and 1 write cells[100..101] behind barrier 1"),
        ("no lock", "race: rank 0 writes and rank 1 reads cells[100..101] behind barrier 1"),
        ("two locks", "race: ranks 0 and 1 write cells[100..101] behind barrier 1"),
        ("late post", "race: rank 0 writes and rank 1 reads cells[7..8] behind barrier 1"),
    ];
    for protocol in ["newgendsm", "async"] {
        for (task, race) in races {
            let options = ["-n", "2", "--check", "--protocol", protocol];
            let (code, out, err) = said(&mut ranks_of("dsm::check", &daemon, &options, test, task));
            assert_eq!(code, Some(1), "{task}: {out}{err}");
            assert!(out.contains(race), "{task}: {out}{err}");
            assert!(err.contains("order these accesses by a barrier or a lock"), "{task}: {err}");
        }
    }
}

// If this failed, a race would pass because its rank joined another space, or because the run was repeated behind it.
#[test]
fn race_counts_beside_another_space_and_before_a_restart() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let test = "race_counts_beside_another_space_and_before_a_restart";
    for (task, restarts) in [("two spaces", "0"), ("race, then death", "1")] {
        let options = ["-n", "2", "--check", "--restart", restarts];
        let (code, out, err) = said(&mut ranks_of("dsm::check", &daemon, &options, test, task));
        assert_eq!(code, Some(1), "{task}: {out}{err}");
        assert!(out.contains("race: ranks 0 and 1 write cells[100..101] behind barrier 1"), "{task}: {out}{err}");
        assert!(err.contains("1 races: order these accesses"), "{task}: {err}");
    }
}

// If this failed, a program whose last accesses were not compared would count as one without races.
#[test]
fn check_of_ranks_that_did_not_leave_is_not_passed() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let test = "check_of_ranks_that_did_not_leave_is_not_passed";
    let (code, out, err) = said(&mut ranks_of("dsm::check", &daemon, &["-n", "2", "--check"], test, "no leave"));
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("rank 1 did not leave the space"), "{err}");
    assert!(err.contains("the check is not complete"), "{err}");
}

// If this failed, a program without races would be called wrong, and no one would look at the next report.
#[test]
fn programs_without_races_pass_the_check() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let test = "programs_without_races_pass_the_check";
    for protocol in ["newgendsm", "async"] {
        for task in ["stencil", "false sharing", "lock", "semaphore"] {
            let options = ["-n", "2", "--check", "--protocol", protocol];
            let (code, out, err) = said(&mut ranks_of("dsm::check", &daemon, &options, test, task));
            assert_eq!(code, Some(0), "{task}: {out}{err}");
            assert!(!out.contains("race:"), "{task}: {out}");
        }
    }
    // The program of the demonstration.
    let words = ["dsm", "run", "-n", "4", "--check", "--"];
    let mut command = ddss(&daemon, &words);
    let (code, out, err) = said(command.arg(binary("ddss").unwrap()).arg("demo-rank"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(out.matches("computed").count(), 4, "{out}");
    // A program that knows nothing of the check is no program without races.
    let folder = tempfile::tempdir().unwrap();
    let mut command = ddss(&daemon, &["dsm", "run", "-n", "1", "--check", "--", "true"]);
    let (code, _, err) = said(command.env("TMPDIR", folder.path()));
    assert_eq!(code, Some(1));
    assert!(err.contains("no rank has left a trace"), "{err}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "traces stayed behind");
}
