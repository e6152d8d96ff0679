//! Full memory, full disks and missing write permission: clear errors, and no loss of acknowledged data.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, ErrorKind, Mode, Permissions, Segment, Spec, Storage};
use ddss_testkit::{Daemon, DaemonOptions, PrivateMounts, SetOnDrop, TempNode, pattern, retry};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;

/// Small file systems for a node's memory and its state.
struct Place(PrivateMounts);

impl Place {
    fn new(test: &str, memory: &str, state: &str) -> Option<Place> {
        PrivateMounts::new(test, &[("memory", memory), ("state", state)]).map(Place)
    }

    fn memory(&self) -> PathBuf {
        self.0.mount_path("memory")
    }

    fn state(&self) -> PathBuf {
        self.0.mount_path("state")
    }

    fn options(&self) -> DaemonOptions {
        let options = DaemonOptions::new(1).unwrap().command_prefix(self.0.command_prefix());
        let options = options.argument("--memory-dir").argument(self.memory());
        options.argument("--state-dir").argument(self.state()).argument("--core").argument("none")
    }
}

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap()
}

/// Allocates and fills segments of that size until there is no room.
fn fill(client: &Client, bytes: u64) -> (Vec<Segment>, ddss::Error) {
    let mut made = Vec::new();
    loop {
        match client.segment(&format!("fill/{}", made.len())).allocate(Spec::new(bytes)) {
            Ok(segment) => {
                segment.put(0, &pattern(made.len() as u64, bytes as usize)).unwrap();
                made.push(segment);
            }
            Err(error) => return (made, error),
        }
        assert!(made.len() < 1000, "there is no end to it");
    }
}

/// Expects that all segments are complete.
fn check(client: &Client, count: usize, bytes: u64) {
    for index in 0..count {
        let segment = client.segment(&format!("fill/{index}")).open().unwrap();
        assert!(segment.get(..).unwrap()[..] == pattern(index as u64, bytes as usize)[..], "fill/{index} is not whole");
    }
}

/// Starts a daemon that must refuse to start; returns its exit code and last output.
fn cannot_start(through: &[String], words: &[&str], folders: &[(&str, &Path)]) -> (i32, String) {
    // A daemon that starts nevertheless is ended by `timeout`, with another code.
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "20"]).args(through).arg(ddss_testkit::binary("ddssd").unwrap());
    for (flag, folder) in folders {
        command.arg(flag).arg(folder);
    }
    let output = command.args(words).args(["--core", "none"]).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

// If this failed, a full file system would kill the daemon, or lose acknowledged data.
#[test]
fn full_shared_memory_is_an_error_and_loses_no_data() {
    let Some(place) = Place::new("full_shared_memory_is_an_error_and_loses_no_data", "size=12m", "size=1m") else {
        return;
    };
    let mut daemon = place.options().pool_bytes(64 * MIB).start().unwrap();
    let before = client(&daemon);
    let bytes = MIB - 4096;
    let (mut made, error) = fill(&before, bytes);
    assert!(made.len() >= 5 && error.kind() == ErrorKind::NoSpace, "{} made: {error}", made.len());
    assert!(daemon.process().stderr().contains("No space left"), "{}", daemon.process().stderr());
    assert!(error.to_string().contains("shared memory is full"), "{error}");
    // A large allocation takes the rest slice by slice, and returns all of it.
    let large = before.segment("large").allocate(Spec::new(20 * MIB)).unwrap_err();
    assert_eq!(large.kind(), ErrorKind::NoSpace, "{large}");
    // Existing segments stay readable and writable: they own their pages.
    for (index, segment) in made.iter().enumerate() {
        segment.put(0, &pattern(index as u64, bytes as usize)).unwrap();
    }
    // The next daemon finds all data, on a file system without a free page.
    place.0.fill(&place.memory(), None);
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    let after = client(&daemon);
    check(&after, made.len(), bytes);
    after.segment("fill/0").open().unwrap().put(0, &pattern(0, bytes as usize)).unwrap();
    // Released memory can be allocated again.
    place.0.empty(&place.memory());
    made.pop().unwrap().release().unwrap();
    let again = format!("fill/{}", made.len());
    let made_again =
        std::iter::repeat_with(|| after.segment(&again).allocate(Spec::new(bytes))).take(100).find(Result::is_ok);
    made_again.unwrap().unwrap().put(0, &pattern(made.len() as u64, bytes as usize)).unwrap();
    check(&after, made.len() + 1, bytes);
}

// If this failed, a node would exceed its memory limit, or exit at the limit.
#[test]
fn memory_limit_is_an_error_and_loses_no_data() {
    let mut daemon = DaemonOptions::new(1).unwrap().pool_bytes(4 * MIB).start().unwrap();
    let before = client(&daemon);
    let (made, error) = fill(&before, 300_000);
    assert!(made.len() >= 10 && error.kind() == ErrorKind::NoSpace, "{} made: {error}", made.len());
    assert!(error.to_string().contains("no memory left"), "{error}");
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    let after = client(&daemon);
    check(&after, made.len(), 300_000);
    assert_eq!(after.segment("one-more").allocate(Spec::new(300_000)).unwrap_err().kind(), ErrorKind::NoSpace);
}

