//! Settings of a daemon: flags, environment, file, and the messages about them.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss_testkit::{DaemonOptions, Process, TempNode, binary, run_ddss};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

fn ddssd(folder: &Path, words: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(binary("ddssd").unwrap());
    command.args(words).arg("--dir").arg(folder).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

// If this failed, a daemon would ignore settings of its operator.
#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let node = TempNode::new().unwrap();
    std::fs::write(node.join("ddssd.conf"), "node = 3\nspin-us = 30\npool-bytes = 3000000\nlog = \"debug\"\n").unwrap();
    let environment = [("DDSS_SPIN_US", "20"), ("DDSS_NODE", "2")];
    let (code, out, why) = ddssd(node.path(), &["--print-config", "--node", "1"], &environment);
    assert_eq!(code, 0, "{why}");
    for line in
        ["node = 1", "spin-us = 20", "pool-bytes = 3000000", "log = \"debug\"", "core = \"auto\"", "busy = false"]
    {
        assert!(out.lines().any(|found| found == line), "{line} is not in\n{out}");
    }
    // The printed settings are a valid configuration file with the same values.
    let copy = node.join("copy.toml");
    std::fs::write(&copy, &out).unwrap();
    let (_, again, why) = ddssd(node.path(), &["--print-config", "--config", copy.to_str().unwrap()], &[]);
    assert_eq!(again, out, "{why}");
    assert_eq!(ddssd(node.path(), &["--check-config"], &[]).0, 0);
    assert!(!node.join("ddssd.sock").exists() && !node.join("ddssd.lock").exists(), "only looking has made something");
}

// If this failed, a mistyped setting would be ignored, and a script could not tell a wrong setting from a full disk.
#[test]
fn wrong_settings_are_refused_with_a_suggestion_and_exit_code() {
    let node = TempNode::new().unwrap();
    let (file, exposed) = (node.join("ddssd.conf"), node.join("exposed.key"));
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        ddssd(node.path(), &["--check-config"], &[])
    };
    for (text, code, part) in [
        ("pool-byte = 1", 2, "did you mean `pool-bytes`"),
        ("node = 0", 2, "numbered from 1"),
        ("core = \"fast\"", 2, "give a number, auto, or none"),
        ("log = \"ddssd=loud\"", 2, "log = "),
        ("listen = \"127.0.0.1:0\"", 5, "ddss cluster init"),
        ("key-file = \"/nowhere/cluster.key\"", 5, "/nowhere/cluster.key"),
    ] {
        let (found, _, why) = check(text);
        assert_eq!(found, code, "{text}: {why}");
        assert!(why.contains(part) && !why.contains("panicked"), "{text}: {why}");
    }
    std::fs::write(&exposed, "00").unwrap();
    let (code, _, why) = check(&format!("key-file = {:?}", exposed.to_str().unwrap()));
    assert_eq!(code, 5);
    assert!(why.contains("others may read"), "{why}");
    let (code, _, why) = ddssd(node.path(), &["--config", "/nowhere/ddssd.conf"], &[]);
    assert_eq!(code, 2);
    assert!(why.contains("/nowhere/ddssd.conf"), "{why}");
}

// If this failed, a daemon with a mistyped log level would be silent, even about a failed start.
#[test]
fn mistyped_log_level_is_refused_with_a_suggestion() {
    let node = TempNode::new().unwrap();
    for (levels, meant) in [
        ("inof", "info"),
        ("WARNING", "warn"),
        ("debgu", "debug"),
        ("info,ddssd::links=degub", "debug"),
        ("info,ddsd::links=debug", "ddssd"),
        ("ddssd", "ddssd=debug"),
        ("", "info"),
    ] {
        let file = node.join("wrong.toml");
        std::fs::write(&file, format!("log = {levels:?}\n")).unwrap();
        let [by_file, check] = [["--config", file.to_str().unwrap()], ["--check-config", "--log-json"]];
        let ended = [
            ddssd(node.path(), &["--check-config", "--log", levels], &[]),
            ddssd(node.path(), &check, &[("DDSS_LOG", levels)]),
            ddssd(node.path(), &[&by_file[..], &["--check-config"]].concat(), &[]),
        ];
        for (code, _, why) in ended {
            assert_eq!(code, 2, "{levels}: {why}");
            assert!(why.contains(&format!("`{meant}`")), "{levels}: {why}");
        }
    }
    for good in ["info", "ERROR", "off", "warn,ddssd::links=trace", "ddssd::links=debug", "info,tokio=warn"] {
        let (code, _, why) = ddssd(node.path(), &["--check-config", "--log", good], &[]);
        assert_eq!(code, 0, "{good}: {why}");
    }
}

