//! Sixteen clients on two nodes that all want one lock: how long they wait for it, and whether all get their share. Beside
//! them, second by second in the same run, sixteen threads that do the same with pipes and nothing of ours: what this
//! machine's scheduler makes of sixteen who go one after the other.
//!
//! Who has the lock gives it back at once, and then, in a second turn of all this, after 100 microseconds of sleep: then the
//! fair share is longer than what the scheduler takes now and then, and the lock is what is measured. `--hold-us` asks for
//! one time only.
//!
//! `cargo run --release -p ddss-tests --bin contended -- --seconds 5`
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command talks to who started it")]

use std::collections::VecDeque;
use std::error::Error;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use ddss::{Client, Segment, Spec};
use ddss_tests::Daemon;

/// Clients, half of them on each node.
const CLIENTS: usize = 16;
/// A call may wait for all others, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ours and theirs take turns of that length.
const SLICE: Duration = Duration::from_secs(1);
/// For how long a lock that is worth having is held.
const WORK: Duration = Duration::from_micros(100);
/// The longest waits that are told about.
const TOLD: usize = 3;

/// Whatever goes wrong in a thread.
type Broken = Box<dyn Error + Send + Sync>;

/// How long it is measured, and how long each holds the lock.
fn asked() -> Result<(u64, Vec<Duration>), Broken> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mut seconds, mut holds) = (5, vec![Duration::ZERO, WORK]);
    for pair in words.chunks(2) {
        match pair {
            [flag, number] if flag == "--seconds" => seconds = number.parse()?,
            [flag, number] if flag == "--hold-us" => holds = vec![Duration::from_micros(number.parse()?)],
            _ => return Err("usage: contended [--seconds N] [--hold-us N]".into()),
        }
    }
    Ok((seconds, holds))
}

fn client(daemon: &Daemon) -> Result<Client, ddss::Error> {
    Client::builder().folder(daemon.folder()).lanes(1).timeout(PATIENCE).connect()
}

