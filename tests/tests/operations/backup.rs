//! Snapshots of a cluster, and their return into another one.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, EntryOptions, Map, Mode, Model, Spec, Storage, Table};
use ddss_testkit::{DaemonOptions, Process, SetOnDrop, TempNode, binary, run_ddss};

const PATIENCE: Duration = Duration::from_secs(60);

fn client(folder: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder).timeout(PATIENCE)).unwrap()
}

/// Runs a command, and returns its output. It ends with this code.
fn ddss(folder: &Path, words: &[&str], code: i32) -> String {
    let said = run_ddss(folder, words, "").unwrap();
    assert_eq!(said.code, code, "{words:?}: {}{}", said.out, said.err);
    said.out + &said.err
}

/// Allocates a segment of each kind, with a value.
fn make_segments(client: &Client) {
    let spec = Spec::new(3 << 20).model(Model::Write).mode(Mode(0o640)).owner(1234, 5678);
    let large = client.segment("large").allocate(spec).unwrap();
    large.put(5, b"begin").unwrap();
    large.put((3 << 20) - 3, b"end").unwrap();
    let table: Table = client.table("rows").allocate(Spec::new(1000).row_len(24).copies(2)).unwrap();
    for row in [0, 7, 999] {
        table.row(row).put(format!("row {row}").as_bytes()).unwrap();
    }
    let map: Map<u64, u64> = client.map("map").allocate(500).unwrap();
    for key in 0..500 {
        map.put(&key, &(key * key)).unwrap();
    }
    map.put_with(&1000, &1, EntryOptions::new().ttl(Duration::from_secs(600))).unwrap();
    let checked = client.segment("checked").allocate(Spec::new(3 << 20).model(Model::Version)).unwrap();
    let stamp = checked.put_if(ddss::Version(0), 1 << 20, b"first").unwrap();
    checked.put_if(stamp.version, 2 << 20, b"second").unwrap();
    client.segment("file").allocate(Spec::new(64).storage(Storage::File)).unwrap().put(0, b"disk").unwrap();
    client.segment("empty").allocate(Spec::new(4096).model(Model::Delta(2)).history(2)).unwrap();
}

/// Checks that the segments are those that [`make_segments`] made.
fn check_segments(client: &Client, copies: u8) {
    let large = client.segment("large").open().unwrap();
    let info = large.stat().unwrap();
    assert_eq!((info.model, info.permissions.mode), (Model::Write, Mode(0o640)));
    assert_eq!((info.permissions.uid, info.permissions.gid), (1234, 5678));
    let value = large.get(..).unwrap();
    assert_eq!((value.len(), &value[5..10], &value[value.len() - 3..]), (3 << 20, &b"begin"[..], &b"end"[..]));
    assert_eq!(value.iter().filter(|&&byte| byte != 0).count(), 8);
    let table: Table = client.table("rows").open().unwrap();
    assert_eq!((table.len(), table.row_len(), table.segment().stat().unwrap().copies), (1000, 24, copies));
    for row in [0, 7, 999] {
        assert!(table.row(row).get().unwrap().starts_with(format!("row {row}").as_bytes()));
    }
    let map: Map<u64, u64> = client.map("map").open().unwrap();
    assert_eq!(map.len().unwrap(), 501);
    assert!((0..500).all(|key| map.get(&key).unwrap().unwrap().value == key * key));
    assert!(map.get(&1000).unwrap().unwrap().ttl().is_some());
    let checked = client.segment("checked").open().unwrap();
    assert_eq!(&checked.get(1 << 20..(1 << 20) + 5).unwrap()[..], b"first");
    assert_eq!(&checked.get(2 << 20..(2 << 20) + 6).unwrap()[..], b"second");
    let file = client.segment("file").open().unwrap();
    assert_eq!((file.stat().unwrap().storage, &file.get(0..4).unwrap()[..]), (Storage::File, &b"disk"[..]));
    let empty = client.segment("empty").open().unwrap().stat().unwrap();
    assert_eq!((empty.len, empty.model, empty.history), (4096, Model::Delta(2), 2));
}

