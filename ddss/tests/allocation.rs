//! After warming up, a call allocates nothing on its caller's thread.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use ddss::{Client, Spec, Strategy};
use ddssd::{Config, Service};

/// Calls of each kind.
const CALLS: usize = 1_000;

#[test]
fn calls_allocate_nothing() {
    // If this failed, the tail of each call would be that of the allocator.
    let folder = std::env::temp_dir().join(format!("ddss-allocation-{}", std::process::id()));
    let mut config = Config::single(&folder);
    config.pool_bytes = 8 << 20;
    let service = Service::start(config).unwrap();
    for strategy in Strategy::ALL {
        let builder = Client::builder().folder(&folder).strategy(strategy).timeout(Duration::from_secs(60));
        let client = builder.connect().unwrap();
        let segment = client.allocate(&format!("words-{strategy}"), Spec::new(1 << 16)).unwrap();
        let mut room = vec![1; 1 << 16];
        let mut one_of_each = || {
            client.ping().unwrap();
            for bytes in [8, 4096, 1 << 16] {
                segment.put(0, &room[..bytes]).unwrap();
                segment.get_into(0, &mut room[..bytes]).unwrap();
            }
            segment.fetch_add(8, 1).unwrap();
            segment.compare_swap(8, 1, 2).unwrap();
        };
        (0..CALLS).for_each(|_| one_of_each());
        let counted = allocation_counter::measure(|| (0..CALLS).for_each(|_| one_of_each()));
        assert_eq!(counted.count_total, 0, "{strategy}: {counted:?}");
    }
    drop(service);
    std::fs::remove_dir_all(&folder).unwrap();
}
