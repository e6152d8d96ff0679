//! Runs the programs of flows, each process a member on one of two nodes; see `river-apps --help`.
#![forbid(unsafe_code)]

use ddss_apps::river::{Form, Job, Keys, Program, Runner, run_member};
use ddss_testkit::TempNode;
use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: river-apps copy|sort|join|load|--all [--form FORM] [--keys KEYS] [--processes N] [--records N]
                                            [--directory DIR] [--check] [--kill]

Runs each program in processes on two nodes, on inputs that it makes.

  --form FORM      queues: any process takes the next piece of work; static: process i does part i [default: both]
  --keys KEYS      even or zipf: how often the keys of a sort and a join come [default: both]
  --processes N    processes, and parts of each input [default: 3]
  --records N      records of 100 bytes in each part [default: 40000]
  --directory DIR  where inputs and outputs stay [default: a temporary directory]
  --check          compares each output with that of `sort` and `join`, or with a direct computation
  --kill           kills another process that has joined, in the form with queues

  river-apps --all --check
  river-apps sort --form queues --records 1000000 --directory /tmp/sort";

struct Options {
    programs: Vec<Program>,
    forms: Vec<Form>,
    keys: Vec<Keys>,
    processes: u16,
    records: u64,
    directory: Option<PathBuf>,
    has_check: bool,
    has_kill: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h"] => writeln!(io::stdout(), "{USAGE}").map_err(Into::into),
        ["member", ..] => run_member(&arguments[1..]).map_err(Into::into),
        _ => Options::parse(&arguments).and_then(|options| options.run()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Returns an error with its causes.
fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            programs: Vec::new(),
            forms: Form::ALL.to_vec(),
            keys: Keys::ALL.to_vec(),
            processes: 3,
            records: 40_000,
            directory: None,
            has_check: false,
            has_kill: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(USAGE);
            match word.as_str() {
                "--all" => options.programs = Program::ALL.to_vec(),
                "--form" => options.forms = vec![value()?.parse()?],
                "--keys" => options.keys = vec![value()?.parse()?],
                "--processes" => options.processes = value()?.parse::<u16>()?.clamp(1, 15),
                "--records" => options.records = value()?.parse::<u64>()?.clamp(1, 10_000_000),
                "--directory" => options.directory = Some(value()?.into()),
                "--check" => options.has_check = true,
                "--kill" => options.has_kill = true,
                program => options.programs.push(program.parse()?),
            }
        }
        if options.programs.is_empty() { Err(USAGE.into()) } else { Ok(options) }
    }

    fn run(&self) -> Result<(), Box<dyn Error>> {
        let runner = Runner::start(env::current_exe()?)?;
        let temporary = TempNode::new()?;
        let directory = self.directory.as_deref().unwrap_or(temporary.path());
        for job in self.jobs() {
            let job = Job { directory: directory.join(job.flow()), ..job };
            runner.prepare(&job, self.records)?;
            if self.has_kill && job.form == Form::Queues {
                let pieces = runner.run_with_a_kill(&job)?;
                writeln!(io::stdout(), "{}: killed a process with {pieces} pieces in work", job.program)?;
            } else {
                runner.run(&job)?;
            }
            let checked = if self.has_check { runner.check(&job)? } else { "not checked".to_owned() };
            writeln!(io::stdout(), "{}, {}, {} keys: {checked}", job.program, job.form, job.keys)?;
        }
        Ok(())
    }

    /// Returns the jobs without their directories. Keys matter only to a sort and a join.
    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for program in &self.programs {
            let keys = match program {
                Program::Sort | Program::Join => &self.keys[..],
                Program::Copy | Program::Load => &[Keys::Even],
            };
            let each = |form: &Form, keys: &Keys| {
                let (form, keys, processes) = (*form, *keys, self.processes);
                Job { program: *program, form, keys, processes, directory: PathBuf::new() }
            };
            jobs.extend(self.forms.iter().flat_map(|form| keys.iter().map(move |keys| each(form, keys))));
        }
        jobs
    }
}
