//! Numbers that a rank, or a reader of a snapshot, holds already.

use std::hint::black_box;

use ddss::{Client, ConnectOptions};
use ddss_benches::harness::{Bench, Figure, RoundTrip, on_all_cores};
use ddss_dsm::snapshot::{Publisher, PublisherOptions, Snapshot};
use ddss_dsm::{Homes, Region, Space, SpaceOptions};
use ddss_testkit::Daemon;

const SIZES: [usize; 2] = [4096, 1 << 20];
const PATH: &str = "near/spin/t1";

fn sum(numbers: &[u64]) {
    black_box(black_box(numbers).iter().sum::<u64>());
}

struct Slice(Vec<u64>);

impl RoundTrip for Slice {
    fn once(&mut self) {
        sum(&self.0);
    }
}

struct View {
    space: Space,
    region: Region<u64>,
}

impl RoundTrip for View {
    fn once(&mut self) {
        sum(&self.region.read(&self.space, ..).expect("the space lives"));
    }
}

struct Held(Snapshot<u64>);

impl RoundTrip for Held {
    fn once(&mut self) {
        sum(self.0.read(..).expect("no other generation is published"));
    }
}

pub(super) fn measure(bench: &mut Bench) {
    let daemon = on_all_cores(|| Daemon::start(1)).expect("a daemon starts");
    let client =
        || Client::connect_with(ConnectOptions::new().directory(daemon.folder())).expect("the daemon takes clients");
    for size in SIZES {
        let numbers: Vec<u64> = (0..size as u64 / 8).collect();
        let name = format!("numbers-{size}");
        let held = on_all_cores(|| {
            let options = PublisherOptions::new();
            let mut publisher = Publisher::open(&client(), &name, numbers.len(), options).expect("the pool has room");
            publisher.publish(&numbers).expect("the pool has room");
            Held(Snapshot::open(&client(), &name).expect("it was published"))
        });
        let view = on_all_cores(|| {
            let options = SpaceOptions::new(1, size as u64);
            let mut space = Space::join(&client(), &name, options).expect("the only rank is here");
            let region = space.region("numbers", numbers.len(), Homes::FirstTouch).expect("the space has room");
            region.write(&space, ..).expect("the space lives").copy_from_slice(&numbers);
            View { space, region }
        });
        bench.family(
            Figure::new("raw", "slice_sum", size, PATH, Slice(numbers)),
            vec![
                Figure::new("ddss", "view_sum", size, PATH, view),
                Figure::new("ddss", "snapshot_sum", size, PATH, held),
            ],
        );
    }
}
