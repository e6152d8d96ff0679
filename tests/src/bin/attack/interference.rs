//! Latency of a legitimate client while another client attacks the daemon, compared with a quiet daemon.
//!
//! The progress thread has a core of its own, as `ddssd` takes one on a machine with several; client and attacker share
//! another core. So the client waits for the effect of the attack on the daemon, and not for the scheduler. During
//! attacks from the network the client has real-time priority.

use crate::bare_baseline::{Hub, REQUEST_LOADS};
use crate::byzantine_client::SECRET;
use crate::network::{MEMBERS, UNAUTHENTICATED};
use crate::{ATTACKS, number};
use ddss::{Client, ConnectOptions, Segment, Spec};
use ddss_testkit::{VictimMember, VictimNode};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Latencies of calls, in microseconds.
struct Times {
    p50: f64,
    p99: f64,
    max: f64,
    calls: usize,
    failed: usize,
}

impl Times {
    /// Measures gets for this long, with a pause between two of them.
    fn measure(segment: &Segment, length: Duration, pause: Duration) -> Times {
        let mut bytes = [0; 64];
        Times::of(length, pause, |number| {
            let ended = match number % 2 {
                0 => segment.get_into(0, &mut bytes),
                _ => segment.put(0, &bytes),
            };
            ended.is_ok()
        })
    }

    /// Measures any call; `call` gets the number of earlier calls and returns whether it was answered.
    fn of(length: Duration, pause: Duration, mut call: impl FnMut(usize) -> bool) -> Times {
        let (mut all, mut failed) = (Vec::new(), 0);
        let end = Instant::now() + length;
        while Instant::now() < end {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            let begin = Instant::now();
            let answered = call(all.len());
            all.push(begin.elapsed().as_nanos() as f64 / 1000.0);
            failed += usize::from(!answered);
        }
        all.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| all.get((all.len() as f64 * part) as usize).or(all.last()).copied().unwrap_or(0.0);
        Times { p50: at(0.5), p99: at(0.99), max: at(1.0), calls: all.len(), failed }
    }
}

/// Default rounds of each kind. An attack affects every round, and other load on the machine only some. So the best
/// round counts, and the median round is reported too.
const ROUNDS: u64 = 3;
/// Default pause of the client between two calls during attacks from the network. Work of the daemon in the pause
/// delays the next call. The pause is too short for the daemon to park, which would change the measurement.
const PAUSE: Duration = Duration::from_micros(20);
/// Name of the control that only burns processor time, as any process of the machine may.
pub(crate) const BURNS: &str = "burns";

/// The attacked node, and the origin of the attack.
enum Victim {
    /// Clients of the node.
    Local(Box<VictimNode>),
    /// The network.
    Afar(Box<VictimMember>),
}

impl Victim {
    fn folder(&self) -> &Path {
        match self {
            Victim::Local(victim) => victim.daemon.folder(),
            Victim::Afar(victim) => victim.daemons[0].folder(),
        }
    }

    fn attack(&self, name: &str, seconds: u64) -> Result<Child, ddss_testkit::Error> {
        match self {
            Victim::Local(victim) => victim.attack(name, seconds),
            Victim::Afar(victim) => victim.attack(name, seconds),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        match self {
            Victim::Local(_) => ATTACKS.iter().map(|attack| attack.name).collect(),
            Victim::Afar(_) => UNAUTHENTICATED.iter().chain(MEMBERS).map(|sortie| sortie.name).collect(),
        }
    }
}

/// Latencies of the client in one situation, round by round.
#[derive(Default)]
struct Rounds(Vec<Times>);

impl Rounds {
    fn sorted(mut self) -> Self {
        self.0.sort_unstable_by(|a, b| a.p99.total_cmp(&b.p99));
        self
    }

    fn best(&self) -> &Times {
        self.0.first().expect("there is one round at least")
    }

    fn middle(&self) -> &Times {
        &self.0[self.0.len() / 2]
    }

