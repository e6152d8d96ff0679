//! The command `ddss`: shows and touches segments, and the demonstration that people meet first.
//!
//! *The stop after:* the client crate `ddss`; this binary decides nothing and touches no memory by itself.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to who started it")]

/// As everybody knows it, and no panic when the reader of standard output has gone.
macro_rules! println {
    () => { $crate::words::line(format_args!("")) };
    ($($words:tt)*) => { $crate::words::line(format_args!($($words)*)) };
}

mod arguments;
mod bench;
mod bytes;
mod clients;
mod cluster;
mod confirm;
mod counters;
mod demo;
mod doctor;
mod examples;
mod failure;
mod glob;
mod hints;
mod kinds;
mod left;
mod locks;
mod look;
mod page;
mod pages;
mod segments;
mod status;
mod table;
#[cfg(test)]
mod told;
mod top;
mod trace;
mod words;

use arguments::{Arguments, Command};
use clap::Parser;
use failure::CommandError;
use std::process::ExitCode;
use words::{READER_GONE, Unheard};

fn main() -> ExitCode {
    let parsed = Arguments::try_parse();
    // Of words that make no sense, this one is understood all the same.
    let is_json = parsed.as_ref().map_or_else(|_| std::env::args_os().any(|word| word == "--json"), |all| all.json);
    if is_json {
        words::speak_json();
    }
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(wrong) if wrong.use_stderr() => {
            words::complain_of_words(&wrong.render().to_string());
            return ExitCode::from(2);
        }
        // Help, or the version.
        Err(asked) => asked.exit(),
    };
    match std::panic::catch_unwind(|| run(&arguments)) {
        Ok(ended) => told(ended),
        Err(reason) => match reason.downcast::<Unheard>() {
            Ok(unheard) => ExitCode::from(unheard.0),
            Err(reason) => std::panic::resume_unwind(reason),
        },
    }
}

fn told(ended: Result<(), CommandError>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_reader_gone() => ExitCode::from(READER_GONE),
        Err(error) => {
            words::fail(&ddssd::in_one_line(&error), error.exit_code(), hints::next_step(&error));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), CommandError> {
    let json = arguments.json;
    match &arguments.command {
        Command::Demo(options) => demo::run(options, json),
        Command::DemoNode(options) => demo::run_node(options),
        Command::DemoClient(options) => demo::run_client(options),
        Command::Ping(place) => segments::ping(place, json),
        Command::Allocate(wanted) => segments::allocate(wanted, json),
        Command::Ls(wanted) => look::list(wanted, json),
        Command::Stat(named) => look::stat(named, json),
        Command::Get(wanted) => bytes::get(wanted, json),
        Command::Put(given) => bytes::put(given, json),
        Command::Hexdump(wanted) => bytes::hexdump(wanted, json),
        Command::Watch(wanted) => bytes::watch(wanted, json),
        Command::History(wanted) => look::history(wanted, json),
        Command::Export(wanted) => bytes::export(wanted, json),
        Command::Import(wanted) => bytes::import(wanted, json),
        Command::Chmod(wanted) => look::chmod(wanted, json),
        Command::Locks(wanted) => locks::locks(wanted, json),
        Command::Doctor(options) => doctor::run(options, json),
        Command::Completions { .. } | Command::Man { .. } if json => Err(CommandError::NoJson),
        Command::Completions { shell, of } => pages::completions(*shell, *of),
        Command::Man { folder } => pages::manual(folder),
        Command::Release(named) => bytes::release(named, json),
        Command::Bench(options) => bench::run(options, json),
        Command::Counters(options) => counters::run(options, json),
        Command::Clients(place) => clients::run(place, json),
        Command::Top(options) => top::run(options, json),
        Command::Trace(options) => trace::run(options, json),
        Command::Status(place) => status::run(place, json),
        Command::Nodes(place) => cluster::nodes(place, json),
        Command::Cluster(command) => cluster::run(command, json),
    }
}
