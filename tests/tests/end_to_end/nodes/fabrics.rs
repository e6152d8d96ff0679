//! Choice of the fabric, its log line, and start without an optional library.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::Command;
use std::time::Duration;

use ddss_testkit::{DaemonOptions, Process, TempNode, binary, skipped};

const PATIENCE: Duration = Duration::from_secs(20);

/// Command that hides rdma-core from a program: in a mount namespace of its own the library files are empty.
const HIDDEN: &str = r#"for name in $(ldconfig -p | awk '/lib(ibverbs|rdmacm)\.so/ { print $NF }'); do
    mount --bind /dev/null "$(readlink -f "$name")" || exit 99
done
exec "$0" "$@""#;

fn hidden(program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.args(["--mount", "sh", "-c", HIDDEN]).arg(binary(program).unwrap());
    command
}

/// Returns true if this user may create such a namespace; otherwise reports the test as skipped.
fn may_hide(test: &str) -> bool {
    let may = Command::new("unshare").args(["--mount", "true"]).output().is_ok_and(|output| output.status.success());
    if !may {
        skipped(test, "hiding a library needs root");
    }
    may
}

#[test]
fn log_line_names_the_chosen_fabric_and_why() {
    // If this failed, a node with an adapter could silently use TCP for months.
    let mut daemon = DaemonOptions::new(1).unwrap().start().unwrap();
    let said = daemon.process().stderr();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("fabric selected")).collect();
    let [line] = lines[..] else { panic!("{lines:?} of\n{said}") };
    assert!(line.contains("iwarp") && line.contains("why") && line.contains("this machine's own"), "{line}");
}

#[test]
fn rdma_is_refused_with_a_message_when_rdma_core_is_missing() {
    // If this failed, a binary that can use adapters would not start where rdma-core is missing, or not say what is missing.
    if !may_hide("rdma_is_refused_with_a_message_when_rdma_core_is_missing") {
        return;
    }
    let node = TempNode::new().unwrap();
    let refused = hidden("ddssd").args(["--fabric", "rdma", "--dir"]).arg(node.path()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(6), "{said}");
    assert!(said.contains("rdma-core is not installed") && said.contains("--fabric auto"), "{said}");

    let mut command = hidden("ddssd");
    command.args(["--fabric", "auto", "--dir"]).arg(node.path());
    let mut daemon = Process::start(command, node.path(), "hidden").unwrap();
    daemon.wait_until(PATIENCE, |daemon| daemon.stderr().contains("fabric selected")).unwrap();
    daemon.wait_until(PATIENCE, |_| node.join("ddssd.sock").exists()).unwrap();
    let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.path())).unwrap();
    let segment = client.segment("hidden").allocate(ddss::Spec::new(64)).unwrap();
    segment.put(0, b"8 bytes!").unwrap();
    assert_eq!(&*segment.get(0..8).unwrap(), b"8 bytes!");
    drop((segment, client));
    daemon.end().unwrap();
}

#[test]
fn programs_start_without_rdma_core() {
    // If this failed, the released programs would not start on most machines of users.
    for program in ["ddssd", "ddss"] {
        let output = Command::new("readelf").arg("-d").arg(binary(program).unwrap()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("(NEEDED)"), "{program} needs nothing at all? {text}");
        let wrong = text.lines().find(|line| line.contains("ibverbs") || line.contains("rdmacm"));
        assert_eq!(wrong, None, "{program}");
    }
}
