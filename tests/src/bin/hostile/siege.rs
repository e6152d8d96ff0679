//! What a good client notices while its neighbour attacks the daemon: its calls' times, quiet and attacked.
//!
//! The progress thread has a core to itself, as `ddssd` takes one where there are several; the client and the attacker share
//! another. So what the client waits for is what the attacker does to the daemon, and not which of three threads the
//! scheduler lets run on two cores. Where they attack from the network the client goes before all others.

use crate::bare::{ASKS, Hub};
use crate::liar::SECRET;
use crate::network::{MEMBERS, STRANGERS};
use crate::{ATTACKS, number};
use ddss::{Client, Segment, Spec};
use ddss_testkit::{Besieged, Surrounded};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What calls took, in microseconds.
struct Times {
    p50: f64,
    p99: f64,
    max: f64,
    calls: usize,
    failed: usize,
}

impl Times {
    /// Calls for so long, with such a pause between two of them.
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

    /// The same, whatever is called; `call` is told how many there were before, and says whether it was answered.
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

/// Rounds of each kind, if nothing else is asked for. An attack is felt in each of them, and what else the machine does in some:
/// so the best one counts, and the middle one is told as well.
const ROUNDS: u64 = 3;
/// What a neighbour pauses between two calls while the attack comes from the network, if nothing else is asked for: what a daemon
/// does meanwhile makes the next call late, and it does not fall asleep in between, which would be what is measured.
const PAUSE: Duration = Duration::from_micros(20);
/// One that only takes its share of the processors: what everybody who works on the machine does to everybody else.
pub(crate) const BURNS: &str = "burns";

/// The attacked node, and from where.
enum Field {
    /// Clients of the node.
    Near(Box<Besieged>),
    /// The network.
    Afar(Box<Surrounded>),
}

impl Field {
    fn folder(&self) -> &Path {
        match self {
            Field::Near(besieged) => besieged.daemon.folder(),
            Field::Afar(surrounded) => surrounded.daemons[0].folder(),
        }
    }

    fn attack(&self, name: &str, seconds: u64) -> Result<Child, ddss_testkit::Error> {
        match self {
            Field::Near(besieged) => besieged.attack(name, seconds),
            Field::Afar(surrounded) => surrounded.attack(name, seconds),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        match self {
            Field::Near(_) => ATTACKS.iter().map(|attack| attack.name).collect(),
            Field::Afar(_) => STRANGERS.iter().chain(MEMBERS).map(|sortie| sortie.name).collect(),
        }
    }
}

/// What a neighbour notices in such a situation, round by round.
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

    /// How much later its calls were than others', in the best rounds and in the middle ones.
    fn to(&self, other: &Rounds) -> (f64, f64) {
        (self.best().p99 / other.best().p99, self.middle().p99 / other.middle().p99)
    }
}

/// The three situations of one attack.
struct Row {
    quiet: Rounds,
    /// Not from the network: who attacks there takes nobody's processor here.
    burning: Option<Rounds>,
    attacked: Rounds,
    failed: usize,
    held: bool,
}

/// Calls while somebody does that; and whether it held.
fn beside(field: &Field, name: &str, segment: &Segment, wanted: &Wanted) -> Result<(Times, bool), Box<dyn Error>> {
    let mut attacker = field.attack(name, wanted.seconds)?;
    // One that stands still does so at once.
    std::thread::sleep(Duration::from_millis(20));
    let times = wanted.calls(segment);
    let pid = rustix::process::Pid::from_child(&attacker);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
    Ok((times, attacker.wait()?.success()))
}

fn row(field: &Field, name: &str, segment: &Segment, wanted: &Wanted) -> Result<Row, Box<dyn Error>> {
    let (mut quiet, mut attacked, mut held) = (Rounds::default(), Rounds::default(), true);
    let mut burning = matches!(field, Field::Near(_)).then(Rounds::default);
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

/// The same where nothing of DDSS is in between, one row for each kind of question: what is left of a neighbour's quiet wherever one
/// thread answers both.
fn bare_rows(core: usize, wanted: &Wanted) -> Result<(), Box<dyn Error>> {
    for asks in ASKS.into_iter().filter(|asks| asks.name.starts_with(&wanted.only)) {
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
            let _asker = hub.besiege(asks)?;
            attacked.0.push(calls());
        }
        let (quiet, attacked) = (quiet.sorted(), attacked.sorted());
        Row { quiet, burning: None, attacked, failed: 0, held: true }.print(asks.name, wanted.json);
    }
    Ok(())
}

/// What was asked for on the command line.
struct Wanted {
    seconds: u64,
    rounds: u64,
    /// Between two calls. Whoever calls without a pause hides what the daemon does meanwhile, since one call only is late by it.
    pause: Duration,
    /// How the attacks' names begin.
    only: String,
    json: bool,
}

impl Wanted {
    fn calls(&self, segment: &Segment) -> Times {
        Times::measure(segment, Duration::from_secs(self.seconds), self.pause)
    }
}

/// `[--seconds N] [--rounds N] [--pause-us N] [--only NAME] [--json]`: for each attack (whose name begins so), N seconds quiet, N beside
/// somebody who only burns a processor, and N attacked, some times in turn.
pub(crate) fn siege(words: &[String], afar: bool) -> Result<(), String> {
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
                    "usage: hostile siege [--network] [--seconds N] [--rounds N] [--pause-us N] [--only NAME] [--json]"
                        .to_owned(),
                );
            }
        }
        words.next();
    }
    run(&wanted, afar).map_err(|error| error.to_string())
}

/// Moves this process, and whoever it starts, to one core; says which other one is left for the service.
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

/// Has the one who calls run whenever he wants to: who attacks from the network does so on a machine of his own, and so does the other
/// node what it does. What they take of the client's core here is not what they do to the daemon. Whoever is started from here
/// later does not go first as well.
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
        Field::Afar(Box::new(Surrounded::start(SECRET, &program, service)?))
    } else {
        Field::Near(Box::new(Besieged::start(SECRET, &program, service)?))
    };
    let client = Client::builder().folder(field.folder()).local_reads(false).connect()?;
    let segment = client.allocate("neighbour", Spec::new(4096))?;
    if afar && let Err(why) = goes_first() {
        eprintln!("the attackers take their share of the client's core: {why}");
    }
    Times::measure(&segment, Duration::from_millis(200), Duration::ZERO);
    if !wanted.json {
        println!(
            "{:<40} p99 in us, best of {}: quiet, beside one who burns a processor, attacked (in parentheses: the middle one)",
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
    // The daemon would have the same core.
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
