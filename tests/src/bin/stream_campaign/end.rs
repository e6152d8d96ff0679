//! One end of a stream: a process and its output.

use std::io::{BufRead, BufReader, Read};
use std::process::ChildStdout;

use crate::{DEADLINE, Killed, Programs};

/// Ways to move bytes: threads, in turns, epoll level- and edge-triggered, poll, as a runtime of tasks, as a server of files, messages that
/// are larger than a ring.
pub(crate) const MODES: u64 = 8;
/// The last of them.
pub(crate) const MESSAGES: u64 = 7;
/// Faults of the processes themselves: none, forks, signals, both.
pub(crate) const FAULTS: u64 = 4;
/// Bit of the signals among the faults.
pub(crate) const SIGNALS: u64 = 2;

/// Report of an end about its transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// Bytes that it read.
    pub(crate) received: u64,
    /// True if the stream had left TCP.
    pub(crate) is_shared: bool,
    /// Bytes that came by TCP after that.
    pub(crate) by_tcp: u64,
}

/// A running end.
pub(crate) struct End {
    pub(crate) process: Killed,
    output: BufReader<ChildStdout>,
    count_file: std::path::PathBuf,
}

impl End {
    /// Starts an end that transfers `limit` bytes, or endlessly if `limit` is 0.
    pub(crate) fn start(
        programs: &Programs,
        side: &str,
        port: &str,
        [mode, faults]: [u64; 2],
        seed: u64,
        limit: u64,
    ) -> Result<Self, String> {
        let count_file = programs.folder().join(format!("{side}-{seed}"));
        let name = count_file.display().to_string();
        let [mode, seed, limit, faults] = [mode, seed, limit, faults].map(|number| number.to_string());
        let mut process = programs.start(&[side, port, &mode, &seed, &name, &limit, &faults])?;
        let output = process.0.stdout.take().ok_or("no output")?;
        Ok(Self { process, output: BufReader::new(output), count_file })
    }

    /// Returns the rest of the first line that begins with `word`.
    pub(crate) fn line(&mut self, word: &str) -> Result<String, String> {
        for line in (&mut self.output).lines() {
            let line = line.map_err(|error| error.to_string())?;
            if let Some(rest) = line.strip_prefix(word) {
                return Ok(rest.trim().to_owned());
            }
            if line.starts_with("FAILED") {
                return Err(line);
            }
        }
        Err(format!("an end did not say {word}"))
    }

    /// Waits for the end of the process. Returns what it says of the transfer.
    pub(crate) fn finish(&mut self) -> Result<Report, String> {
        let has_succeeded = self.process.wait(DEADLINE)?;
        let mut said = String::new();
        self.output.read_to_string(&mut said).map_err(|error| error.to_string())?;
        let end = said.lines().find_map(|line| line.strip_prefix("END ")).filter(|_| has_succeeded);
        let numbers = end.map(|end| end.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>());
        match numbers.as_ref().map(|numbers| numbers.as_deref()) {
            Some(Ok(&[received, shared, by_tcp])) => Ok(Report { received, is_shared: shared == 1, by_tcp }),
            _ => Err(said),
        }
    }

    /// Returns the number of bytes that `write` took in the transfer.
    pub(crate) fn written(&self) -> u64 {
        let bytes = std::fs::read(&self.count_file).unwrap_or_default();
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.count_file);
    }
}
