//! The command line client `ddss`: reads, writes and inspects segments, nodes and clusters.
//!
//! The client crate `ddss` does the work. This binary parses arguments, formats answers and chooses exit codes.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program prints its answers")]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

/// Replaces the standard `println!`: a closed standard output ends the program without a panic.
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
mod node_process;
mod output;
#[cfg(test)]
mod reference_pages;
mod status_page;
mod top;

use arguments::{Arguments, ClusterCommand, Command};
use clap::Parser;
use error::CommandError;
use output::terminal_text::{OutputClosed, SIGPIPE_EXIT_CODE};
use std::process::ExitCode;

fn main() -> ExitCode {
    let parsed = Arguments::try_parse();
    // `--json` is honoured even where the other arguments cannot be parsed.
    let is_json = parsed.as_ref().map_or_else(|_| std::env::args_os().any(|word| word == "--json"), |all| all.json);
    if is_json {
        output::terminal_text::enable_json_errors();
    }
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(wrong) if wrong.use_stderr() => {
            output::terminal_text::print_usage_error(&wrong.render().to_string());
            return ExitCode::from(2);
        }
        // Help, or the version.
        Err(asked) => asked.exit(),
    };
    match std::panic::catch_unwind(|| run(&arguments)) {
        Ok(ended) => exit_code_of(ended),
        Err(reason) => match reason.downcast::<OutputClosed>() {
            Ok(unheard) => ExitCode::from(unheard.0),
            Err(reason) => std::panic::resume_unwind(reason),
        },
    }
}

fn exit_code_of(ended: Result<(), CommandError>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_output() => ExitCode::from(SIGPIPE_EXIT_CODE),
        Err(error) => {
            output::terminal_text::print_error(
                &ddss_admin::format_error_chain(&error),
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
        Command::DemoNode(options) => node_process::run(options),
        Command::DemoClient(options) => demo::run_client(options),
        Command::DemoRank(options) => demo::run_rank(options),
        Command::Ping(place) => connect::ping(place, json),
        Command::Allocate(options) => connect::allocate(options, json),
        Command::Ls(options) => commands::segments::list(options, json),
        Command::Stat(named) => commands::segments::stat(named, json),
        Command::Get(options) => commands::data::get(options, json),
        Command::Put(given) => commands::data::put(given, json),
        Command::Hexdump(options) => commands::data::hexdump(options, json),
        Command::Watch(options) => commands::data::watch(options, json),
        Command::History(options) => commands::segments::history(options, json),
        Command::Export(options) => commands::backup::files::export(options, json),
        Command::Import(options) => commands::backup::files::import(options, json),
        Command::Chmod(options) => commands::segments::chmod(options, json),
        Command::Map(command) => commands::map::run(command, json),
        Command::Locks(options) => commands::locks::locks(options, json),
        Command::Doctor(options) => commands::doctor::run(options, json),
        Command::Completions { .. } | Command::Man { .. } if json => Err(CommandError::NoJsonOutput),
        Command::Completions { shell, of } => generate::completions(*shell, *of),
        Command::Man { folder } => generate::manual(folder),
        Command::Release(named) => commands::data::release(named, json),
        Command::Bench(options) => bench::run(options, json),
        Command::Counters(options) => commands::counters::run(options, json),
        Command::Clients(place) => commands::clients::run(place, json),
        Command::Top(options) => top::run(options, json),
        Command::Run(_) if json => Err(CommandError::NoJsonOutput),
        Command::Run(options) => commands::programs::streams::run(options),
        Command::Streams => commands::programs::streams::list(json),
        Command::Dsm(command) => commands::programs::dsm::run(command, json),
        Command::DsmRank(options) => commands::programs::dsm::become_rank(options),
        Command::River(command) => commands::programs::river::run(command, json),
        Command::StreamPump(options) => commands::programs::streams::pump(options),
        Command::Trace(options) => commands::trace::run(options, json),
        Command::Status(place) => commands::status::run(place, json),
        Command::Nodes(place) => commands::cluster::nodes(place, json),
        Command::Cluster(ClusterCommand::Membership(command)) => commands::cluster::run(command, json),
        Command::Cluster(ClusterCommand::Backup(command)) => commands::backup::run(command, json),
    }
}
