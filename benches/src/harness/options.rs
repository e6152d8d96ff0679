//! Command line of a bench.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Plan;

/// Command line of a bench.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Fewer and shorter rounds.
    pub quick: bool,
    /// File for the rows, besides standard output.
    pub csv: Option<PathBuf>,
    /// Filter: only figures whose row prefix contains this, with their limits.
    pub only: Option<String>,
    /// The least that a line has to take from core to core and back for a slice to count, in nanoseconds.
    pub line_min_ns: Option<u32>,
    /// True under `cargo bench`. `cargo test --benches` does not set it, and runs everything only once.
    pub bench: bool,
    /// Unknown arguments, which are ignored: cargo passes the flags of its own harness to every bench.
    pub ignored: Vec<String>,
}

impl Options {
    /// Reads the arguments after the program's name.
    pub fn parse(arguments: impl Iterator<Item = OsString>) -> Options {
        let mut options = Options::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--quick") => options.quick = true,
                Some("--bench") => options.bench = true,
                Some("--only") => options.only = arguments.next().map(|text| text.to_string_lossy().into_owned()),
                Some("--line-min") => match arguments.next().and_then(|text| text.to_str()?.parse().ok()) {
                    Some(least) => options.line_min_ns = Some(least),
                    None => options.ignored.push("--line-min without a number of nanoseconds".to_owned()),
                },
                Some("--csv") => options.csv = arguments.next().map(PathBuf::from),
                Some(csv) if csv.starts_with("--csv=") => options.csv = Some(csv["--csv=".len()..].into()),
                _ => options.ignored.push(argument.to_string_lossy().into_owned()),
            }
        }
        options
    }

    /// Returns true if a row with this prefix is selected.
    pub fn wants(&self, label: &str) -> bool {
        self.only.as_deref().is_none_or(|only| label.contains(only))
    }

    /// Amount of measurement.
    pub fn plan(&self) -> Plan {
        match (self.bench, self.quick) {
            (false, _) => Plan::SMOKE,
            (true, true) => Plan::QUICK,
            (true, false) => Plan::FULL,
        }
    }

    /// The file for the rows of the bench called `name`.
    ///
    /// Cargo runs a bench in the directory of its package; a path that does not start at the root starts at the
    /// workspace instead, where the command was typed. A directory gets one file for each bench.
    pub fn csv_file(&self, name: &str) -> Option<PathBuf> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is a folder of it");
        let path = workspace.join(self.csv.as_ref()?);
        Some(if path.is_dir() { path.join(name).with_extension("csv") } else { path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Options {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    // If this failed, the documented command would measure something else, or write nowhere.
    #[test]
    fn contract_flags_are_parsed() {
        let options = parse("--quick --csv a.csv --bench");
        assert!(options.quick && options.bench && options.ignored.is_empty());
        assert_eq!(options.plan().rounds, Plan::QUICK.rounds);
        assert_eq!(options.csv_file("ipc").unwrap().file_name().unwrap(), "a.csv");
        assert!(options.csv_file("ipc").unwrap().is_absolute());
        assert_eq!(parse("--csv=b.csv").csv.unwrap(), Path::new("b.csv"));
        assert_eq!(parse("--bench").plan().rounds, Plan::FULL.rounds);
        assert_eq!(parse("").plan().rounds, Plan::SMOKE.rounds);
        assert_eq!(parse("--line-min 250 --bench").line_min_ns, Some(250));
        assert_eq!(parse("--bench --line-min far").line_min_ns, None);
        let only = parse("--only shm/rcq");
        assert!(only.wants("ddss,null,8,shm/rcq/t1,1") && !only.wants("ddss,null,8,shm/mq/t1,1"));
        assert!(parse("").wants("anything"));
    }

    // If this failed, `cargo bench` with a flag of cargo's own harness would stop at the first bench.
    #[test]
    fn flags_of_libtest_are_ignored_with_a_notice() {
        assert_eq!(parse("--nocapture --bench null --quick").ignored, ["--nocapture", "null"]);
    }

    // If this failed, four benches would overwrite each other's rows.
    #[test]
    fn csv_directory_gets_one_file_per_bench() {
        let options = Options { csv: Some("/".into()), ..Options::default() };
        assert_eq!(options.csv_file("ipc").unwrap(), Path::new("/ipc.csv"));
    }
}
