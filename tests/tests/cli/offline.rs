//! Inspection of a daemon from outside: without its help, and after its end.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, ErrorKind, Spec};
use ddss_core::Failure;
use ddss_core::Outcome;
use ddss_core::status::{Counter, DaemonState, Gauge, Kind, Location, Status, Step};
use ddss_ipc::{Liveness, Strategy, read_status};
use ddss_testkit::{Daemon, DaemonOptions, pattern, skipped};

const PATIENCE: Duration = Duration::from_secs(20);

fn client(daemon: &Daemon) -> Client {
    // The daemon does not see gets in place.
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(false))
        .expect("the daemon serves")
}

/// Repeats a check until it holds.
fn wait_for_status(folder: &Path, mut is_so: impl FnMut(&Status) -> bool) -> Status {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = read_status(folder).unwrap();
        if is_so(&status) {
            return status;
        }
        assert!(Instant::now() < end, "it never was so: {:?} {:?}", status.operations(), status.clients);
        std::thread::sleep(Duration::from_millis(2));
    }
}

// If this failed, counters would include calls that never happened, or miss real ones.
#[test]
fn every_call_is_counted_once_for_its_client() {
    let daemon = Daemon::start(7).unwrap();
    let (one, two) = (client(&daemon), client(&daemon));
    let made = one.segment("counted").allocate(Spec::new(10_000)).unwrap();
    for _ in 0..100 {
        made.put(0, &pattern(1, 1000)).unwrap();
    }
    let seen = two.segment("counted").open().unwrap();
    for _ in 0..300 {
        assert_eq!(seen.get(0..500).unwrap().len(), 500);
    }
    assert_eq!(two.segment("nothing").open().unwrap_err().kind(), ErrorKind::NotFound);
    // The daemon writes one counter after the other, so the last call may be there before an earlier one.
    let calls = |status: &Status| [Kind::Get, Kind::Put, Kind::Open].map(|kind| status.operation(kind).done);
    let status = wait_for_status(daemon.folder(), |status| {
        let has_failure =
            status.failure(Failure::NotFound) == 1 && status.clients.iter().any(|client| client.failed == 1);
        let has_row = status.segments.iter().any(|row| (row.gets, row.puts) == (300, 100));
        calls(status) == [300, 100, 1] && has_failure && has_row && status.counter(Counter::Commits) == 100
    });
    assert_eq!((status.daemon.node.0, status.daemon.state), (7, DaemonState::Serving));
    assert_eq!((status.daemon.pid, Liveness::of(&status)), (daemon.pid(), Liveness::Serving));
    let (gets, puts, opens) = (status.operation(Kind::Get), status.operation(Kind::Put), status.operation(Kind::Open));
    assert_eq!((gets.done, gets.bytes, gets.failed, gets.waited), (300, 150_000, 0, 0));
    assert_eq!((puts.done, puts.bytes), (100, 100_000));
    assert_eq!((opens.done, opens.failed, status.failure(Failure::NotFound)), (1, 1, 1));
    assert_eq!((status.counter(Counter::Commits), status.counter(Counter::SegmentsMade)), (100, 1));
    assert_eq!((status.counter(Counter::Attached), status.counter(Counter::Untracked)), (2, 0));
    let [writer, reader] = status.clients.as_slice() else { panic!("{:?}", status.clients) };
    assert_eq!((writer.operations, writer.bytes_put, writer.bytes_got, writer.failed), (101, 100_000, 0, 0));
    assert_eq!((reader.operations, reader.bytes_got, reader.failed), (302, 150_000, 1));
    assert_eq!((reader.pid, reader.uid), (std::process::id(), rustix::process::getuid().as_raw()));
    let [row] = status.segments.as_slice() else { panic!("{:?}", status.segments) };
    assert_eq!((row.gets, row.puts, row.bytes_got, row.bytes_put), (300, 100, 150_000, 100_000));
    // Gauges are updated only now and then.
    let gauges =
        |status: &Status| [Gauge::Clients, Gauge::Segments, Gauge::PoolBytesUsed].map(|gauge| status.gauge(gauge));
    wait_for_status(daemon.folder(), |status| gauges(status) == [2, 1, 10_112]);
    made.release().unwrap();
    drop((one, two, seen, made));
    let status = wait_for_status(daemon.folder(), |status| status.clients.is_empty() && gauges(status) == [0; 3]);
    assert_eq!((status.segments.len(), status.counter(Counter::Left)), (0, 2));
}

