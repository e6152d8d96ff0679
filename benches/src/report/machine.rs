//! The measured machine: the properties that matter for figures, without its name.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Rows, units};
use crate::tools::{command_output, compiler};

/// Machine description beside every figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Name in `/proc/cpuinfo`.
    pub processor: String,
    /// Cores available to this process.
    pub cores: usize,
    /// True under a hypervisor.
    pub is_virtual: bool,
    /// Frequency scaling of the cores, as far as visible.
    pub governor: String,
    /// The kernel's release.
    pub kernel: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The compiler.
    pub compiler: String,
    /// The measured commit, with a mark if its files were changed.
    pub commit: String,
    /// Time, in UTC.
    pub date: String,
    /// Least and greatest round trip of a bare cache line during the measurements, in microseconds.
    pub line_us: Option<(f64, f64)>,
}

impl Machine {
    /// Describes this machine now.
    pub fn here() -> Machine {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let is_virtual = field("flags").split(' ').any(|flag| flag == "hypervisor");
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim().to_owned();
        let unseen = if is_virtual { "not to be seen in a virtual machine" } else { "not to be seen" };
        let memory = read("/proc/meminfo");
        let memory =
            memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        Machine {
            processor: field("model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            is_virtual,
            governor: if governor.is_empty() { unseen.to_owned() } else { governor },
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: memory.unwrap_or(0) / 1024,
            compiler: compiler(),
            commit: commit(),
            date: date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            line_us: None,
        }
    }

    /// Adds the core distance from `rows`.
    #[must_use]
    pub fn seen_in(mut self, rows: &Rows) -> Machine {
        self.line_us = rows.0.iter().filter_map(|row| row.more("line_us")).fold(None, |seen, line_us| {
            let (least, most) = seen.unwrap_or((line_us, line_us));
            Some((line_us.min(least), line_us.max(most)))
        });
        self
    }

    /// Formats a sentence.
    pub fn words(&self) -> String {
        let Machine { processor, cores, kernel, memory_mib, compiler, commit, date, governor, .. } = self;
        let kind = if self.is_virtual { " (virtual)" } else { "" };
        let line = match self.line_us {
            // A factor of two between runs is not noise, but a change of the core distance.
            Some((least, most)) if most > 2.0 * least => format!(
                ", of which the host at times makes two threads of one (a line takes {} there and back, at times {})",
                units::time(least),
                units::time(most)
            ),
            Some((least, most)) => format!(", {} apart", units::time(least.midpoint(most))),
            None => String::new(),
        };
        format!(
            "{processor}{kind}, {cores} cores{line}, {} GiB, Linux {kernel}, governor {governor}, {compiler}, commit {commit}, {date}",
            memory_mib.div_ceil(1024)
        )
    }

    /// Converts to JSON.
    pub fn json(&self) -> Value {
        json!({
            "processor": self.processor, "cores": self.cores, "virtual": self.is_virtual, "governor": self.governor,
            "kernel": self.kernel, "memory_mib": self.memory_mib, "compiler": self.compiler, "commit": self.commit,
            "date": self.date,
        })
    }

    /// Parses the data; a missing value is empty.
    pub fn of(value: &Value) -> Machine {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Machine {
            processor: text("processor"),
            cores: value["cores"].as_u64().and_then(|cores| usize::try_from(cores).ok()).unwrap_or(0),
            is_virtual: value["virtual"].as_bool().unwrap_or(false),
            governor: text("governor"),
            kernel: text("kernel"),
            memory_mib: value["memory_mib"].as_u64().unwrap_or(0),
            compiler: text("compiler"),
            commit: text("commit"),
            date: text("date"),
            line_us: None,
        }
    }
}

fn read(path: &str) -> String {
    // A value that the machine does not report is left out.
    fs::read_to_string(path).unwrap_or_default()
}

fn commit() -> String {
    let commit = command_output("git", &["rev-parse", "--short=12", "HEAD"]);
    match (commit.is_empty(), command_output("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty()) {
        (true, _) => "unknown".to_owned(),
        (false, true) => commit,
        (false, false) => format!("{commit} with changes"),
    }
}

/// Seconds since 1970 as a day and a minute.
fn date(seconds: u64) -> String {
    let (days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    // Years from March on, in eras of 400 years: a leap day is then the last day of a year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a figure would have another date than its measurement.
    #[test]
    fn unix_seconds_are_formatted_as_date() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
    }

    // If this failed, a figure of two threads of one core would pass for one of two cores.
    #[test]
    fn core_topology_is_described() {
        let rows = |lines: &[&str]| {
            let row = |line: &&str| format!("ddss,null,8,shm/rcq/t{line},1,1,1,1,{line}\n");
            let rows: String = lines.iter().map(row).collect();
            Rows::parse("ipc", &format!("{},line_us\n{rows}", crate::harness::CONTRACT)).unwrap()
        };
        let words = |lines: &[&str]| Machine::here().seen_in(&rows(lines)).words();
        assert!(
            words(&["0.12", "", "0.39"])
                .contains("two threads of one (a line takes 120 ns there and back, at times 390 ns)")
        );
        assert!(words(&["0.38", "0.4"]).contains("cores, 390 ns apart,"), "{}", words(&["0.38", "0.4"]));
        assert_eq!(words(&[""]), Machine::here().words());
    }

    // If this failed, figures drawn again from recorded rows would name the drawing machine.
    #[test]
    fn machine_description_round_trips_through_a_file() {
        let machine = Machine::here();
        assert_eq!(Machine::of(&machine.json()), machine);
        assert!(machine.cores > 0 && !machine.kernel.is_empty(), "{machine:?}");
    }
}