// If this failed, an operator who lost a cluster would have no values to begin again with.
#[test]
fn snapshot_of_a_cluster_is_restored_in_another_one() {
    let first = DaemonOptions::new(1).unwrap().clustered().pool_bytes(64 << 20).start().unwrap();
    let second = DaemonOptions::new(2).unwrap().joins(first.listen()).pool_bytes(64 << 20).start().unwrap();
    let place = TempNode::new().unwrap();
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let file = path("snapshot");
    make_segments(&client(second.folder()));
    // Taken on the other node than the one with the segments.
    ddss(first.folder(), &["cluster", "snapshot", &file], 0);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "every user reads the values of all");
    // Names exist here.
    let why = ddss(first.folder(), &["cluster", "restore", &file], 1);
    assert!(why.contains("6 of the names exist") && why.contains("--skip-existing"), "{why}");
    ddss(first.folder(), &["cluster", "restore", &file, "--skip-existing"], 0);
    drop((first, second));

    let bytes = std::fs::read(&file).unwrap();
    let third = DaemonOptions::new(3).unwrap().clustered().pool_bytes(64 << 20).start().unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 4;
    std::fs::write(path("damaged"), &damaged).unwrap();
    std::fs::write(path("short"), &bytes[..bytes.len() - 20]).unwrap();
    for name in ["damaged", "short"] {
        let why = ddss(third.folder(), &["cluster", "restore", &path(name)], 1);
        assert!(why.contains("is damaged at byte"), "{why}");
        assert_eq!(client(third.folder()).list("").count(), 0, "something was made of a damaged file");
    }
    // A cluster of one node has no second copy: `degraded`, as after the loss of a node.
    ddss(third.folder(), &["cluster", "restore", &file], 0);
    check_segments(&client(third.folder()), 2);
    drop(third);

    let alone = DaemonOptions::new(4).unwrap().pool_bytes(64 << 20).start().unwrap();
    let said = ddss(alone.folder(), &["cluster", "restore", &file], 0);
    assert!(said.contains("1 segments have one copy"), "{said}");
    check_segments(&client(alone.folder()), 1);
}

// If this failed, an operator would take a segment that has half its bytes for a restored one.
#[test]
fn restore_that_was_killed_is_continued() {
    let source = DaemonOptions::new(1).unwrap().pool_bytes(64 << 20).start().unwrap();
    let place = TempNode::new().unwrap();
    let file = place.join("snapshot").to_str().unwrap().to_owned();
    let values = client(source.folder());
    for number in 0..40_u8 {
        let segment = values.segment(&format!("value/{number}")).allocate(1 << 20).unwrap();
        segment.put(0, &vec![number + 1; 1 << 20]).unwrap();
    }
    ddss(source.folder(), &["cluster", "snapshot", &file, "--only", "value/*"], 0);
    let target = DaemonOptions::new(2).unwrap().pool_bytes(64 << 20).start().unwrap();
    let restored = client(target.folder());
    for killed_after in [1, 10, 25] {
        let mut command = Command::new(binary("ddss").unwrap());
        command.args(["cluster", "restore", &file, "--skip-existing", "--dir"]).arg(target.folder());
        let mut process = Process::start(command, place.path(), "restore").unwrap();
        while restored.list("value/").count() < killed_after {
            assert!(process.wait(Duration::ZERO).unwrap().is_none_or(|status| status.success()));
        }
        process.kill().unwrap();
        for info in restored.list("value/") {
            let info = info.unwrap();
            let segment = restored.segment(&info.name).open().unwrap();
            let number: u8 = info.name["value/".len()..].parse().unwrap();
            let is_whole = segment.get(..).unwrap().iter().all(|&byte| byte == number + 1);
            let is_noted = || {
                let journal = restored.segment(".ddss-restore").open().unwrap().get(..).unwrap();
                journal.starts_with(format!("{}\0", info.name).as_bytes())
            };
            assert!(is_whole || is_noted(), "{} is not marked as unfinished", info.name);
        }
    }
    ddss(target.folder(), &["cluster", "restore", &file, "--skip-existing"], 0);
    let whole = |number: u8| {
        let segment = restored.segment(&format!("value/{number}")).open().unwrap();
        segment.get(..).unwrap().iter().all(|&byte| byte == number + 1)
    };
    assert!((0..40).all(whole));
    assert_eq!(restored.list("").count(), 40, "the journal stays");
}

