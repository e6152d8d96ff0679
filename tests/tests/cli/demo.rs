//! The command `demo`: its output, and the files that it leaves.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_testkit::{binary, copy_program, preload_library};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

// If this failed, the first command of a new user would fail, or leave a directory behind.
#[test]
fn demo_shows_its_steps_and_leaves_no_files() {
    let run = Command::new(binary("ddss").unwrap()).args(["demo", "--measure-ms", "20"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    assert!(!out.contains('\x1b'), "colours and cursors are for terminals: {out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80 || line.contains("cargo")), "{out}");
    for strategy in ["mq", "rmq", "rcq", "auto"] {
        let line = out.lines().find(|line| line.trim_start().starts_with(strategy)).unwrap();
        let micros: Vec<f64> = line.split_whitespace().skip(1).map(|cell| cell.parse().unwrap()).collect();
        assert!(micros.len() == 7 && micros.iter().all(|&micros| micros > 0.0), "{line}");
    }
    assert_eq!(out.matches("none failed").count(), 4, "two clients saw two others die: {out}");
    let remote = out.lines().filter(|line| line.contains("node 2:") && line.ends_with("the handle recovered"));
    assert!(remote.count() == 1, "a client of the other node used a segment of the daemon that was killed: {out}");
    assert_eq!(out.matches("by the same handle as before").count(), 2, "{out}");
    let left = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let left_over =
        |name: &str| name.strip_prefix("ddss-demo-").is_some_and(|pid| !Path::new("/proc").join(pid).exists());
    assert!(
        left.map(|entry| entry.file_name()).all(|name| !left_over(&name.to_string_lossy())),
        "a folder stayed behind"
    );
}

// If this failed, a user would see no gain, or figures of connections that stayed on TCP.
#[test]
fn demo_of_streams_compares_tcp_with_shared_memory() {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["demo", "streams", "--measure-ms", "100"]).env("DDSS_PRELOAD", preload_library().unwrap());
    let run = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    assert_eq!(out.matches("requests a second").count(), 2, "{out}");
    assert_eq!(out.matches("server's CPU").count(), 2, "{out}");
    assert!(out.contains("Other programs used ") && out.contains(" cores: "), "the condition is missing: {out}");
}

// If this failed, a newcomer would see no shared pages, a death without an error, or a plate that is wrong.
#[test]
fn demo_of_shared_pages_survives_a_killed_rank() {
    let run = Command::new(binary("ddss").unwrap()).args(["demo", "dsm"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    assert!(out.lines().all(|line| line.chars().count() <= 90), "{out}");
    let counts = |protocol: &str| -> Vec<u64> {
        let line = out.lines().find(|line| line.starts_with(protocol)).unwrap();
        line.split_whitespace().skip(1).take(3).map(|cell| cell.parse().unwrap()).collect()
    };
    let [asked, read] = ["async", "newgendsm"].map(counts);
    assert!(asked.iter().chain(&read).all(|count| *count > 0), "{out}");
    // A page and a diff are messages only in the first.
    assert!(asked[1] > read[1], "{out}");
    assert!(out.contains("rank 2: killed (SIGKILL) in step 25"), "{out}");
    assert_eq!(out.matches("rank 2 is lost, and the space with it: restart from a checkpoint").count(), 3, "{out}");
    assert!(out.contains("they went on from step 20"), "{out}");
}

// If this failed, a newcomer would see a queue that does not follow the load, or that loses messages with a process.
#[test]
fn demo_of_queues_gives_a_slow_process_less_and_loses_nothing_with_a_dead_one() {
    let run = Command::new(binary("ddss").unwrap()).args(["demo", "river"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    // What each process took, what was lost, and what came twice.
    let row = |name: &str| -> [usize; 6] {
        let line = out.lines().find_map(|line| line.trim_start().strip_prefix(name)).unwrap();
        let cells: Vec<usize> = line.split_whitespace().take(6).map(|cell| cell.parse().unwrap()).collect();
        cells.try_into().unwrap()
    };
    assert_eq!(row("a part for each "), [100, 100, 100, 100, 0, 0], "{out}");
    let [first, second, third, slow, lost, _] = row("one queue ");
    assert!(slow < first.min(second).min(third) && lost == 0, "{out}");
    let [.., dead, lost, twice] = row("one is killed ");
    assert!(dead >= 10 && lost == 0 && twice <= 1, "{out}");
}

// If this failed, a user without the programs would not learn their names.
#[test]
fn demo_of_streams_names_missing_programs() {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["demo", "streams"]).env("DDSS_PRELOAD", preload_library().unwrap()).env("PATH", "/nowhere");
    let run = command.output().unwrap();
    assert!(!run.status.success());
    assert!(String::from_utf8_lossy(&run.stderr).contains("install redis or python3"), "{run:?}");
}

/// Waits until `what` returns a value.
fn wait<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(Instant::now() < end, "the wait has a deadline");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// If this failed, a killed measurement would leave daemons behind, with a core and memory each.
#[test]
fn nodes_of_killed_program_end() {
    let mut bench = Command::new(binary("ddss").unwrap());
    let mut bench = bench.args(["bench", "--measure-ms", "60000"]).stdout(Stdio::null()).spawn().unwrap();
    let pid = bench.id();
    let file =
        |process: u32, name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
    let is_daemon = |process: &u32| file(*process, "comm").trim() == "ddssd";
    let nodes = wait(|| {
        let children = file(pid, &format!("task/{pid}/children"));
        let nodes: Vec<u32> = children.split_whitespace().flat_map(str::parse).filter(is_daemon).collect();
        (nodes.len() == 2).then_some(nodes)
    });
    bench.kill().unwrap();
    bench.wait().unwrap();
    // A zombie has ended; only its new parent has not reaped it yet.
    let has_ended = |process: &u32| {
        let status = file(*process, "stat");
        status.is_empty() || status.contains(") Z ")
    };
    wait(|| nodes.iter().all(has_ended).then_some(()));
    let _ = std::fs::remove_dir_all(format!("/dev/shm/ddss-bench-{pid}"));
}

// If this failed, a user who built only one of the two programs would not learn about the other.
#[test]
fn missing_daemon_program_is_named_with_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("ddss");
    copy_program(&binary("ddss").unwrap(), &alone).unwrap();
    let run = Command::new(&alone).arg("demo").env("PATH", folder.path()).output().unwrap();
    let error = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot start a node: cannot run the program ddssd"), "{error}");
    assert!(error.contains("cargo build --release --bin ddssd"), "{error}");
}
