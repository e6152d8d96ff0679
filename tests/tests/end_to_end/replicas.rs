//! Replicated segments on real nodes: acknowledged puts survive the loss of the home, and clients partitioned with the
//! old home see no stale value.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, ErrorKind, LockOptions, Mode, Permissions, Spec, Table};
use ddss_testkit::{
    Daemon, DaemonOptions, LinkFault, NetworkNamespaces, ScriptedClient, binary, block_on, pattern, skipped,
};
use serde_json::{Value, json};

mod key_watches;
mod lost_segments;

const CLIENT: &str = env!("CARGO_BIN_EXE_client");
/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(90);
/// Sizes of a put that travels in a message, and of one that goes through staging memory.
const SIZES: [usize; 2] = [64, 100_000];

fn client(daemon: &Daemon) -> ScriptedClient {
    ScriptedClient::start(CLIENT, daemon.folder(), "auto").unwrap()
}

fn ddss(daemon: &Daemon, words: &[&str]) -> Value {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(words).args(["--json", "--dir"]).arg(daemon.folder());
    serde_json::from_slice(&command.output().unwrap().stdout).unwrap_or(Value::Null)
}

/// Repeats a check until it holds.
fn until(what: &str, mut good: impl FnMut() -> Result<(), String>) {
    let end = Instant::now() + PATIENCE;
    while let Err(said) = good() {
        assert!(Instant::now() < end, "{what}: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Repeats a call until it succeeds: calls during a failover end with an error.
fn done(client: &mut ScriptedClient, call: &str) -> String {
    let mut answer = String::new();
    until(call, || {
        answer = client.ask(call).unwrap();
        if answer.starts_with("ok") { Ok(()) } else { Err(answer.clone()) }
    });
    answer
}

fn until_alive(daemons: &[&Daemon], nodes: usize) {
    for daemon in daemons {
        until("all are alive", || {
            let status = ddss(daemon, &["cluster", "status"]);
            let found = status["nodes"].as_array().cloned().unwrap_or_default();
            let all = found.len() == nodes && found.iter().all(|node| node["alive"] == Value::Bool(true));
            if all { Ok(()) } else { Err(status.to_string()) }
        });
    }
}

/// Home and replica, once they are in sync.
fn in_sync(daemon: &Daemon, name: &str) -> (u64, u64) {
    let mut found = (0, 0);
    until("in sync", || {
        let stat = ddss(daemon, &["stat", name]);
        if stat["replica"]["state"] != "in sync" {
            return Err(stat.to_string());
        }
        found = (stat["home"].as_u64().unwrap(), stat["replica"]["node"].as_u64().unwrap());
        Ok(())
    });
    found
}

// If this failed, a put that was acknowledged on two nodes would be lost with one of them, or its clients would have to
// be restarted.
#[test]
fn acknowledged_puts_and_handles_survive_death_of_the_home() {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        let joins = DaemonOptions::new(node).unwrap().joins(daemons[0].listen());
        daemons.push(joins.start().unwrap());
    }
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    for size in SIZES {
        let name = format!("kept-{size}");
        let said = client(&daemons[0]).ask(&format!("allocate-mirrored {name} {size}")).unwrap();
        assert_eq!(said, format!("ok {size} bytes"));
        assert_eq!(in_sync(&daemons[0], &name).0, 1);
    }
    let mut clients: Vec<(usize, ScriptedClient)> = Vec::new();
    for (daemon, size) in [(1, SIZES[0]), (2, SIZES[0]), (1, SIZES[1]), (2, SIZES[1])] {
        let mut client = client(&daemons[daemon]);
        done(&mut client, &format!("open kept-{size}"));
        clients.push((size, client));
    }
    let mut seed = 0;
    let mut put_and_get = |clients: &mut Vec<(usize, ScriptedClient)>| {
        for index in 0..clients.len() {
            seed += 1;
            let size = clients[index].0;
            done(&mut clients[index].1, &format!("put 0 {size} {seed}"));
            for (other, client) in clients.iter_mut().filter(|(other, _)| *other == size) {
                let said = done(client, &format!("get 0 {other} {seed}"));
                assert!(said.ends_with("equal"), "{said}");
            }
        }
        seed
    };
    for _ in 0..20 {
        put_and_get(&mut clients);
    }
    let last = put_and_get(&mut clients);
    let lock = done(&mut clients[0].1, "lock");
    assert!(lock.starts_with("ok"), "{lock}");
    daemons[0].kill().unwrap();
    // The same handles return the last put of each size, without any repair.
    for (index, (size, client)) in clients.iter_mut().enumerate() {
        let seed = last - 3 + if *size == SIZES[0] { 1 } else { 3 };
        let said = done(client, &format!("get 0 {size} {seed}"));
        assert!(said.ends_with("equal"), "client {index}: {said}");
    }
    let stat = ddss(&daemons[1], &["stat", "kept-64"]);
    assert_ne!(stat["home"], 1, "{stat}");
    // The lock was lost with the old home.
    let held = clients[0].1.ask(&format!("put-held {} 7", SIZES[0])).unwrap();
    assert!(held.starts_with("error"), "{held}");
    let _ = clients[0].1.ask("unlock").unwrap();
    put_and_get(&mut clients);
    daemons[0].restart().unwrap();
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    let mut homes = Vec::new();
    for size in SIZES {
        let (home, replica) = in_sync(&daemons[1], &format!("kept-{size}"));
        assert_ne!(home, replica);
        homes.push(home);
    }
    // The same in the other direction, with the new copy.
    put_and_get(&mut clients);
    let victim = homes[0];
    let names = ddss(&daemons[victim as usize % 3], &["stat", "kept-64"]);
    assert_eq!(names["home"], victim);
    let mut survivor = client(&daemons[victim as usize % 3]);
    let last = put_and_get(&mut clients);
    done(&mut survivor, "open kept-64");
    daemons[victim as usize - 1].kill().unwrap();
    let said = done(&mut survivor, &format!("get 0 64 {}", last - 2));
    assert!(said.ends_with("equal"), "{said}");
}

// If this failed, a map with two copies would lose acknowledged changes with its home, or bring removed keys back.
#[test]
fn map_with_two_copies_survives_death_of_its_home() {
    const KEYS: u64 = 400;
    type Map = ddss::Map<u64, [u64; 8]>;
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    let connect = |daemon: &Daemon| {
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(20))).unwrap()
    };
    let first = connect(&daemons[0]);
    let here: Map = first.map("map").allocate(Spec::new(KEYS).copies(2)).unwrap();
    // The replica is first copied while the rows change.
    for key in 0..KEYS {
        here.put(&key, &[key; 8]).unwrap();
    }
    let (home, replica) = in_sync(&daemons[0], "map");
    assert_eq!(home, 1);
    let second = connect(&daemons[1]);
    let there: Map = second.map("map").open().unwrap();
    for key in (0..KEYS).step_by(3) {
        assert!(here.remove(&key).unwrap());
    }
    for key in (0..KEYS).step_by(2) {
        there.put(&key, &[key + 1000; 8]).unwrap();
    }
    let value_of = |key: u64| match key {
        _ if key.is_multiple_of(2) => Some([key + 1000; 8]),
        _ if key.is_multiple_of(3) => None,
        _ => Some([key; 8]),
    };
    let rows = <Table>::try_from(there.segment().clone()).unwrap().len();
    let versions: Vec<u64> = (1..rows).map(|row| row_version(&second, row)).collect();
    daemons[0].kill().unwrap();
    for key in 0..KEYS {
        let mut found = None;
        until("the replica takes over", || {
            found = there.get(&key).map_err(|error| error.to_string())?;
            Ok(())
        });
        assert_eq!(found.map(|entry| entry.value), value_of(key), "key {key}");
    }
    // Each row keeps its version, so that older conditional puts of a client remain valid.
    let after: Vec<u64> = (1..rows).map(|row| row_version(&second, row)).collect();
    assert_eq!(after, versions);
    // The same in the other direction, with the new copy.
    until("insert", || there.put(&7, &[7; 8]).map(drop).map_err(|error| error.to_string()));
    daemons[0].restart().unwrap();
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    let (home, next) = in_sync(&daemons[1], "map");
    assert_eq!(home, replica);
    there.put(&8, &[8; 8]).unwrap();
    daemons[home as usize - 1].kill().unwrap();
    let survivor = connect(&daemons[next as usize - 1]);
    let map: Map = until_some("open", || survivor.map("map").open().map_err(|error| error.to_string()));
    for key in 0..KEYS {
        let found = until_some("the second replica takes over", || map.get(&key).map_err(|error| error.to_string()));
        let wanted = if key == 7 || key == 8 { Some([key; 8]) } else { value_of(key) };
        assert_eq!(found.map(|entry| entry.value), wanted, "key {key}");
    }
}

