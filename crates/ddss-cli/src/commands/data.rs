//! The commands that move bytes: get, put, hexdump, watch, and release.

use super::segment_query::find_segments;
use crate::arguments::{GetOptions, PutOptions, RangeOptions, ReleaseOptions, WatchOptions};
use crate::confirm::confirm;
use crate::connect::{connect, open};
use crate::error::{CommandError, WRITE_STDOUT};
use crate::glob::Glob;
use crate::output::terminal_text::{is_printable_text, print_note, print_warning, write_line};
use ddss::{Segment, Stamp, Table};
use serde_json::{Value, json};
use std::io::{IsTerminal, Read, Write};

pub(crate) fn stamp_json(stamp: Stamp) -> Value {
    json!({ "version": stamp.version.0, "timestamp_us": stamp.timestamp.micros() })
}

pub(crate) fn get(options: &GetOptions, json: bool) -> Result<(), CommandError> {
    let RangeOptions { named, offset, length } = &options.range;
    let segment = open(named)?;
    if length.is_none() && *offset > segment.len() {
        return Err(out_of_range(&segment, *offset));
    }
    if length.is_none()
        && let Ok(table) = <Table>::try_from(segment.clone())
        && table.len() > 1
    {
        let (name, row) = (&named.name, table.row_len());
        let way = format!("read one row, such as the second: `ddss get {name} --offset {row} --length {row}`");
        return Err(CommandError::Refused(format!(
            "cannot read {name} whole, it is a table of {row} bytes a row: {way}"
        )));
    }
    let end = length.map_or(segment.len(), |length| offset.saturating_add(length));
    let value = match options.version {
        Some(version) => segment.get_with(*offset..end, ddss::GetOptions::new().at_version(ddss::Version(version)))?,
        None => {
            let progress = Progress::new(end.saturating_sub(*offset));
            let mut at = |done, _| progress.at(done);
            segment.get_with(*offset..end, ddss::GetOptions::new().progress(&mut at))?
        }
    };
    if json {
        let mut answer = stamp_json(value.stamp);
        match options.kind {
            Some(kind) => answer["value"] = kind.decode(&value)?,
            None => answer["hex"] = value.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
        }
        println!("{answer}");
        return Ok(());
    }
    if let Some(kind) = options.kind {
        println!("{}", kind.format(&value)?);
        return Ok(());
    }
    to_stdout(&value, &named.name)
}

/// Writes bytes to standard output. A pipe gets them unchanged. A terminal gets only text, with a final line end for the prompt.
fn to_stdout(bytes: &[u8], name: &str) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    let is_seen = out.is_terminal();
    if is_seen && !is_printable_text(bytes) {
        let ways = format!("use `ddss hexdump {name}` or --as, or redirect them into a file or a pipe");
        return Err(CommandError::Refused(format!("cannot show these bytes in a terminal, they are not text: {ways}")));
    }
    let last = if is_seen && !bytes.ends_with(b"\n") { &b"\n"[..] } else { b"" };
    let written = out.write_all(bytes).and_then(|()| out.write_all(last)).and_then(|()| out.flush());
    written.map_err(CommandError::system(WRITE_STDOUT))
}

pub(crate) fn put(options: &PutOptions, json: bool) -> Result<(), CommandError> {
    let mut bytes = Vec::new();
    if options.bytes == "-" {
        let limit = Segment::VALUE_BYTES_MAX as u64 + 1;
        let mut input = std::io::stdin().lock().take(limit);
        input.read_to_end(&mut bytes).map_err(CommandError::system("read standard input"))?;
    } else {
        bytes.extend_from_slice(options.bytes.as_bytes());
    }
    if let Some(kind) = options.kind {
        let words = String::from_utf8(bytes)
            .map_err(|_| CommandError::InvalidInput("the input is not UTF-8 text".to_owned()))?;
        bytes = kind.encode(words.trim_end_matches('\n'))?;
    }
    let segment = open(&options.named)?;
    let progress = Progress::new(bytes.len() as u64);
    let mut at = |done, _| progress.at(done);
    let with = ddss::PutOptions::new().progress(&mut at);
    let with = match options.if_version {
        Some(version) => with.if_version(ddss::Version(version)),
        None => with,
    };
    let stamp = segment.put_with(&[(options.offset, &bytes)], with)?;
    drop(progress);
    if json {
        println!("{}", stamp_json(stamp));
    } else {
        println!("{} bytes, now {}", bytes.len(), stamp.version);
    }
    Ok(())
}

