//! The alerts and the dashboard of the package, before a real Prometheus that reads three daemons.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, Process, TempNode, free_tcp_port, repo_lints, skipped};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn packaged(name: &str) -> PathBuf {
    repo_lints::workspace_root().join("packaging").join(name)
}

fn promtool(words: &[&str]) -> (bool, String) {
    let output = Command::new("promtool").args(words).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn is_installed(test: &str) -> bool {
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let both = is_there("promtool") && is_there("prometheus");
    if !both {
        skipped(test, "no Prometheus");
    }
    both
}

/// Names of the alerts, with their runbooks.
fn runbooks() -> Vec<(String, String)> {
    let text = fs::read_to_string(packaged("alerts.yml")).unwrap();
    let after = |mark: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.trim().strip_prefix(mark)?.trim().to_owned())).collect()
    };
    let (names, links) = (after("- alert:"), after("runbook_url:"));
    assert!(names.len() > 15 && names.len() == links.len());
    names.into_iter().zip(links).collect()
}

// If this failed, an operator would be woken without a page that says what to do.
#[test]
fn each_alert_has_a_runbook() {
    let page = fs::read_to_string(repo_lints::workspace_root().join("docs/book/src/operations/alerts.md")).unwrap();
    let sections: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut names = BTreeSet::new();
    for (name, link) in runbooks() {
        assert_eq!(link, format!("file:///usr/share/doc/ddss/book/operations/alerts.md#{}", name.to_lowercase()));
        assert!(sections.contains(name.as_str()), "{name} has no runbook");
        assert!(names.insert(name.clone()), "{name} twice");
    }
    assert_eq!(sections.len(), names.len(), "a runbook without an alert");
}

