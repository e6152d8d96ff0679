//! The paper's numbers, from its text and its table. Its curves have no numbers, so only the text's statements about
//! them are here.

/// Figure 3(a): 8 bytes to the service thread and back, in microseconds: MQ, RMQ, RCQ.
pub(crate) const IPC_US: [(&str, f64); 3] = [("mq", 13.0), ("rmq", 8.8), ("rcq", 0.4)];
/// Figure 3(b): a small get over InfiniBand, in microseconds.
pub(crate) const GET_US: [(&str, f64); 3] = [("mq", 22.6), ("rmq", 11.3), ("rcq", 8.2)];
/// The most client threads of figure 4(a).
pub(crate) const CLIENTS_MAX: u64 = 512;

/// A line of table 1: application, part of it, operations of DDSS in it, and its time in milliseconds without DDSS and by
/// MQ, RMQ and RCQ.
pub(crate) type Run = (&'static str, &'static str, u32, [f64; 4]);

/// Table 1.
pub(crate) const APPLICATIONS: [Run; 14] = [
    ("rtree", "20%", 8, [3.917, 1.868, 1.786, 1.700]),
    ("rtree", "40%", 23, [12.427, 7.149, 7.013, 6.855]),
    ("rtree", "60%", 41, [25.360, 15.609, 15.481, 15.189]),
    ("rtree", "80%", 60, [42.457, 27.529, 27.232, 26.830]),
    ("rtree", "100%", 74, [60.781, 43.064, 42.587, 42.385]),
    ("btree", "20%", 8, [4.715, 2.675, 2.605, 2.576]),
    ("btree", "40%", 13, [8.114, 4.906, 4.805, 4.743]),
    ("btree", "60%", 20, [12.242, 7.336, 7.186, 7.149]),
    ("btree", "80%", 26, [16.040, 9.490, 9.425, 9.311]),
    ("btree", "100%", 33, [20.400, 11.534, 11.360, 11.265]),
    ("storm", "1K", 86, [2250.0, 1260.2, 1259.4, 1258.2]),
    ("storm", "10K", 177, [4900.0, 1910.8, 1910.1, 1909.4]),
    ("storm", "100K", 158, [6200.0, 3211.0, 3210.7, 3210.0]),
    ("storm", "1000K", 125, [13100.0, 11110.5, 11110.3, 11109.6]),
];

/// The text's statement about figure 5(a); 5(b) and 5(c) show the same.
pub(crate) const SHARING: &str = "MQ takes 87 % less than without, RCQ 56 % less than MQ and 27 % less than RMQ";
/// Figure 5(a) as parts of the time without DDSS, in percent: RCQ takes 44 % of MQ's 13 %, which is 73 % of RMQ.
pub(crate) const SHARING_PERCENT: [(&str, f64); 3] = [("mq", 13.0), ("rmq", 7.8), ("rcq", 5.7)];
/// Figure 7: how much longer web requests take at most while loads are read, with the service thread on the proxy's core
/// and on another.
pub(crate) const MONITORING: [(&str, f64); 2] = [("up to 1.5", 1.5), ("1", 1.0)];
/// The text's statement about figure 6.
pub(crate) const CHECKPOINTS: &str =
    "RCQ scales to 16 processes, RMQ is better at 64 on one node; on one remote node all stop scaling at 16";

// The paper about streams has curves without numbers too; its text compares the plans with each other.

/// Figure 2(a) of the paper about streams: latency of the enhanced plan as a part of basic's.
pub(crate) const STREAM_LATENCY: f64 = 0.9;
/// Figure 2(b): bandwidth of the enhanced plan as a multiple of basic's.
pub(crate) const STREAM_BANDWIDTH: f64 = 1.2;
/// Figure 3: bytes of cache traffic for a byte of network traffic: plan, sender and receiver.
pub(crate) const STREAM_CACHE: [(&str, [f64; 2]); 2] = [("basic", [4.0, 3.0]), ("enhanced", [2.0, 1.0])];
/// Figure 4: program, its name, its statement, and the time of the enhanced plan in percent of basic's.
pub(crate) const STREAM_PROGRAMS: [(&str, &str, &str, f64); 2] = [
    ("microscope", "virtual microscope, units of 1 KiB", "enhanced is “nearly 5 %” faster than basic", 95.0),
    ("isosurface", "iso-surface of a reservoir, units of 8 KiB", "enhanced is “more than 5 %” faster than basic", 95.0),
];
