//! The commands `river`: queues and lists of work.

mod content;
mod files;
mod listing;
mod messages;
mod program;
mod river_command;
mod units;
mod work;

pub(crate) use river_command::run;
