//! `ddssd --check-config` against the causes of a failed start, and state of other releases.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, TempNode, allow_founding, binary, run_ddss, write_key};

/// An address of documentation (RFC 5737), which no machine has.
const FOREIGN: &str = "192.0.2.1:7400";

/// Exit code and error message of a daemon with these arguments.
fn ddssd(folder: &Path, words: &[&str]) -> (i32, String) {
    let output = Command::new(binary("ddssd").unwrap()).arg("--dir").arg(folder).args(words).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns each file below a directory with its length and modification time.
fn tree(folder: &Path) -> BTreeMap<String, (u64, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let about = entry.metadata().unwrap();
            found.insert(entry.path().display().to_string(), (about.len(), about.modified().unwrap()));
            if about.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

/// Creates the directory of a stopped daemon, with one segment in memory and one in a file.
fn abandoned() -> Daemon {
    let mut daemon = DaemonOptions::new(1).unwrap().pool_bytes(8 << 20).start().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    client.segment("kept").allocate(Spec::new(64)).unwrap();
    client.segment("filed").allocate(Spec::new(64).storage(ddss::Storage::File)).unwrap();
    drop(client);
    daemon.process().end().unwrap();
    daemon
}

// If this failed, a restart would fail after a successful check.
#[test]
fn check_config_reports_start_errors_and_creates_nothing() {
    let node = TempNode::new().unwrap();
    write_key(node.path(), ddss_testkit::TEST_KEY).unwrap();
    allow_founding(node.path()).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let before = tree(node.path());
    for (words, code, part) in [
        (&["--core", "4077"][..], 2, "core 4077"),
        (&["--progress-threads", "2", "--core", "0,4077"], 2, "core 4077"),
        (&["--pool-bytes", "0"], 2, "--pool-bytes"),
        (&["--progress-threads", "2", "--pool-bytes", "4096"], 2, "--pool-bytes"),
        (&["--listen", FOREIGN], 6, "cannot listen on 192.0.2.1"),
        (&["--listen", &taken], 6, "cannot listen on"),
        (&["--listen", "0.0.0.0:7400"], 2, "--advertise"),
        (&["--metrics-listen", FOREIGN], 6, "192.0.2.1:7400"),
        (&["--fabric", "rdma"], 6, "rdma"),
        (&["--memory-dir", "/proc/ddss"], 4, "/proc/ddss"),
        (
            &["--state-dir", "/dev/null/ddss", "--key-file", node.join("state/cluster.key").to_str().unwrap()],
            4,
            "/dev/null/ddss",
        ),
    ] {
        let words = [&["--check-config"][..], words].concat();
        let (found, why) = ddssd(node.path(), &words);
        assert_eq!(found, code, "{words:?}: {why}");
        assert!(why.contains(part) && !why.contains("panicked"), "{words:?}: {why}");
    }
    let (code, why) = ddssd(node.path(), &["--check-config", "--core", "0", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 0, "{why}");
    assert_eq!(tree(node.path()), before, "a check has made or changed something");
    // The start itself reports the same errors as the check.
    for (words, code) in [(&["--core", "4077"][..], 2), (&["--pool-bytes", "0"], 2)] {
        assert_eq!(ddssd(node.path(), words).0, code, "{words:?}");
    }
}

// If this failed, the check would accept a directory in use, or disturb its daemon.
#[test]
fn check_config_reports_directory_in_use_without_touching_its_daemon() {
    let daemon = Daemon::start(1).unwrap();
    let elsewhere = TempNode::new().unwrap();
    let memory = daemon.folder().join("memory");
    let before = tree(&memory);
    let (code, why) = ddssd(daemon.folder(), &["--check-config"]);
    assert!(code == 3 && why.contains("another ddssd works in"), "{code} {why}");
    let (code, why) = ddssd(elsewhere.path(), &["--check-config", "--memory-dir", memory.to_str().unwrap()]);
    assert!(code == 3 && why.contains("another ddssd works in") && why.contains("memory"), "{code} {why}");
    assert_eq!(tree(&memory).keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert_eq!(run_ddss(daemon.folder(), &["ping"], "").unwrap().code, 0);
    assert_eq!(ddssd(elsewhere.path(), &["--check-config"]).0, 0);
}

// If this failed, the check would accept state that the next start refuses: another node's segments, or truncated
// files.
#[test]
fn check_config_inspects_state_of_the_last_daemon() {
    let mut daemon = abandoned();
    let folder = daemon.folder().to_owned();
    let before = tree(&folder);
    let (code, why) = ddssd(&folder, &["--check-config", "--node", "2"]);
    assert!(code == 4 && why.contains("belongs to node 1"), "{code} {why}");
    let (code, why) = ddssd(&folder, &["--check-config", "--progress-threads", "16", "--pool-bytes", "1G"]);
    assert!(code == 2 && why.contains("progress threads"), "{code} {why}");
    assert_eq!(ddssd(&folder, &["--check-config", "--node", "2", "--discard"]).0, 0);
    assert_eq!(tree(&folder), before);
    std::fs::write(folder.join("state/segments/boot"), "another-boot open\n").unwrap();
    let (code, why) = ddssd(&folder, &["--check-config"]);
    assert!(code == 4 && why.contains("--unclean-files"), "{code} {why}");
    assert_eq!(ddssd(&folder, &["--check-config", "--unclean-files", "keep"]).0, 0);
    std::fs::write(folder.join("state/segments/boot"), "another-boot clean\n").unwrap();
    daemon.restart().unwrap();
}

/// Returns the first part of a register, which is a sparse file.
fn head_of(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    std::fs::File::open(path).unwrap().take(1 << 16).read_to_end(&mut head).unwrap();
    head
}

// If this failed, an incompatible release would be reported as a full disk.
#[test]
fn state_of_another_format_is_reported_with_its_release() {
    let mut daemon = abandoned();
    let folder = daemon.folder().to_owned();
    for part in ["memory", "state/segments"] {
        let path = folder.join(part).join("register");
        let (whole, length) = (head_of(&path), path.metadata().unwrap().len());
        let register = std::fs::File::options().write(true).open(&path).unwrap();
        // State of a newer release, with a shorter register, and of an older one.
        for version in [3u64, 0] {
            register.write_all_at(&version.to_le_bytes(), 8).unwrap();
            register.set_len(4096).unwrap();
            for words in [&[][..], &["--check-config"]] {
                let (code, why) = ddssd(&folder, words);
                assert_eq!(code, 4, "{part} {version}: {why}");
                for said in [&format!("format {version}"), "register 2", "written by ddssd 0.1.0", "--discard"] {
                    assert!(why.contains(said), "{said} is not in {why}");
                }
                assert!(!why.contains("df") && !why.contains("truncated"), "{why}");
            }
        }
        std::fs::write(&path, &whole).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
    }
    daemon.restart().unwrap();
}

// If this failed, a registry without a header would count as fresh, or as a full disk.
#[test]
fn registry_without_header_is_reported_and_untouched() {
    let mut daemon = abandoned();
    let folder = daemon.folder().to_owned();
    let path = folder.join("memory/register");
    let whole = std::fs::read(&path).unwrap();
    let foreign = [&b"something else, and longer than a head\n"[..]; 20].concat();
    for (bytes, part) in
        [(&whole[..12], "truncated"), (&[][..], "truncated"), (&foreign[..], "not a segment registry of ddssd")]
    {
        std::fs::write(&path, bytes).unwrap();
        for words in [&[][..], &["--check-config"]] {
            let (code, why) = ddssd(&folder, words);
            assert!(code == 4 && why.contains(part) && !why.contains("df"), "{part}: {code} {why}");
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "it was changed");
        }
    }
    std::fs::write(&path, &whole).unwrap();
    daemon.restart().unwrap();
}
