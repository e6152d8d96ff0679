//! The `ddss` command, as people and scripts see it.

mod command_json;
mod command_line;
mod commands;
mod demo;
mod dsm;
mod live_views;
mod offline;
mod river;
mod second_reader;
mod segment_commands;
mod terminal;
mod unhealthy_daemon;