// If this failed, a snapshot would mix bytes of two versions, or would fail for each segment that is in use.
#[test]
fn snapshot_has_one_version_of_a_segment_that_changes() {
    let daemon = DaemonOptions::new(1).unwrap().pool_bytes(64 << 20).start().unwrap();
    let (values, place) = (client(daemon.folder()), TempNode::new().unwrap());
    let file = place.join("snapshot").to_str().unwrap().to_owned();
    let busy = values.segment("busy").allocate(3 << 20).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..=u8::MAX).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                busy.put(0, &vec![number; 3 << 20]).unwrap();
            }
        });
        for _ in 0..5 {
            ddss(daemon.folder(), &["cluster", "snapshot", &file], 0);
            let other = DaemonOptions::new(2).unwrap().pool_bytes(64 << 20).start().unwrap();
            ddss(other.folder(), &["cluster", "restore", &file], 0);
            let value = client(other.folder()).segment("busy").open().unwrap().get(..).unwrap();
            assert!(value.iter().all(|&byte| byte == value[0]), "bytes of two versions");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

// If this failed, a backup without the segments of a dead node would look complete.
#[test]
fn snapshot_names_what_it_lacks() {
    let first = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let mut second = DaemonOptions::new(2).unwrap().joins(first.listen()).start().unwrap();
    let place = TempNode::new().unwrap();
    let file = place.join("snapshot").to_str().unwrap().to_owned();
    client(first.folder()).segment("ours").allocate(64).unwrap();
    client(second.folder()).segment("theirs").allocate(64).unwrap();
    second.kill().unwrap();
    let missing = |said: &str| said.contains("theirs") && !said.contains("ours is not");
    let end = Instant::now() + PATIENCE;
    loop {
        let said = run_ddss(first.folder(), &["cluster", "snapshot", &file], "").unwrap();
        if said.code == 1 && missing(&said.err) && said.err.contains("node 2") {
            break;
        }
        assert!(Instant::now() < end, "{} {}{}", said.code, said.out, said.err);
    }
    let said = ddss(first.folder(), &["cluster", "restore", &file, "--check"], 0);
    assert!(said.contains("1 segments could not be read"), "{said}");
}

// If this failed, an operator would take a cluster of empty segments for a restored one, or lose all for one that has no room.
#[test]
fn restore_makes_what_it_can_and_says_what_it_cannot() {
    let source = DaemonOptions::new(1).unwrap().pool_bytes(64 << 20).start().unwrap();
    let place = TempNode::new().unwrap();
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let values = client(source.folder());
    for (name, bytes) in [("a", 64_u64), ("b", 32 << 20), ("c", 64)] {
        values.segment(name).allocate(bytes).unwrap().put(0, name.as_bytes()).unwrap();
    }
    ddss(source.folder(), &["cluster", "snapshot", &path("all")], 0);
    ddss(source.folder(), &["cluster", "snapshot", &path("names"), "--no-bytes"], 0);
    let small = DaemonOptions::new(2).unwrap().pool_bytes(8 << 20).start().unwrap();
    let why = ddss(small.folder(), &["cluster", "restore", &path("names")], 1);
    assert!(why.contains("holds no bytes") && why.contains("--empty"), "{why}");
    let why = ddss(small.folder(), &["cluster", "restore", &path("all")], 1);
    assert!(why.contains("b was not restored") && why.contains("1 segments were not restored"), "{why}");
    let restored = client(small.folder());
    for name in ["a", "c"] {
        assert_eq!(&restored.segment(name).open().unwrap().get(0..1).unwrap()[..], name.as_bytes());
    }
    assert_eq!(restored.list("").count(), 2);
    // A directory is no file for a snapshot.
    let why = ddss(source.folder(), &["cluster", "snapshot", place.path().to_str().unwrap()], 1);
    assert!(why.contains("it is a directory"), "{why}");
}

// If this failed, rows of a table that belong together would be stored from different moments.
#[test]
fn locked_snapshot_has_all_rows_of_one_moment() {
    /// More than are read together.
    const ROWS: u64 = 1500;
    let daemon = DaemonOptions::new(1).unwrap().pool_bytes(64 << 20).start().unwrap();
    let (values, place) = (client(daemon.folder()), TempNode::new().unwrap());
    let file = place.join("snapshot").to_str().unwrap().to_owned();
    let table: Table = values.table("rows").allocate(Spec::new(ROWS).row_len(8)).unwrap();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let stop_writer = SetOnDrop(&stop);
        // Each round writes its number from the first row to the last: at any moment the rows do not grow, and differ by one.
        scope.spawn(|| {
            for round in 1_u64.. {
                for row in 0..ROWS {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    table.row(row).put(&round.to_le_bytes()).unwrap();
                }
                rounds.store(round, Ordering::Relaxed);
            }
        });
        let mut last = 0;
        for _ in 0..5 {
            // The writer goes on between two snapshots.
            let begin = Instant::now();
            while rounds.load(Ordering::Relaxed) <= last {
                assert!(begin.elapsed() < PATIENCE, "the writer stands still");
                std::thread::sleep(Duration::from_millis(1));
            }
            last = rounds.load(Ordering::Relaxed);
            ddss(daemon.folder(), &["cluster", "snapshot", &file, "--lock"], 0);
            let other = DaemonOptions::new(2).unwrap().pool_bytes(64 << 20).start().unwrap();
            ddss(other.folder(), &["cluster", "restore", &file], 0);
            let stored: Table = client(other.folder()).table("rows").open().unwrap();
            let word = |row| u64::from_le_bytes(stored.row(row).get().unwrap()[..8].try_into().unwrap());
            let found: Vec<u64> = (0..ROWS).map(word).collect();
            let (first, end) = (found[0], found[found.len() - 1]);
            assert!(found.is_sorted_by(|one, next| one >= next) && first - end <= 1, "{found:?}");
        }
        drop(stop_writer);
    });
}

