//! `ddss dsm run`, `ls` and `rm`: starts, ends and deaths of ranks.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a rank tells its test what it sees")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_dsm::{Homes, Launch, Space};
use ddss_testkit::{Daemon, binary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// Variable with the task of a rank after it has joined.
pub(crate) const TASK: &str = "DDSS_TEST_TASK";

pub(crate) fn ddss(daemon: &Daemon, words: &[&str]) -> Command {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(words).env("DDSS_DIR", daemon.folder());
    command
}

/// `ddss dsm run` of ranks that play `task` in the test of this name.
fn ranks(daemon: &Daemon, options: &[&str], test: &str, task: &str) -> Command {
    ranks_of("dsm::run", daemon, options, test, task)
}

/// The same of a test of this module.
pub(crate) fn ranks_of(module: &str, daemon: &Daemon, options: &[&str], test: &str, task: &str) -> Command {
    let mut command = ddss(daemon, &[&["dsm", "run"], options].concat());
    let own = std::env::current_exe().unwrap();
    command.arg("--").arg(own).args(["--exact", &format!("{module}::{test}"), "--nocapture"]).env(TASK, task);
    command
}

pub(crate) fn said(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

pub(crate) fn spaces(daemon: &Daemon) -> Value {
    let (code, out, err) = said(&mut ddss(daemon, &["dsm", "ls", "--json"]));
    assert_eq!(code, Some(0), "{err}");
    serde_json::from_str(&out).unwrap()
}

/// Plays a rank, if this process is one.
fn is_rank() -> bool {
    let Ok(task) = std::env::var(TASK) else { return false };
    let launch = Launch::from_environment().unwrap();
    let client = Client::connect().unwrap();
    let mut space = Space::join(&client, &launch.space, launch.options(64 << 10).timeout(PATIENCE)).unwrap();
    let sums = space.region::<u64>("sums", launch.ranks.into(), Homes::FirstTouch).unwrap();
    sums.put(&space, launch.rank.into(), u64::from(launch.rank) + 1).unwrap();
    space.barrier().unwrap();
    match task.as_str() {
        "end" if launch.rank == 0 => println!("the sum is {}", sums.read(&space, ..).unwrap().iter().sum::<u64>()),
        // Not before the others have passed the barrier: they may learn of a death before its last message.
        "fail" if launch.rank == 1 => {
            (0..2).for_each(|_| space.wait(0).unwrap());
            std::process::exit(7)
        }
        // The answer may be lost with rank 1.
        "fail" => drop(space.post(0)),
        "cells" => println!(
            "cells: {}",
            sums.cells(&space, ..).map(drop).map_or_else(|error| error.to_string(), |()| "work".into())
        ),
        "wait" => {
            println!("pid {}", std::process::id());
            // Nobody comes to the second barrier.
            space.wait(3).unwrap();
        }
        _ => {}
    }
    if task == "fail" {
        println!("{}", space.barrier().unwrap_err());
        std::process::exit(1);
    }
    space.leave().unwrap();
    true
}

/// Starts ranks that wait, and returns their processes once all of them are at work.
fn waiting(command: &mut Command) -> (Child, Vec<i32>) {
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let pid = |line: std::io::Result<String>| line.unwrap().strip_prefix("pid ").and_then(|pid| pid.parse().ok());
    let pids = lines.filter_map(pid).take(2).collect();
    (run, pids)
}

fn until_gone(pids: &[i32]) {
    let end = Instant::now() + PATIENCE;
    // A process that ended and that nobody has waited for yet is a zombie.
    let lives = |pid: &i32| {
        let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
        stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
    };
    while pids.iter().any(lives) {
        assert!(Instant::now() < end, "ranks {pids:?} live on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

// If this failed, a program that uses regions in place would need a setting of its own for each machine.
#[test]
fn way_of_page_faults_is_chosen_by_an_option() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let test = "way_of_page_faults_is_chosen_by_an_option";
    let without = "cells: this rank has joined without page faults";
    for (options, words) in [(&["-n", "2", "--page-faults", "mprotect"][..], "cells: work"), (&["-n", "2"], without)] {
        let (code, out, err) = said(&mut ranks(&daemon, options, test, "cells"));
        assert_eq!(code, Some(0), "{err}");
        assert_eq!(out.matches(words).count(), 2, "{out}");
    }
}

// If this failed, nobody could start the ranks of a program, or a run would leave its name behind.
#[test]
fn ranks_of_a_program_share_a_space_and_leave_nothing_behind() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let test = "ranks_of_a_program_share_a_space_and_leave_nothing_behind";
    for protocol in ["newgendsm", "async"] {
        let options = ["-n", "3", "--protocol", protocol];
        let (code, out, err) = said(&mut ranks(&daemon, &options, test, "end"));
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains("the sum is 6"), "{out}");
    }
    assert_eq!(spaces(&daemon), json!([]));
    let (code, _, err) = said(&mut ranks(&daemon, &["-n", "2", "--space", "heat", "--ranks", "1-2"], test, "end"));
    assert_eq!((code, err.as_str()), (Some(1), "ddss: rank 2 is none of a space of 2 ranks: the last one is 1\n"));
}

// If this failed, a failed rank would look like success, or the others would wait for it.
#[test]
fn failed_rank_ends_the_run_and_is_named() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let (code, out, err) = said(&mut ranks(&daemon, &["-n", "3"], "failed_rank_ends_the_run_and_is_named", "fail"));
    assert_eq!(code, Some(1), "{err}");
    let ends = "rank 0 ended with status 1, rank 1 ended with status 7, rank 2 ended with status 1";
    assert!(err.contains(&format!("ddss: the space has ended: {ends}\n")), "{err}");
    assert_eq!(out.matches("rank 1 is lost, and the space with it").count(), 2, "{out}");
    assert_eq!(spaces(&daemon), json!([]));
    let (code, _, err) = said(ddss(&daemon, &["dsm", "run", "-n", "2", "--", "/no/such/program"]).env_remove(TASK));
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("cannot run /no/such/program"), "{err}");
}