    /// Increase of the latencies over another situation, for the best and for the median rounds.
    fn to(&self, other: &Rounds) -> (f64, f64) {
        (self.best().p99 / other.best().p99, self.middle().p99 / other.middle().p99)
    }
}

/// The three situations of one attack.
struct Row {
    quiet: Rounds,
    /// `None` for attacks from the network, because such an attacker uses no processor of this machine.
    burning: Option<Rounds>,
    attacked: Rounds,
    failed: usize,
    held: bool,
}

/// Measures calls during one activity, and returns whether the activity succeeded.
fn beside(field: &Victim, name: &str, segment: &Segment, wanted: &Wanted) -> Result<(Times, bool), Box<dyn Error>> {
    let mut attacker = field.attack(name, wanted.seconds)?;
    // Some attackers stop themselves immediately.
    std::thread::sleep(Duration::from_millis(20));
    let times = wanted.calls(segment);
    let pid = rustix::process::Pid::from_child(&attacker);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
    Ok((times, attacker.wait()?.success()))
}

fn row(field: &Victim, name: &str, segment: &Segment, wanted: &Wanted) -> Result<Row, Box<dyn Error>> {
    let (mut quiet, mut attacked, mut held) = (Rounds::default(), Rounds::default(), true);
    let mut burning = matches!(field, Victim::Local(_)).then(Rounds::default);
    for _ in 0..wanted.rounds {
        quiet.0.push(wanted.calls(segment));
        if let Some(burning) = &mut burning {
            burning.0.push(beside(field, BURNS, segment, wanted)?.0);
        }
        let (times, holds) = beside(field, name, segment, wanted)?;
        attacked.0.push(times);
        held &= holds;
    }
    let all = [Some(&quiet), burning.as_ref(), Some(&attacked)];
    let failed = all.into_iter().flatten().flat_map(|rounds| &rounds.0).map(|times| times.failed).sum();
    let burning = burning.map(Rounds::sorted);
    Ok(Row { quiet: quiet.sorted(), burning, attacked: attacked.sorted(), failed, held })
}

/// Measures the same without DDSS, one row for each kind of request: the latency that remains wherever one thread
/// serves both parties.
fn bare_rows(core: usize, wanted: &Wanted) -> Result<(), Box<dyn Error>> {
    for asks in REQUEST_LOADS.into_iter().filter(|asks| asks.name.starts_with(&wanted.only)) {
        let hub = Hub::start(core)?;
        let calls = || {
            Times::of(Duration::from_secs(wanted.seconds), wanted.pause, |_| {
                hub.call();
                true
            })
        };
        let (mut quiet, mut attacked) = (Rounds::default(), Rounds::default());
        for _ in 0..wanted.rounds {
            quiet.0.push(calls());
            let _asker = hub.start_client(asks)?;
            attacked.0.push(calls());
        }
        let (quiet, attacked) = (quiet.sorted(), attacked.sorted());
        Row { quiet, burning: None, attacked, failed: 0, held: true }.print(asks.name, wanted.json);
    }
    Ok(())
}

/// Options of the command line.
struct Wanted {
    seconds: u64,
    rounds: u64,
    /// Pause between two calls. Without a pause, work of the daemon between calls delays only one call and stays
    /// hidden.
    pause: Duration,
    /// Prefix of the attack names to run.
    only: String,
    json: bool,
}

impl Wanted {
    fn calls(&self, segment: &Segment) -> Times {
        Times::measure(segment, Duration::from_secs(self.seconds), self.pause)
    }
}

/// Runs `[--seconds N] [--rounds N] [--pause-us N] [--only NAME] [--json]`.
///
/// Each attack whose name has the prefix gets N seconds quiet, N seconds beside a process that only burns a processor,
/// and N seconds under attack, in several rounds.
pub(crate) fn measure(words: &[String], afar: bool) -> Result<(), String> {
    let mut wanted = Wanted { seconds: 1, rounds: ROUNDS, pause: PAUSE, only: String::new(), json: false };
    if !afar {
        wanted.pause = Duration::ZERO;
    }
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (word.as_str(), words.clone().next()) {
            ("--json", _) => {
                wanted.json = true;
                continue;
            }
            ("--seconds", Some(text)) => wanted.seconds = number(text)?,
            ("--rounds", Some(text)) => wanted.rounds = number(text)?.max(1),
            ("--pause-us", Some(text)) => wanted.pause = Duration::from_micros(number(text)?),
            ("--only", Some(name)) => wanted.only.clone_from(name),
            _ => {
                return Err(
                    "usage: attack interference [--network] [--seconds N] [--rounds N] [--pause-us N] [--only NAME] [--json]"
                        .to_owned(),
                );
            }
        }
        words.next();
    }
    run(&wanted, afar).map_err(|error| error.to_string())
}

