//! Many connections, after which both processes have as many descriptors, mappings and pages of memory as before.

use std::io::Read;

use crate::{DEADLINE, Programs};

/// Connections for each second of the deadline.
const CONNECTS_A_SECOND: u64 = 100;
/// Pages of memory by which a process may grow, for the reserves of allocators: far below one page a thousand
/// connections.
const GROWTH_PAGES: u64 = 256;

/// State of one process after the warm-up or at the end.
struct Row {
    process: String,
    descriptors: u64,
    mappings: u64,
    pages: u64,
}

/// Opens and closes `count` connections. Returns a line with what was found.
pub(crate) fn run(programs: &Programs, count: u64) -> Result<String, String> {
    let mut server = programs.start(&["serve"])?;
    let mut output = server.0.stdout.take().ok_or("no output")?;
    let port = port(&mut output)?;
    let mut client = programs.start(&["connects", &port, &count.to_string()])?;
    let limit = DEADLINE + std::time::Duration::from_secs(count / CONNECTS_A_SECOND);
    let has_succeeded = client.wait(limit)?;
    let mut said = String::new();
    let mut of_client = client.0.stdout.take().ok_or("no output")?;
    of_client.read_to_string(&mut said).map_err(|error| error.to_string())?;
    if !has_succeeded || !server.wait(DEADLINE)? {
        return Err(format!("a program failed: {said}"));
    }
    output.read_to_string(&mut said).map_err(|error| error.to_string())?;
    let rows: Vec<_> = said.lines().filter_map(row).collect();
    let shared = said.lines().find_map(|line| line.strip_prefix("SHARED ")).unwrap_or("0");
    let mut found = format!("connects={count} shared_in_sample={shared}");
    for process in ["acceptor", "connector"] {
        let of_process: Vec<_> = rows.iter().filter(|row| row.process == process).collect();
        let [first, last] = of_process[..] else { return Err(format!("no statistics of the {process}: {said}")) };
        found.push_str(&format!(
            " {process}: descriptors {}->{} mappings {}->{} pages {}->{}",
            first.descriptors, last.descriptors, first.mappings, last.mappings, first.pages, last.pages
        ));
        let is_leak = last.descriptors > first.descriptors || last.mappings > first.mappings;
        if is_leak || last.pages > first.pages + GROWTH_PAGES {
            return Err(format!("the {process} leaks: {found}"));
        }
    }
    if shared == "0" {
        return Err(format!("no stream left TCP: {found}"));
    }
    Ok(found)
}

fn port(output: &mut impl Read) -> Result<String, String> {
    let (mut line, mut byte) = (String::new(), [0]);
    while byte != [b'\n'] {
        output.read_exact(&mut byte).map_err(|error| error.to_string())?;
        line.push(byte[0].into());
    }
    line.strip_prefix("PORT ").map(|port| port.trim().to_owned()).ok_or(line)
}

fn row(line: &str) -> Option<Row> {
    let mut fields = line.strip_prefix("STATISTICS ")?.split(' ');
    let process = fields.next()?.to_owned();
    let mut number = || fields.next()?.parse().ok();
    Some(Row { process, descriptors: number()?, mappings: number()?, pages: number()? })
}
