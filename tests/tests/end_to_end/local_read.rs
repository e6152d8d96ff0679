//! Local reads: gets of this node's own segments, in place.

use ddss::{Client, ConnectOptions, ErrorKind, GetOptions, LockOptions, Mode, Model, Permissions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, SetOnDrop, copy_program, pattern, skipped};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Timeout of a call that is expected to time out.
const SOON: Duration = Duration::from_millis(50);

fn client(daemon: &Daemon) -> Client {
    client_with(daemon, true)
}

fn client_with(daemon: &Daemon, local_reads: bool) -> Client {
    let options =
        ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(20)).local_reads(local_reads);
    Client::connect_with(options).expect("the daemon serves")
}

// If this failed, gets on a node would stop with its daemon, or cost a round trip to it.
#[test]
fn local_read_works_while_daemon_is_stopped() {
    let mut daemon = Daemon::start(1).unwrap();
    let (writer, reader, far) = (client(&daemon), client(&daemon), client_with(&daemon, false));
    let made = writer.segment("here").allocate(Spec::new(100_000)).unwrap();
    let stamp = made.put(0, &pattern(1, 100_000)).unwrap();
    let (near, far) = (reader.segment("here").open().unwrap(), far.segment("here").open().unwrap());
    daemon.pause().unwrap();
    let value = near.get(..).unwrap();
    assert_eq!((&value[..], value.stamp), (&pattern(1, 100_000)[..], stamp));
    let asked = far.with_timeout(SOON).get(0..8);
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::TimedOut, "that one asks the daemon");
    daemon.resume().unwrap();
    daemon.kill().unwrap();
    assert_eq!(&near.get(7..9).unwrap()[..], &pattern(1, 100_000)[7..9]);
    daemon.restart().unwrap();
    let again = client(&daemon).segment("here").open().unwrap();
    let stamp = again.put(0, &pattern(2, 100_000)).unwrap();
    assert_eq!(near.get(..).unwrap().stamp, stamp, "the next daemon goes on in the same memory");
    again.release().unwrap();
    assert!(near.get(0..8).is_err(), "a released segment is still read");
}

// If this failed, a local read would mix two puts, or return an older version than an earlier call.
#[test]
fn local_reads_are_whole_and_monotonic() {
    let daemon = Daemon::start(1).unwrap();
    let writer = client(&daemon);
    let models = [Model::Strict, Model::Write, Model::Version, Model::Delta(3), Model::Temporal(1000)];
    let make = |(index, model)| writer.segment(&format!("m{index}")).allocate(Spec::new(3000).model(model)).unwrap();
    let made: Vec<_> = models.into_iter().enumerate().map(make).collect();
    for segment in &made {
        let version = segment.get(0..1).unwrap().version();
        segment.put_if(version, 0, &pattern(1, 3000)).unwrap();
    }
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&end);
        for index in 0..made.len() {
            let segment = client(&daemon).segment(&format!("m{index}")).open().unwrap();
            let end = &end;
            scope.spawn(move || {
                let (mut last, mut turns) = (ddss::Version(0), 0);
                while !end.load(Ordering::Relaxed) || turns < 1000 {
                    let value = segment.get(..).unwrap();
                    assert_eq!(value[..], pattern(value.version().0, 3000)[..]);
                    assert!(value.version() >= last);
                    (last, turns) = (value.version(), turns + 1);
                }
            });
        }
        for version in 2..500 {
            for segment in &made {
                let put = segment.put_if(ddss::Version(version - 1), 0, &pattern(version, 3000)).unwrap();
                assert_eq!(segment.get(0..8).unwrap().stamp, put);
            }
        }
        end.store(true, Ordering::Relaxed);
    });
}