/// Version of a row of the table below the map.
fn row_version(client: &Client, row: u64) -> u64 {
    let table: Table = until_some("table", || client.table("map").open().map_err(|error| error.to_string()));
    until_some("row", || table.row(row).get().map_err(|error| error.to_string())).version().0
}

/// Repeats a call until it succeeds, and returns its result.
fn until_some<T>(what: &str, mut call: impl FnMut() -> Result<T, String>) -> T {
    let mut found = None;
    until(what, || {
        found = Some(call()?);
        Ok(())
    });
    found.expect("the call succeeded")
}

// If this failed, two clients would hold the lock of one row after a takeover, or a holder would not learn of its loss.
#[test]
fn row_locks_end_with_their_home_and_exclude_again_at_the_next_one() {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    let connect = |daemon: &Daemon| {
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(20))).unwrap()
    };
    let first = connect(&daemons[0]);
    first.table::<[u8]>("rows").allocate(Spec::new(10).row_len(64).copies(2)).unwrap();
    assert_eq!(in_sync(&daemons[0], "rows").0, 1);
    let [mine, theirs] = [1, 2].map(|at| connect(&daemons[at]));
    let [mine, theirs] = [&mine, &theirs]
        .map(|client| until_some("open", || client.table::<[u8]>("rows").open().map_err(|error| error.to_string())));
    let (old, free) = (mine.row(3).lock().unwrap(), mine.row(4).lock().unwrap());
    old.put(b"old").unwrap();
    free.unlock().unwrap();
    theirs.row(4).put(b"free").unwrap();
    let no_wait = LockOptions::new().timeout(Duration::ZERO);
    assert_eq!(theirs.row(3).lock_with(no_wait).unwrap_err().kind(), ErrorKind::Locked);
    daemons[0].kill().unwrap();
    let next = until_some("the replica takes over", || theirs.row(3).lock().map_err(|error| error.to_string()));
    assert!(next.token() > old.token(), "tokens grow over a takeover");
    assert_eq!(&next.get().unwrap()[..3], b"old");
    assert_eq!(old.put(b"late").unwrap_err().kind(), ErrorKind::LockLost);
    assert_eq!(mine.row(3).lock_with(no_wait).unwrap_err().kind(), ErrorKind::Locked);
    next.put(b"new").unwrap();
    mine.row(4).put(b"free").unwrap();
}

