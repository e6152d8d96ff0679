//! DDSS beside iceoryx2's publish-subscribe and beside queues of other crates, both ends polling, in one run.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- --bench [--quick] [--csv FILE]
//! ```
//!
//! The two ends of iceoryx2 are two threads of this process. That gives it no advantage, because its queues are in
//! shared memory anyway. The daemon of DDSS is another process.
#![forbid(unsafe_code)]

mod queues;

use ddss::Strategy;
use ddss_benches::baseline::line_ping_pong;
use ddss_benches::harness::{Bench, Cores, Figure, RoundTrip, Service, Spinner, Turn};
use ddss_benches::system::{Cluster, ping};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{NodeBuilder, ServiceName, ipc_threadsafe};

/// Polls of the answering side in one turn.
const LOOKS_PER_TURN: u32 = 1024;

/// The sending and the receiving end of one thread.
struct Ends {
    publisher: Publisher<ipc_threadsafe::Service, u64, ()>,
    subscriber: Subscriber<ipc_threadsafe::Service, u64, ()>,
}

impl Ends {
    fn open(out: &str, inward: &str) -> Ends {
        let node = NodeBuilder::new().create::<ipc_threadsafe::Service>().expect("shared memory is to be had");
        let service = |name: &str| {
            let name: ServiceName = name.try_into().expect("a short name is one");
            node.service_builder(&name).publish_subscribe::<u64>().open_or_create().expect("a fresh name is free")
        };
        let publisher = service(out).publisher_builder().create().expect("one publisher fits");
        let subscriber = service(inward).subscriber_builder().create().expect("one subscriber fits");
        Ends { publisher, subscriber }
    }
}

struct Trip {
    ends: Ends,
    count: u64,
    service: Service,
    yields: bool,
}

fn iceoryx2(cores: Cores) -> Figure {
    let [there, back] = ["there", "back"].map(|way| format!("ddss-bench-{}-{way}", std::process::id()));
    let ends = Ends::open(&there, &back);
    // Both ends must exist before the first request, which would be lost otherwise.
    let theirs = Ends::open(&back, &there);
    let service = Service::start(cores, move || {
        for _ in 0..LOOKS_PER_TURN {
            if let Some(question) = theirs.subscriber.receive().expect("the other end is there") {
                theirs.publisher.send_copy(*question).expect("the other end takes it");
            }
        }
        Turn::Again
    });
    let trip = Trip { ends, count: 0, service, yields: cores.is_shared() };
    Figure::new("raw", "iceoryx2", 8, "shm/spin/t1", trip)
}

impl RoundTrip for Trip {
    fn once(&mut self) {
        self.count += 1;
        self.ends.publisher.send_copy(self.count).expect("the other end takes it");
        let mut spinner = Spinner::new(self.yields);
        loop {
            if let Some(answer) = self.ends.subscriber.receive().expect("the other end is there") {
                assert_eq!(*answer, self.count);
                return;
            }
            spinner.again();
        }
    }

    fn wake(&mut self) {
        self.service.wake();
    }

    fn rest(&mut self) {
        self.service.rest();
    }
}

fn main() {
    let mut bench = Bench::start("peers", std::env::args_os().skip(1));
    let cluster = Cluster::single(bench.cores);
    let mut figures = Vec::from([Strategy::Rcq, Strategy::Auto].map(|strategy| ping(&cluster, strategy)));
    figures.extend([iceoryx2(bench.cores), queues::crossbeam(bench.cores), queues::rtrb(bench.cores)]);
    bench.family(line_ping_pong(bench.cores), figures);
    bench.finish();
}