fn out_of_range(segment: &Segment, byte: u64) -> CommandError {
    CommandError::InvalidInput(format!("{} has {} bytes, byte {byte} is out of range", segment.name(), segment.len()))
}

/// Returns the number of bytes to show from `offset`. A requested length must fit; the default is shortened to the segment.
pub(crate) fn resolve_length(
    segment: &Segment,
    offset: u64,
    asked: Option<u64>,
    usual: u64,
) -> Result<u64, CommandError> {
    let Some(there) = segment.len().checked_sub(offset) else { return Err(out_of_range(segment, offset)) };
    match asked {
        None => Ok(usual.min(there)),
        Some(length) if length <= there => Ok(length),
        Some(length) => Err(out_of_range(segment, offset.saturating_add(length - 1))),
    }
}

/// Formats a line of sixteen bytes in the format of `hexdump -C`.
fn dump_line(offset: u64, bytes: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>();
    let (left, right) = bytes.split_at(bytes.len().min(8));
    let letter = |&byte: &u8| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' };
    let text: String = bytes.iter().map(letter).collect();
    format!("{offset:08x}  {:<24} {:<24} |{text}|", hex(left), hex(right))
}

/// The parts of a segment that one call can move: rows of a table, or as much as a transfer takes.
pub(crate) struct Pieces {
    row_bytes: Option<u64>,
}

impl Pieces {
    pub(crate) fn of(segment: &Segment) -> Self {
        Self { row_bytes: <Table>::try_from(segment.clone()).ok().map(|table| table.row_len()) }
    }

    /// Returns the end of the piece at `at`, at most `end`.
    pub(crate) fn end(&self, at: u64, end: u64) -> u64 {
        let piece = self.row_bytes.map_or(Segment::TRANSFER_BYTES_MAX as u64, |row| row - at % row);
        end.min(at + piece)
    }

    /// Returns true if all pieces of a reading should have one version. Each row of a table has its own.
    pub(crate) fn share_version(&self) -> bool {
        self.row_bytes.is_none()
    }
}

pub(crate) fn hexdump(options: &RangeOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&options.named)?;
    let end = options.offset + resolve_length(&segment, options.offset, options.length, u64::MAX)?;
    let mut out = std::io::stdout().lock();
    let mut at = options.offset;
    let mut last: Option<Vec<u8>> = None;
    let (mut same, mut versions, pieces) = (false, None, Pieces::of(&segment));
    while at < end {
        let value = segment.get(at..pieces.end(at, end))?;
        let (first, _) = versions.unwrap_or((value.version(), value.version()));
        versions = Some((first, value.version()));
        for line in value.chunks(16) {
            let repeated = last.as_deref() == Some(line);
            let written = match (repeated, same) {
                // JSON has every line, without the text column.
                _ if json => {
                    let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
                    writeln!(out, "{}", json!({ "offset": at, "hex": hex }))
                }
                (true, true) => Ok(()),
                (true, false) => writeln!(out, "*"),
                (false, _) => writeln!(out, "{}", dump_line(at, line)),
            };
            written.map_err(CommandError::system(WRITE_STDOUT))?;
            same = repeated;
            last = Some(line.to_vec());
            at += line.len() as u64;
        }
    }
    if !json {
        writeln!(out, "{end:08x}").map_err(CommandError::system(WRITE_STDOUT))?;
    }
    if let Some((first, last)) = versions.filter(|(first, last)| first != last && pieces.share_version()) {
        print_warning(&format!(
            "the segment changed during the dump, from {first} to {last}: its parts are of different versions"
        ));
    }
    Ok(())
}