/// Opens the segment; the other node may have to hear of its home first.
fn open(daemon: &Daemon) -> Result<Segment, Broken> {
    let (client, end) = (client(daemon)?, Instant::now() + PATIENCE);
    loop {
        match client.open("contended") {
            Ok(segment) => return Ok(segment),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// One turn: when the lock was asked for, had, and given back.
#[derive(Clone, Copy)]
struct Turn {
    asked: Instant,
    had: Instant,
    gave: Instant,
}

/// A lock that goes from one to the next in the order in which they asked.
trait Line: Send {
    /// Takes the lock, notes the time, and lets it go after so long.
    fn turn(&mut self, hold: Duration) -> Result<Turn, Broken>;
}

impl Line for Segment {
    fn turn(&mut self, hold: Duration) -> Result<Turn, Broken> {
        let asked = Instant::now();
        let held = self.lock()?;
        let had = Instant::now();
        if !hold.is_zero() {
            std::thread::sleep(hold);
        }
        let gave = Instant::now();
        held.unlock()?;
        Ok(Turn { asked, had, gave })
    }
}

/// One of those who do the same by pipes.
struct Piped {
    ask: PipeWriter,
    told: PipeReader,
    name: u8,
}

impl Piped {
    /// Says a word, and waits for the answer.
    fn ask(&mut self, word: u8) -> std::io::Result<()> {
        self.ask.write_all(&[word])?;
        self.told.read_exact(&mut [0])
    }
}

/// What says that a lock is given back and not asked for.
const GIVES: u8 = 0x80;

impl Line for Piped {
    fn turn(&mut self, hold: Duration) -> Result<Turn, Broken> {
        let asked = Instant::now();
        self.ask(self.name)?;
        let had = Instant::now();
        if !hold.is_zero() {
            std::thread::sleep(hold);
        }
        let gave = Instant::now();
        self.ask(self.name | GIVES)?;
        Ok(Turn { asked, had, gave })
    }
}

/// Gives the lock away, and answers who gives it back, until nobody can ask any more.
fn arbitrate(mut asked: PipeReader, mut tell: Vec<PipeWriter>) {
    let (mut line, mut word) = (VecDeque::new(), [0]);
    while asked.read_exact(&mut word).is_ok() {
        let mut answer = |name: u8| tell[usize::from(name)].write_all(&[name]);
        let [word] = word;
        // Who holds it is the first of the line.
        let next = if word & GIVES == 0 {
            line.push_back(word);
            (line.len() == 1).then_some(word)
        } else {
            line.pop_front();
            line.front().copied()
        };
        let gave = (word & GIVES != 0).then_some(word & !GIVES);
        if next.into_iter().chain(gave).any(|name| answer(name).is_err()) {
            return;
        }
    }
}

/// Passes words on, as another node's daemon would.
fn pass_on(mut from: PipeReader, mut to: impl FnMut(u8) -> std::io::Result<()>) {
    let mut word = [0];
    while from.read_exact(&mut word).is_ok() && to(word[0]).is_ok() {}
}

/// Sixteen who do it by pipes: half of them ask who gives the lock away, the others somebody who passes it on, and are
/// answered by way of him.
fn piped(scope: &mut Vec<std::thread::JoinHandle<()>>) -> Result<Vec<Piped>, Broken> {
    let (asked, ask) = pipe()?;
    let (asked_far, ask_far) = pipe()?;
    let (answered_far, answer_far) = pipe()?;
    let (mut tell, mut tell_far, mut clients) = (Vec::new(), Vec::new(), Vec::new());
    for name in 0..CLIENTS as u8 {
        let (told, teller) = pipe()?;
        let far = name % 2 == 1;
        tell.push(if far { answer_far.try_clone()? } else { teller.try_clone()? });
        tell_far.push(teller);
        let ask = if far { ask_far.try_clone()? } else { ask.try_clone()? };
        clients.push(Piped { ask, told, name });
    }
    // Each ends when nobody is left who could write to it.
    let mut ask = ask;
    scope.push(std::thread::spawn(move || arbitrate(asked, tell)));
    scope.push(std::thread::spawn(move || pass_on(asked_far, |word| ask.write_all(&[word]))));
    scope.push(std::thread::spawn(move || {
        pass_on(answered_far, |name| tell_far[usize::from(name)].write_all(&[name]));
    }));
    Ok(clients)
}

/// All take the lock and let it go until the time is over.
fn slice<L: Line>(line: &mut [L], time: Duration, hold: Duration) -> Result<Vec<Vec<Turn>>, Broken> {
    let begin = Barrier::new(line.len());
    let take_turns = |one: &mut L| {
        let mut turns = Vec::new();
        begin.wait();
        let end = Instant::now() + time;
        while Instant::now() < end {
            turns.push(one.turn(hold)?);
        }
        Ok(turns)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = line.iter_mut().map(|one| scope.spawn(|| take_turns(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("nobody panics")).collect()
    })
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// What came of one slice, in multiples of its fair share.
struct Shares {
    waits: Vec<f64>,
    round: Duration,
}

/// Everything of one way to do it.
#[derive(Default)]
struct Seen {
    slices: Vec<Shares>,
    /// The longest waits: how many fair shares, and what they were spent on.
    longest: Vec<(f64, String)>,
    turns: Vec<usize>,
}

impl Seen {
    fn note(&mut self, seen: &[Vec<Turn>]) -> Result<(), Broken> {
        let mut all: Vec<(usize, Turn)> =
            seen.iter().enumerate().flat_map(|(who, turns)| turns.iter().map(move |&turn| (who, turn))).collect();
        all.sort_unstable_by_key(|(_, turn)| turn.had);
        let (Some((_, first)), Some((_, last))) = (all.first(), all.last()) else {
            return Err("nobody got the lock".into());
        };
        // Everybody once: as long as one waits who gets exactly his share.
        let round = last.had.duration_since(first.asked).mul_f64(CLIENTS as f64 / all.len() as f64);
        let share = |turn: &Turn| (turn.had - turn.asked).as_secs_f64() / round.as_secs_f64();
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_unstable_by(|&a, &b| share(&all[b].1).total_cmp(&share(&all[a].1)));
        for &index in order.iter().take(TOLD) {
            self.longest.push((share(&all[index].1), spent(&all, index)));
        }
        let waits = order.iter().rev().map(|&index| share(&all[index].1)).collect();
        self.slices.push(Shares { waits, round });
        self.turns.resize(CLIENTS, 0);
        self.turns.iter_mut().zip(seen).for_each(|(sum, turns)| *sum += turns.len());
        Ok(())
    }

    fn tell(mut self, name: &str) {
        let mut rounds: Vec<Duration> = self.slices.iter().map(|slice| slice.round).collect();
        rounds.sort_unstable();
        let turns: usize = self.turns.iter().sum();
        println!("{name}: {turns} turns; fair share: a turn every {:.1} us", micros(rounds[rounds.len() / 2]));
        let mut all: Vec<f64> = self.slices.iter().flat_map(|slice| slice.waits.iter().copied()).collect();
        all.sort_unstable_by(f64::total_cmp);
        let upto = |of: usize| all[all.len() - 1 - all.len() / of];
        println!("  of the fair share, half waited up to {:.2}, 99 of 100 {:.2},", upto(2), upto(100));
        println!("  999 of 1000 {:.2}, all {:.2}", upto(1000), all[all.len() - 1]);
        let mut worst: Vec<f64> = self.slices.iter().filter_map(|slice| slice.waits.last().copied()).collect();
        worst.sort_unstable_by(f64::total_cmp);
        println!("  the longest of a second: {:.2} on the median of {} seconds", worst[worst.len() / 2], worst.len());
        let (least, most) = (self.turns.iter().min(), self.turns.iter().max());
        println!("  turns of one client: {} to {}", least.unwrap_or(&0), most.unwrap_or(&0));
        self.longest.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        for (share, spent) in self.longest.iter().take(TOLD) {
            println!("  {share:.2}: {spent}");
        }
    }
}

/// What a wait was spent on: others who had the lock, and its way from one to the next.
fn spent(all: &[(usize, Turn)], index: usize) -> String {
    let (_, late) = all[index];
    let before = all[..index].iter().rev().take_while(|(_, turn)| turn.gave > late.asked).count();
    let (mut held, mut longest, mut way, mut farthest) =
        (Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for pair in all[index - before..=index].windows(2) {
        let ((_, turn), (_, next)) = (pair[0], pair[1]);
        let had = turn.gave.saturating_duration_since(turn.had.max(late.asked));
        let went = next.had.saturating_duration_since(turn.gave);
        (held, longest) = (held + had, longest.max(had));
        (way, farthest) = (way + went, farthest.max(went));
    }
    format!(
        "{:.0} us behind {before} others, who held it for {:.0} us (the longest {:.0}); from hand to hand {:.0} us (the longest {:.0})",
        micros(late.had - late.asked),
        micros(held),
        micros(longest),
        micros(way),
        micros(farthest),
    )
}

fn main() -> Result<(), Broken> {
    let (seconds, holds) = asked()?;
    let daemons = Daemon::pair()?;
    let _home = client(&daemons[0])?.allocate("contended", Spec::new(64))?;
    let mut ours: Vec<Segment> = (0..CLIENTS).map(|index| open(&daemons[index % 2])).collect::<Result<_, Broken>>()?;
    let mut helpers = Vec::new();
    let mut theirs = piped(&mut helpers)?;
    for hold in holds {
        let (mut with_ours, mut with_theirs) = (Seen::default(), Seen::default());
        for _ in 0..seconds {
            with_ours.note(&slice(&mut ours, SLICE, hold)?)?;
            with_theirs.note(&slice(&mut theirs, SLICE, hold)?)?;
        }
        println!("held for {:.0} us:", micros(hold));
        with_ours.tell("ddss, a lock of a segment");
        with_theirs.tell("pipes and threads, nothing else");
    }
    drop(theirs);
    for helper in helpers {
        helper.join().expect("a helper does not panic");
    }
    Ok(())
}
