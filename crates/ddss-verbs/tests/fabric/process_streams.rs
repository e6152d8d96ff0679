//! Streams between two processes over iWARP in user space.

use ddss_verbs::{Iwarp, IwarpConfig};

use crate::suite::process_streams::{bytes_come_back_from_another_process, killed_process_leaves_a_prefix};

fn open(_: bool) -> Iwarp {
    let mut config = IwarpConfig::default();
    config.message_bytes_max = 32 << 10;
    Iwarp::new(config).unwrap()
}

#[test]
fn bytes_come_back() {
    let test = "process_streams::bytes_come_back";
    bytes_come_back_from_another_process(test, open, "127.0.0.1:0".parse().unwrap());
}

#[test]
fn killed_process_leaves_a_prefix_over_iwarp() {
    let test = "process_streams::killed_process_leaves_a_prefix_over_iwarp";
    killed_process_leaves_a_prefix(test, open, "127.0.0.1:0".parse().unwrap());
}
