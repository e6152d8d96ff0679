//! Segments in files: they survive the loss of memory, and support the same calls as segments in memory.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, ErrorKind, Mode, Model, Permissions, Segment, Spec, Storage};
use ddss_testkit::{Daemon, DaemonOptions, PrivateMounts, binary, pattern, retry};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const BYTES: usize = 300_000;

fn client(daemon: &Daemon, near: bool) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(near))
        .expect("the daemon serves")
}

fn in_file(bytes: usize) -> Spec {
    Spec::new(bytes as u64).storage(Storage::File)
}

fn is(segment: &Segment, seed: u64) -> bool {
    segment.get(..).unwrap()[..] == pattern(seed, segment.len() as usize)[..]
}

/// Removes the shared memory, as a reboot does.
fn lose_memory(daemon: &Daemon) {
    std::fs::remove_dir_all(daemon.folder().join("memory")).unwrap();
}

fn ddss(daemon: &Daemon, words: &[&str], code: i32) -> String {
    let output = Command::new(binary("ddss").unwrap()).args(words).arg("--dir").arg(daemon.folder()).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

// If this failed, a persistent segment would be lost with the first reboot.
#[test]
fn file_segment_survives_loss_of_memory_and_memory_segment_is_reported_lost() {
    let mut daemon = Daemon::start(1).unwrap();
    let before = client(&daemon, true);
    before.segment("memory").allocate(Spec::new(64)).unwrap();
    // Local reads are off: a mapping outlives the file that a test deletes, but no reboot.
    let memory = client(&daemon, false).segment("memory").open().unwrap();
    let files: Vec<_> = [in_file(8), in_file(BYTES), in_file(5000).mode(Mode(0o644)).history(3)]
        .into_iter()
        .enumerate()
        .map(|(index, spec)| before.segment(&format!("file/{index}")).allocate(spec).unwrap())
        .collect();
    memory.put(0, &pattern(1, 64)).unwrap();
    for round in 1..4u64 {
        let mut stamps = Vec::new();
        for segment in &files {
            segment.put(0, &pattern(round - 1, segment.len() as usize)).unwrap();
            stamps.push(segment.put(0, &pattern(round, segment.len() as usize)).unwrap());
        }
        daemon.kill().unwrap();
        lose_memory(&daemon);
        daemon.restart().unwrap();
        for near in [true, false] {
            let after = client(&daemon, near);
            for (index, (segment, stamp)) in files.iter().zip(&stamps).enumerate() {
                // Through the old handle and through a new one.
                assert!(is(segment, round), "{index}");
                let again = after.segment(&format!("file/{index}")).open().unwrap();
                assert!(is(&again, round) && again.id() == segment.id());
                assert_eq!(again.get(..).unwrap().version(), stamp.version);
            }
            assert_eq!(after.segment("memory").open().unwrap_err().kind(), ErrorKind::NotFound);
        }
        assert_eq!(memory.get(..).unwrap_err().kind(), ErrorKind::NotFound);
        // New segments in memory do not interfere.
        let fresh = client(&daemon, true).segment(&format!("fresh/{round}")).allocate(Spec::new(BYTES as u64)).unwrap();
        fresh.put(0, &pattern(9, BYTES)).unwrap();
        assert!(files.iter().all(|segment| is(segment, round)));
    }
    let told = ddss(&daemon, &["stat", "file/1", "--json"], 0);
    assert!(told.contains("\"storage\":\"file\""), "{told}");
    ddss(&daemon, &["allocate", "by-command", "100", "--storage", "file"], 0);
    // The commands inspect the segment while no daemon runs.
    daemon.process().end().unwrap();
    let told = ddss(&daemon, &["ls", "--json"], 4);
    assert!(told.contains("by-command") && told.contains("\"storage\":\"file\""), "{told}");
    daemon.restart().unwrap();
    // A released segment is gone for good.
    let last = client(&daemon, true);
    last.segment("file/0").open().unwrap().release().unwrap();
    daemon.kill().unwrap();
    lose_memory(&daemon);
    daemon.restart().unwrap();
    let after = client(&daemon, true);
    assert_eq!(after.segment("file/0").open().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(is(&after.segment("file/1").open().unwrap(), 3));
}

// If this failed, an unfinished put would be there in part after a reboot.
#[test]
fn file_put_is_atomic_when_daemon_is_killed_and_memory_is_lost() {
    let mut daemon = Daemon::start(1).unwrap();
    let segment = client(&daemon, true).segment("file").allocate(in_file(BYTES)).unwrap();
    let (mut last, mut kills_under_way) = (0, 0);
    for round in 0..8 {
        let writer =
            Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(1)))
                .unwrap();
        let file = writer.segment("file").open().unwrap();
        let began = last;
        let put = std::thread::spawn(move || {
            let mut last = began;
            while file.put(0, &pattern(last + 1, BYTES)).is_ok() {
                last += 1;
            }
            last
        });
        std::thread::sleep(Duration::from_millis(30 + 7 * round));
        daemon.kill().unwrap();
        let acknowledged = put.join().unwrap();
        lose_memory(&daemon);
        daemon.restart().unwrap();
        let found = [acknowledged, acknowledged + 1].into_iter().find(|&seed| seed > 0 && is(&segment, seed));
        kills_under_way += usize::from(daemon.process().stderr().contains("undone=1"));
        last = match found {
            Some(found) => found,
            None => {
                assert_eq!(acknowledged, 0, "no put has these bytes");
                0
            }
        };
    }
    assert!(last > 0, "nothing was put");
    eprintln!("{last} puts, {kills_under_way} of 8 kills in the middle of one");
}

