//! Nodes that return with their memory: after an absence during which segments were released, and into a new cluster.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, ErrorKind, Placement, ReplicationInfo, Spec};
use ddss_core::NodeId;
use ddss_testkit::{Daemon, DaemonOptions, allow_founding};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(90);
/// Names whose claims make the leader drop the log before them.
const NAMES: usize = 3500;

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap()
}

/// Repeats a check until it holds.
fn until<T>(what: &str, mut good: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match good() {
            Ok(found) => return found,
            Err(said) => assert!(Instant::now() < end, "{what}: {said}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the last log entry in the snapshot that a node has on its disk.
fn snapshot_of(folder: &Path) -> Option<u64> {
    std::fs::read_dir(folder).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return snapshot_of(&path);
        }
        let is_snapshot = path.file_name().is_some_and(|name| name == "directory.json");
        let read = || serde_json::from_slice::<Value>(&std::fs::read(&path).unwrap()).expect("a snapshot is whole");
        is_snapshot.then(|| read()["meta"]["last_log_id"]["index"].as_u64().unwrap_or_default())
    })
}

/// Returns home and replica, once they are in sync.
fn in_sync(client: &Client, name: &str) -> (NodeId, NodeId) {
    until("in sync", || {
        let stat = client.segment(name).open().and_then(|segment| segment.stat()).map_err(|error| error.to_string())?;
        let nodes = (stat.home, stat.replica.unwrap_or(NodeId::NONE));
        if stat.replication == ReplicationInfo::InSync { Ok(nodes) } else { Err(format!("{:?}", stat.replication)) }
    })
}

/// Segments that the absent node stores: as home and as replica, of names that are given again or not.
const RELEASED: [(&str, u16, bool); 4] =
    [("home", 3, false), ("home again", 3, true), ("replica", 1, false), ("replica again", 1, true)];