// If this failed, the log level of one module would silence the rest of the daemon.
#[test]
fn module_log_level_keeps_other_modules_at_info() {
    let mut daemon = DaemonOptions::new(1).unwrap().argument("--log=ddssd::links=debug").start().unwrap();
    daemon.process().end().unwrap();
    let said = daemon.process().stderr();
    assert!(said.contains("ready") && said.contains("stopping"), "{said}");
}

// If this failed, a size would be written in one way for quotas and in another for the pool.
#[test]
fn size_syntax_is_equal_in_file_flag_and_environment() {
    let node = TempNode::new().unwrap();
    let print = |words: &[&str], environment: &[(&str, &str)]| {
        let (code, out, why) = ddssd(node.path(), &[words, &["--print-config"]].concat(), environment);
        assert_eq!(code, 0, "{why}");
        out
    };
    let (pool, files) = ("pool-bytes = 4294967296", "file-bytes = 1572864");
    let has = |out: &str, line: &str| assert!(out.lines().any(|found| found == line), "{line} is not in\n{out}");
    has(&print(&["--pool-bytes", "4G", "--file-bytes", "1536k"], &[]), pool);
    has(&print(&[], &[("DDSS_POOL_BYTES", "4G"), ("DDSS_FILE_BYTES", "1536K")]), files);
    std::fs::write(node.join("ddssd.conf"), "pool-bytes = \"4G\"\nfile-bytes = 1572864\n").unwrap();
    let out = print(&[], &[]);
    has(&out, pool);
    has(&out, files);
    for wrong in ["\"4Q\"", "\"-1\"", "-1", "1.5", "\"99999999T\"", "true"] {
        std::fs::write(node.join("ddssd.conf"), format!("node = 1\npool-bytes = {wrong}\n")).unwrap();
        let (code, _, why) = ddssd(node.path(), &["--check-config"], &[]);
        assert!(code == 2 && why.contains("line 2") && why.contains("K, M, G or T"), "{wrong}: {code} {why}");
    }
}

