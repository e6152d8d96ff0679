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
    let Some(program) = Program::compile(NAME, "-DSMALL") else { return };
    (9..11).for_each(|way| _ = program.run("reuse", way));
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

// If this failed, a child that its parent made past the library would lose its connection when the parent closes its copy, or would use the
// entry of another stream.
#[test]
fn child_made_past_fork_serves_a_stream_that_its_parent_closes_first() {
    const NAME: &str = "child_made_past_fork_serves_a_stream_that_its_parent_closes_first";
    let Some(program) = Program::compile(NAME, "-DRAW") else { return };
    (0..2).for_each(|is_new| _ = program.run("leave", is_new));
}

// If this failed, a program that closes what it does not know would spin, or its files would get the bytes of bells.
#[test]
fn stream_whose_hidden_descriptors_were_closed_is_reset() {
    const NAME: &str = "stream_whose_hidden_descriptors_were_closed_is_reset";
    let Some(program) = Program::compile(NAME, "-DRAW") else { return };
    (0..2).for_each(|is_below| _ = program.run("close_hidden", is_below));
    (0..2).for_each(|for_space| _ = program.run("close_hidden_beside_set", for_space));
}

// If this failed, an image without the library would take bytes of a stream that it inherits by accident, and end it with its own end.
#[test]
fn image_that_inherits_a_stream_by_accident_leaves_it_alone() {
    const NAME: &str = "image_that_inherits_a_stream_by_accident_leaves_it_alone";
    let Some(program) = Program::compile(NAME, "-DPLAIN") else { return };
    program.run("leak", 0);
}

// If this failed, such an image would wait for ever for the bytes of a stream that was meant for it.
#[test]
fn image_gets_the_bytes_once_no_other_process_has_the_stream() {
    const NAME: &str = "image_gets_the_bytes_once_no_other_process_has_the_stream";
    let Some(program) = Program::compile(NAME, "-DPLAIN") else { return };
    program.run("exit", 0);
}

// If this failed, an image that `posix_spawn` starts would run with a limit of descriptors that nobody set.
#[test]
fn spawned_image_has_the_limit_of_its_program() {
    const NAME: &str = "spawned_image_has_the_limit_of_its_program";
    let Some(program) = Program::compile(NAME, "-DPLAIN") else { return };
    program.run("spawn", 0);
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
