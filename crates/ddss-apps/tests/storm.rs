//! Selections over records on two nodes, with each kind of directory.
#![allow(clippy::unwrap_used, reason = "the helpers of a test may unwrap as the test may")]

use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, NodeId, Placement};
use ddss_apps::Error;
use ddss_apps::datasets::geonames;
use ddss_apps::peer_servers::{RedisServer, Site};
use ddss_apps::storm::{Directory, DirectoryServer, Found, Record, RedisDirectory, SharedDirectory, Storm};
use ddss_testkit::{Daemon, skipped};

const DEADLINE: Duration = Duration::from_secs(30);

// Otherwise a selection would leave out records, or the directories would be compared by different answers.
#[test]
fn every_directory_kind_finds_the_records_of_a_full_scan() {
    let daemons = Daemon::pair().unwrap();
    let connect = |daemon: &Daemon| {
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(DEADLINE)).unwrap()
    };
    let [here, there] = [connect(&daemons[0]), connect(&daemons[1])];
    let all = geonames::places().unwrap();
    for count in [7, 3000] {
        let (set, records) = (format!("set-{count}"), Record::at(&all, count));
        let begin = Instant::now();
        let chunks = loop {
            match Storm::create(&there, &set, &[NodeId(2), NodeId(1)], &records) {
                Ok(chunks) => break chunks,
                Err(error) => assert!(begin.elapsed() < DEADLINE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        SharedDirectory::create(&there, &format!("{set}/directory"), Placement::Local, &chunks).unwrap();
        let server = DirectoryServer::start("127.0.0.1".parse().unwrap(), chunks.clone(), || Ok(())).unwrap();
        let mut directories: Vec<Box<dyn Directory>> = vec![
            Box::new(SharedDirectory::open(&here, &format!("{set}/directory")).unwrap()),
            Box::new(server.client()),
        ];
        let site = Site { namespace: None, address: "127.0.0.1".parse().unwrap(), core: None };
        let redis = match RedisServer::start(&site) {
            Err(error @ Error::Missing { .. }) => {
                skipped("a directory in redis", &error.to_string());
                None
            }
            started => Some(started.unwrap()),
        };
        let _redis = redis.map(|mut redis| {
            let directory = RedisDirectory::create(redis.client().unwrap(), &set, &chunks).unwrap();
            directories.push(Box::new(directory));
            redis
        });
        let mut storm = Storm::open(&here, &set, 2).unwrap();
        for directory in &mut directories {
            assert_eq!(directory.chunks().unwrap(), chunks);
            for (west, east) in [(-20.0, 30.5), (10.0, -10.0)] {
                let scanned = Found::scan(&records, west, east);
                assert_eq!(storm.select(&mut **directory, west, east).unwrap().0, scanned);
                assert_eq!(storm.select_at_once(&mut **directory, west, east).unwrap().0, scanned);
            }
        }
    }
}