// If this failed, a segment in a file would not support remote access, other models, locks or new permissions.
#[test]
fn file_segment_supports_remote_access_and_permission_changes() {
    let [home, mut other] = Daemon::pair().unwrap();
    let (here, there) = (client(&home, true), client(&other, true));
    for (index, model) in [Model::Strict, Model::Null, Model::Delta(2)].into_iter().enumerate() {
        let name = format!("file/{index}");
        let made = retry(|| here.segment(&name).allocate(in_file(BYTES).model(model)));
        let seen = retry(|| there.segment(&name).open());
        for round in 1..4 {
            made.put(0, &pattern(round, BYTES)).unwrap();
            assert!(is(&seen, round), "{model:?}");
            seen.put(0, &pattern(round + 50, BYTES)).unwrap();
            assert!(is(&made, round + 50), "{model:?}");
        }
        made.set_permissions(Permissions { mode: Mode(0o644), ..made.stat().unwrap().permissions }).unwrap();
        assert!(is(&made, 53) && is(&seen, 53), "{model:?}");
        assert_eq!(seen.stat().unwrap().storage, Storage::File);
    }
    // An allocation from another node, and one with a copy, which is not supported.
    let far = in_file(64).placement(ddss::Placement::Node(here.node()));
    let asked = there.segment("asked").allocate(far).unwrap();
    asked.put(0, &[3; 64]).unwrap();
    assert_eq!(here.segment("asked").open().unwrap().get(..).unwrap()[..], [3; 64]);
    let replicated = here.segment("mirrored").allocate(in_file(64).copies(2)).unwrap_err();
    assert_eq!(replicated.kind(), ErrorKind::BadArgument, "{replicated}");
    other.process().end().unwrap();
}

// If this failed, a full disk would kill the daemon, or be reported as another error.
#[test]
fn full_disk_is_reported_and_loses_no_data() {
    let test = "full_disk_is_reported_and_loses_no_data";
    // The configured limit is a bound as well.
    let options = DaemonOptions::new(1).unwrap().argument("--file-bytes").argument("1048576");
    let bounded = options.start().unwrap();
    let error = client(&bounded, true).segment("large").allocate(in_file(2 << 20)).unwrap_err();
    assert!(error.kind() == ErrorKind::NoSpace && error.to_string().contains("--file-bytes"), "{error}");
    let Some(mounts) = PrivateMounts::new(test, &[("disk", "size=8m")]) else { return };
    let options = DaemonOptions::new(1).unwrap().command_prefix(mounts.command_prefix());
    let mut daemon = options.argument("--state-dir").argument(mounts.mount_path("disk")).start().unwrap();
    let before = client(&daemon, true);
    let kept = before.segment("kept").allocate(in_file(BYTES)).unwrap();
    kept.put(0, &pattern(1, BYTES)).unwrap();
    // One segment is allocated in one step, and one in slices.
    let mut count = 0;
    let error = loop {
        match before.segment(&format!("fill/{count}")).allocate(in_file(200_000)) {
            Ok(segment) => segment.put(0, &pattern(count, 200_000)).map(drop).unwrap(),
            Err(error) => break error,
        }
        count += 1;
        assert!(count < 100, "the disk is never full");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("check its disk"), "{error}");
    let error = before.segment("large").allocate(in_file(64 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(daemon.process().stderr().contains("No space left"), "{}", daemon.process().stderr());
    // Reserved space stays reserved; memory is unaffected.
    kept.put(0, &pattern(2, BYTES)).unwrap();
    before.segment("memory").allocate(Spec::new(1 << 20)).unwrap();
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    assert!(
        is(&kept, 2) && (0..count).all(|index| is(&before.segment(&format!("fill/{index}")).open().unwrap(), index))
    );
}

/// Returns the files with segments in a directory.
fn areas(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("area-"))).collect()
}

