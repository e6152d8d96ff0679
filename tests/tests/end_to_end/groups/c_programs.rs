//! Programs in C on shared pages: the calls of the library, TreadMarks, PARMACS.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ddss_testkit::{Daemon, binary, dsm_library, repo_lints, skipped};

/// Options of the compiler: as it is, and with a check of each access.
const WAYS: [&[&str]; 2] = [&["-O2"], &["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]];

struct Compiler {
    daemon: Daemon,
    library: PathBuf,
    headers: PathBuf,
    sources: PathBuf,
}

impl Compiler {
    /// `None` without a compiler.
    fn find(test: &str) -> Option<Self> {
        if !Command::new("cc").arg("--version").output().is_ok_and(|found| found.status.success()) {
            skipped(test, "there is no cc");
            return None;
        }
        let root = repo_lints::workspace_root();
        let (headers, sources) = (root.join("bindings/c/dsm/include"), root.join("tests/tests/end_to_end/groups/c"));
        Some(Self { daemon: Daemon::start(1).unwrap(), library: dsm_library().unwrap(), headers, sources })
    }

    fn source(&self, name: &str) -> PathBuf {
        self.sources.join(name)
    }

    /// Compiles a source, and links the shared library, or the static one.
    fn compile(&self, source: &Path, options: &[&str], is_static: bool) -> PathBuf {
        let program = self.daemon.folder().join(source.file_stem().unwrap());
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror"]).args(options).arg("-I").arg(&self.headers);
        cc.arg("-o").arg(&program).arg(source);
        if is_static {
            cc.arg(self.library.with_extension("a")).args(["-lgcc_s", "-lpthread", "-ldl", "-lm"]);
        } else {
            let folder = self.library.parent().unwrap();
            cc.arg("-L").arg(folder).arg("-lddss_dsm_c").arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        let Output { status, stderr, .. } = cc.output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        program
    }

    /// Runs so many ranks of a program. Returns whether it ended well, and what it said.
    fn run(&self, options: &[&str], ranks: u16, program: &Path, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(binary("ddss").unwrap());
        command.env("DDSS_DIR", self.daemon.folder()).args(["dsm", "run", "-n", &ranks.to_string()]).args(options);
        // The search for leaks traces the process, which not each container permits.
        command.env("ASAN_OPTIONS", "detect_leaks=0").arg("--").arg(program).args(arguments);
        let Output { status, stdout, stderr } = command.output().unwrap();
        (status.success(), [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat())
    }
}

// If this failed, programs in C would crash where Rust returns an error, or would not see what others wrote.
#[test]
fn calls_from_c_check_their_arguments_and_do_what_they_say() {
    let Some(compiler) = Compiler::find("calls_from_c_check_their_arguments_and_do_what_they_say") else { return };
    for (options, is_static) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let program = compiler.compile(&compiler.source("calls.c"), options, is_static);
        for ranks in if is_static { &[2][..] } else { &[1, 4] }.iter().copied() {
            let (is_good, said) = compiler.run(&["--same-addresses"], ranks, &program, &[]);
            assert!(is_good, "{said}");
            assert_eq!(said.matches("is content").count(), usize::from(ranks), "{said}");
        }
        let (is_good, said) = compiler.run(&[], 3, &program, &["die"]);
        assert!(!is_good && said.matches("rank 1 is lost\n").count() == 2, "{said}");
    }
}

// If this failed, a program for TreadMarks would compute something else, or get variables of other processes at wrong addresses.
#[test]
fn stencil_of_treadmarks_equals_that_of_one_process() {
    let Some(compiler) = Compiler::find("stencil_of_treadmarks_equals_that_of_one_process") else { return };
    let check = |program: &Path, ranks: u16, protocol: &str| {
        let (is_good, said) = compiler.run(&["--same-addresses", "--protocol", protocol], ranks, program, &[]);
        assert!(is_good, "{said}");
        assert!(said.contains(&format!("the plate of {ranks} processes equals that of one\n")), "{said}");
    };
    let source = compiler.source("stencil.c");
    for options in WAYS {
        let program = compiler.compile(&source, options, false);
        for (ranks, protocol) in [(2, "newgendsm"), (4, "newgendsm"), (4, "async"), (2, "draw"), (4, "ardmar")] {
            check(&program, ranks, protocol);
        }
        // Programs lie at random addresses, which are never the same for four of them.
        let (is_good, said) = compiler.run(&[], 4, &program, &[]);
        assert!(!is_good && said.contains("start it with `ddss dsm run --same-addresses`"), "{said}");
        check(&compiler.compile(&source, options, true), 2, "newgendsm");
    }
}

// If this failed, processes of a program for PARMACS would work with other variables than those of the first one.
#[test]
fn program_with_the_macros_of_parmacs_has_the_result_of_one_process() {
    let test = "program_with_the_macros_of_parmacs_has_the_result_of_one_process";
    if !Command::new("m4").arg("--version").output().is_ok_and(|found| found.status.success()) {
        return skipped(test, "there is no m4");
    }
    let Some(compiler) = Compiler::find(test) else { return };
    let expand = |words: &[&str]| {
        let mut m4 = Command::new("m4");
        m4.args(words).arg(compiler.headers.join("parmacs.m4")).arg(compiler.source("histogram.C"));
        let Output { status, stdout, stderr } = m4.output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let source = compiler.daemon.folder().join("histogram.c");
        std::fs::write(&source, stdout).unwrap();
        source
    };
    for (options, words) in WAYS.into_iter().flat_map(|way| [(way, &[][..]), (way, &["-DALL_AT_ONCE"])]) {
        let source = expand(words);
        let program = compiler.compile(&source, options, false);
        for ranks in [1_u16, 2, 4] {
            let count = ranks.to_string();
            let (is_good, said) = compiler.run(&["--same-addresses"], ranks, &program, &[&count]);
            assert!(is_good, "{said}");
            assert!(said.contains(&format!("the product of {ranks} processes is right\n")), "{said}");
        }
        let (is_good, said) = compiler.run(&["--same-addresses"], 4, &program, &["2"]);
        assert!(!is_good && said.contains("BARRIER: of 2 processes, and the space has 4"), "{said}");
        let program = compiler.compile(&source, options, true);
        let (is_good, said) = compiler.run(&["--same-addresses"], 2, &program, &["2"]);
        assert!(!is_good && said.contains("link the shared library"), "{said}");
    }
}
