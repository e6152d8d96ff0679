//! Runs the benches, each as its own program, one after the other.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

/// The benches of this package, in the order in which they run. One that is not built is left out.
pub const BENCHES: [&str; 12] =
    ["ipc", "fabric", "get", "sizes", "scaling", "nodes", "steps", "resource_cost", "wire", "apps", "river", "dsm"];

/// A bench that ran.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchRun {
    /// Its name.
    pub bench: String,
    /// The command that repeats the run.
    pub command: String,
    /// Duration.
    pub seconds: f64,
    /// Skipped parts, with the reasons.
    pub skipped: Vec<String>,
    /// True if it completed.
    pub passed: bool,
}

impl BenchRun {
    pub(crate) fn json(&self) -> Value {
        let BenchRun { bench, command, seconds, skipped, passed } = self;
        json!({ "bench": bench, "command": command, "seconds": seconds, "skipped": skipped, "passed": passed })
    }

    /// Parses the JSON of a run.
    pub fn of(value: &Value) -> BenchRun {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let skipped = value["skipped"].as_array().map(Vec::as_slice).unwrap_or_default();
        BenchRun {
            bench: text("bench"),
            command: text("command"),
            seconds: value["seconds"].as_f64().unwrap_or(0.0),
            skipped: skipped.iter().filter_map(|why| why.as_str().map(str::to_owned)).collect(),
            passed: value["passed"].as_bool().unwrap_or(false),
        }
    }
}

/// Builds all benches, then runs the selected ones and writes their rows into `out`. `tell` gets progress messages.
pub fn run(only: &[String], quick: bool, out: &Path, mut tell: impl FnMut(&str)) -> io::Result<Vec<BenchRun>> {
    tell("building the benches");
    let programs = build()?;
    // Applications take long, so a quick run contains them only on request.
    let usual = |bench: &&&str| !(quick && **bench == "apps");
    let asked = |bench: &&&str| only.iter().any(|name| name == **bench);
    let wanted = BENCHES.iter().filter(|bench| if only.is_empty() { usual(bench) } else { asked(bench) });
    let mut all = Vec::new();
    for bench in wanted {
        let Some(program) = programs.get(*bench) else { continue };
        tell(&format!("{bench} ..."));
        let ran = one(bench, program, quick, out)?;
        for line in &ran.skipped {
            tell(line);
        }
        tell(&format!("{bench}: {:.0} s{}", ran.seconds, if ran.passed { "" } else { ", and it FAILED" }));
        all.push(ran);
    }
    Ok(all)
}

/// Filter of a quick run: of some benches it needs only the rows that calibrate other figures.
fn narrowed(bench: &str, quick: bool) -> Option<&'static str> {
    match bench {
        "fabric" if quick => Some(",8,"),
        "get" if quick => Some("tcp-lo/rcq/t1,32"),
        _ => None,
    }
}

fn one(bench: &str, program: &Path, quick: bool, out: &Path) -> io::Result<BenchRun> {
    let csv = fs::canonicalize(out)?.join(bench).with_extension("csv");
    let mut command = Command::new(program);
    command.arg("--bench").arg("--csv").arg(&csv).args(quick.then_some("--quick"));
    let only = narrowed(bench, quick);
    command.args(only.iter().flat_map(|only| ["--only", only]));
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    fs::write(csv.with_extension("log"), said.as_bytes())?;
    let quick = if quick { "--quick " } else { "" };
    let only = only.map_or_else(String::new, |only| format!("--only {only} "));
    Ok(BenchRun {
        bench: bench.to_owned(),
        command: format!("cargo bench -p ddss-benches --bench {bench} -- {quick}{only}--csv {bench}.csv"),
        seconds: begin.elapsed().as_secs_f64(),
        skipped: said.lines().filter(|line| is_left_out(line)).map(str::to_owned).collect(),
        passed: output.status.success(),
    })
}

/// Returns true if a line of a bench's output reports a skipped measurement.
fn is_left_out(line: &str) -> bool {
    line.starts_with("skipped: ") || line.starts_with("# left out: ")
}

/// Builds the benches, and returns their programs by name.
fn build() -> io::Result<HashMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["bench", "--quiet", "--no-run", "--message-format=json-render-diagnostics", "-p", "ddss-benches"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("building the benches failed: {}", output.status)));
    }
    let mut programs = HashMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let is_bench =
            message["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bench"));
        if let (true, Some(name), Some(path)) =
            (is_bench, message["target"]["name"].as_str(), message["executable"].as_str())
        {
            programs.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    // The first bench that needs daemons builds them; the build is not part of its time.
    ddss_testkit::binary("ddssd").map_err(|error| io::Error::other(error.to_string()))?;
    Ok(programs)
}
