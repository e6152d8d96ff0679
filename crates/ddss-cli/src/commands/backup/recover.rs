//! The command `cluster recover`: a new cluster from what survivors have of a lost one.
//!
//! The daemon's program does it, because it knows its files. Its daemon is stopped meanwhile.

use crate::arguments::RecoverOptions;
use crate::confirm::confirm;
use crate::error::CommandError;
use crate::node_process::daemon_program;
use crate::output::terminal_text::{print_sentence, sanitize};
use ddss_admin::{RecoveredName, RecoveryReport};
use serde_json::json;
use std::process::{Command, Stdio};

/// Number of names that are shown of each group; --json has all.
const NAMES_SHOWN_MAX: usize = 10;

/// Runs the daemon's program. It prints a report.
fn ask_daemon(options: &RecoverOptions, mode: &str) -> Result<RecoveryReport, CommandError> {
    let mut daemon = Command::new(daemon_program()?);
    daemon.args(["--recover", mode]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (flag, folder) in [
        ("--dir", &options.state.place.dir),
        ("--state-dir", &options.state.state_dir),
        ("--memory-dir", &options.memory_dir),
        ("--config", &options.config),
    ] {
        if let Some(folder) = folder {
            daemon.arg(flag).arg(folder);
        }
    }
    if let Some(join) = &options.join {
        daemon.arg("--join").arg(join.to_string());
    }
    let output = daemon.output().map_err(CommandError::system("run the program ddssd"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = text.lines().map(|line| line.trim().trim_start_matches("ddssd: ")).collect();
        return Err(CommandError::Recovery { why: lines.join("; "), code: output.status.code().unwrap_or(1) as u8 });
    }
    serde_json::from_slice(&output.stdout).map_err(|error| {
        CommandError::Refused(format!(
            "unexpected answer of ddssd ({error}): compare `ddssd --version` with `ddss --version`"
        ))
    })
}

fn print_names(words: &str, names: &[RecoveredName]) {
    let shown: Vec<String> = names.iter().take(NAMES_SHOWN_MAX).map(|found| sanitize(&found.name)).collect();
    let more = if names.len() > shown.len() { ", .." } else { "" };
    let list = if shown.is_empty() { String::new() } else { format!(": {}{more}", shown.join(", ")) };
    print_sentence(&format!("{:>8} {words}{list}", names.len()), 9);
}

fn print_report(report: &RecoveryReport) {
    let RecoveryReport { node, term, index, memory, members, here, taken_over, elsewhere } = report;
    let others: Vec<String> = members
        .iter()
        .filter(|member| member.node != *node)
        .map(|member| format!("{}{}", member.node, if member.answers { " (answers)" } else { "" }))
        .collect();
    let others = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
    print_sentence(
        &format!("this is node {node}; other members: {others}; its log ends at entry {index} of term {term}"),
        2,
    );
    print_sentence(&format!("segments in memory are looked for in {}", sanitize(memory)), 2);
    print_names("segments with their home here", here);
    print_names("segments with a replica in sync here, which takes over", taken_over);
    print_names("segments that only other nodes have", elsewhere);
}

pub(crate) fn run(options: &RecoverOptions, json: bool) -> Result<(), CommandError> {
    let report = ask_daemon(options, "list")?;
    if !json {
        print_report(&report);
    }
    let (mode, question) = match &options.join {
        None => ("begin", "Begin a new cluster with these segments? The former one must not serve any more."),
        Some(_) => ("rejoin", "Join that cluster with these segments, and give up the former one?"),
    };
    let is_list = !options.yes && (json || !std::io::IsTerminal::is_terminal(&std::io::stdin()));
    if !is_list {
        confirm(question, options.yes)?;
        ask_daemon(options, mode)?;
    }
    if json {
        println!("{}", json!({ "done": !is_list, "report": report }));
        return Ok(());
    }
    print_sentence(
        match (is_list, &options.join) {
            (true, _) => {
                "nothing was done: compare the ends of the logs of all survivors, and repeat with --yes on the latest"
            }
            (false, None) => {
                "done; next: start ddssd here, then `ddss cluster recover --join` this node's address on each other survivor, and \
                 `ddss cluster remove N` for each node that is lost"
            }
            (false, Some(_)) => "done; next: start ddssd, which joins that cluster",
        },
        2,
    );
    Ok(())
}
