//! The commands `river`: flows, queues and lists of work.

mod content;
mod files;
mod flows;
mod listing;
mod messages;
mod program;
mod river_command;
mod run;
mod source;
mod top;
mod units;
mod work;

pub(crate) use river_command::run;
