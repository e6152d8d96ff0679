//! Comparison of measured numbers with the recorded file, and its report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Recorded, compare};

/// Options of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Records the numbers instead of comparing them.
    pub keep: bool,
    /// Another file of recorded values.
    pub kept: Option<PathBuf>,
    /// Measures only this workload.
    pub only: Option<String>,
}

impl Wishes {
    /// Parses the arguments; `None` if one is unknown.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Option<Wishes> {
        let mut wishes = Wishes::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match &*argument {
                "--keep" => wishes.keep = true,
                "--only" => wishes.only = Some(arguments.next()?),
                "--kept" => wishes.kept = Some(PathBuf::from(arguments.next()?)),
                _ => return None,
            }
        }
        Some(wishes)
    }
}

/// Lines for the user, and whether the numbers pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Lines to print.
    pub lines: Vec<String>,
    /// True unless a number is worse than recorded, missing, or not recorded.
    pub is_good: bool,
}

/// Compares `measured` with the file called `name` in this folder, or records them there.
///
/// Recorded numbers for which `is_measurable` is false are ignored. `tolerance` is recorded with new numbers. With
/// `compiler_matters`, numbers of another compiler are shown and never fail.
pub fn judge(
    wishes: &Wishes,
    name: &str,
    tolerance: f64,
    measured: BTreeMap<String, f64>,
    is_measurable: impl Fn(&str) -> bool,
    compiler_matters: bool,
) -> Result<Judgement, String> {
    let path = wishes.kept.clone().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
    let compiler = compiler();
    if wishes.keep {
        let recorded = Recorded { compiler, tolerance, numbers: measured };
        std::fs::write(&path, recorded.json()).map_err(|error| format!("writing {}: {error}", path.display()))?;
        let line = format!("recorded {} numbers in {}", recorded.numbers.len(), path.display());
        return Ok(Judgement { lines: vec![line], is_good: true });
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    let mut recorded = Recorded::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    recorded.numbers.retain(|name, _| is_measurable(name) && wishes.only.as_ref().is_none_or(|only| only == name));
    let verdicts = compare(&recorded, &measured);
    let line = |(name, verdict): &(String, crate::Verdict)| {
        let was = recorded.numbers.get(name).copied().unwrap_or(0.0);
        let is = measured.get(name).copied().unwrap_or(0.0);
        format!("{name:<46} {was:>12.2} {is:>12.2}  {verdict}")
    };
    let mut lines: Vec<String> = verdicts.iter().map(line).collect();
    if compiler_matters && recorded.compiler != compiler {
        let was = &recorded.compiler;
        lines.push(format!("skipped: guard: recorded with {was}, and this is {compiler}: record anew with --keep"));
        return Ok(Judgement { lines, is_good: true });
    }
    let bad = verdicts.iter().filter(|(_, verdict)| verdict.is_bad()).count();
    lines.push(format!("{} numbers, {bad} worse than recorded in {}", verdicts.len(), path.display()));
    Ok(Judgement { lines, is_good: bad == 0 })
}

/// The version of the compiler, as the compiler prints it; empty without one.
fn compiler() -> String {
    let printed = Command::new("rustc").arg("--version").output();
    printed.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
