//! Runs the programs of shared pages, as a rank that `ddss dsm run` starts, or under each protocol; see `dsm-apps --help`.
#![forbid(unsafe_code)]

use ddss_apps::dsm::{Elements, Job, Program, Runner, Settings, Size, run_rank};
use ddss_dsm::{Ordering, Protocol, Stamps};
use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

const USAGE: &str = "\
usage: dsm-apps PROGRAM [--small] [--check] [--transparent]
       dsm-apps --all [PROGRAM].. [--ranks N]... [--small] [--check] [--transparent]

Programs on shared pages: barnes-hut, tsp, radix, 3d-fft. The first form is a rank
that `ddss dsm run` starts. The second form starts a node, runs each program on
one rank, and then with each protocol, ordering and kind of stamps on more ranks;
all have to come to the result of one rank.

  --all          runs the programs under each protocol [default: all programs]
  --ranks N      number of ranks; may come several times [default: 2, 4 and 8]
  --small        small problems instead of the paper's
  --check        checks each result by other means
  --transparent  uses page faults instead of views

  ddss dsm run -n 4 -- dsm-apps radix --check
  dsm-apps --all --small --check";

struct Options {
    has_all: bool,
    programs: Vec<Program>,
    ranks: Vec<u16>,
    size: Size,
    has_check: bool,
    elements: Elements,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h"] => writeln!(io::stdout(), "{USAGE}").map_err(Into::into),
        _ => Options::parse(&arguments).and_then(|options| options.run()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            has_all: false,
            programs: Vec::new(),
            ranks: Vec::new(),
            size: Size::Paper,
            has_check: false,
            elements: Elements::Views,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--all" => options.has_all = true,
                "--ranks" => options.ranks.push(words.next().ok_or(USAGE)?.parse::<u16>()?.clamp(1, 16)),
                "--small" => options.size = Size::Small,
                "--check" => options.has_check = true,
                "--transparent" => options.elements = Elements::PageFaults,
                program => options.programs.push(program.parse()?),
            }
        }
        if options.ranks.is_empty() {
            options.ranks = vec![2, 4, 8];
        }
        Ok(options)
    }

    fn job(&self, program: Program) -> Job {
        Job { program, size: self.size, has_check: self.has_check, elements: self.elements }
    }

    fn run(&self) -> Result<(), Box<dyn Error>> {
        match self.programs[..] {
            _ if self.has_all => self.run_all(),
            [program] => {
                if let Some(report) = run_rank(self.job(program))? {
                    writeln!(io::stdout(), "{}\n{}", report.result, report.counts)?;
                }
                Ok(())
            }
            _ => Err(USAGE.into()),
        }
    }

    fn run_all(&self) -> Result<(), Box<dyn Error>> {
        let runner = Runner::start(env::current_exe()?)?;
        let programs = if self.programs.is_empty() { &Program::ALL[..] } else { &self.programs };
        let mut out = io::stdout();
        for program in programs {
            let one = Settings {
                ranks: 1,
                protocol: Protocol::NewGenDsm,
                ordering: Ordering::Stamped,
                stamps: Stamps::PerHome,
            };
            let by_views = Job { elements: Elements::Views, ..self.job(*program) };
            let expected = runner.run(by_views, one)?.result;
            writeln!(out, "{program}: {expected}")?;
            for settings in self.ranks.iter().flat_map(|ranks| Settings::all(*ranks)) {
                let found = runner.run(self.job(*program), settings)?;
                if found.result != expected {
                    return Err(format!("{program}, {settings}: {} instead of {expected}", found.result).into());
                }
                writeln!(out, "{program}, {settings}: the same; {}", found.counts)?;
            }
        }
        Ok(())
    }
}
