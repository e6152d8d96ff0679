//! A killed or stopped daemon that is restarted: all acknowledged data is present and complete.

use ddss::{Client, ConnectOptions, ErrorKind, Mode, Model, Segment, Spec, Strategy};
use ddss_testkit::{Daemon, DaemonOptions, pattern};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod returning_nodes;

fn patient(daemon: &Daemon, seconds: u64) -> Client {
    let patience = Duration::from_secs(seconds);
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(patience)).expect("the daemon serves")
}

fn client(daemon: &Daemon) -> Client {
    patient(daemon, 30)
}

/// Puts one pattern after the other until the daemon dies; returns the last acknowledged one.
fn put_until_it_is_gone(segment: &Segment, length: usize, first: u64, made: &AtomicU64) -> u64 {
    let mut last = first;
    while segment.put(0, &pattern(last + 1, length)).is_ok() {
        last += 1;
        made.fetch_add(1, Ordering::Release);
    }
    last
}

// If this failed, a crash of the daemon would lose acknowledged data, or leave half of a put.
#[test]
fn acknowledged_put_survives_kill_and_puts_are_atomic() {
    let mut daemon = Daemon::start(1).unwrap();
    let sizes = [8usize, 5000, 300_000, 1 << 20];
    let mut last = [0u64; 4];
    let ids: Vec<_> = {
        let client = client(&daemon);
        let made =
            sizes.iter().map(|&bytes| client.segment(&format!("s{bytes}")).allocate(Spec::new(bytes as u64)).unwrap());
        let made: Vec<_> = made.collect();
        for (segment, bytes) in made.iter().zip(sizes) {
            segment.put(0, &pattern(0, bytes)).unwrap();
        }
        made.iter().map(Segment::id).collect()
    };
    for round in 0..12 {
        // The next daemon starts only after all clients have seen the end of this one.
        let began = patient(&daemon, 1);
        let segments: Vec<_> = sizes.iter().map(|bytes| began.segment(&format!("s{bytes}")).open().unwrap()).collect();
        let made = [const { AtomicU64::new(0) }; 4];
        std::thread::scope(|scope| {
            let writers: Vec<_> = segments
                .iter()
                .zip(sizes)
                .zip(last)
                .zip(&made)
                .map(|(((segment, bytes), last), made)| {
                    scope.spawn(move || put_until_it_is_gone(segment, bytes, last, made))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(20 + 7 * round));
            // On a busy machine a large put takes long.
            let begin = Instant::now();
            while made.iter().any(|made| made.load(Ordering::Acquire) < 2) && begin.elapsed() < Duration::from_secs(20)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            daemon.kill().unwrap();
            for (writer, last) in writers.into_iter().zip(&mut last) {
                *last = writer.join().unwrap();
            }
        });
        daemon.restart().unwrap();
        let after = client(&daemon);
        for ((bytes, last), id) in sizes.iter().zip(&mut last).zip(&ids) {
            let segment = after.segment(&format!("s{bytes}")).open().unwrap();
            assert_eq!(segment.id(), *id);
            let value = segment.get(..).unwrap();
            // The put in flight may have taken effect.
            let found = [*last, *last + 1].into_iter().find(|&seed| value[..] == pattern(seed, *bytes)[..]);
            *last = found.unwrap_or_else(|| panic!("{bytes} bytes of version {} are of no put", value.version()));
        }
    }
    assert!(last.iter().all(|&last| last > 12), "too little was put: {last:?}");
}

// If this failed, released segments would come back, or a name, an id or a permission would change with a restart.
#[test]
fn restart_changes_only_the_locks() {
    let mut daemon = Daemon::start(1).unwrap();
    let before = client(&daemon);
    let kept = before.segment("kept").allocate(Spec::new(100).model(Model::Write).mode(Mode(0o640))).unwrap();
    let gone = before.segment("gone").allocate(Spec::new(100)).unwrap();
    let stamp = kept.put(3, b"here").unwrap();
    let (kept_id, gone_id) = (kept.id(), gone.id());
    let held = kept.lock().unwrap();
    let token = held.token();
    gone.release().unwrap();
    daemon.kill().unwrap();
    drop(held);
    daemon.restart().unwrap();
    let after = client(&daemon);
    assert_eq!(after.segment("gone").open().unwrap_err().kind(), ErrorKind::NotFound);
    let kept = after.segment("kept").open().unwrap();
    let value = kept.get(3..7).unwrap();
    assert_eq!((kept.id(), &value[..], value.stamp), (kept_id, &b"here"[..], stamp));
    assert!(kept.lock().unwrap().token() > token, "a token was given twice");
    assert!(kept.put(0, b"x").unwrap() > stamp);
    let again = after.segment("gone").allocate(Spec::new(100)).unwrap();
    assert_ne!(again.id(), gone_id);
    assert!(again.get(..).unwrap().iter().all(|&byte| byte == 0), "the bytes of another segment are shown");
    // A clean stop keeps the segments as well.
    daemon.restart().unwrap();
    assert_eq!(&client(&daemon).segment("kept").open().unwrap().get(4..7).unwrap()[..], b"ere");
}

// If this failed, a daemon would start with another node's segments, or with less memory than they take.
#[test]
fn memory_of_another_layout_is_reported_and_untouched() {
    let options = DaemonOptions::new(1).unwrap();
    let mut daemon = options.start().unwrap();
    client(&daemon).segment("large").allocate(Spec::new(5 << 20)).unwrap();
    daemon.process().end().unwrap();
    let folder = daemon.folder().to_owned();
    let start = |words: &[&str]| {
        let mut command = std::process::Command::new(ddss_testkit::binary("ddssd").unwrap());
        let command = command.arg("--dir").arg(&folder).args(words);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(4));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let other = start(&["--node", "2"]);
    assert!(other.contains("belongs to node 1") && other.contains("--discard"), "{other}");
    let small = start(&["--node", "1", "--pool-bytes", "1048576"]);
    assert!(small.contains("larger --pool-bytes"), "{small}");
    daemon.restart().unwrap();
    assert_eq!(client(&daemon).segment("large").open().unwrap().len(), 5 << 20);
}

// If this failed, every application would need code of its own to connect again after an upgrade of the daemon.
#[test]
fn handle_reconnects_to_the_next_daemon() {
    let mut daemon = Daemon::start(1).unwrap();
    let clients = Strategy::ALL.map(|strategy| {
        let patient = Duration::from_secs(30);
        let options =
            ConnectOptions::new().directory(daemon.folder()).strategy(strategy).local_reads(false).timeout(patient);
        Client::connect_with(options).unwrap()
    });
    let made = clients[0].segment("counter").allocate(Spec::new(64)).unwrap();
    made.word(0).fetch_add(1).unwrap();
    let handles = clients.each_ref().map(|client| client.segment("counter").open().unwrap());
    let tasks = clients[3].aio().unwrap();
    let later = block_on(tasks.segment("counter").open()).unwrap();
    for round in 1..4u64 {
        daemon.kill().unwrap();
        // A call without a daemon is served by the next one.
        let waits = std::thread::spawn({
            let handle = handles[0].clone();
            move || handle.get(0..8)
        });
        std::thread::sleep(Duration::from_millis(20));
        daemon.restart().unwrap();
        let before = 1 + (round - 1) * 5;
        assert_eq!(waits.join().unwrap().unwrap()[..], before.to_le_bytes());
        for (index, handle) in handles.iter().enumerate() {
            let added = handle.word(0).fetch_add(1).unwrap_or_else(|error| panic!("{index}: {error}"));
            assert_eq!(added.before, before + index as u64);
            assert_eq!(handle.get(0..8).unwrap()[..], (before + index as u64 + 1).to_le_bytes());
        }
        let put = block_on(later.put(0, &(before + 5).to_le_bytes())).unwrap();
        assert_eq!(block_on(later.get(0..8)).unwrap().stamp, put);
    }
    // A call waits for a daemon that is stopped, and fails at its deadline, without effect.
    daemon.process().end().unwrap();
    let hasty = handles[1].with_timeout(Duration::from_millis(100));
    while hasty.get(0..8).is_ok() {}
    let told = hasty.put(0, &[0; 8]).unwrap_err();
    assert!(told.to_string().contains("no daemon is running") && !told.is_indeterminate(), "{told}");
}

/// Repeats a call until the home of the segment answers. Until then each call must end with the error for an absent
/// home.
fn once_home_is_back<T>(mut call: impl FnMut() -> Result<T, ddss::Error>) -> (T, usize) {
    let begin = Instant::now();
    let mut refused = 0;
    loop {
        match call() {
            Ok(value) => return (value, refused),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NodeDown, "{error}");
                assert!(begin.elapsed() < Duration::from_secs(60), "the handle does not go on: {error}");
            }
        }
        refused += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
}

