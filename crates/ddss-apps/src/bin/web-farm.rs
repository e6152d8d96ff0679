//! Measures the response times of a web farm while its proxy reads the servers' load; see `web-farm --help`.
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use ddss_apps::monitor::{Farm, FarmOptions, Progress, Watched};

const USAGE: &str = "\
usage: web-farm [--servers N] [--progress shared|own] [--every-ms N] [--clients N] [--seconds N] [--csv FILE]

Starts web servers with a node each, a proxy that reads their loads every so often, and clients; says how long they waited
without the readings, with them, and what the readings cost. With --csv, writes each response: when, in milliseconds from the
begin, and after how many microseconds; first without readings (watch 0), then with them (watch 1).";

struct Wishes {
    options: FarmOptions,
    every: Duration,
    clients: usize,
    time: Duration,
    csv: Option<String>,
}

fn wishes() -> Result<Wishes, Box<dyn Error>> {
    let (progress, proxy_core, other_core) = (Progress::Own, 0, 1);
    let mut wishes = Wishes {
        options: FarmOptions { servers: 8, progress, proxy_core, other_core },
        every: Duration::from_millis(10),
        clients: 4,
        time: Duration::from_secs(5),
        csv: None,
    };
    let arguments: Vec<String> = env::args().skip(1).collect();
    for pair in arguments.chunks(2) {
        let [option, value] = pair else { return Err(USAGE.into()) };
        match (option.as_str(), value.as_str()) {
            ("--servers", value) => wishes.options.servers = value.parse()?,
            ("--progress", "shared") => wishes.options.progress = Progress::Shared,
            ("--progress", "own") => wishes.options.progress = Progress::Own,
            ("--every-ms", value) => wishes.every = Duration::from_millis(value.parse()?),
            ("--clients", value) => wishes.clients = value.parse()?,
            ("--seconds", value) => wishes.time = Duration::from_secs(value.parse()?),
            ("--csv", value) => wishes.csv = Some(value.to_owned()),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(wishes)
}

fn say(out: &mut impl Write, what: &str, watched: &Watched) -> io::Result<()> {
    let mut took: Vec<Duration> = watched.responses.iter().map(|response| response.took).collect();
    took.sort_unstable();
    let quantile = |part: f64| took.get((took.len() as f64 * part) as usize).copied().unwrap_or_default();
    writeln!(
        out,
        "{what}: {} responses, p50 {:?}, p99 {:?}; {} readings; of a core: {:.2} % on each server's node, {:.2} % on the proxy's",
        took.len(),
        quantile(0.5),
        quantile(0.99),
        watched.readings,
        watched.server_node_cpu * 100.0,
        watched.proxy_node_cpu * 100.0,
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    if env::args().any(|argument| argument == "--help" || argument == "-h") {
        return Ok(writeln!(out, "{USAGE}")?);
    }
    let wishes = wishes()?;
    let farm = Farm::start(wishes.options)?;
    let without = farm.watch(wishes.clients, None, wishes.time)?;
    let with = farm.watch(wishes.clients, Some(wishes.every), wishes.time)?;
    say(&mut out, "without readings", &without)?;
    say(&mut out, "with readings", &with)?;
    if let Some(path) = &wishes.csv {
        let mut file = BufWriter::new(File::create(path)?);
        writeln!(file, "watch,at_ms,response_us")?;
        for (watch, watched) in [(0, &without), (1, &with)] {
            for response in &watched.responses {
                let (at_ms, us) = (response.at.as_secs_f64() * 1e3, response.took.as_secs_f64() * 1e6);
                writeln!(file, "{watch},{at_ms:.3},{us:.1}")?;
            }
        }
        file.flush()?;
    }
    Ok(())
}