// If this failed, a row would stay locked for its lease after its holder's node died, or a holder would not learn of it.
#[test]
fn row_lock_of_a_task_ends_with_the_node_of_its_holder() {
    let home = DaemonOptions::new(1).unwrap();
    let other = DaemonOptions::new(2).unwrap().peer(&home);
    let home = home.peer(&other);
    let (home, mut other) = (home.start().unwrap(), other.start().unwrap());
    let connect = |daemon: &Daemon| {
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(20))).unwrap()
    };
    let here = connect(&home).table::<[u8]>("rows").allocate(Spec::new(10).row_len(64)).unwrap();
    let there = connect(&other).aio().unwrap();
    let far = until_some("open", || block_on(there.table::<[u8]>("rows").open()).map_err(|error| error.to_string()));
    // The lease outlasts the test.
    let long = LockOptions::new().lease(Duration::from_secs(600));
    let held = block_on(far.row(3).lock_with(long)).unwrap();
    block_on(held.put(b"held")).unwrap();
    let no_wait = LockOptions::new().timeout(Duration::ZERO);
    assert_eq!(here.row(3).lock_with(no_wait).unwrap_err().kind(), ErrorKind::Locked);
    other.kill().unwrap();
    let next = until_some("the lock is free", || here.row(3).lock_with(no_wait).map_err(|error| error.to_string()));
    assert_eq!(&next.get().unwrap()[..4], b"held");
    other.restart().unwrap();
    // The task attaches to the next daemon, and the token of its lock admits nothing.
    until("the holder learns of its loss", || match block_on(held.put(b"late")).unwrap_err().kind() {
        ErrorKind::LockLost => Ok(()),
        other => Err(format!("{other:?}")),
    });
    next.put(b"next").unwrap();
    assert_eq!(&next.get().unwrap()[..4], b"next");
}

