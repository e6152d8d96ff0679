//! Clients in processes of their own, as services are: each runs this program again with arguments that make it a
//! client.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Strategy};
use hdrhistogram::Histogram;

use super::Cluster;
use super::cluster::CALL_MAX;
use super::many_clients::{Share, place, summary, thread_time};
use crate::harness::{Cores, StandaloneResult};

/// The argument that makes a program a member.
const FLAG: &str = "--member";

/// Clients to start.
#[derive(Debug, Clone, Copy)]
pub struct Members<'a> {
    /// Number of processes. A single one has the client's core, several share both.
    pub count: usize,
    /// IPC strategy.
    pub strategy: Strategy,
    /// Workload: the name of a segment to get 8 bytes of, or none for pings.
    pub segment: Option<&'a str>,
}

/// One process, ready to begin.
pub(super) struct Member {
    child: Child,
    order: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Member {
    pub(super) fn start(folder: &Path, cores: Cores, members: &Members<'_>) -> io::Result<Member> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(FLAG).arg(folder).arg(members.strategy.to_string()).arg(members.segment.unwrap_or("-"));
        // The process inherits the core of its parent, so it needs the numbers of the other cores.
        let other = if members.count == 1 { cores.client } else { cores.service };
        command.args([cores.client, other].map(|core| core.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (order, said) = (child.stdin.take(), child.stdout.take());
        let (order, said) = order.zip(said).ok_or_else(|| io::Error::other("a member without pipes"))?;
        let mut member = Member { child, order, said: BufReader::new(said) };
        match member.line()?.as_str() {
            "ready" => Ok(member),
            said => Err(io::Error::other(format!("a member said: {said}"))),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command: `for NANOSECONDS` or `calls COUNT`.
    pub(super) fn send_command(&mut self, order: &str) -> io::Result<()> {
        writeln!(self.order, "{order}")
    }

    pub(super) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // The process may have ended already; another failure cannot be reported here.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs the clients for that long; returns their joint result.
pub fn run_members(
    cluster: &Cluster,
    cores: Cores,
    members: &Members<'_>,
    time: Duration,
) -> io::Result<StandaloneResult> {
    cluster.wake();
    let folder = cluster.own().folder();
    let mut all =
        (0..members.count).map(|_| Member::start(folder, cores, members)).collect::<io::Result<Vec<Member>>>()?;
    for member in &mut all {
        member.send_command(&format!("for {}", time.as_nanos()))?;
    }
    thread::sleep(time / 4);
    let (begin, before) = (Instant::now(), cluster.cpu_times());
    thread::sleep(time * 3 / 4);
    let (elapsed, after) = (begin.elapsed(), cluster.cpu_times());
    let shares = all.iter_mut().map(|member| parse(&member.line()?)).collect::<io::Result<Vec<Share>>>()?;
    cluster.rest();
    let scale = time.as_secs_f64() / elapsed.as_secs_f64();
    let daemons: Vec<Duration> =
        after.iter().zip(before).map(|(after, before)| after.saturating_sub(before).mul_f64(scale)).collect();
    Ok(summary(&shares, time, &daemons))
}

/// Returns true if this program was started as a client process; it has then done its work.
pub fn run_as_member() -> bool {
    let arguments: Vec<String> = env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == FLAG) else { return false };
    let [folder, strategy, segment, client, service] = &arguments[at + 1..] else {
        panic!("{FLAG} FOLDER STRATEGY SEGMENT CORE CORE")
    };
    let core = |text: &String| text.parse().expect("a core is a number");
    let cores = Cores { client: core(client), service: core(service) };
    place(cores, cores.is_shared());
    be(Path::new(folder), strategy, segment).expect("the parent reads the pipe");
    true
}

fn be(folder: &Path, strategy: &str, segment: &str) -> io::Result<()> {
    let strategy: Strategy = strategy.parse().expect("a strategy by its name");
    let options =
        ConnectOptions::new().directory(folder).strategy(strategy).channels(1).local_reads(false).timeout(CALL_MAX);
    let client = Client::connect_with(options).expect("a daemon that is ready takes clients");
    let mut task: Box<dyn FnMut()> = if segment == "-" {
        Box::new(move || client.ping().expect("the daemon answers"))
    } else {
        let segment = client.segment(segment).open().expect("the segment is there");
        let mut bytes = [0; 8];
        Box::new(move || {
            let _stamp = segment.get_into(0, &mut bytes).expect("the home is there");
        })
    };
    task();
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    for order in io::stdin().lock().lines() {
        let order = order?;
        let (word, number) = order.split_once(' ').expect("an order is a word and a number");
        let number: u64 = number.parse().expect("an order is a word and a number");
        let share = match word {
            "for" => call_for(&mut task, Duration::from_nanos(number)),
            _ => call_times(&mut task, number),
        };
        writeln!(out, "{}", words(&share))?;
    }
    Ok(())
}

fn call_for(task: &mut dyn FnMut(), time: Duration) -> Share {
    let mut share = Share::none();
    let (begin, cpu) = (Instant::now(), thread_time());
    let mut last = begin;
    while last - begin < time {
        task();
        last = share.lap(last);
    }
    share.cpu = thread_time().saturating_sub(cpu);
    share
}

fn call_times(task: &mut dyn FnMut(), count: u64) -> Share {
    let mut share = Share::none();
    let cpu = thread_time();
    let mut last = Instant::now();
    for _ in 0..count {
        task();
        last = share.lap(last);
    }
    share.cpu = thread_time().saturating_sub(cpu);
    share
}

/// Formats a share as one line: processor time, longest call, and each latency with its count.
fn words(share: &Share) -> String {
    let laps =
        share.laps_ns.iter_recorded().map(|laps| format!("{}:{}", laps.value_iterated_to(), laps.count_at_value()));
    let mut words = vec![share.cpu.as_nanos().to_string(), share.longest.as_nanos().to_string()];
    words.extend(laps);
    words.join(" ")
}

fn parse(line: &str) -> io::Result<Share> {
    let wrong = || io::Error::other(format!("a member said: {line}"));
    let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
    let mut words = line.split(' ');
    let mut next = || words.next().ok_or_else(wrong).and_then(number).map(Duration::from_nanos);
    let (cpu, longest) = (next()?, next()?);
    let mut share = Share { cpu, longest, ..Share::none() };
    for word in words {
        let (lap, count) = word.split_once(':').ok_or_else(wrong)?;
        let count = u32::try_from(number(count)?).map_err(|_| wrong())?;
        Histogram::saturating_record_n(&mut share.laps_ns, number(lap)?, count);
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, results of processes would arrive altered.
    #[test]
    fn client_result_round_trips_through_a_pipe() {
        let mut share = Share { cpu: Duration::from_micros(7), longest: Duration::from_millis(3), ..Share::none() };
        for lap in [300, 310, 500_000] {
            share.laps_ns.record(lap).unwrap();
        }
        let back = parse(&words(&share)).unwrap();
        assert_eq!((back.cpu, back.longest, back.laps_ns.len()), (share.cpu, share.longest, 3));
        assert!(back.laps_ns.max().abs_diff(500_000) < 5_000, "{}", back.laps_ns.max());
        assert!(parse("").is_err() && parse("1 2 x").is_err());
    }
}