// If this failed, Prometheus would refuse the file, or an alert would never fire.
#[test]
fn alerts_are_valid_and_fire_for_their_values() {
    let test = "alerts_are_valid_and_fire_for_their_values";
    if !is_installed(test) {
        return;
    }
    let rules = packaged("alerts.yml");
    let (is_good, said) = promtool(&["check", "rules", rules.to_str().unwrap()]);
    assert!(is_good, "{said}");
    // The labels and annotations are those of the file.
    let cases = [
        ("DdssDown", r#"up{job="ddss",instance="a"}"#, "1 1 0 0 0 0 0 0"),
        ("DdssHung", r#"ddss_silent_seconds{job="ddss",instance="a"}"#, "0 0 9 9 9 9 9 9"),
        ("DdssPeerUnreachable", r#"ddss_peer_connected{job="ddss",instance="a",peer="2"}"#, "1 1 0 0 0 0 0 0"),
        ("DdssSegmentsLost", r#"ddss_segments_lost_total{job="ddss",instance="a"}"#, "0 0 0 1 1 1 1 1"),
        ("DdssReplicasDegraded", r#"ddss_replicas_degraded{job="ddss",instance="a"}"#, "0 2x30"),
        ("DdssElections", r#"ddss_raft_elections_total{job="ddss",instance="a"}"#, "0+5x40"),
        ("DdssClockOff", r#"ddss_clock_ahead_seconds{job="ddss",instance="a"}"#, "-3x40"),
        ("DdssStateDiskFull", r#"ddss_file_system_free_bytes{of="state",job="ddss",instance="a"}"#, "4096x40"),
    ];
    let folder = TempNode::new().unwrap();
    for (name, series, values) in cases {
        let text = format!(
            "rule_files: [{}]\nevaluation_interval: 5s\ntests:\n  - interval: 5s\n    input_series:\n      - series: '{series}'\n        \
             values: '{values}'\n    promql_expr_test:\n      - expr: count(ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}})\n        \
             eval_time: 2m\n        exp_samples: [{{ labels: '{{}}', value: 1 }}]\n      - expr: \
             count(ALERTS{{alertname!=\"{name}\",alertstate=\"firing\"}})\n        eval_time: 2m\n",
            rules.display()
        );
        let path = folder.join("case.yml");
        fs::write(&path, text.replace("0 0 9 9 9 9 9 9", "9x40").replace("1 1 0 0 0 0 0 0", "0x40")).unwrap();
        let (is_good, said) = promtool(&["test", "rules", path.to_str().unwrap()]);
        assert!(is_good, "{name}: {said}");
    }
}

/// A Prometheus that reads three daemons.
struct Monitor {
    address: SocketAddr,
    _process: Process,
}

impl Monitor {
    fn start(folder: &Path, targets: &[SocketAddr]) -> Self {
        let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        // The waits of the rules are shortened, so that the test ends.
        let rules = fs::read_to_string(packaged("alerts.yml")).unwrap().replace("for: 1m", "for: 5s");
        fs::write(folder.join("alerts.yml"), rules).unwrap();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [alerts.yml]\nscrape_configs:\n  - job_name: ddss\n    \
             static_configs: [{{ targets: [{}] }}]\n",
            targets.join(", ")
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let address = SocketAddr::new(LOOPBACK, free_tcp_port(LOOPBACK).unwrap());
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={address}")).arg("--log.level=warn");
        Self { address, _process: Process::start(command, folder, "prometheus").unwrap() }
    }

    /// Asks its interface; `None` while it does not answer.
    fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    fn query(&self, words: &str) -> usize {
        let encoded: String = words.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let found = self.ask(&format!("/api/v1/query?query={encoded}"));
        found.and_then(|found| Some(found["data"]["result"].as_array()?.len())).unwrap_or(0)
    }

    /// Returns the alerts that fire.
    fn firing(&self) -> BTreeSet<String> {
        let found = self.ask("/api/v1/alerts").unwrap_or_default();
        let alerts = found["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
    }

    fn until_firing(&self, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        let end = Instant::now() + PATIENCE;
        while self.firing() != wanted {
            assert!(Instant::now() < end, "{:?} instead of {wanted:?}", self.firing());
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Queries of the dashboard, for all nodes.
fn queries() -> Vec<String> {
    let board: Value = serde_json::from_str(&fs::read_to_string(packaged("grafana.json")).unwrap()).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().replace("$instance", ".*")).collect()
}

// If this failed, a fault would stay unseen, a healthy cluster would wake an operator, or the dashboard would be empty.
#[test]
fn prometheus_shows_three_daemons_and_reports_what_happens_to_them() {
    if !is_installed("prometheus_shows_three_daemons_and_reports_what_happens_to_them") {
        return;
    }
    let mut targets = Vec::new();
    let mut watched = |options: DaemonOptions| {
        let address = SocketAddr::new(LOOPBACK, free_tcp_port(LOOPBACK).unwrap());
        targets.push(address);
        options.pool_bytes(16 << 20).argument("--metrics-listen").argument(address.port().to_string()).start().unwrap()
    };
    let first = watched(DaemonOptions::new(1).unwrap().clustered());
    let join = || DaemonOptions::new(2).unwrap().joins(first.listen());
    let mut others: Vec<Daemon> = vec![watched(join()), watched(join())];
    let folder = TempNode::new().unwrap();
    let monitor = Monitor::start(folder.path(), &targets);
    let client = Client::connect_with(ConnectOptions::new().directory(first.folder()).timeout(PATIENCE)).unwrap();
    let segment = client.segment("watched").allocate(Spec::new(4096).copies(2)).unwrap();
    let end = Instant::now() + PATIENCE;
    let mut open: BTreeSet<String> = queries().into_iter().collect();
    while !open.is_empty() {
        // Enough calls for a sample of their steps.
        (0..500).for_each(|_| assert!(segment.put(0, &[1; 64]).is_ok()));
        open.retain(|query| monitor.query(query) == 0);
        assert!(Instant::now() < end, "no data for {open:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    monitor.until_firing(&[]);
    // The pool of one node fills up.
    let mut filled = Vec::new();
    while let Ok(made) = client.segment(&format!("fill/{}", filled.len())).allocate(512 << 10) {
        filled.push(made);
    }
    monitor.until_firing(&["DdssPoolFull"]);
    filled.into_iter().for_each(|made| made.release().unwrap());
    monitor.until_firing(&[]);
    others[1].kill().unwrap();
    monitor.until_firing(&["DdssDown", "DdssPeerUnreachable"]);
    others[1].restart().unwrap();
    monitor.until_firing(&[]);
    others.iter_mut().for_each(|daemon| daemon.kill().unwrap());
    let end = Instant::now() + PATIENCE;
    while !["DdssDown", "DdssNoMajority"].iter().all(|name| monitor.firing().contains(*name)) {
        assert!(Instant::now() < end, "{:?}", monitor.firing());
        std::thread::sleep(Duration::from_millis(200));
    }
}
