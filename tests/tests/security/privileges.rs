//! Privileges of a daemon beyond its user: only those that it needs.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::{Duration, Instant};

use ddss_testkit::{DaemonOptions, TempNode, binary, copy_program, skipped};

/// `CAP_NET_BIND_SERVICE` and `CAP_IPC_LOCK`.
const KEPT: u64 = 1 << 10 | 1 << 14;
const OTHER_USER: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(30);

// If this failed, a compromised daemon of root could read and change every file of the machine.
#[test]
fn daemon_threads_drop_all_capabilities() {
    let daemon = DaemonOptions::new(1).unwrap().clustered().argument("--metrics-listen=0").start().unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let mut threads = 0;
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let word = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let set = |name: &str| u64::from_str_radix(&word(name), 16).unwrap();
        assert_eq!(word("NoNewPrivs:"), "1", "{status}");
        assert_eq!((set("CapEff:") & !KEPT, set("CapPrm:") & !KEPT), (0, 0), "{status}");
        assert_eq!((set("CapInh:"), set("CapAmb:")), (0, 0), "{status}");
        threads += 1;
    }
    assert!(threads >= 4, "{threads} threads");
}

// If this failed, other users could not be clients of a daemon that root runs, or their queues would stay behind.
#[test]
fn root_daemon_serves_other_users_without_capabilities() {
    let test = "root_daemon_serves_other_users_without_capabilities";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "it needs root, to be another user");
    }
    let daemon = DaemonOptions::new(1).unwrap().argument("--socket-mode").argument("666").start().unwrap();
    std::fs::set_permissions(daemon.folder(), PermissionsExt::from_mode(0o711)).unwrap();
    let program = std::env::temp_dir().join(format!("ddss-privileges-{}", std::process::id()));
    copy_program(&binary("ddss").unwrap(), &program).unwrap();
    let said: Vec<_> = ["mq", "rmq", "rcq", "auto"]
        .into_iter()
        .flat_map(|strategy| {
            let name = format!("of-{strategy}");
            let commands: [&[&str]; 4] =
                [&["allocate", &name, "64"], &["put", &name, "bytes"], &["get", &name], &["release", &name]];
            commands.map(|words| {
                let mut command = Command::new(&program);
                command.args(words).arg("--dir").arg(daemon.folder());
                command.env("DDSS_STRATEGY", strategy).uid(OTHER_USER).gid(OTHER_USER);
                (format!("{strategy} {words:?}"), command.output().unwrap())
            })
        })
        .collect();
    std::fs::remove_file(&program).unwrap();
    for (words, output) in said {
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // None of the other user's queues is left; a parallel test may have others for a moment.
    let end = Instant::now() + PATIENCE;
    loop {
        let queues = std::fs::read_to_string("/proc/sysvipc/msg").unwrap();
        let user = |line: &str| line.split_whitespace().nth(7).map(str::to_owned);
        if !queues.lines().any(|line| user(line).is_some_and(|user| user == OTHER_USER.to_string())) {
            break;
        }
        assert!(Instant::now() < end, "{queues}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

// If this failed, the file that a crash leaves would give the key of the cluster to whoever may read it.
#[test]
fn crash_of_a_node_with_a_key_leaves_no_core_dump() {
    let test = "crash_of_a_node_with_a_key_leaves_no_core_dump";
    // In a directory of its own, so that a dump lands there.
    let unlimited = ["sh", "-c", "cd \"$0\" && ulimit -c unlimited && exec \"$@\""];
    let has_core = |options: DaemonOptions| {
        let folder = TempNode::new().unwrap();
        let through = unlimited.iter().map(|&word| word.to_owned()).chain([folder.path().display().to_string()]);
        let mut daemon = options.command_prefix(through.collect()).pool_bytes(1 << 20).start().unwrap();
        let pid = rustix::process::Pid::from_raw(daemon.pid() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::ABORT).unwrap();
        let status = daemon.process().wait(PATIENCE).unwrap().expect("it was aborted");
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(status.core_dumped(), files > 0, "{status:?}, {files} files");
        files > 0
    };
    match has_core(DaemonOptions::new(1).unwrap()) {
        true => assert!(!has_core(DaemonOptions::new(1).unwrap().clustered()), "a core of a node with a key"),
        false => skipped(test, "this machine leaves no core dumps in the directory of a program"),
    }
}
