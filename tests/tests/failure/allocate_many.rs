//! A client that is killed while it allocates many segments: each name belongs to a complete segment, or is free.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, ScriptedClient, retry};
use std::collections::BTreeSet;
use std::time::Duration;

const CLIENT: &str = env!("CARGO_BIN_EXE_client");
const PATIENCE: Duration = Duration::from_secs(60);
const COUNT: usize = 200;

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).expect("the daemon serves")
}

fn pair() -> [Daemon; 2] {
    let (first, second) = (DaemonOptions::new(1).unwrap(), DaemonOptions::new(2).unwrap());
    let first = first.peer(&second);
    let second = second.peer(&first);
    [first.start().unwrap(), second.start().unwrap()]
}

// If this failed, a killed client would leave unusable names, or incomplete segments.
#[test]
fn client_killed_in_allocate_many_leaves_whole_segments_or_free_names() {
    let alone = [DaemonOptions::new(1).unwrap().start().unwrap()];
    for daemons in [&alone[..], &pair()[..]] {
        let (own, other) = (client(&daemons[0]), client(&daemons[daemons.len() - 1]));
        retry(|| own.segment("first").allocate(Spec::new(8)));
        let names: Vec<String> = (0..COUNT).map(|number| format!("many/{number}")).collect();
        for round in 0..6 {
            let mut victim = ScriptedClient::start(CLIENT, daemons[0].folder(), "auto").unwrap();
            assert_eq!(victim.ask(&format!("allocate-churn many {COUNT}")).unwrap(), "ok allocating");
            std::thread::sleep(Duration::from_millis(7 * round + 1));
            victim.kill().unwrap();
            // Claims and releases that the client sent must end first; then a name is listed or free.
            for name in &names {
                let (put, seen) = retry(|| {
                    let segment = own.segment(name).open_or_allocate(Spec::new(64))?;
                    let put = segment.put(0, name.as_bytes())?;
                    Ok((put, other.segment(name).open()?.get(0..name.len() as u64)?))
                });
                assert_eq!((&seen[..], seen.version()), (name.as_bytes(), put.version), "{name} is whole");
                assert_eq!(put.version.0, 1, "{name} is new");
            }
            let listed: BTreeSet<String> =
                other.list("many/").map(|listing| listing.unwrap().name.to_string()).collect();
            assert_eq!(listed, names.iter().cloned().collect());
            let mut batch = ddss::Batch::new();
            for name in &names {
                batch.release(own.segment(name).open().unwrap()).unwrap();
            }
            own.run(batch).unwrap().ok().unwrap();
            assert_eq!(other.list("many/").count(), 0, "nothing is left behind");
        }
    }
}