// If this failed, an application would have to open its segments anew whenever another node's daemon was started again.
#[test]
fn handle_resumes_when_remote_home_returns() {
    let [mut home, other] = Daemon::pair().unwrap();
    let made = client(&home).segment("counter").allocate(Spec::new(64)).unwrap();
    made.put(0, &[0; 8]).unwrap();
    let clients = Strategy::ALL.map(|strategy| {
        let options =
            ConnectOptions::new().directory(other.folder()).strategy(strategy).timeout(Duration::from_secs(30));
        Client::connect_with(options.retries(false)).unwrap()
    });
    let handles = clients.each_ref().map(|client| ddss_testkit::retry(|| client.segment("counter").open()));
    let tasks = clients[3].aio().unwrap();
    let later = block_on(tasks.segment("counter").open()).unwrap();
    let mut count = 0u64;
    for _ in 0..3 {
        home.kill().unwrap();
        let waits = std::thread::spawn({
            let handle = handles[0].clone();
            let expected = count.to_le_bytes();
            move || {
                // The client must see that the home is away before it sees that it is back.
                while handle.get(0..8).is_ok() {}
                let (value, refused) = once_home_is_back(|| handle.get(0..8));
                assert_eq!(value[..], expected);
                refused
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        home.restart().unwrap();
        waits.join().unwrap();
        for handle in &handles {
            let (stamp, _) = once_home_is_back(|| handle.get(0..8).map(|value| value.version()));
            count += 1;
            let put = once_home_is_back(|| handle.put_if(stamp, 0, &count.to_le_bytes())).0;
            assert_eq!(once_home_is_back(|| handle.get(0..8)).0.version(), put.version);
        }
        let got = once_home_is_back(|| block_on(later.get(0..8))).0;
        assert_eq!(got[..], count.to_le_bytes());
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        // The client retries by itself: no wake-up is needed.
        let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(output) = future.as_mut().poll(context) {
            return output;
        }
        std::thread::yield_now();
    }
}