// If this failed, an interrupted run would leave processes that compute for nobody, or a name that nobody can use again.
#[test]
fn interrupted_run_ends_its_ranks_and_living_ranks_keep_their_name() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let test = "interrupted_run_ends_its_ranks_and_living_ranks_keep_their_name";
    let (mut run, pids) = waiting(&mut ranks(&daemon, &["-n", "2", "--space", "heat"], test, "wait"));
    assert_eq!(spaces(&daemon), json!([{ "space": "heat", "ranks": 2, "live": 2, "home": 1, "checkpoint": false }]));
    let (code, _, err) = said(&mut ddss(&daemon, &["dsm", "rm", "heat"]));
    assert_eq!(code, Some(1));
    assert_eq!(err, "ddss: 2 ranks of heat live: end them first, or repeat with --force\n");
    // The same command again finds all places taken, and leaves the name to those that have it.
    let (code, _, err) = said(&mut ranks(&daemon, &["-n", "2", "--space", "heat"], test, "end"));
    assert_eq!(code, Some(1), "{err}");
    assert_eq!(spaces(&daemon)[0]["live"], 2, "{err}");
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(130), "a failed rank has another code");
    until_gone(&pids);
    assert_eq!(spaces(&daemon), json!([]));
    let (mut run, pids) = waiting(&mut ranks(&daemon, &["-n", "2", "--space", "heat"], test, "wait"));
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(143));
    until_gone(&pids);
    // A command that is killed releases nothing, but its ranks end with it.
    let (mut run, pids) = waiting(&mut ranks(&daemon, &["-n", "2", "--space", "heat"], test, "wait"));
    run.kill().unwrap();
    run.wait().unwrap();
    until_gone(&pids);
    let end = Instant::now() + PATIENCE;
    while spaces(&daemon)[0]["live"] != 0 {
        assert!(Instant::now() < end, "{}", spaces(&daemon));
    }
    let (code, out, _) = said(&mut ddss(&daemon, &["dsm", "rm", "heat"]));
    assert_eq!((code, out.as_str()), (Some(0), "heat: released\n"));
    let (code, _, err) = said(&mut ddss(&daemon, &["dsm", "rm", "heat"]));
    assert_eq!((code, err.as_str()), (Some(1), "ddss: no space heat: `ddss dsm ls` lists them\n"));
}

// If this failed, a run would go on from the pages of another program that once had its process id, or remove its checkpoint.
#[test]
fn run_without_a_name_touches_no_other_checkpoint() {
    if is_rank() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let run = ranks(&daemon, &["-n", "1"], "run_without_a_name_touches_no_other_checkpoint", "end");
    let mut shell = Command::new("sh");
    // The process id of the run is known before the run begins.
    shell.args(["-c", "read line; exec \"$@\"", "sh"]).arg(run.get_program()).args(run.get_args());
    shell.env("DDSS_DIR", daemon.folder()).env(TASK, "end").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut run = shell.spawn().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let foreign = client.segment(&format!("dsm-checkpoint/run-{}", run.id())).allocate(88).unwrap();
    foreign.put(0, &[1; 88]).unwrap();
    run.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(run.wait().unwrap().success());
    assert_eq!(&foreign.get(..).unwrap()[..], [1; 88]);
}

// If this failed, the operator would read that no daemon runs there, and not which rank was killed.
#[test]
fn reason_of_a_rank_is_named_although_the_daemon_is_gone() {
    if is_rank() {
        return;
    }
    let mut daemon = Daemon::start(1).unwrap();
    let test = "reason_of_a_rank_is_named_although_the_daemon_is_gone";
    let (run, pids) = waiting(&mut ranks(&daemon, &["-n", "2"], test, "wait"));
    daemon.kill().unwrap();
    kill_process(Pid::from_raw(pids[0]).unwrap(), Signal::KILL).unwrap();
    let Output { status, stderr, .. } = run.wait_with_output().unwrap();
    let err = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{err}");
    assert!(err.contains("was killed by signal 9"), "{err}");
    assert!(err.contains("cannot remove the checkpoints of run-"), "{err}");
}
