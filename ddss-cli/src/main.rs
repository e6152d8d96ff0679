//! The command `ddss`: shows and touches segments, and the demonstration that people meet first.
//!
//! *The stop after:* the client crate `ddss`; this binary decides nothing and touches no memory by itself.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to who started it")]

mod arguments;
mod cluster;
mod demo;
mod demo_client;
mod failure;
mod segments;

use arguments::{Arguments, Command};
use clap::Parser;
use failure::CommandError;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ddss: {}", ddssd::in_one_line(&error));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), CommandError> {
    match &arguments.command {
        Command::Demo(options) => demo::run(options),
        Command::DemoClient(options) => demo_client::run(options),
        Command::Ping(place) => segments::ping(place, arguments.json),
        Command::Allocate(wanted) => segments::allocate(wanted, arguments.json),
        Command::Stat(named) => segments::stat(named, arguments.json),
        Command::Get(wanted) => segments::get(wanted, arguments.json),
        Command::Put(given) => segments::put(given, arguments.json),
        Command::Release(named) => segments::release(named, arguments.json),
        Command::Nodes(place) => cluster::nodes(place, arguments.json),
        Command::Cluster(command) => cluster::run(command, arguments.json),
    }
}
