//! Filters as processes, from the first to the last.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ddss_testkit::Process;

use super::frame::{Frame, FrameReader, FrameWriter};
use super::link::{LinkKind, wait_readable};
use crate::Error;

/// Maximum time until a process listens, and until it ends after the last query.
const PROCESS_MAX: Duration = Duration::from_secs(60);

/// Command line of one filter.
#[derive(Clone, Debug)]
pub struct StageCommand {
    /// Name of the filter, for messages.
    pub name: &'static str,
    /// Arguments of the program in front of the options of the link.
    pub arguments: Vec<String>,
}

/// Parameters of a filter group.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Program of all filters. It is called with the arguments of the stage, then `--input KIND --output KIND ADDRESS --folder DIR`,
    /// and prints its own address as its first line.
    pub program: PathBuf,
    /// Filters from the first to the last.
    pub stages: Vec<StageCommand>,
    /// Kind of the streams between filters.
    pub link: LinkKind,
    /// Directory for sockets and output of the processes.
    pub folder: PathBuf,
    /// Maximum time until the next unit of an answer.
    pub unit_max: Duration,
}

/// An answer to one query.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Bytes of the units that the last filter sent, in order.
    pub bytes: Vec<u8>,
    /// Time from the query to the end of the answer.
    pub elapsed: Duration,
}

/// Running filters. They are killed when this value is dropped.
#[derive(Debug)]
pub struct FilterGroup {
    processes: Vec<(&'static str, Process)>,
    to_first: FrameWriter<UnixStream>,
    from_last: FrameReader<UnixStream>,
}

impl FilterGroup {
    /// Starts the filters, the last one first: each gets the address of the next.
    pub fn start(config: &GroupConfig) -> Result<Self, Error> {
        let socket = config.folder.join("answers.sock");
        let listener = UnixListener::bind(&socket).map_err(Error::system("listening for answers"))?;
        let mut processes = Vec::new();
        let (mut output, mut address) = (LinkKind::Unix, text(&socket));
        for (place, stage) in config.stages.iter().enumerate().rev() {
            let input = if place == 0 { LinkKind::Unix } else { config.link };
            let mut command = Command::new(&config.program);
            command.args(&stage.arguments);
            command.args(["--input", &input.to_string(), "--output", &output.to_string(), &address]);
            command.arg("--folder").arg(&config.folder);
            let mut process = Process::start(command, &config.folder, stage.name)?;
            process.wait_until(PROCESS_MAX, |process| process.stdout().contains('\n'))?;
            address = process.stdout().lines().next().unwrap_or_default().to_owned();
            output = config.link;
            processes.insert(0, (stage.name, process));
        }
        let connected = || -> io::Result<(UnixStream, UnixStream)> {
            let to_first = UnixStream::connect(&address)?;
            wait_readable(listener.as_fd())?;
            let (from_last, _) = listener.accept()?;
            from_last.set_read_timeout(Some(config.unit_max))?;
            to_first.set_write_timeout(Some(config.unit_max))?;
            Ok((to_first, from_last))
        };
        let (to_first, from_last) = connected().map_err(Error::system("connecting to the filters"))?;
        Ok(Self { processes, to_first: FrameWriter::new(to_first), from_last: FrameReader::new(from_last) })
    }

    /// Returns the process ids, from the first filter to the last.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|(_, process)| process.pid()).collect()
    }

    /// Sends a query and waits for its answer. If a filter ends early, the error names it.
    pub fn ask(&mut self, query: &[u8]) -> Result<Answer, Error> {
        let begin = Instant::now();
        let mut answer = Answer::default();
        exchange(&mut self.to_first, &mut self.from_last, query, &mut answer).map_err(|error| self.blame(error))?;
        answer.elapsed = begin.elapsed();
        Ok(answer)
    }

    /// Lets the filters end. Returns the last line of each: the number of units and bytes that it sent.
    pub fn finish(mut self) -> Result<Vec<(&'static str, String)>, Error> {
        let closed = self.to_first.write(Frame::Close).and_then(|()| match self.from_last.read()? {
            Frame::Close => Ok(()),
            frame => Err(io::Error::other(format!("{frame:?} instead of the end"))),
        });
        closed.map_err(|error| self.blame(error))?;
        let mut lines = Vec::new();
        for (name, process) in &mut self.processes {
            match process.wait(PROCESS_MAX)? {
                Some(status) if status.success() => {}
                status => return Err(ended(name, &format!("{status:?}"), process)),
            }
            lines.push((*name, process.stdout().lines().last().unwrap_or_default().to_owned()));
        }
        Ok(lines)
    }

    /// Names the filter that ended early: one that a signal killed, else the first that failed.
    fn blame(&mut self, error: io::Error) -> Error {
        use std::os::unix::process::ExitStatusExt;
        let mut failed = None;
        for (name, process) in &mut self.processes {
            // The neighbours of a dead filter end soon after it.
            let Ok(Some(status)) = process.wait(Duration::from_millis(200)) else { continue };
            if status.signal().is_some() {
                return ended(name, &status.to_string(), process);
            }
            if !status.success() && failed.is_none() {
                failed = Some(ended(name, &status.to_string(), process));
            }
        }
        failed.unwrap_or_else(|| Error::system("waiting for the answer of the filters")(error))
    }
}

fn exchange(
    to_first: &mut FrameWriter<impl Write>,
    from_last: &mut FrameReader<impl Read>,
    query: &[u8],
    answer: &mut Answer,
) -> io::Result<()> {
    to_first.write(Frame::Begin(query))?;
    to_first.write(Frame::End)?;
    let mut has_begun = false;
    loop {
        match from_last.read()? {
            Frame::Begin(_) if !has_begun => has_begun = true,
            Frame::Unit(unit) if has_begun => answer.bytes.extend_from_slice(unit),
            Frame::End if has_begun => return Ok(()),
            frame => return Err(io::Error::other(format!("{frame:?} out of its order"))),
        }
    }
}

fn ended(name: &str, status: &str, process: &Process) -> Error {
    let words = process.stderr();
    let words = words.trim();
    let colon = if words.is_empty() { "" } else { ": " };
    super::query::refused(format!("the process of {name} ended early ({status}){colon}{words}"))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