// If this failed, two operators would make one segment twice, or each would take the other's half for a finished one.
#[test]
fn second_restore_at_the_same_time_is_refused() {
    let source = DaemonOptions::new(1).unwrap().pool_bytes(128 << 20).start().unwrap();
    let place = TempNode::new().unwrap();
    let file = place.join("snapshot").to_str().unwrap().to_owned();
    let values = client(source.folder());
    for number in 0..32_u8 {
        values.segment(&format!("value/{number}")).allocate(1 << 20).unwrap().put(0, &[number + 1; 64]).unwrap();
    }
    ddss(source.folder(), &["cluster", "snapshot", &file], 0);
    let target = DaemonOptions::new(2).unwrap().pool_bytes(128 << 20).start().unwrap();
    let restored = client(target.folder());
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["cluster", "restore", &file, "--dir"]).arg(target.folder());
    let mut first = Process::start(command, place.path(), "restore").unwrap();
    while restored.list("value/").next().is_none() {
        assert!(first.wait(Duration::ZERO).unwrap().is_none(), "it has ended: {}", first.stderr());
    }
    // It cannot end before the second one has asked.
    first.pause().unwrap();
    let why = ddss(target.folder(), &["cluster", "restore", &file, "--skip-existing"], 1);
    assert!(why.contains("another restore runs") && why.contains(".ddss-restore"), "{why}");
    let made = restored.list("value/").count();
    first.resume().unwrap();
    assert!(first.wait(PATIENCE).unwrap().expect("it ends").success(), "{}", first.stderr());
    assert!(made <= 32 && restored.list("").count() == 32, "{made}");
    for number in 0..32_u8 {
        let segment = restored.segment(&format!("value/{number}")).open().unwrap();
        assert_eq!(&segment.get(0..64).unwrap()[..], [number + 1; 64]);
    }
}