// If this failed, a get would return data of a lock holder before the release.
#[test]
fn strict_local_read_waits_for_exclusive_lock_holder() {
    let daemon = Daemon::start(1).unwrap();
    let made = client(&daemon).segment("s").allocate(Spec::new(8)).unwrap();
    let other = client(&daemon).segment("s").open().unwrap();
    let held = made.lock().unwrap();
    held.put(0, &7u64.to_le_bytes()).unwrap();
    assert_eq!(other.with_timeout(SOON).get(..).unwrap_err().kind(), ErrorKind::TimedOut);
    held.unlock().unwrap();
    assert_eq!(other.get(..).unwrap()[0], 7);
    let shared = made.lock_with(LockOptions::default().shared()).unwrap();
    assert_eq!(other.get(..).unwrap()[0], 7);
    shared.unlock().unwrap();
}

// If this failed, one user could read private segments of another.
#[test]
fn client_cannot_map_unreadable_segments() {
    if !rustix::process::geteuid().is_root() {
        return skipped("client_cannot_map_unreadable_segments", "it needs root, to be another user");
    }
    let daemon = DaemonOptions::new(1).unwrap().argument("--socket-mode").argument("666").start().unwrap();
    std::fs::set_permissions(daemon.folder(), PermissionsExt::from_mode(0o711)).unwrap();
    let owner = client(&daemon);
    let spec = |mode| Spec::new(64).mode(Mode(mode));
    owner.segment("mine").allocate(spec(0o600)).unwrap().put(0, b"mine").unwrap();
    owner.segment("open").allocate(spec(0o644)).unwrap().put(0, b"open").unwrap();
    // The other user's program, at a path where that user can run it.
    let program = std::env::temp_dir().join(format!("ddss-stranger-{}", std::process::id()));
    copy_program(env!("CARGO_BIN_EXE_map_probe").as_ref(), &program).unwrap();
    let output = Command::new(&program).arg(daemon.socket()).uid(65534).gid(65534).output().unwrap();
    std::fs::remove_file(&program).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("area 1: the daemon refused") && said.contains("area 2: open, to be read only"), "{said}");
    assert!(said.contains("area 0: the daemon refused"), "{said}");
}

// If this failed, a client could read a mapped segment after its owner revoked the permission.
#[test]
fn revoked_segment_is_removed_from_client_mappings() {
    let [mut daemon, far] = Daemon::pair().unwrap();
    let owner = client(&daemon);
    let made = owner.segment("open").allocate(Spec::new(5000).mode(Mode(0o644)).history(2)).unwrap();
    made.put(0, &pattern(1, 5000)).unwrap();
    let seen = ddss_ipc::SharedMemory::map_area(&daemon.socket(), 1, Duration::from_secs(5)).unwrap().unwrap();
    let words = |memory: &ddss_ipc::SharedMemory| memory.load(16, Ordering::Acquire).unwrap();
    assert_ne!(words(&seen), 0, "permitted readers see the header of their area");
    let other = client(&daemon).segment("open").open().unwrap();
    let remote = open_soon(&client(&far), "open");
    assert_eq!(remote.get(..).unwrap()[..], pattern(1, 5000)[..]);
    made.set_permissions(Permissions { mode: Mode(0o600), ..made.stat().unwrap().permissions }).unwrap();
    assert_eq!(words(&seen), 0, "its bytes are still in the public area");
    for handle in [&other, &remote, &made] {
        assert_eq!(handle.get(..).unwrap()[..], pattern(1, 5000)[..]);
    }
    let stamp = remote.put(0, &pattern(2, 5000)).unwrap();
    assert_eq!(other.get(..).unwrap().stamp, stamp);
    assert_eq!(other.get_with(.., GetOptions::new().at_version(ddss::Version(1))).unwrap()[..], pattern(1, 5000)[..]);
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    let again = client(&daemon).segment("open").open().unwrap();
    assert_eq!(again.get(..).unwrap()[..], pattern(2, 5000)[..]);
    assert_eq!(again.stat().unwrap().permissions.mode, Mode(0o600));
}

fn open_soon(client: &Client, name: &str) -> ddss::Segment {
    loop {
        match client.segment(name).open() {
            Ok(segment) => return segment,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
