//! System calls by number, by other names of libc and by raw instructions: a descriptor's number never means a closed
//! stream.

use std::path::{Path, PathBuf};
use std::process::Command;

use ddss_testkit::{preload_library, skipped};
use tempfile::TempDir;

/// Runs one part of the C program under the library. `None`: no C compiler is installed.
struct Program {
    folder: TempDir,
}

impl Program {
    fn compile(name: &str, definition: &str) -> Option<Self> {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/numbers.c");
        let folder = TempDir::new().unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-w", "-pthread", definition, "-o"]).arg(folder.path().join("numbers")).arg(source);
        if !compiler.status().is_ok_and(|status| status.success()) {
            skipped(name, "no C compiler, or none for this machine's instructions");
            return None;
        }
        Some(Self { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("numbers")
    }

    fn run(&self, part: &str, way: u32) -> String {
        self.run_with(part, way, Path::new(""))
    }

    fn run_with(&self, part: &str, way: u32, image: &Path) -> String {
        let mut command = Command::new(self.path());
        command.args([part, &way.to_string()]).arg(image).env("LD_PRELOAD", preload_library().unwrap());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{part} {way}: {}: {said}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }
}

// If this failed, bytes of a file would go to a client, as in node.js, which closes by number.
#[test]
fn number_of_a_closed_stream_belongs_to_the_file_that_gets_it() {
    const NAME: &str = "number_of_a_closed_stream_belongs_to_the_file_that_gets_it";
    let Some(program) = Program::compile(NAME, "-DPLAIN") else { return };
    (0..6).for_each(|way| _ = program.run("reuse", way));
}

// If this failed, the same would happen in a program with system calls of its own.
#[test]
fn number_closed_by_a_raw_instruction_belongs_to_the_file_that_gets_it() {
    const NAME: &str = "number_closed_by_a_raw_instruction_belongs_to_the_file_that_gets_it";
    let Some(program) = Program::compile(NAME, "-DRAW") else { return };
    (6..9).for_each(|way| _ = program.run("reuse", way));
}

// If this failed, programs that call by number would read nothing, and would reset their streams.
#[test]
fn calls_by_number_and_by_other_names_reach_the_stream() {
    const NAME: &str = "calls_by_number_and_by_other_names_reach_the_stream";
    let Some(program) = Program::compile(NAME, "-DPLAIN") else { return };
    program.run("calls", 0);
}

// If this failed, a parent's writes would vanish after a child had closed its copy.
#[test]
fn close_in_a_child_made_past_fork_leaves_the_stream_open() {
    const NAME: &str = "close_in_a_child_made_past_fork_leaves_the_stream_open";
    let Some(program) = Program::compile(NAME, "-DRAW") else { return };
    (0..8).for_each(|way| _ = program.run("child", way));
}

// If this failed, a program with liburing inside would wait forever for bytes that are in memory.
#[test]
fn program_that_makes_rings_by_itself_stays_on_tcp() {
    const NAME: &str = "program_that_makes_rings_by_itself_stays_on_tcp";
    let Some(program) = Program::compile(NAME, "-DRING") else { return };
    let said = program.run("ring", 0);
    assert!(said.ends_with("shared=0\n"), "{said}");
}

// If this failed, such a program would read nothing from a stream that it inherits.
#[test]
fn image_that_makes_rings_gets_a_socket_for_an_inherited_stream() {
    const NAME: &str = "image_that_makes_rings_gets_a_socket_for_an_inherited_stream";
    let (Some(first), Some(second)) = (Program::compile(NAME, "-DPLAIN"), Program::compile(NAME, "-DRING")) else {
        return;
    };
    first.run_with("exec", 0, &second.path());
}

// If this failed, the child of a program that loads a library at this moment would wait forever in `connect`.
#[test]
fn child_connects_while_the_loader_was_locked_at_its_fork() {
    const NAME: &str = "child_connects_while_the_loader_was_locked_at_its_fork";
    let Some(program) = Program::compile(NAME, "-DPLAIN") else { return };
    program.run("connect_in_child", 0);
}

// If this failed, a program whose code can be executed but not read would end in its first `connect`.
#[test]
fn code_that_cannot_be_read_keeps_streams_on_tcp() {
    const NAME: &str = "code_that_cannot_be_read_keeps_streams_on_tcp";
    let Some(program) = Program::compile(NAME, "-DPLAIN") else { return };
    program.run("protected", 0);
}
