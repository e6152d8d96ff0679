//! Data flow between processes that are killed, stopped and cut off.

mod campaign;
mod files;
mod queues;
mod units;