// If this failed, clients partitioned with the old home would read stale values.
#[test]
fn partitioned_old_home_serves_no_stale_value() {
    let network = match NetworkNamespaces::new(3) {
        Ok(network) => network,
        Err(error) => {
            let test = "partitioned_old_home_serves_no_stale_value";
            return skipped(test, &format!("it needs root and network namespaces: {error}"));
        }
    };
    let options = |node: u8| {
        let listen = SocketAddr::new(network.address(node), 7400);
        DaemonOptions::listening(node.into(), listen).inside(&network.inside(node))
    };
    let mut daemons = vec![options(1).clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(options(node).joins(daemons[0].listen()).start().unwrap());
    }
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    let mut at_home = client(&daemons[2]);
    assert_eq!(at_home.ask("allocate-mirrored fenced 64").unwrap(), "ok 64 bytes");
    let (home, _) = in_sync(&daemons[2], "fenced");
    assert_eq!(home, 3);
    let mut others = client(&daemons[0]);
    done(&mut others, "open fenced");
    done(&mut at_home, "put 0 64 1");
    network.cut(3, LinkFault::Both).unwrap();
    // No put on the old home's side is acknowledged, and reads there return the current value or fail.
    let (mut newest, mut moved) = (1, false);
    let end = Instant::now() + PATIENCE;
    while !moved || newest < 30 {
        let old = at_home.ask("put 0 64 99").unwrap();
        assert!(old.starts_with("error"), "acknowledged by an old home: {old}");
        let before = newest;
        let said = others.ask(&format!("put 0 64 {}", newest + 1)).unwrap();
        if said.starts_with("ok") {
            (newest, moved) = (newest + 1, true);
        }
        let old = at_home.ask(&format!("get 0 64 {before}")).unwrap();
        assert!(old.starts_with("error") || !moved && old.ends_with("equal"), "an old value was read: {old}");
        assert!(Instant::now() < end, "nobody took over: {said}");
        if moved {
            // Each read at the old home takes its full deadline, so a few reads are enough.
            newest = newest.max(27);
            done(&mut others, &format!("put 0 64 {newest}"));
        }
    }
    network.heal(3);
    until_alive(&[&daemons[0], &daemons[2]], 3);
    let said = done(&mut at_home, &format!("get 0 64 {newest}"));
    assert!(said.ends_with("equal"), "{said}");
    in_sync(&daemons[0], "fenced");
}

// If this failed, clients of the leaving node would read old values while newer ones exist elsewhere.
#[test]
fn decommissioned_home_serves_no_stale_value() {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        let joins = DaemonOptions::new(node).unwrap().joins(daemons[0].listen());
        daemons.push(joins.start().unwrap());
    }
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    let mut at_home = client(&daemons[2]);
    assert_eq!(at_home.ask("allocate-mirrored leaves 64").unwrap(), "ok 64 bytes");
    assert_eq!(in_sync(&daemons[2], "leaves").0, 3);
    let mut others = client(&daemons[0]);
    done(&mut others, "open leaves");
    let (mut newest, mut served, mut refused) = (0, 0, 0);
    std::thread::scope(|scope| {
        let leave = scope.spawn(|| ddss(&daemons[2], &["cluster", "leave"]));
        // Longer than a lease of the old home.
        let mut after_that = None;
        while after_that.is_none_or(|end| Instant::now() < end) {
            newest += 1;
            done(&mut others, &format!("put 0 64 {newest}"));
            let here = at_home.ask(&format!("get 0 64 {newest}")).unwrap();
            assert!(here.starts_with("error") || here.ends_with("equal"), "an old value was read: {here}");
            (served, refused) =
                (served + u32::from(here.starts_with("ok")), refused + u32::from(!here.starts_with("ok")));
            if leave.is_finished() {
                after_that = after_that.or(Some(Instant::now() + Duration::from_secs(5)));
            }
        }
        let said = leave.join().unwrap();
        assert_eq!(said["done"], true, "{said}");
    });
    assert!(served > 0 && refused > 0, "{served} gets at the old home before, {refused} after it was fenced");
    let said = done(&mut others, &format!("get 0 64 {newest}"));
    assert!(said.ends_with("equal"), "{said}");
    let (home, replica) = in_sync(&daemons[0], "leaves");
    assert!(home != 3 && replica != 3, "{home} {replica}");
}