fn cut(path: &Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn ended_with(daemon: &mut Daemon, code: i32) -> String {
    let status = daemon.process().wait(PATIENCE).unwrap().expect("it cannot go on");
    let told = daemon.process().stderr();
    assert_eq!(status.code(), Some(code), "{told}");
    told
}

// If this failed, a truncated file would end the daemon silently, or give zeroes for stored data.
#[test]
fn truncated_segment_file_is_refused_by_name() {
    let began = Instant::now();
    let mut daemon = Daemon::start(1).unwrap();
    let client = client(&daemon, false);
    let [first, second] = ["first", "second"].map(|name| client.segment(name).allocate(in_file(BYTES)).unwrap());
    for segment in [&first, &second] {
        segment.put(0, &pattern(1, BYTES)).unwrap();
    }
    let mut taken = ddss(&daemon, &["counters", "file_bytes*", "--json"], 0);
    while !taken.contains("\"file_bytes_used\":600320") {
        // The daemon publishes its counters only now and then.
        std::thread::sleep(Duration::from_millis(20));
        taken = ddss(&daemon, &["counters", "file_bytes*", "--json"], 0);
        assert!(began.elapsed() < PATIENCE, "{taken}");
    }
    let folder = daemon.folder().join("state/segments");
    let area = areas(&folder).pop().expect("they share an area");
    let saved = daemon.folder().join("saved");
    daemon.kill().unwrap();
    std::fs::copy(&area, &saved).unwrap();
    daemon.restart().unwrap();
    assert!(is(&first, 1) && is(&second, 1));
    // Under a running daemon the first access to these bytes detects the truncation.
    cut(&area, (BYTES as u64).next_multiple_of(4096));
    let asked = std::thread::spawn(move || second.put(0, &pattern(2, BYTES)).is_err());
    let told = ended_with(&mut daemon, 7);
    assert!(told.contains(&format!("cannot access the mapped file {}", area.display())), "{told}");
    // Each start is refused.
    for _ in 0..2 {
        assert!(daemon.restart().is_err());
        let told = ended_with(&mut daemon, 4);
        let named =
            told.contains(&area.display().to_string()) && told.contains("truncated to") && told.contains("\"second\"");
        assert!(named && told.contains("--discard"), "{told}");
    }
    std::fs::copy(&saved, &area).unwrap();
    daemon.restart().unwrap();
    assert!(asked.join().unwrap(), "the put never was");
    assert!(is(&first, 1) && is(&client.segment("second").open().unwrap(), 1));
    // A truncated register is refused as well.
    daemon.process().end().unwrap();
    let register = folder.join("register");
    let length = register.metadata().unwrap().len();
    let mut whole = Vec::new();
    File::open(&register).unwrap().take(1 << 16).read_to_end(&mut whole).unwrap();
    for bytes in [0, 64, 4096] {
        cut(&register, bytes);
        assert!(daemon.restart().is_err());
        let told = ended_with(&mut daemon, 4);
        assert!(told.contains("its registry is truncated"), "{told}");
    }
    std::fs::write(&register, whole).unwrap();
    cut(&register, length);
    daemon.restart().unwrap();
    assert!(is(&first, 1));
}

// If this failed, a disk without the space that it had promised would end the daemon without a message, or forever.
#[test]
fn disk_failure_is_reported_and_next_start_recovers() {
    let Some(mounts) = PrivateMounts::new("a_disk_that_fails_under_a_segment", &[("disk", "size=8m")]) else { return };
    let options = DaemonOptions::new(1).unwrap().command_prefix(mounts.command_prefix());
    let mut daemon = options.argument("--state-dir").argument(mounts.mount_path("disk")).start().unwrap();
    let client = client(&daemon, false);
    let [hurt, well] = ["hurt", "well"].map(|name| client.segment(name).allocate(in_file(BYTES)).unwrap());
    well.put(0, &pattern(1, BYTES)).unwrap();
    let seen =
        PathBuf::from(format!("/proc/{}/root{}", daemon.pid(), mounts.mount_path("disk").join("segments").display()));
    let area = areas(&seen).pop().unwrap();
    // Frees the reserved blocks behind the first page of the first segment, and leaves no space for them.
    let file = File::options().write(true).open(&area).unwrap();
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, 8192, 200_000).unwrap();
    drop(file);
    mounts.fill(&mounts.mount_path("disk"), None);
    let put = std::thread::spawn(move || hurt.put(0, &pattern(2, BYTES)).is_err());
    let told = ended_with(&mut daemon, 7);
    assert!(told.contains("/area-") && told.contains("its disk failed or is full"), "{told}");
    mounts.empty(&mounts.mount_path("disk"));
    daemon.restart().unwrap();
    assert!(put.join().unwrap());
    assert!(is(&well, 1));
    assert_eq!(
        client.segment("hurt").open().unwrap().get(..).unwrap()[..],
        vec![0; BYTES],
        "the put that was under way never was"
    );
}
