//! Lists the public interface of a crate from rustdoc's JSON; `scripts/public-api` runs it.
//!
//! `ddss-public-api DIR CRATE.. [--foreign NAME]..` prints the interface of the first crate, whose JSON lies in DIR with
//! that of the crates that it re-exports. The status is 1 if it needs types other than those named, or of crates other than
//! those named.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the list is the output")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use ddss_testkit::{CrateDocs, Docs, public_api};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: ddss-public-api DIR CRATE.. [--foreign NAME]..")?;
    let (mut crates, mut permitted) = (Vec::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        if argument == "--foreign" {
            permitted.extend(arguments.next());
            continue;
        }
        let file = Path::new(&folder).join(&argument).with_extension("json");
        let text = fs::read_to_string(&file).map_err(|error| format!("reading {}: {error}", file.display()))?;
        crates.push(CrateDocs { name: argument, json: serde_json::from_str(&text)? });
    }
    let api = public_api(&Docs::new(crates)).ok_or("rustdoc's JSON has another format")?;
    api.lines.iter().for_each(|line| println!("{line}"));
    let root = |path: &str| path.split("::").next().unwrap_or_default().to_owned();
    let foreign: Vec<&String> =
        api.foreign.iter().filter(|path| !permitted.contains(&root(path)) && !permitted.contains(path)).collect();
    for path in &foreign {
        eprintln!("the interface needs {path}, which the crate does not re-export");
    }
    Ok(if foreign.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