// If this failed, a user could fill other nodes with replicas beyond the quota there.
#[test]
fn replica_counts_against_quota_of_the_segment_owner() {
    if !rustix::process::geteuid().is_root() {
        return skipped("a_mirror_counts_for_the_owner_of_its_segment", "it needs root, to give segments away");
    }
    let quota = ["--quota", "0:bytes=64K;7:bytes=64K"];
    let home = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let joins = DaemonOptions::new(2).unwrap().joins(home.listen()).argument(quota[0]).argument(quota[1]);
    let other = joins.start().unwrap();
    until_alive(&[&home, &other], 2);
    let of = |daemon: &Daemon| {
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap()
    };
    let (here, there) = (of(&home), of(&other));
    let replicated = |bytes| Spec::new(bytes).copies(2).mode(Mode(0o666));
    // The replica takes 40064 bytes with the header, of the 65536 that root may have on node 2.
    let fits = here.segment("fits").allocate(replicated(40_000)).unwrap();
    assert_eq!(in_sync(&home, "fits"), (1, 2));
    let error = there.segment("local").allocate(Spec::new(30_000)).unwrap_err();
    let reached = error.limit().unwrap();
    assert_eq!((reached.used, reached.value), (Some(40_064), Some(65_536)), "{error}");
    // One more replica does not fit: the segment exists without it.
    let refusals = || ddss(&other, &["counters", "quota*"]).to_string();
    let before = refusals();
    let large = here.segment("large").allocate(replicated(30_000)).unwrap();
    until("node 2 has refused it", || if refusals() == before { Err(refusals()) } else { Ok(()) });
    let stat = ddss(&home, &["stat", "large"]);
    let replica = json!({ "node": 2, "state": "degraded", "reason": "refuses: over its owner's quota" });
    assert_eq!(stat["replica"], replica, "{stat}");
    large.put(0, &[1; 30_000]).unwrap();
    // After the release of the first one there is room for it.
    fits.release().unwrap();
    assert_eq!(in_sync(&home, "large"), (1, 2));
    // After chown the replica counts for the new owner.
    let mode = large.stat().unwrap().permissions.mode;
    large.set_permissions(Permissions { uid: 7, gid: 7, mode }).unwrap();
    assert_eq!(in_sync(&home, "large"), (1, 2));
    let local = there.segment("local").allocate(Spec::new(60_000)).unwrap();
    local.release().unwrap();
    assert_eq!(large.get(..).unwrap()[..], [1; 30_000]);
}

/// Starts a cluster of three nodes; the second node has these additional arguments.
fn three(second: &[&str]) -> Vec<Daemon> {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for (node, words) in [(2, second), (3, &[][..])] {
        let joins = DaemonOptions::new(node).unwrap().joins(daemons[0].listen());
        daemons.push(words.iter().fold(joins, |options, &word| options.argument(word)).start().unwrap());
    }
    until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    daemons
}

fn patient(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap()
}

