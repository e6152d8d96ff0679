//! The figures of the paper about streams: latency and bandwidth, cache traffic, programs of filters.

mod cache;
mod lines;
mod pictures;
mod programs;
mod speed;

pub(crate) use pictures::streams;
