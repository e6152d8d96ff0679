//! A daemon in a control group whose memory limit is below its pool: the kernel would kill it, the daemon does not let it.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ddss::{Client, ConnectOptions, ErrorKind, Spec};
use ddss_testkit::{DaemonOptions, binary, pattern, skipped};

const LIMIT: u64 = 192 << 20;
const POOL_BYTES: u64 = 1 << 30;
const SEGMENT_BYTES: u64 = 8 << 20;
/// Time limit of a call on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A control group with a memory limit, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new() -> Result<Self, String> {
        let name = format!("ddss-test-{}", std::process::id());
        for (root, file) in [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")] {
            let group = Self(Path::new(root).join(&name));
            if std::fs::create_dir(&group.0).is_err() || !group.0.join(file).exists() {
                continue;
            }
            return match std::fs::write(group.0.join(file), LIMIT.to_string()) {
                Ok(()) => Ok(group),
                Err(error) => Err(format!("it needs a memory limit: {error}")),
            };
        }
        Err("it needs control groups with the memory controller, and root".to_owned())
    }

    /// Returns a command that runs the words after it in the group.
    fn prefix(&self) -> Vec<String> {
        let enter = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
        ["sh", "-c", enter, self.0.to_str().unwrap()].map(str::to_owned).into()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is busy until the kernel has forgotten its last process.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

// If this failed, a container with less memory than the pool would lose its node, with all data, at some allocation.
#[test]
fn allocation_beyond_the_memory_limit_fails_and_the_daemon_lives() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(why) => return skipped("allocation_beyond_the_memory_limit_fails_and_the_daemon_lives", &why),
    };
    let through = group.prefix();
    let options = DaemonOptions::new(1).unwrap().pool_bytes(POOL_BYTES).command_prefix(through.clone());
    let mut daemon = options.start().unwrap();
    let log = daemon.process().stderr();
    assert!(log.contains("the memory limit is too low for the pool"), "{log}");
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap();
    let mut segments = Vec::new();
    let error = loop {
        match client.segment(&format!("fill/{}", segments.len())).allocate(Spec::new(SEGMENT_BYTES)) {
            Ok(segment) => segments.push(segment),
            Err(error) => break error,
        }
        assert!((segments.len() as u64) < LIMIT / SEGMENT_BYTES, "more than the limit");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(segments.len() >= 10, "{} segments", segments.len());
    let bytes = |seed: usize| pattern(seed as u64, SEGMENT_BYTES as usize);
    // Half of the segments go: large puts need room beside the old bytes.
    segments.drain(..segments.len() / 2).for_each(|segment| segment.release().unwrap());
    for round in 0..2 {
        for (index, segment) in segments.iter().enumerate() {
            segment.put(0, &bytes(index + round)).unwrap();
        }
    }
    for (index, segment) in segments.iter().enumerate() {
        assert!(segment.get(..).unwrap()[..] == bytes(index + 1)[..], "segment {index}");
    }
    assert!(daemon.process().wait(Duration::ZERO).unwrap().is_none(), "{}", daemon.process().stderr());

    drop(client);
    daemon.process().end().unwrap();
    let mut check = Command::new(&through[0]);
    check.args(&through[1..]).arg(binary("ddssd").unwrap()).arg("--check-config").arg("--dir").arg(daemon.folder());
    let said = check.args(["--pool-bytes", &POOL_BYTES.to_string()]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains(&format!("the memory limit is {LIMIT} bytes")), "{said}");
    let mut doctor = Command::new(&through[0]);
    let said = doctor.args(&through[1..]).arg(binary("ddss").unwrap()).arg("doctor").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("memory limit  ") && said.contains("192"), "{said}");
    // The memory of the segments stays charged to the group until it is given back.
    daemon.restart().unwrap();
    drop(daemon);
}
