//! The command `ddss`: shows and touches segments, and the demonstration that people meet first.
//!
//! *The stop after:* the client crate `ddss`; this binary decides nothing and touches no memory by itself.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to who started it")]

/// As everybody knows it, and no panic when the reader of standard output has gone.
macro_rules! println {
    () => { $crate::output::terminal_text::line(format_args!("")) };
    ($($words:tt)*) => { $crate::output::terminal_text::line(format_args!($($words)*)) };
}

mod arguments;
mod bench;
mod commands;
mod confirm;
mod connect;
mod demo;
#[cfg(test)]
mod documented;
mod error;
mod examples;
mod generate;
mod glob;
mod hints;
mod output;
#[cfg(test)]
mod reference_pages;
mod status_page;
mod top;

use arguments::{Arguments, Command};
use clap::Parser;
use error::CommandError;
use output::terminal_text::{READER_GONE, Unheard};
use std::process::ExitCode;

fn main() -> ExitCode {
    let parsed = Arguments::try_parse();
    // Of words that make no sense, this one is understood all the same.
    let is_json = parsed.as_ref().map_or_else(|_| std::env::args_os().any(|word| word == "--json"), |all| all.json);
    if is_json {
        output::terminal_text::speak_json();
    }
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(wrong) if wrong.use_stderr() => {
            output::terminal_text::complain_of_words(&wrong.render().to_string());
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
            output::terminal_text::fail(
                &ddssd::format_error_chain(&error),
                error.exit_code(),
                hints::next_step(&error),
            );
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
        Command::Ping(place) => connect::ping(place, json),
        Command::Allocate(wanted) => connect::allocate(wanted, json),
        Command::Ls(wanted) => commands::segments::list(wanted, json),
        Command::Stat(named) => commands::segments::stat(named, json),
        Command::Get(wanted) => commands::data::get(wanted, json),
        Command::Put(given) => commands::data::put(given, json),
        Command::Hexdump(wanted) => commands::data::hexdump(wanted, json),
        Command::Watch(wanted) => commands::data::watch(wanted, json),
        Command::History(wanted) => commands::segments::history(wanted, json),
        Command::Export(wanted) => commands::data::export(wanted, json),
        Command::Import(wanted) => commands::data::import(wanted, json),
        Command::Chmod(wanted) => commands::segments::chmod(wanted, json),
        Command::Locks(wanted) => commands::locks::locks(wanted, json),
        Command::Doctor(options) => commands::doctor::run(options, json),
        Command::Completions { .. } | Command::Man { .. } if json => Err(CommandError::NoJson),
        Command::Completions { shell, of } => generate::completions(*shell, *of),
        Command::Man { folder } => generate::manual(folder),
        Command::Release(named) => commands::data::release(named, json),
        Command::Bench(options) => bench::run(options, json),
        Command::Counters(options) => commands::counters::run(options, json),
        Command::Clients(place) => commands::clients::run(place, json),
        Command::Top(options) => top::run(options, json),
        Command::Trace(options) => commands::trace::run(options, json),
        Command::Status(place) => commands::status::run(place, json),
        Command::Nodes(place) => commands::cluster::nodes(place, json),
        Command::Cluster(command) => commands::cluster::run(command, json),
    }
}
