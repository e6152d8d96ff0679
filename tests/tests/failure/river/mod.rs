//! Data flow between processes that are killed, stopped and cut off.

mod campaign;
mod queues;
mod units;
