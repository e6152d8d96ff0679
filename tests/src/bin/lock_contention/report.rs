//! The report over the recorded turns.

use crate::steal_time::StealTime;
use crate::{Broken, CLIENTS, Turn};
use std::time::{Duration, Instant};

/// Number of longest waits in the report, which do not overlap.
const TOLD: usize = 3;

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Turns of one second in the order of the grants, with their clients.
struct Second {
    turns: Vec<(usize, Turn)>,
    from: Instant,
    to: Instant,
}

impl Second {
    /// Returns the time of one turn of each client: the wait of a client with exactly its share.
    fn round(&self, left_out: &impl Fn(Instant, Instant) -> Duration) -> Duration {
        let time = (self.to - self.from).saturating_sub(left_out(self.from, self.to));
        time.mul_f64(CLIENTS as f64 / self.turns.len() as f64)
    }
}

/// Results of one variant.
#[derive(Default)]
pub(crate) struct Seen {
    seconds: Vec<Second>,
    turns: Vec<usize>,
}

impl Seen {
    pub(crate) fn note(&mut self, seen: &[Vec<Turn>]) -> Result<(), Broken> {
        let mut turns: Vec<(usize, Turn)> =
            seen.iter().enumerate().flat_map(|(who, turns)| turns.iter().map(move |&turn| (who, turn))).collect();
        turns.sort_unstable_by_key(|(_, turn)| turn.had);
        let (Some((_, first)), Some((_, last))) = (turns.first(), turns.last()) else {
            return Err("no client got the lock".into());
        };
        let (from, to) = (first.asked, last.had);
        self.seconds.push(Second { turns, from, to });
        self.turns.resize(CLIENTS, 0);
        self.turns.iter_mut().zip(seen).for_each(|(sum, turns)| *sum += turns.len());
        Ok(())
    }

    /// Number of turns of all clients.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.iter().sum::<usize>() as u64
    }

    /// Waits with steal time, and without it.
    pub(crate) fn print(&self, name: &str, taken: Option<&StealTime>) {
        let nothing = |_, _| Duration::ZERO;
        let mut rounds: Vec<Duration> = self.seconds.iter().map(|second| second.round(&nothing)).collect();
        rounds.sort_unstable();
        let turns = self.turns();
        println!("{name}: {turns} turns; fair share: a turn every {:.1} us", micros(rounds[rounds.len() / 2]));
        let (least, most) = (self.turns.iter().min(), self.turns.iter().max());
        println!("  turns of one client: {} to {}", least.unwrap_or(&0), most.unwrap_or(&0));
        let others = self.seconds.iter().flat_map(|second| (0..second.turns.len()).map(|at| before(&second.turns, at)));
        let mut others: Vec<usize> = others.collect();
        others.sort_unstable();
        let upto = |of: usize| others[others.len() - 1 - others.len() / of];
        println!(
            "  other holders during one wait: up to {} in half of them, {} in 999 of 1000, {} in all",
            upto(2),
            upto(1000),
            upto(usize::MAX)
        );
        self.tell_waits("in fair shares", nothing);
        if let Some(taken) = taken {
            self.tell_waits("without the time in which a core was away", |from, to| taken.within(from, to));
        }
    }

    /// Wait times, less the excluded intervals.
    fn tell_waits(&self, what: &str, left_out: impl Fn(Instant, Instant) -> Duration) {
        let mut waits = Vec::new();
        let mut worst = Vec::new();
        for (which, second) in self.seconds.iter().enumerate() {
            let round = second.round(&left_out).as_secs_f64();
            let wait = |turn: &Turn| (turn.had - turn.asked).saturating_sub(left_out(turn.asked, turn.had));
            let share = |turn: &Turn| wait(turn).as_secs_f64() / round;
            let begun = waits.len();
            waits.extend(second.turns.iter().enumerate().map(|(index, (_, turn))| (share(turn), which, index)));
            worst.push(waits[begun..].iter().map(|wait| wait.0).fold(0.0, f64::max));
        }
        waits.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        worst.sort_unstable_by(f64::total_cmp);
        let upto = |of: usize| waits[waits.len() - 1 - waits.len() / of].0;
        println!(
            "  {what}: half waited up to {:.2}, 99 of 100 {:.2}, 999 of 1000 {:.2}, all {:.2}; the longest of a second {:.2} (median of {})",
            upto(2),
            upto(100),
            upto(1000),
            waits[waits.len() - 1].0,
            worst[worst.len() / 2],
            worst.len()
        );
        let mut told: Vec<(Instant, Instant)> = Vec::new();
        for (share, which, index) in waits.iter().rev() {
            let second = &self.seconds[*which];
            let (_, turn) = second.turns[*index];
            // Overlapping waits have the same cause.
            if told.iter().any(|(asked, had)| turn.asked < *had && *asked < turn.had) {
                continue;
            }
            told.push((turn.asked, turn.had));
            let begun = (turn.asked - second.from).as_millis();
            println!("    {share:.2}, {begun} ms after the first of them: {}", spent(&second.turns, *index));
            if told.len() == TOLD {
                break;
            }
        }
    }
}

/// Number of clients that held the lock during this wait.
fn before(all: &[(usize, Turn)], index: usize) -> usize {
    let asked = all[index].1.asked;
    all[..index].iter().rev().take_while(|(_, turn)| turn.gave > asked).count()
}

/// Composition of a wait: other holders, and handovers from one to the next.
fn spent(all: &[(usize, Turn)], index: usize) -> String {
    let (_, late) = all[index];
    let before = before(all, index);
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
        "{:.0} us behind {before} others, which held it for {:.0} us (the longest {:.0}); handovers {:.0} us (the longest {:.0})",
        micros(late.had - late.asked),
        micros(held),
        micros(longest),
        micros(way),
        micros(farthest),
    )
}