// If this failed, a full disk would stop calls that need no disk, or leave a log that no daemon can read.
#[test]
fn full_raft_log_stops_only_new_names() {
    let Some(place) = Place::new("full_raft_log_stops_only_new_names", "size=32m", "size=1m") else {
        return;
    };
    let options = place.options().clustered();
    let founder = format!("1={}", options.listen());
    let mut daemon = options
        .argument("--peer")
        .argument(founder)
        .argument("--key-file")
        .argument(keep_key(&place))
        .pool_bytes(16 * MIB)
        .start()
        .unwrap();
    let before = client(&daemon);
    let kept = retry(|| before.segment("kept").allocate(Spec::new(64)));
    kept.put(0, &pattern(1, 64)).unwrap();
    place.0.fill(&place.state(), None);
    // Eventually a record does not fit; acknowledged names stay.
    let hasty = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(10)))
        .unwrap();
    let mut names = Vec::new();
    let refused = loop {
        let name = format!("name/{}", names.len());
        match hasty.segment(&name).allocate(Spec::new(8)) {
            Ok(_) => names.push(name),
            Err(error) => break error,
        }
        assert!(names.len() < 100_000, "the disk is never full");
    };
    eprintln!("after {} names: {refused}", names.len());
    kept.put(0, &pattern(2, 64)).unwrap();
    assert_eq!(kept.get(..).unwrap()[..], pattern(2, 64)[..]);
    let log = daemon.process().stderr();
    assert!(log.contains("no disk space for the cluster's log") && log.contains("No space left"), "{log}");
    // Each attempt reports the same cause.
    assert!(refused.to_string().contains("log cannot be written"), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::System);
    let again = hasty.segment("one-more").allocate(Spec::new(8)).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::System, "{again}");
    // With free space the daemon continues by itself.
    place.0.empty(&place.state());
    names.push("after".to_owned());
    retry(|| before.segment("after").allocate(Spec::new(8)));
    // The next daemon finds all data.
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    let after = client(&daemon);
    assert_eq!(retry(|| after.segment("kept").open()).get(..).unwrap()[..], pattern(2, 64)[..]);
    for name in &names {
        retry(|| after.segment(name).open());
    }
    retry(|| after.segment("new").allocate(Spec::new(8)));
    assert_eq!(after.segment("kept").allocate(Spec::new(8)).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

/// Creates a key outside of the small file systems.
fn keep_key(place: &Place) -> PathBuf {
    let outside = place.0.mount_path("keys");
    ddss_testkit::write_key(&outside, ddss_testkit::TEST_KEY).unwrap();
    outside.join("state").join("cluster.key")
}

// If this failed, a daemon that cannot write would report it only during its work, or not at all.
#[test]
fn unwritable_directories_are_reported_at_start() {
    let test = "unwritable_directories_are_reported_at_start";
    let Some(place) = Place::new(test, "ro,size=1m", "ro,size=1m") else { return };
    let (memory, state) = (place.memory(), place.state());
    let key = keep_key(&place);
    let through = place.0.command_prefix();
    let own = place.0.mount_path("own");
    let (code, said) = cannot_start(&through, &[], &[("--dir", &own), ("--memory-dir", &memory)]);
    assert!(code == 4 && said.contains(memory.to_str().unwrap()), "{code}: {said}");
    assert!(said.contains("Read-only file system"), "{said}");
    let folders: &[(&str, &Path)] = &[("--dir", &own), ("--state-dir", &state), ("--key-file", &key)];
    let (code, said) = cannot_start(&through, &["--listen", "127.0.0.1:0", "--peer", "1=127.0.0.1:9"], folders);
    assert!(code == 4 && said.contains(state.to_str().unwrap()), "{code}: {said}");
    let (code, said) = cannot_start(&through, &[], &[("--dir", &memory.join("below"))]);
    assert!(code == 4 && said.contains("below") && said.contains("Read-only"), "{code}: {said}");
    // Memory that exists and is writable, but too small for anything.
    let Some(full) = Place::new(test, "size=256k", "size=64k") else { return };
    let memory = full.memory();
    let (code, said) = cannot_start(&full.0.command_prefix(), &[], &[("--dir", &own), ("--memory-dir", &memory)]);
    assert!(code == 4 && said.contains("is there room") && said.contains("No space left"), "{code}: {said}");
}

// If this failed, two daemons would commit over each other's bytes.
#[test]
fn second_daemon_on_the_same_directory_exits_with_a_message() {
    let options = DaemonOptions::new(1).unwrap().clustered();
    let daemon = options.argument("--core").argument("none").start().unwrap();
    let segment = client(&daemon).segment("first").allocate(Spec::new(64)).unwrap();
    segment.put(0, &pattern(1, 64)).unwrap();
    let other = TempNode::new().unwrap();
    let (folder, theirs) = (daemon.folder().to_owned(), other.join("own"));
    let (memory, state, key) = (folder.join("memory"), folder.join("state"), folder.join("state/cluster.key"));
    let shared: [&[(&str, &Path)]; 3] = [
        &[("--dir", &folder)],
        &[("--dir", &theirs), ("--memory-dir", &memory)],
        &[("--dir", &theirs), ("--state-dir", &state), ("--key-file", &key)],
    ];
    for folders in shared {
        let (code, said) =
            cannot_start(&[], &["--listen", "127.0.0.1:0"][..2 * usize::from(folders.len() == 3)], folders);
        assert!(code == 3 && said.contains("another ddssd works in"), "{folders:?}: {code}: {said}");
    }
    segment.put(0, &pattern(2, 64)).unwrap();
    assert_eq!(segment.get(..).unwrap()[..], pattern(2, 64)[..]);
    // A daemon without a key, in a new or an old directory: segments in files are preserved as well.
    for early in [false, true] {
        let own = TempNode::new().unwrap();
        let state = own.join("state");
        if early {
            std::fs::create_dir(&state).unwrap();
        }
        let options = DaemonOptions::new(1).unwrap().argument("--core").argument("none");
        let alone = options.argument("--state-dir").argument(&state).start().unwrap();
        let in_file = Spec::new(64).storage(Storage::File);
        let segment = client(&alone).segment("kept").allocate(in_file).unwrap();
        segment.put(0, &pattern(3, 64)).unwrap();
        for words in [&["--discard"][..], &[]] {
            let folders: &[(&str, &Path)] = &[("--dir", &theirs), ("--state-dir", &state)];
            let (code, said) = cannot_start(&[], words, folders);
            assert!(code == 3 && said.contains("another ddssd works in"), "{early} {words:?}: {code}: {said}");
        }
        let reads_anew =
            Client::connect_with(ConnectOptions::new().directory(alone.folder()).timeout(PATIENCE).local_reads(false))
                .unwrap();
        assert_eq!(reads_anew.segment("kept").open().unwrap().get(..).unwrap()[..], pattern(3, 64)[..]);
        assert!(state.join("segments/register").exists(), "its register is gone");
    }
}

// If this failed, a crash during a move of a segment to other permissions would lose it, or expose it.
#[test]
fn segment_is_whole_when_daemon_dies_during_move() {
    const BYTES: usize = 1 << 20;
    let mut daemon =
        DaemonOptions::new(1).unwrap().pool_bytes(8 * MIB).argument("--core").argument("none").start().unwrap();
    let first = client(&daemon).segment("moved").allocate(Spec::new(BYTES as u64).mode(Mode(0o600))).unwrap();
    first.put(0, &pattern(0, BYTES)).unwrap();
    let (mut last, mut moves) = (0, 0);
    for round in 0..15u64 {
        let owner =
            Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(1)))
                .unwrap();
        let segment = owner.segment("moved").open().unwrap();
        let (stop, moved, put) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(last));
        std::thread::scope(|scope| {
            let _ends = SetOnDrop(&stop);
            scope.spawn(|| {
                let own = segment.stat().unwrap().permissions;
                for turn in 0.. {
                    let mode = if turn % 2 == 0 { 0o644 } else { 0o600 };
                    if stop.load(Ordering::Acquire)
                        || segment.set_permissions(Permissions { mode: Mode(mode), ..own }).is_err()
                    {
                        return;
                    }
                    moved.fetch_add(1, Ordering::AcqRel);
                    if turn % 3 == 0 {
                        if segment.put(0, &pattern(put.load(Ordering::Acquire) + 1, BYTES)).is_err() {
                            return;
                        }
                        put.fetch_add(1, Ordering::AcqRel);
                    }
                }
            });
            // On any machine the daemon dies during the move, at a different place in each round.
            let given_up = Instant::now() + PATIENCE;
            while moved.load(Ordering::Acquire) < 3 && Instant::now() < given_up {
                std::thread::sleep(Duration::from_micros(200));
            }
            std::thread::sleep(Duration::from_micros(1_700 * round));
            daemon.kill().unwrap();
            stop.store(true, Ordering::Release);
        });
        (last, moves) = (put.into_inner(), moves + moved.into_inner());
        daemon.restart().unwrap();
        let after = client(&daemon);
        let segment = after.segment("moved").open().unwrap();
        let value = segment.get(..).unwrap();
        // The put in flight may have taken effect.
        let found = [last, last + 1].into_iter().find(|&seed| value[..] == pattern(seed, BYTES)[..]);
        last = found.unwrap_or_else(|| panic!("round {round}: version {} is no put, or half of one", value.version()));
        let mode = segment.stat().unwrap().permissions.mode;
        assert!(mode == Mode(0o600) || mode == Mode(0o644), "{mode}");
        // The old place is free: the rest of the memory can be allocated.
        let rest = after.segment("rest").allocate(Spec::new(4 * MIB)).unwrap();
        rest.release().unwrap();
        let failed = std::iter::repeat_with(|| after.segment("rest").open()).take(100).all(|opened| opened.is_ok());
        assert!(!failed, "a released segment stays");
    }
    assert!(moves > 15, "too little was moved: {moves}");
}