/// Pins this process and its children to one core, and returns the core that is left for the service.
fn take_a_core() -> Result<Option<usize>, Box<dyn Error>> {
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let (Some(ours), Some(service)) = (cores.next(), cores.next()) else {
        eprintln!("there is one core only: all of them share it");
        return Ok(None);
    };
    let mut one = CpuSet::new();
    one.set(ours);
    sched_setaffinity(None, &one)?;
    Ok(Some(service))
}

/// Gives the client real-time priority. A real network attacker and the other node run on machines of their own, so
/// their use of the client's core here must not count. Children that start later do not inherit the priority.
fn goes_first() -> Result<(), Box<dyn Error>> {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let changed = Command::new("chrt").args(["--reset-on-fork", "--fifo", "--pid", "1", &thread]).output()?;
    if changed.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&changed.stderr).into()) }
}

fn run(wanted: &Wanted, afar: bool) -> Result<(), Box<dyn Error>> {
    eprintln!("starting a daemon; if it is not built yet, that takes minutes");
    let service = take_a_core()?;
    let program = std::env::current_exe()?;
    let field = if afar {
        Victim::Afar(Box::new(VictimMember::start(SECRET, &program, service)?))
    } else {
        Victim::Local(Box::new(VictimNode::start(SECRET, &program, service)?))
    };
    let client = Client::connect_with(ConnectOptions::new().directory(field.folder()).local_reads(false))?;
    let segment = client.segment("neighbour").allocate(Spec::new(4096))?;
    if afar && let Err(why) = goes_first() {
        eprintln!("the attackers take their share of the client's core: {why}");
    }
    Times::measure(&segment, Duration::from_millis(200), Duration::ZERO);
    if !wanted.json {
        println!(
            "{:<40} p99 in us, best of {}: quiet, beside a busy process, attacked (in parentheses: the median round)",
            "", wanted.rounds
        );
    }
    let mut through = Vec::new();
    for name in field.names().into_iter().filter(|name| name.starts_with(&wanted.only)) {
        let row = row(&field, name, &segment, wanted)?;
        if !row.held {
            through.push(name);
        }
        row.print(name, wanted.json);
    }
    // Ends the daemon first, which has the core of the bare server.
    drop((segment, client, field));
    if afar && let Some(core) = service {
        bare_rows(core, wanted)?;
    }
    if through.is_empty() { Ok(()) } else { Err(format!("something got through: {}", through.join(", ")).into()) }
}

impl Row {
    fn print(&self, name: &str, json: bool) {
        let Row { quiet, burning, attacked, failed, held } = self;
        let to_quiet = attacked.to(quiet);
        let to_burning = burning.as_ref().map(|burning| attacked.to(burning));
        if json {
            let [quiet, attacked] = [quiet.best(), attacked.best()];
            let row = json!({
                "attack": name, "quiet_p50_us": quiet.p50, "quiet_p99_us": quiet.p99, "attacked_p50_us": attacked.p50,
                "attacked_p99_us": attacked.p99, "attacked_max_us": attacked.max, "p99_to_quiet": to_quiet.0,
                "p99_to_quiet_middle": to_quiet.1, "p99_to_burning": to_burning.map(|to| to.0),
                "p99_to_burning_middle": to_burning.map(|to| to.1), "calls": attacked.calls, "failed": failed,
                "attack_held": held,
            });
            return println!("{row}");
        }
        let beside = burning.as_ref().map_or_else(|| "-".to_owned(), |burning| format!("{:.1}", burning.best().p99));
        let to_burning =
            to_burning.map_or_else(String::new, |(best, middle)| format!("; {best:.2} ({middle:.2}) x burning"));
        println!(
            "{name:<40} {:>8.1} {beside:>8} {:>8.1}  {:.2} ({:.2}) x quiet{to_burning}  failed {failed}{}",
            quiet.best().p99,
            attacked.best().p99,
            to_quiet.0,
            to_quiet.1,
            if *held { "" } else { "  SOMETHING GOT THROUGH" }
        );
    }
}
