//! The data path allocates nothing after warming up.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::os::fd::AsFd;

use common::{ALL, Memory};
use ddss_verbs::{
    Event, Events, Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, RegionId, RemoteRange, SendMode, Trust, Window, Work,
};

const SIZE: u64 = 8 << 20;
const BATCH: usize = 32;

struct Both {
    a: Iwarp,
    b: Iwarp,
    events: [Events; 2],
    peer: PeerId,
    region: RegionId,
    window: Window,
}

impl Both {
    fn new(config: &IwarpConfig) -> Self {
        let (mut a, mut b) = (Iwarp::new(config.clone()).unwrap(), Iwarp::new(config.clone()).unwrap());
        let region = a.register(Memory::new(SIZE).fd.as_fd(), Trust::Sealed, 0, SIZE).unwrap();
        let remote_region = b.register(Memory::new(SIZE).fd.as_fd(), Trust::Sealed, 0, SIZE).unwrap();
        let address = b.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let peer = a.connect(address, b"").unwrap();
        let mut events = [Events::new(), Events::new()];
        let mut window = None;
        let mut connected = false;
        while !connected {
            b.poll(&mut events[1]);
            for event in events[1].iter() {
                if let Event::ConnectRequest { peer, .. } = event {
                    window = Some(b.expose(peer, remote_region, 0, SIZE, ALL).unwrap());
                    b.accept(peer, b"").unwrap();
                }
            }
            events[1].clear();
            a.poll(&mut events[0]);
            connected = events[0].iter().any(|event| matches!(event, Event::Connected { .. }));
            events[0].clear();
        }
        Self { a, b, events, peer, region, window: window.unwrap() }
    }

    /// Runs a batch of every operation, of one size, to completion.
    fn round(&mut self, bytes: u64) {
        let (peer, tag) = (self.peer, 0);
        let remote = RemoteRange { key: self.window.key, address: self.window.base };
        let mut batch = [Work::FetchAdd { peer, tag, remote, add: 1 }; BATCH];
        for (index, work) in batch.iter_mut().enumerate() {
            let local = LocalRange { region: self.region, offset: index as u64 * bytes, bytes };
            match index % 4 {
                0 => *work = Work::Read { peer, tag, local, remote },
                1 => *work = Work::Write { peer, tag, local, remote },
                2 => *work = Work::Send { peer, tag, message: &[7; 300], mode: SendMode::default() },
                _ => {}
            }
        }
        self.finish(&batch);
    }

    fn finish(&mut self, batch: &[Work<'_>]) {
        self.a.post(batch).unwrap();
        let mut done = 0;
        while done < batch.len() {
            done += self.a.poll(&mut self.events[0]);
            self.b.poll(&mut self.events[1]);
            self.events.iter_mut().for_each(Events::clear);
        }
    }

    /// Runs one read.
    fn read(&mut self, bytes: u64) {
        let remote = RemoteRange { key: self.window.key, address: self.window.base };
        let local = LocalRange { region: self.region, offset: 0, bytes };
        self.finish(&[Work::Read { peer: self.peer, tag: 0, local, remote }]);
    }

    /// Sleeps until both sides have seen a quiet period.
    fn rest(&mut self) {
        for _ in 0..3 {
            for (fabric, events) in [&mut self.a, &mut self.b].into_iter().zip(&mut self.events) {
                fabric.arm();
                fabric.disarm();
                fabric.poll(events);
                events.clear();
            }
        }
    }
}

#[test]
fn transfers_allocate_nothing() {
    // If this failed, the tail latency of each operation would be that of the allocator.
    for crc in [true, false] {
        let mut config = IwarpConfig::default();
        config.crc = crc;
        let mut both = Both::new(&config);
        let sizes = [8, 4096, 65_536, 200_000];
        for round in 0..200 {
            both.round(sizes[round % 4]);
        }
        let counted = allocation_counter::measure(|| {
            for round in 0..100 {
                both.round(sizes[round % 4]);
            }
        });
        // The kernel cuts the stream arbitrarily, so a buffer may grow once more.
        assert!(counted.count_total <= 2, "{counted:?} with crc {crc}");
        let counted = allocation_counter::measure(|| (0..1000).for_each(|_| both.round(8)));
        assert_eq!(counted.count_total, 0, "{counted:?} with crc {crc}");
    }
}

#[test]
fn occasional_large_reads_allocate_nothing() {
    // If this failed, a client that reads 64 KiB once a second would wait for the home's allocator each time.
    for crc in [true, false] {
        let mut config = IwarpConfig::default();
        config.crc = crc;
        let mut both = Both::new(&config);
        for _ in 0..100 {
            both.read(65_536);
        }
        let counted = allocation_counter::measure(|| {
            for _ in 0..20 {
                both.rest();
                both.read(65_536);
            }
        });
        // The kernel cuts the stream arbitrarily, so a buffer may grow once more.
        assert!(counted.count_total <= 2, "{counted:?} with crc {crc}");
    }
}