// If this failed, one lost segment could only be brought back with all others.
#[test]
fn part_of_a_snapshot_is_restored() {
    let source = DaemonOptions::new(1).unwrap().start().unwrap();
    let place = TempNode::new().unwrap();
    let file = place.join("snapshot").to_str().unwrap().to_owned();
    let values = client(source.folder());
    for name in ["score/1", "score/2", "other"] {
        values.segment(name).allocate(64).unwrap().put(0, name.as_bytes()).unwrap();
    }
    ddss(source.folder(), &["cluster", "snapshot", &file], 0);
    values.segment("score/1").open().unwrap().release().unwrap();
    values.segment("other").open().unwrap().put(0, b"newer").unwrap();
    let why = ddss(source.folder(), &["cluster", "restore", &file, "--only", "scores*"], 1);
    assert!(why.contains("no segment of the snapshot matches 'scores*'"), "{why}");
    assert!(
        ddss(source.folder(), &["cluster", "restore", &file, "--only", "score*", "--check"], 0).contains("2 segments")
    );
    // The name that does not match exists, and does not count.
    let why = ddss(source.folder(), &["cluster", "restore", &file, "--only", "score*"], 1);
    assert!(why.contains("1 of the names exist"), "{why}");
    let said = ddss(source.folder(), &["cluster", "restore", &file, "--only", "score/1"], 0);
    assert!(said.contains("1 segments restored"), "{said}");
    let value = |name: &str| values.segment(name).open().unwrap().get(0..7).unwrap().to_vec();
    assert_eq!((value("score/1"), value("other")), (b"score/1".to_vec(), b"newer\0\0".to_vec()));
}

// If this failed, a half-filled segment would be taken for a whole one after a restore of others.
#[test]
fn half_filled_segment_is_not_forgotten_by_a_restore_of_others() {
    let source = DaemonOptions::new(1).unwrap().start().unwrap();
    let place = TempNode::new().unwrap();
    let file = place.join("snapshot").to_str().unwrap().to_owned();
    let values = client(source.folder());
    for name in ["big", "score"] {
        values.segment(name).allocate(64).unwrap().put(0, name.as_bytes()).unwrap();
    }
    ddss(source.folder(), &["cluster", "snapshot", &file], 0);
    let target = DaemonOptions::new(2).unwrap().start().unwrap();
    let restored = client(target.folder());
    // A restore that died has left this.
    restored.segment("big").allocate(64).unwrap();
    restored.segment(".ddss-restore").allocate(512).unwrap().put(0, b"big").unwrap();
    let others = ["cluster", "restore", &file, "--only", "score", "--skip-existing"];
    let why = ddss(target.folder(), &others, 1);
    assert!(why.contains("while it filled big") && why.contains("ddss release big"), "{why}");
    assert!(restored.segment("score").open().is_err(), "it has restored something");
    ddss(target.folder(), &["cluster", "restore", &file, "--skip-existing"], 0);
    for name in ["big", "score"] {
        let value = restored.segment(name).open().unwrap().get(..).unwrap();
        assert!(value.starts_with(name.as_bytes()), "{name}");
    }
    // One that was released meanwhile is in nobody's way.
    restored.segment("big").open().unwrap().release().unwrap();
    restored.segment(".ddss-restore").allocate(512).unwrap().put(0, b"big").unwrap();
    ddss(target.folder(), &others, 0);
}