// If this failed, a daemon in a container would refuse every client of its host.
#[test]
fn daemon_in_pid_namespace_serves_clients_outside_it() {
    const NAME: &str = "daemon_in_pid_namespace_serves_clients_outside_it";
    let words = ["unshare", "--pid", "--fork", "--kill-child"];
    let tried = Command::new(words[0]).args(&words[1..]).arg("true").status();
    if !tried.is_ok_and(|status| status.success()) {
        return skipped(NAME, "this user makes no PID namespace (unshare)");
    }
    let daemon = DaemonOptions::new(1).unwrap().command_prefix(words.map(str::to_owned).to_vec()).start().unwrap();
    let caller = client(&daemon);
    let made = caller.segment("inside").allocate(Spec::new(64)).unwrap();
    made.put(0, b"seen").unwrap();
    assert_eq!(&made.get(0..4).unwrap()[..], b"seen");
    let status = wait_for_status(daemon.folder(), |status| !status.clients.is_empty());
    assert_eq!((status.clients[0].pid, status.clients[0].uid), (0, rustix::process::getuid().as_raw()));
}

// If this failed, the slow part of a call could not be found.
#[test]
fn first_calls_of_a_client_are_traced() {
    let [home, away] = Daemon::pair().unwrap();
    wait_for_status(away.folder(), |status| status.gauge(Gauge::Connections) == 1);
    for strategy in Strategy::ALL {
        let options = ConnectOptions::new().directory(away.folder()).timeout(PATIENCE).strategy(strategy);
        let caller = Client::connect_with(options).unwrap();
        let name = format!("followed-{strategy}");
        let spec = Spec::new(4096).placement(ddss::Placement::Node(ddss::NodeId(1)));
        let made = caller.segment(&name).allocate(spec).unwrap();
        let told = made.get(0..4096).unwrap();
        assert_eq!(told.len(), 4096);
        caller.ping().unwrap();
        let find = |status: &Status, kind: Kind, bytes: u64| {
            let client = status.clients.first().map(|row| row.client);
            let fits = |sample: &&ddss_core::status::SampleRow| {
                (sample.kind, sample.bytes) == (kind, bytes) && Some(sample.client) == client
            };
            status.samples.iter().rev().find(fits).copied()
        };
        let status = wait_for_status(away.folder(), |status| find(status, Kind::Null, 0).is_some());
        let get = find(&status, Kind::Get, 4096).expect("it ended before the other one");
        assert_eq!((get.location, get.outcome), (Location::Away, Outcome::Done));
        assert_eq!(get.segment.unwrap().home().0, 1);
        let step = |step: Step| get.step_ns(step).unwrap_or_else(|| panic!("{strategy}: no {step:?} in {get:?}"));
        let parts = [Step::Submit, Step::Post, Step::Complete, Step::Reply].map(step);
        assert_eq!(parts.iter().sum::<u64>(), step(Step::Total), "{strategy}: {get:?}");
        assert!(step(Step::Complete) > 0);
        let null = find(&status, Kind::Null, 0).unwrap();
        assert_eq!((null.location, null.step_ns(Step::Complete)), (Location::Here, None));
        assert!(null.step_ns(Step::Submit).is_some());
        drop((caller, made));
        wait_for_status(away.folder(), |status| status.clients.is_empty());
    }
    // The client that releases its segment ends before the home answers.
    let status = wait_for_status(away.folder(), |status| {
        let [reads, trips] = [Counter::FabricReads, Counter::RoundTrips].map(|counter| status.counter(counter));
        status.histogram(Kind::Get, Location::Away, Step::Complete).count() >= 4 && reads >= 12 && trips >= 8
    });
    let [peer] = status.peers.as_slice() else { panic!("{:?}", status.peers) };
    assert_eq!((peer.node.0, peer.connected, peer.address), (1, true, home.listen()));
    assert!(
        read_status(home.folder()).unwrap().histogram_of(Kind::Get, Step::Total).count() == 0,
        "a home sees no gets"
    );
}