/// A progress bar on a terminal; silent elsewhere.
pub(crate) struct Progress {
    total: u64,
    shown: bool,
}

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        Self { total, shown: total > 8 << 20 && std::io::stderr().is_terminal() }
    }

    pub(crate) fn at(&self, done: u64) {
        if self.shown {
            let percent = done * 100 / self.total.max(1);
            let bars = "#".repeat(percent as usize / 4);
            // A closed standard error is no reason to stop.
            let _ =
                write!(std::io::stderr(), "\r[{bars:<25}] {percent:3} %  {} of {} MiB", done >> 20, self.total >> 20);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            print_note("");
        }
    }
}

pub(crate) fn watch(options: &WatchOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&options.named)?;
    let mut out = std::io::stdout().lock();
    let mut left = options.count;
    for stamp in segment.watch() {
        let stamp = stamp?;
        let mut line = if json { stamp_json(stamp) } else { Value::Null };
        let words = match options.kind {
            None => String::new(),
            Some(kind) => {
                let end = options.length.map_or(segment.len(), |length| options.offset.saturating_add(length));
                let value = segment.get(options.offset..end)?;
                if json {
                    line["value"] = kind.decode(&value)?;
                    String::new()
                } else {
                    format!("  {}", kind.format(&value)?)
                }
            }
        };
        let written = if json {
            writeln!(out, "{line}")
        } else {
            write_line(&mut out, format_args!("{}  {}{words}", stamp.version, stamp.timestamp))
        };
        match written.and_then(|()| out.flush()) {
            // The reader has closed the pipe and wants no more versions.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(CommandError::system(WRITE_STDOUT))?,
        }
        left = left.map(|left| left.saturating_sub(1));
        if left == Some(0) {
            return Ok(());
        }
    }
    // The watch ends with the segment.
    Ok(segment.stat().map(drop)?)
}

/// Expands the patterns among the names; asks for confirmation if a pattern matched.
fn expand_names(options: &ReleaseOptions) -> Result<Vec<String>, CommandError> {
    let mut names = Vec::new();
    let mut matched = false;
    for word in &options.names {
        if !Glob::new(word).is_pattern() {
            names.push(word.clone());
            continue;
        }
        let found = find_segments(&options.place, Some(word))?;
        matched |= !found.is_empty();
        names.extend(found.iter().map(|listing| listing.name.to_string()));
    }
    names.sort_unstable();
    names.dedup();
    if matched && !options.yes {
        names.iter().for_each(|name| print_note(name));
        confirm(&format!("Release these {}?", names.len()), options.yes)?;
    }
    Ok(names)
}

pub(crate) fn release(options: &ReleaseOptions, json: bool) -> Result<(), CommandError> {
    let client = connect(&options.place)?;
    let names = expand_names(options)?;
    // All segments are opened first, so that a missing name is reported before any release.
    let segments = names.iter().map(|name| client.segment(name).open()).collect::<Result<Vec<_>, _>>()?;
    let mut released = Vec::new();
    let ended = segments.into_iter().try_for_each(|segment| {
        let name = segment.name().to_owned();
        segment.release()?;
        if !json {
            println!("{name}: released");
        }
        released.push(name);
        Ok(())
    });
    if json {
        println!("{}", json!({ "released": released }));
    } else if ended.is_ok() && released.is_empty() {
        println!("no segment matches");
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_line_has_the_format_of_hexdump() {
        let line = dump_line(16, b"0123456789ab\0");
        assert_eq!(line, "00000010  30 31 32 33 34 35 36 37  38 39 61 62 00           |0123456789ab.|");
    }
}