/// Releases segments of node 3 while it is away, and checks that it does not bring them back.
fn return_without_released_segments(is_by_snapshot: bool) {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    let first = client(&daemons[0]);
    for (name, home, _) in RELEASED {
        let spec = Spec::new(4096).copies(2).placement(Placement::Node(NodeId(home)));
        until("allocate", || first.segment(name).allocate(spec).map_err(|error| error.to_string()));
    }
    let stays = Spec::new(64).copies(2).placement(Placement::Node(NodeId(3)));
    let stays = until("allocate", || first.segment("stays").allocate(stays).map_err(|error| error.to_string()));
    let nodes = RELEASED.map(|(name, _, _)| in_sync(&first, name));
    in_sync(&first, "stays");
    stays.put(0, b"stays").unwrap();
    daemons[2].kill().unwrap();
    for ((name, home, is_again), (_, replica)) in RELEASED.into_iter().zip(nodes) {
        assert!(home == 3 || [NodeId(2), NodeId(3)].contains(&replica), "{name}: {replica:?}");
        until("release", || match first.segment(name).open().and_then(|segment| segment.release()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            released => released.map_err(|error| error.to_string()),
        });
        if is_again {
            until("allocate again", || first.segment(name).allocate(Spec::new(64)).map_err(|error| error.to_string()));
        }
    }
    let before = snapshot_of(daemons[2].folder()).unwrap_or_default();
    if is_by_snapshot {
        let names: Vec<String> = (0..NAMES).map(|number| format!("names/{number}")).collect();
        for names in names.chunks(1024) {
            let mut batch = ddss::Batch::new();
            for name in names {
                batch.allocate(name, 8).unwrap();
            }
            first.run(batch).unwrap().ok().unwrap();
        }
        until("a snapshot of the leader", || {
            let made = snapshot_of(daemons[0].folder()).unwrap_or_default();
            if made > before + 1000 { Ok(()) } else { Err(format!("the last is of entry {made}")) }
        });
    }
    daemons[2].restart().unwrap();
    let third = client(&daemons[2]);
    in_sync(&third, "stays");
    assert_eq!(third.segment("stays").open().unwrap().get(..5).unwrap()[..], b"stays"[..]);
    if is_by_snapshot {
        let installed = snapshot_of(daemons[2].folder()).unwrap_or_default();
        assert!(installed > before, "node 3 got no snapshot: {installed} after {before}");
    }
    // A new segment shows that the node takes part again.
    let later = Spec::new(64).copies(2).placement(Placement::Node(NodeId(3)));
    until("allocate", || third.segment("later").allocate(later).map_err(|error| error.to_string()));
    in_sync(&first, "later");
    for (name, _, is_again) in RELEASED {
        for daemon in &daemons {
            let opened = client(daemon).segment(name).open();
            match opened {
                Ok(segment) => {
                    assert!(is_again, "{name} came back");
                    assert_eq!((segment.len(), segment.stat().unwrap().home), (64, NodeId(1)), "{name}");
                }
                Err(error) => assert!(!is_again && error.kind() == ErrorKind::NotFound, "{name}: {error}"),
            }
        }
    }
    // No copy is left at the node, and no name is taken.
    let listed = third.list("").map(|found| found.unwrap().name.as_str().to_owned());
    let ghosts: Vec<_> = listed.filter(|name| name == "home" || name == "replica").collect();
    assert!(ghosts.is_empty(), "{ghosts:?}");
    for (name, _, is_again) in RELEASED {
        if !is_again {
            third.segment(name).allocate(Spec::new(64)).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

// If this failed, a segment that was released while its node was away would come back with the node.
#[test]
fn released_segments_stay_released_when_their_node_returns_by_the_log() {
    return_without_released_segments(false);
}

// As above. No entry of the log tells the node of the releases.
#[test]
fn released_segments_stay_released_when_their_node_returns_by_a_snapshot() {
    return_without_released_segments(true);
}

// If this failed, a cluster that lost its state, and is founded again, would drop the replicated segments in its memory.
#[test]
fn cluster_that_is_founded_again_keeps_its_replicated_segments() {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    daemons.push(DaemonOptions::new(2).unwrap().joins(daemons[0].listen()).start().unwrap());
    let first = client(&daemons[0]);
    let spec = Spec::new(64).copies(2);
    let stays = until("allocate", || first.segment("stays").allocate(spec).map_err(|error| error.to_string()));
    in_sync(&first, "stays");
    stays.put(0, b"stays").unwrap();
    drop((first, stays));
    for daemon in &mut daemons {
        daemon.kill().unwrap();
        forget_cluster(daemon);
    }
    // The second start finds the state of the new cluster.
    for _ in 0..2 {
        daemons.iter_mut().for_each(|daemon| daemon.restart().unwrap());
        let second = client(&daemons[1]);
        in_sync(&second, "stays");
        assert_eq!(second.segment("stays").open().unwrap().get(..5).unwrap()[..], b"stays"[..]);
        daemons.iter_mut().for_each(|daemon| daemon.kill().unwrap());
    }
}

/// Removes the files that the handbook names as the cluster's state, as far as they are there.
fn forget_cluster(daemon: &Daemon) {
    let state = daemon.folder().join("state");
    assert!(state.join("names-compared").exists(), "a node marks what it has compared");
    let removed = ["node.json", "raft.log", "directory.json"].map(|file| std::fs::remove_file(state.join(file)));
    assert!(removed[..2].iter().all(Result::is_ok), "{removed:?}");
    allow_founding(daemon.folder()).unwrap();
}

// If this failed, a cluster that is founded again would give segments back as they were before a takeover, and delete what was
// put since.
#[test]
fn cluster_that_is_founded_again_keeps_the_copies_of_the_last_homes() {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    let first = client(&daemons[0]);
    let names: Vec<String> = (0..8).map(|number| format!("moves/{number}")).collect();
    for name in &names {
        let spec = Spec::new(64).copies(2).placement(Placement::Node(NodeId(2)));
        let segment = until("allocate", || first.segment(name).allocate(spec).map_err(|error| error.to_string()));
        segment.put(0, b"older").unwrap();
    }
    let replicas: Vec<NodeId> = names.iter().map(|name| in_sync(&first, name).1).collect();
    assert!(replicas.contains(&NodeId(3)), "{replicas:?}: one has to come back after the old home");
    daemons[1].kill().unwrap();
    for (name, replica) in names.iter().zip(&replicas) {
        let segment = first.segment(name).open().unwrap();
        until("put at the new home", || segment.put(0, b"newer").map_err(|error| error.to_string()));
        assert_eq!(segment.stat().unwrap().home, *replica, "{name}");
    }
    drop(first);
    daemons[0].kill().unwrap();
    daemons[2].kill().unwrap();
    daemons.iter().for_each(forget_cluster);
    // The second start finds the state of the new cluster.
    for _ in 0..2 {
        daemons.iter_mut().for_each(|daemon| daemon.restart().unwrap());
        for daemon in &daemons {
            let client = client(daemon);
            for name in &names {
                until("the last home is the home again", || {
                    let value = client.segment(name).open().and_then(|segment| segment.get(..5));
                    let value = value.map_err(|error| error.to_string())?;
                    if value[..] == b"newer"[..] { Ok(()) } else { Err(format!("{name}: {value:?}")) }
                });
                in_sync(&client, name);
            }
        }
        daemons.iter_mut().for_each(|daemon| daemon.kill().unwrap());
    }
}

// If this failed, a home that dies between its release and the cluster's decision would leave a name without a segment, or a
// segment at some nodes only.
#[test]
fn home_killed_before_its_release_is_decided_leaves_all_or_nothing() {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    let (first, third) = (client(&daemons[0]), client(&daemons[2]));
    for (round, is_long) in [false, true].into_iter().enumerate() {
        let name = format!("released/{round}");
        let spec = Spec::new(64).copies(2).placement(Placement::Node(NodeId(3)));
        let segment = until("allocate", || third.segment(&name).allocate(spec).map_err(|error| error.to_string()));
        segment.put(0, b"value").unwrap();
        in_sync(&first, &name);
        let here = Client::connect_with(ConnectOptions::new().directory(daemons[2].folder()).retries(false)).unwrap();
        let at_home = here.segment(&name).open().unwrap();
        // Without its leader and a majority the cluster does not decide, so the release takes place here only.
        daemons[0].kill().unwrap();
        let is_refused = std::thread::scope(|scope| {
            let release = scope.spawn(|| segment.release());
            daemons[1].pause().unwrap();
            until("released at the home", || {
                if at_home.get(..5).is_err() { Ok(()) } else { Err("it is still there".to_owned()) }
            });
            daemons[2].kill().unwrap();
            daemons[1].resume().unwrap();
            daemons[0].restart().unwrap();
            if is_long {
                until("the home is declared dead", || {
                    let stat = first.segment(&name).open().and_then(|segment| segment.stat());
                    match stat {
                        Ok(stat) if stat.home == NodeId(3) => Err(format!("{stat:?}")),
                        Ok(_) => Ok(()),
                        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                        Err(error) => Err(error.to_string()),
                    }
                });
            }
            daemons[2].restart().unwrap();
            match release.join().unwrap() {
                Err(error) if error.kind() == ErrorKind::NoMajority => !error.is_indeterminate(),
                Err(error) => {
                    assert!(error.is_indeterminate(), "{error:?}");
                    false
                }
                Ok(()) => false,
            }
        });
        // The node takes part again.
        let later = format!("later/{round}");
        let spec = Spec::new(64).copies(2).placement(Placement::Node(NodeId(3)));
        until("allocate", || first.segment(&later).allocate(spec).map_err(|error| error.to_string()));
        in_sync(&first, &later);
        let exists = until("all nodes agree", || {
            let opened = daemons.iter().map(|daemon| {
                let value = client(daemon).segment(&name).open().and_then(|segment| segment.get(..5));
                match value {
                    Ok(value) => Ok(Some(value.to_vec())),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            });
            let opened = opened.collect::<Result<Vec<_>, _>>()?;
            if opened.iter().all(|found| *found == opened[0]) {
                Ok(opened[0].clone())
            } else {
                Err(format!("{opened:?}"))
            }
        });
        match exists {
            Some(value) => {
                assert_eq!(value, b"value", "{name}");
                in_sync(&first, &name);
            }
            None => {
                assert!(!is_refused, "a refused release did something");
                drop(first.segment(&name).allocate(Spec::new(8)).unwrap());
            }
        }
    }
}