// If this failed, a crash would erase the record of the daemon's last calls.
#[test]
fn status_page_remains_after_stop_and_kill() {
    let mut daemon = Daemon::start(1).unwrap();
    let caller = client(&daemon);
    let made = caller.segment("before").allocate(Spec::new(64)).unwrap();
    (0..50).for_each(|_| assert!(made.put(0, b"x").is_ok()));
    let first = wait_for_status(daemon.folder(), |status| status.operation(Kind::Put).done == 50);
    daemon.pause().unwrap();
    let end = Instant::now() + PATIENCE;
    while !matches!(Liveness::of(&read_status(daemon.folder()).unwrap()), Liveness::Silent(_)) {
        assert!(Instant::now() < end, "a stopped daemon passes for one that serves");
        std::thread::sleep(Duration::from_millis(20));
    }
    daemon.resume().unwrap();
    wait_for_status(daemon.folder(), |status| Liveness::of(status) == Liveness::Serving);
    daemon.kill().unwrap();
    let end = Instant::now() + PATIENCE;
    while Liveness::of(&read_status(daemon.folder()).unwrap()) != Liveness::Dead {
        assert!(Instant::now() < end, "a dead daemon passes for a living one");
        std::thread::sleep(Duration::from_millis(20));
    }
    let dead = read_status(daemon.folder()).unwrap();
    assert_eq!((dead.operation(Kind::Put).done, dead.clients.len(), dead.daemon.run), (50, 1, first.daemon.run));
    daemon.restart().unwrap();
    let next = wait_for_status(daemon.folder(), |status| Liveness::of(status) == Liveness::Serving);
    assert_eq!((next.operation(Kind::Put).done, next.counter(Counter::Commits)), (0, 0));
    assert_ne!(next.daemon.run, first.daemon.run);
    let before = std::fs::read(daemon.folder().join("memory/status.before")).unwrap();
    assert_eq!(Status::decode(&before).unwrap().operation(Kind::Put).done, 50);
    daemon.process().end().unwrap();
    assert_eq!(Liveness::of(&read_status(daemon.folder()).unwrap()), Liveness::Stopped);
}

// If this failed, any user could watch the calls of others, or a monitor would have to run as root.
#[test]
fn only_permitted_users_read_the_status_page() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only_permitted_users_read_the_status_page", "it needs root, to be another user");
    }
    let reads = |mode: &str| {
        let daemon = DaemonOptions::new(1).unwrap().argument("--status-mode").argument(mode).start().unwrap();
        std::fs::set_permissions(daemon.folder(), PermissionsExt::from_mode(0o711)).unwrap();
        let mut command = Command::new("head");
        command.arg("-c8").arg(daemon.folder().join("ddssd.status")).uid(65534).gid(65534);
        let output = command.output().unwrap();
        let mut list = Command::new("ls");
        let listed = list.arg(daemon.folder().join("memory")).uid(65534).gid(65534).output().unwrap();
        assert!(!listed.status.success(), "a stranger sees which files there are");
        let mut peek = Command::new("head");
        let peeked =
            peek.arg("-c1").arg(daemon.folder().join("memory/register")).uid(65534).gid(65534).output().unwrap();
        assert!(!peeked.status.success(), "a stranger reads names");
        output.stdout == b"DDSSTAT\0"
    };
    assert!(!reads("600"));
    assert!(!reads("640"));
    assert!(reads("644"));
}