// If this failed, a rolling reboot of the cluster would lose its data.
#[test]
fn rolling_reboots_lose_no_replicated_segment() {
    const BYTES: usize = 9000;
    let mut daemons = three(&[]);
    let names: Vec<String> = (0..6).map(|number| format!("kept/{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let spec = Spec::new(BYTES as u64).copies(2);
        let segment = patient(&daemons[number % 3]).segment(name).allocate(spec).unwrap();
        segment.put(0, &pattern(number as u64, BYTES)).unwrap();
    }
    // A short reboot, which the others hardly notice, and a long one, in which the node is declared dead.
    for (index, is_long) in [(0, false), (1, true), (2, false)] {
        for name in &names {
            in_sync(&daemons[(index + 1) % 3], name);
        }
        daemons[index].process().end().unwrap();
        std::fs::remove_dir_all(daemons[index].folder().join("memory")).unwrap();
        if is_long {
            let other = &daemons[(index + 1) % 3];
            until("it is declared dead", || {
                let status = ddss(other, &["cluster", "status"]);
                let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
                let is_dead = |node: &Value| node["node"] == index as u64 + 1 && node["alive"] == Value::Bool(false);
                if nodes.iter().any(is_dead) { Ok(()) } else { Err(status.to_string()) }
            });
        }
        daemons[index].restart().unwrap();
        until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
    }
    for (number, name) in names.iter().enumerate() {
        let (home, replica) = in_sync(&daemons[0], name);
        assert_ne!(home, replica);
        let value = patient(&daemons[number % 3]).segment(name).open().unwrap().get(..).unwrap();
        assert_eq!(value[..], pattern(number as u64, BYTES)[..], "{name}");
    }
}

// If this failed, a segment that was released while one of its nodes was down would come back with that node.
#[test]
fn released_segment_stays_released_when_absent_replica_returns() {
    let mut daemons = three(&[]);
    for role in ["home", "replica"] {
        let name = format!("released/{role}");
        let segment = patient(&daemons[0]).segment(&name).allocate(Spec::new(4096).copies(2)).unwrap();
        segment.put(0, &pattern(1, 4096)).unwrap();
        let (home, replica) = in_sync(&daemons[0], &name);
        let down = if role == "home" { home } else { replica } as usize - 1;
        let other = (down + 1) % 3;
        daemons[down].kill().unwrap();
        // If the cluster does not decide in time, the home frees the name later.
        let mut is_unknown = false;
        until("the segment is released", || {
            let released = patient(&daemons[other]).segment(&name).open().and_then(|segment| segment.release());
            let Err(error) = released else { return Ok(()) };
            if is_unknown && error.kind() == ErrorKind::NotFound {
                return Ok(());
            }
            is_unknown |= error.is_indeterminate();
            Err(error.to_string())
        });
        daemons[down].restart().unwrap();
        until_alive(&daemons.iter().collect::<Vec<_>>(), 3);
        // A new segment shows that the node takes part again.
        let later = patient(&daemons[down]).segment(&format!("later/{role}")).allocate(Spec::new(64).copies(2));
        later.unwrap();
        in_sync(&daemons[down], &format!("later/{role}"));
        for (node, daemon) in daemons.iter().enumerate() {
            let opened = patient(daemon).segment(&name).open().map(|found| found.stat());
            let is_gone = opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
            assert!(is_gone, "{role}, node {}: {opened:?}", node + 1);
        }
        let listed = ddss(&daemons[down], &["ls"]);
        assert!(!listed.to_string().contains(&name), "{listed}");
    }
}

// If this failed, one full node would leave segments without a replica although another node has room.
#[test]
fn next_node_is_tried_when_first_refuses_the_replica() {
    let small = (2u64 << 20).to_string();
    for words in [["--pool-bytes", &small], ["--quota", "0:bytes=1M"]] {
        if words[0] == "--quota" && !rustix::process::geteuid().is_root() {
            skipped("next_node_is_tried_when_first_refuses_the_replica", "its quota is that of root");
            continue;
        }
        let mut daemons = three(&words);
        let client = patient(&daemons[0]);
        // Names choose their nodes: some of these choose node 2 first.
        let names: Vec<String> = (0..8).map(|number| format!("large/{number}")).collect();
        for name in &names {
            client.segment(name).allocate(Spec::new(3 << 20).copies(2)).unwrap();
        }
        for name in &names {
            assert_eq!(in_sync(&daemons[0], name), (1, 3), "{name} with {words:?}");
        }
        // The only candidate dies, and the refusing node does not become one.
        daemons[2].kill().unwrap();
        let reason = |wanted: &str| {
            until(wanted, || {
                let replica = ddss(&daemons[0], &["stat", &names[0]])["replica"].clone();
                let said = format!("{}: {}", replica["node"], replica["reason"].as_str().unwrap_or_default());
                if said == wanted { Ok(()) } else { Err(said) }
            });
        };
        reason("3: is away");
        reason(if words[0] == "--quota" { "2: refuses: over its owner's quota" } else { "2: refuses: no room" });
    }
}
