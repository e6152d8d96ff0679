//! Programs that one call of libc starts, and starts that fail halfway.

use std::path::PathBuf;
use std::process::Command;

use ddss_testkit::preload_library;

use super::LEFT_BYTES;
use super::bypass::programs;

/// A library whose `fork` fails in every process but the first.
const SECOND_FORK_FAILS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
static pid_t first;
__attribute__((constructor)) static void start(void) { first = getpid(); }
pid_t fork(void) {
    pid_t (*next)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
    if (getpid() == first) return next();
    errno = EAGAIN;
    return -1;
}
"#;

// If this failed, a program at its user's limit of processes would give its image an empty input, and lose its peer's
// bytes.
#[test]
fn pump_that_cannot_be_started_fails_the_start_of_the_image() {
    let Some(programs) = programs("pump_that_cannot_be_started_fails_the_start_of_the_image") else { return };
    let (source, library) = (programs.dynamic().with_file_name("fork.c"), programs.dynamic().with_file_name("fork.so"));
    std::fs::write(&source, SECOND_FORK_FAILS).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(compiled.success());
    let libraries = PathBuf::from(format!("{}:{}", preload_library().unwrap().display(), library.display()));
    for part in ["spawn", "spawn_without_children"] {
        let said = programs.run_with(Some(&libraries), part, "half_close", programs.fixed());
        let expected = format!("shared=1 extra={} bytes={LEFT_BYTES}", rustix::io::Errno::NOMEM.raw_os_error());
        assert_eq!(said, [expected, format!("shared=true bytes={}", 20 * LEFT_BYTES)], "{part}");
    }
}

// If this failed, a program that a server's child starts by `system`, `popen`, `wordexp` or `execveat` would see an empty input.
#[test]
fn program_that_is_started_in_one_step_serves_the_stream() {
    let Some(programs) = programs("program_that_is_started_in_one_step_serves_the_stream") else { return };
    for call in ["system", "popen", "wordexp", "execveat", "execveat_number"] {
        for (command, expected) in [("sort", "apple fig pear "), ("sed s/p/q/", "qear aqple fig ")] {
            let said = programs.converse(&format!("inetd_shell_{call}"), command);
            assert_eq!(said, format!("shared=true {expected}"), "{call} {command}");
        }
    }
}
