//! Selections over records on two nodes, with the directory in DDSS, in Redis, and asked over TCP (Table 1, Fig. 5).

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use ddss::{NodeId, Placement, Strategy};
use ddss_apps::datasets::geonames;
use ddss_apps::storm::{CHUNKS, Directory, Found, Record, RedisDirectory, SharedDirectory, Storm};
use ddss_benches::harness::Bench;

use crate::compare::{Result, Took, Way, in_turns};
use crate::testbed::{Nodes, Placed, Testbed, distinct, report_progress, with_retries};

/// Records of a set, with their text in the rows.
const SIZES: [(usize, &str); 4] = [(1_000, "r1K"), (10_000, "r10K"), (100_000, "r100K"), (1_000_000, "r1000K")];
/// The selection: records between two longitudes, about one seventh of all.
const WEST: f32 = -10.0;
const EAST: f32 = 10.0;
/// Bytes of a directory entry for a chunk.
const CHUNK_BYTES: usize = 24;

/// Measures all sizes.
pub(crate) fn measure(bench: &mut Bench, testbed: &Testbed, placed: &[Placed]) {
    let all = geonames::places().expect("the places are part of the repository");
    for (count, word) in SIZES {
        if bench.options.bench || count < 100_000 {
            one_size(bench, testbed, placed, &Record::at(&all, count), word);
        }
    }
}

fn one_size(bench: &mut Bench, testbed: &Testbed, placed: &[Placed], records: &[Record], word: &str) {
    let scanned = Found::scan(records, WEST, EAST);
    let set = format!("storm-{word}");
    let mut chunks = Vec::new();
    for nodes in distinct(placed) {
        let home = nodes.at_home();
        chunks = with_retries(|| Storm::create(&home, &set, &[NodeId(2), NodeId(1)], records));
        SharedDirectory::create(&home, &format!("{set}/directory"), Placement::Local, &chunks).expect("room for it");
        nodes.rest();
    }
    let server = testbed.directory_server(chunks.clone());
    let mut ways: Vec<Way<'_>> = Vec::new();
    // Data takes the same path for all three, so that only the directories are compared.
    let Placed { nodes: data_nodes, .. } = placed.last().expect("there are strategies");
    let tcp: Box<dyn Directory> = Box::new(server.client());
    ways.push(way("none", format!("{}/connect", testbed.path), tcp, data_nodes, Strategy::Auto, &set, scanned));
    if let Some(redis) = &testbed.redis {
        let client = redis.borrow_mut().client().expect("the server serves");
        let directory = RedisDirectory::create(client, &set, &chunks).expect("the server serves");
        ways.push(way(
            "redis",
            format!("{}/block", testbed.path),
            Box::new(directory),
            data_nodes,
            Strategy::Auto,
            &set,
            scanned,
        ));
    }
    for Placed { strategy, nodes } in placed {
        let client = nodes.client(*strategy);
        let directory = SharedDirectory::open(&client, &format!("{set}/directory")).expect("it was made");
        ways.push(way(
            "ddss",
            format!("{}/{strategy}", testbed.path),
            Box::new(directory),
            nodes,
            *strategy,
            &set,
            scanned,
        ));
    }
    judge(word, &in_turns(bench, "storm", CHUNK_BYTES, word, &mut ways));
    drop(ways);
    for nodes in distinct(placed) {
        let home = nodes.at_home();
        for name in [format!("{set}/data/0"), format!("{set}/data/1"), format!("{set}/directory")] {
            home.segment(&name).open().and_then(|segment| segment.release()).expect("its owner releases it");
        }
        nodes.rest();
    }
}

fn way<'a>(
    name: &'static str,
    path: String,
    mut directory: Box<dyn Directory>,
    nodes: &'a Rc<Nodes>,
    strategy: Strategy,
    set: &str,
    scanned: Found,
) -> Way<'a> {
    let mut storm = Storm::open(&nodes.client(strategy), set, 2).expect("it was made");
    nodes.rest();
    let run = move || {
        let begin = Instant::now();
        let (found, data) = storm.select(&mut *directory, WEST, EAST).expect("all nodes are up");
        let whole = begin.elapsed();
        assert_eq!(black_box(found), scanned, "the answer is another one");
        Took { whole, data, operations: CHUNKS as u64 }
    };
    let (wake, rest) = (Box::new(|| nodes.wake()), Box::new(|| nodes.rest()));
    Way { name, path, outstanding: 1, run: Box::new(run), wake, rest }
}

fn judge(word: &str, results: &[Result]) {
    let find = |name: &str, wait: &str| results.iter().find(|one| one.name == name && one.wait() == wait);
    let (Some(rcq), Some(none)) = (find("ddss", "rcq"), find("none", "connect")) else { return };
    let of_rcq = |wait| find("ddss", wait).map_or(f64::NAN, |other| other.whole_us / rcq.whole_us);
    report_progress(&format!(
        "storm {word}: rmq {:.2}, mq {:.2}, auto {:.2}, connections {:.2} of rcq; directory of rcq {:.3} of connections'",
        of_rcq("rmq"),
        of_rcq("mq"),
        of_rcq("auto"),
        none.whole_us / rcq.whole_us,
        rcq.data_us / none.data_us
    ));
}