// If this failed, more detailed logs would need a restart of the node.
#[test]
fn reload_changes_the_log_level_and_reports_fixed_settings() {
    let mut daemon = DaemonOptions::new(1).unwrap().start().unwrap();
    let file = daemon.folder().join("ddssd.conf");
    let reload = |daemon: &mut ddss_testkit::Daemon, text: &str, expected: &str| {
        std::fs::write(&file, text).unwrap();
        let pid = Pid::from_raw(daemon.process().pid().cast_signed()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        let end = Instant::now() + PATIENCE;
        while !daemon.process().stderr().contains(expected) {
            assert!(Instant::now() < end, "{expected} is not in\n{}", daemon.process().stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    reload(&mut daemon, "log = \"debug\"\nspin-us = 9\n", "these settings change at the next start");
    assert!(daemon.process().stderr().contains("spin-us"));
    drop(ddss::Client::connect_with(ddss::ConnectOptions::new().directory(daemon.folder())).unwrap());
    let end = Instant::now() + PATIENCE;
    while !daemon.process().stderr().contains("attached") {
        assert!(Instant::now() < end, "debug lines do not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    reload(&mut daemon, "lok = 1\n", "did you mean `log`");
    drop(ddss::Client::connect_with(ddss::ConnectOptions::new().directory(daemon.folder())).unwrap());
}

// If this failed, a log collector would lose lines or fields.
#[test]
fn json_log_lines_are_valid_json() {
    let mut daemon =
        DaemonOptions::new(1).unwrap().clustered().argument("--log-json").argument("--log=debug").start().unwrap();
    let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(daemon.folder())).unwrap();
    client.segment("a \"name\"").allocate(ddss::Spec::new(64)).unwrap();
    drop(client);
    daemon.process().end().unwrap();
    let log = daemon.process().stderr();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for line in &lines {
        let level = line["level"].as_str().unwrap();
        assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&level), "{line}");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z') && line["target"].is_string(), "{line}");
        assert!(line["fields"]["message"].is_string(), "{line}");
    }
    let said = |message: &str| lines.iter().find(|line| line["fields"]["message"] == message);
    let ready = said("ready").unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&ready["level"], &ready["fields"]["node"]), (&"INFO".into(), &1.into()));
    assert!(said("stopping").is_some() && said("attached").is_some_and(|line| line["level"] == "DEBUG"), "{log}");
}

// If this failed, a mistyped variable would be ignored silently, or tests and clients would cause warnings.
#[test]
fn unknown_environment_variable_is_a_warning() {
    let node = TempNode::new().unwrap();
    let mut command = Command::new(binary("ddssd").unwrap());
    command.arg("--dir").arg(node.path()).args(["--pool-bytes", "1000000"]);
    command.env("DDSS_SPIN", "3").env("DDSS_STRATEGY", "rcq").env("DDSS_SPIN_US", "20");
    let mut daemon = Process::start(command, node.path(), "ddssd").unwrap();
    daemon.wait_until(PATIENCE, |process| process.stdout().contains("ready ")).unwrap();
    let said = daemon.stderr();
    let strange: Vec<&str> = said.lines().filter(|line| line.contains("is no setting")).collect();
    assert_eq!(strange.len(), 1, "{said}");
    assert!(strange[0].contains("WARN") && strange[0].contains("DDSS_SPIN in"), "{said}");
    assert!(strange[0].ends_with("did you mean DDSS_SPIN_US?"), "{said}");
    daemon.end().unwrap();
}

// If this failed, systemd would believe a live node dead, or a starting one ready.
#[test]
fn systemd_is_notified_of_ready_and_stopping() {
    let node = TempNode::new().unwrap();
    let path = node.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new(binary("ddssd").unwrap());
    command.arg("--dir").arg(node.path()).args(["--pool-bytes", "1000000"]).env("NOTIFY_SOCKET", &path);
    let mut daemon = Process::start(command, node.path(), "ddssd").unwrap();
    let mut words = [0; 64];
    let length = manager.recv(&mut words).unwrap();
    assert_eq!(&words[..length], b"READY=1");
    assert!(node.join("ddssd.sock").exists());
    daemon.end().unwrap();
    let length = manager.recv(&mut words).unwrap();
    assert_eq!(&words[..length], b"STOPPING=1");
}

// If this failed, the unit that is shipped would start a daemon with flags that it does not know.
#[test]
fn unit_file_uses_existing_flags() {
    let unit = include_str!("../../../packaging/ddssd.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/ddssd ")).unwrap();
    let help = Command::new(binary("ddssd").unwrap()).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for flag in line.split_whitespace().filter(|word| word.starts_with("--")) {
        assert!(help.contains(flag), "{flag} is unknown");
    }
    assert!(unit.contains("Type=notify") && unit.contains("RestartPreventExitStatus=2 5"));
}

// If this failed, systemd would give up a node after five quick failures, or remove its message queues.
#[test]
fn unit_file_restarts_forever_and_keeps_shared_memory() {
    let unit = include_str!("../../../packaging/ddssd.service");
    let section = |name: &str| {
        let rest = unit.split_once(&format!("[{name}]\n")).unwrap().1;
        rest.split("\n[").next().unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(section("Unit").contains(&"StartLimitIntervalSec=0".to_owned()));
    assert!(section("Service").contains(&"RemoveIPC=no".to_owned()));
}

// If this failed, other users could read the directory of the cluster wherever the state directory is not closed to them.
#[test]
fn files_of_the_state_directory_are_private_whatever_the_umask_is() {
    let words = ["sh", "-c", "umask 000; exec \"$@\"", "sh"].map(str::to_owned).to_vec();
    let mut daemon = DaemonOptions::new(1).unwrap().clustered().command_prefix(words).start().unwrap();
    let stored = run_ddss(daemon.folder(), &["allocate", "a", "4096", "--storage", "file"], "").unwrap();
    assert_eq!(stored.code, 0, "{stored:?}");
    daemon.process().end().unwrap();
    // As an older release left it.
    let log = daemon.folder().join("state/raft.log");
    std::fs::set_permissions(log, std::fs::Permissions::from_mode(0o644)).unwrap();
    daemon.restart().unwrap();
    let (mut folders, mut files) = (vec![daemon.folder().join("state")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let (path, found) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            let mode = found.permissions().mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
            if found.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for name in ["raft.log", "boot"] {
        assert!(files.iter().any(|file| file.ends_with(name)), "no {name} in {files:?}");
    }
}
