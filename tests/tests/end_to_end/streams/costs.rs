//! Costs of many streams: descriptors and memory.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use ddss_testkit::{preload_library, skipped};
use tempfile::TempDir;

use super::{Killed, output_of, port_of, result};

/// Connections under a limit of 1,024 descriptors.
const CROWD: usize = 980;
const LIMIT: usize = 1024;
/// Streams whose rings are filled.
const FILLED: usize = 200;
/// Memory that an idle stream may keep in each process.
const LEFT_KIB_MAX: usize = 32;

/// Compiles the program. `None`: there is no compiler.
fn compile(name: &str, folder: &TempDir) -> Option<PathBuf> {
    let path = folder.path().join("costs");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/costs.c");
    let compiled = Command::new("cc").args(["-O1", "-w", "-o"]).arg(&path).arg(source).status();
    if compiled.is_ok_and(|status| status.success()) {
        return Some(path);
    }
    skipped(name, "no C compiler");
    None
}

/// Runs a server and one client with many connections, both under a limit. Returns the client's result.
fn run(program: &PathBuf, limit: &str, has_library: bool, part: &str, count: usize) -> String {
    let under_limit = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{limit} && exec \"$0\" \"$@\"")).arg(program).args(arguments);
        if has_library {
            command.env("LD_PRELOAD", preload_library().unwrap());
        }
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut server = Killed(under_limit(&["serve"]));
    let port = port_of(&mut server.0).to_string();
    let said = result(&output_of(under_limit(&[part, &port, &count.to_string()])));
    assert!(server.0.try_wait().unwrap().is_none(), "the server ended");
    said
}

fn number(text: &str, name: &str) -> usize {
    let mut words = text.split(' ').filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    words.next().unwrap().parse().unwrap()
}

// If this failed, a server under the usual limit would serve half of the clients that it serves without the library, and then fail.
#[test]
fn server_under_a_limit_serves_as_many_clients_as_without_the_library() {
    let folder = TempDir::new().unwrap();
    let name = "server_under_a_limit_serves_as_many_clients_as_without_the_library";
    let Some(program) = compile(name, &folder) else { return };
    let hard = format!("ulimit -n {LIMIT}");
    assert_eq!(run(&program, &hard, false, "crowd", CROWD), format!("served={CROWD} shared=0"));
    let said = run(&program, &hard, true, "crowd", CROWD);
    assert_eq!((number(&said, "served"), number(&said, "shared") > 0), (CROWD, true), "{said}");
    // Above the soft limit hidden descriptors cost the program nothing.
    let said = run(&program, &format!("ulimit -Sn {LIMIT}"), true, "crowd", CROWD);
    assert_eq!((number(&said, "served"), number(&said, "shared") > LIMIT / 64), (CROWD, true), "{said}");
}

// If this failed, each idle connection would keep half a megabyte forever.
#[test]
fn idle_streams_of_programs_return_the_memory_of_their_rings() {
    let folder = TempDir::new().unwrap();
    let Some(program) = compile("idle_streams_of_programs_return_the_memory_of_their_rings", &folder) else { return };
    let said = run(&program, "true", true, "fill", FILLED);
    assert!(number(&said, "shared") > 0 && number(&said, "left") <= LEFT_KIB_MAX, "{said}");
}
