//! What a good client notices while its neighbour attacks the daemon: its calls' times, quiet and attacked.

use crate::liar::SECRET;
use crate::{ATTACKS, Attack};
use ddss::{Client, Segment, Spec};
use ddss_tests::Besieged;
use serde_json::json;
use std::error::Error;
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
    fn measure(segment: &Segment, length: Duration) -> Times {
        let (mut all, mut failed) = (Vec::new(), 0);
        let end = Instant::now() + length;
        let mut bytes = [0; 64];
        while Instant::now() < end {
            let begin = Instant::now();
            let ended = match all.len() % 2 {
                0 => segment.get_into(0, &mut bytes),
                _ => segment.put(0, &bytes),
            };
            all.push(begin.elapsed().as_nanos() as f64 / 1000.0);
            failed += usize::from(ended.is_err());
        }
        all.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| all.get((all.len() as f64 * part) as usize).or(all.last()).copied().unwrap_or(0.0);
        Times { p50: at(0.5), p99: at(0.99), max: at(1.0), calls: all.len(), failed }
    }
}

/// `[--seconds N] [--only NAME] [--json]`: N seconds quiet and N attacked for each attack.
pub(crate) fn siege(words: &[String]) -> Result<(), String> {
    let (mut seconds, mut only, mut json) = (1, None, false);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match (word, words.clone().next()) {
            ("--json", _) => json = true,
            ("--seconds", Some(number)) => {
                seconds = number.parse().map_err(|error| format!("{number}: {error}"))?;
                words.next();
            }
            ("--only", Some(name)) => {
                only = Some(name.to_owned());
                words.next();
            }
            _ => return Err("usage: hostile siege [--seconds N] [--only NAME] [--json]".to_owned()),
        }
    }
    run(seconds, only.as_deref(), json).map_err(|error| error.to_string())
}

fn run(seconds: u64, only: Option<&str>, json: bool) -> Result<(), Box<dyn Error>> {
    eprintln!("starting a daemon; if it is not built yet, that takes minutes");
    let besieged = Besieged::start(SECRET, &std::env::current_exe()?)?;
    let client = Client::builder().folder(besieged.daemon.folder()).near(false).connect()?;
    let segment = client.allocate("neighbour", Spec::new(4096))?;
    let length = Duration::from_secs(seconds);
    Times::measure(&segment, Duration::from_millis(200));
    let mut worst: Option<(f64, &str)> = None;
    for &Attack { name, .. } in ATTACKS.iter().filter(|attack| only.is_none_or(|only| only == attack.name)) {
        let quiet = Times::measure(&segment, length);
        let mut attacker = besieged.attack(name, seconds)?;
        // One that stands still does so at once.
        std::thread::sleep(Duration::from_millis(20));
        let attacked = Times::measure(&segment, length);
        let pid = rustix::process::Pid::from_child(&attacker);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        let ended = attacker.wait()?;
        let ratio = attacked.p99 / quiet.p99;
        if worst.is_none_or(|(other, _)| other < ratio) {
            worst = Some((ratio, name));
        }
        if json {
            let row = json!({
                "attack": name, "quiet_p50_us": quiet.p50, "quiet_p99_us": quiet.p99, "attacked_p50_us": attacked.p50,
                "attacked_p99_us": attacked.p99, "attacked_max_us": attacked.max, "p99_ratio": ratio,
                "calls": attacked.calls, "failed": quiet.failed + attacked.failed, "attack_held": ended.success(),
            });
            println!("{row}");
            continue;
        }
        println!(
            "{name:<38} p50 {:>7.1} -> {:>7.1}  p99 {:>7.1} -> {:>8.1} ({ratio:>5.2} x)  max {:>8.0}  failed {}{}",
            quiet.p50,
            attacked.p50,
            quiet.p99,
            attacked.p99,
            attacked.max,
            quiet.failed + attacked.failed,
            if ended.success() { "" } else { "  SOMETHING GOT THROUGH" }
        );
    }
    if let Some((ratio, name)) = worst.filter(|_| !json) {
        println!("worst p99: {ratio:.2} x, {name}");
    }
    Ok(())
}
