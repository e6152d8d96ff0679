//! A daemon that is killed, or stopped, and started again: what was acknowledged is there, whole.

use ddss::{Client, Failure, Model, Segment, Spec};
use ddss_tests::{Daemon, DaemonOptions, pattern};
use std::time::Duration;

fn client(daemon: &Daemon) -> Client {
    Client::builder().folder(daemon.folder()).timeout(Duration::from_secs(30)).connect().expect("the daemon serves")
}

/// Puts one pattern after the other until the daemon is gone; says which was the last that was acknowledged.
fn put_until_it_is_gone(segment: &Segment, length: usize, first: u64) -> u64 {
    let mut last = first;
    while segment.put(0, &pattern(last + 1, length)).is_ok() {
        last += 1;
    }
    last
}

// If this failed, a crash of the daemon would lose what it had acknowledged, or leave half of a put.
#[test]
fn an_acknowledged_put_survives_a_kill_and_no_put_is_there_in_part() {
    let mut daemon = Daemon::start(1).unwrap();
    let sizes = [8usize, 5000, 300_000, 1 << 20];
    let mut last = [0u64; 4];
    let ids: Vec<_> = {
        let client = client(&daemon);
        let made = sizes.iter().map(|&bytes| client.allocate(&format!("s{bytes}"), Spec::new(bytes as u64)).unwrap());
        let made: Vec<_> = made.collect();
        for (segment, bytes) in made.iter().zip(sizes) {
            segment.put(0, &pattern(0, bytes)).unwrap();
        }
        made.iter().map(Segment::id).collect()
    };
    for round in 0..12 {
        let began = client(&daemon);
        let segments: Vec<_> = sizes.iter().map(|bytes| began.open(&format!("s{bytes}")).unwrap()).collect();
        std::thread::scope(|scope| {
            let writers: Vec<_> = segments
                .iter()
                .zip(sizes)
                .zip(last)
                .map(|((segment, bytes), last)| scope.spawn(move || put_until_it_is_gone(segment, bytes, last)))
                .collect();
            std::thread::sleep(Duration::from_millis(20 + 7 * round));
            daemon.kill().unwrap();
            for (writer, last) in writers.into_iter().zip(&mut last) {
                *last = writer.join().unwrap();
            }
        });
        daemon.start_again().unwrap();
        let after = client(&daemon);
        for ((bytes, last), id) in sizes.iter().zip(&mut last).zip(&ids) {
            let segment = after.open(&format!("s{bytes}")).unwrap();
            assert_eq!(segment.id(), *id);
            let value = segment.get(..).unwrap();
            // The one that was under way may be there as well.
            let found = [*last, *last + 1].into_iter().find(|&seed| value[..] == pattern(seed, *bytes)[..]);
            *last = found.unwrap_or_else(|| panic!("{bytes} bytes of version {} are of no put", value.version()));
        }
    }
    assert!(last.iter().all(|&last| last > 12), "too little was put: {last:?}");
}

// If this failed, what was released would come back, or a name, an id or a permission would change with a restart.
#[test]
fn a_restart_changes_nothing_but_the_locks() {
    let mut daemon = Daemon::start(1).unwrap();
    let before = client(&daemon);
    let kept = before.allocate("kept", Spec { model: Model::Write, mode: 0o640, ..Spec::new(100) }).unwrap();
    let gone = before.allocate("gone", Spec::new(100)).unwrap();
    let stamp = kept.put(3, b"here").unwrap();
    let (kept_id, gone_id) = (kept.id(), gone.id());
    let held = kept.lock().unwrap();
    let token = held.token();
    gone.release().unwrap();
    daemon.kill().unwrap();
    drop(held);
    daemon.start_again().unwrap();
    let after = client(&daemon);
    assert_eq!(after.open("gone").unwrap_err().failure(), Some(Failure::NotFound));
    let kept = after.open("kept").unwrap();
    let value = kept.get(3..7).unwrap();
    assert_eq!((kept.id(), &value[..], value.stamp()), (kept_id, &b"here"[..], stamp));
    assert!(kept.lock().unwrap().token() > token, "a token was given twice");
    assert!(kept.put(0, b"x").unwrap() > stamp);
    let again = after.allocate("gone", Spec::new(100)).unwrap();
    assert_ne!(again.id(), gone_id);
    assert!(again.get(..).unwrap().iter().all(|&byte| byte == 0), "the bytes of another segment are shown");
    // A clean stop keeps the segments as well.
    daemon.start_again().unwrap();
    assert_eq!(&client(&daemon).open("kept").unwrap().get(4..7).unwrap()[..], b"ere");
}

// If this failed, a daemon would start with another node's segments, or with less memory than they take.
#[test]
fn memory_that_does_not_fit_the_daemon_is_said_and_left_alone() {
    let options = DaemonOptions::new(1).unwrap();
    let mut daemon = options.start().unwrap();
    client(&daemon).allocate("large", Spec::new(5 << 20)).unwrap();
    daemon.process().end().unwrap();
    let folder = daemon.folder().to_owned();
    let start = |words: &[&str]| {
        let mut command = std::process::Command::new(ddss_tests::binary("ddssd").unwrap());
        let command = command.arg("--dir").arg(&folder).args(["--listen", "127.0.0.1:0"]).args(words);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let other = start(&["--node", "2"]);
    assert!(other.contains("is of node 1") && other.contains("--discard"), "{other}");
    let small = start(&["--node", "1", "--pool-bytes", "1048576"]);
    assert!(small.contains("larger --pool-bytes"), "{small}");
    daemon.start_again().unwrap();
    assert_eq!(client(&daemon).open("large").unwrap().bytes(), 5 << 20);
}
