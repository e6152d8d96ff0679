//! The commands that move bytes: get, put, hexdump, export, import, watch.

use super::segments::matching;
use crate::arguments::{
    ExportOptions, GetOptions, HexdumpOptions, ImportOptions, PutOptions, ReleaseOptions, WatchOptions,
};
use crate::confirm::confirm;
use crate::connect::{connect, open};
use crate::error::{CommandError, WRITE_OUT};
use crate::glob::Glob;
use crate::output::table::time_in_words;
use crate::output::terminal_text::{complain, is_shown_as_it_is, note, told};
use ddss::{LockOptions, Segment, Spec, Stamp};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::time::Duration;

/// How long a large file may take to come in: as long as a lock may be held at all.
const IMPORT_MAX: Duration = Duration::from_secs(600);

pub(crate) fn stamp_json(stamp: Stamp) -> Value {
    json!({ "version": stamp.version.0, "timestamp_us": stamp.timestamp.micros() })
}

pub(crate) fn get(wanted: &GetOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&wanted.named)?;
    if wanted.length.is_none() && wanted.offset > segment.bytes() {
        return Err(no_such_byte(&segment, wanted.offset));
    }
    let end = wanted.length.map_or(segment.bytes(), |length| wanted.offset.saturating_add(length));
    let value = match wanted.version {
        Some(version) => segment.get_at(ddss::Version(version), wanted.offset..end)?,
        None => segment.get(wanted.offset..end)?,
    };
    if json {
        let mut answer = stamp_json(value.stamp());
        match wanted.kind {
            Some(kind) => answer["value"] = kind.read(&value)?,
            None => answer["hex"] = value.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
        }
        println!("{answer}");
        return Ok(());
    }
    if let Some(kind) = wanted.kind {
        println!("{}", kind.in_words(&value)?);
        return Ok(());
    }
    to_stdout(&value, &wanted.named.name)
}

/// A pipe or a file gets the bytes as they are. A person gets them if they are text, with the line's end that a prompt needs.
fn to_stdout(bytes: &[u8], name: &str) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    let is_seen = out.is_terminal();
    if is_seen && !is_shown_as_it_is(bytes) {
        let ways = format!("look with `ddss hexdump {name}` or --as, or send them into a file or a pipe");
        return Err(CommandError::Refused(format!("these bytes are no text that a terminal could show: {ways}")));
    }
    let last = if is_seen && !bytes.ends_with(b"\n") { &b"\n"[..] } else { b"" };
    let written = out.write_all(bytes).and_then(|()| out.write_all(last)).and_then(|()| out.flush());
    written.map_err(CommandError::system(WRITE_OUT))
}

pub(crate) fn put(given: &PutOptions, json: bool) -> Result<(), CommandError> {
    let mut bytes = Vec::new();
    if given.bytes == "-" {
        let limit = Segment::TRANSFER_BYTES_MAX as u64 + 1;
        let mut input = std::io::stdin().lock().take(limit);
        input.read_to_end(&mut bytes).map_err(CommandError::system("read standard input"))?;
    } else {
        bytes.extend_from_slice(given.bytes.as_bytes());
    }
    if let Some(kind) = given.kind {
        let words = String::from_utf8(bytes).map_err(|_| CommandError::Kind("the input is no text".to_owned()))?;
        bytes = kind.write(words.trim_end_matches('\n'))?;
    }
    let segment = open(&given.named)?;
    let stamp = match given.if_version {
        Some(version) => segment.put_if(ddss::Version(version), given.offset, &bytes)?,
        None => segment.put(given.offset, &bytes)?,
    };
    if json {
        println!("{}", stamp_json(stamp));
    } else {
        println!("{} bytes, now {}", bytes.len(), stamp.version);
    }
    Ok(())
}

fn no_such_byte(segment: &Segment, byte: u64) -> CommandError {
    CommandError::Kind(format!("{} has {} bytes: there is no byte {byte}", segment.name(), segment.bytes()))
}

/// How many bytes are shown from there on: as many as were asked for, which have to be there, or else as many as usual, if there are.
pub(crate) fn length_of(segment: &Segment, offset: u64, asked: Option<u64>, usual: u64) -> Result<u64, CommandError> {
    let Some(there) = segment.bytes().checked_sub(offset) else { return Err(no_such_byte(segment, offset)) };
    match asked {
        None => Ok(usual.min(there)),
        Some(length) if length <= there => Ok(length),
        Some(length) => Err(no_such_byte(segment, offset.saturating_add(length - 1))),
    }
}

/// Sixteen bytes a line, as `hexdump -C` writes them.
fn dump_line(offset: u64, bytes: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>();
    let (left, right) = bytes.split_at(bytes.len().min(8));
    let letter = |&byte: &u8| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' };
    let text: String = bytes.iter().map(letter).collect();
    format!("{offset:08x}  {:<24} {:<24} |{text}|", hex(left), hex(right))
}

pub(crate) fn hexdump(wanted: &HexdumpOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&wanted.named)?;
    let end = wanted.offset + length_of(&segment, wanted.offset, wanted.length, u64::MAX)?;
    let mut out = std::io::stdout().lock();
    let mut at = wanted.offset;
    let mut last: Option<Vec<u8>> = None;
    let (mut same, mut versions) = (false, None);
    while at < end {
        let value = segment.get(at..end.min(at + Segment::TRANSFER_BYTES_MAX as u64))?;
        let (first, _) = versions.unwrap_or((value.version(), value.version()));
        versions = Some((first, value.version()));
        for line in value.chunks(16) {
            let repeated = last.as_deref() == Some(line);
            let written = match (repeated, same) {
                // A script wants each line, and needs no picture of letters.
                _ if json => {
                    let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
                    writeln!(out, "{}", json!({ "offset": at, "hex": hex }))
                }
                (true, true) => Ok(()),
                (true, false) => writeln!(out, "*"),
                (false, _) => writeln!(out, "{}", dump_line(at, line)),
            };
            written.map_err(CommandError::system(WRITE_OUT))?;
            same = repeated;
            last = Some(line.to_vec());
            at += line.len() as u64;
        }
    }
    if !json {
        writeln!(out, "{end:08x}").map_err(CommandError::system(WRITE_OUT))?;
    }
    if let Some((first, last)) = versions.filter(|(first, last)| first != last) {
        complain(&format!(
            "the segment changed meanwhile, from {first} to {last}: its parts are of different versions"
        ));
    }
    Ok(())
}

/// Tells a terminal how far it is; silent elsewhere.
struct Progress {
    total: u64,
    shown: bool,
}

impl Progress {
    fn new(total: u64) -> Self {
        Self { total, shown: total > 8 << 20 && std::io::stderr().is_terminal() }
    }

    fn at(&self, done: u64) {
        if self.shown {
            let percent = done * 100 / self.total.max(1);
            let bars = "#".repeat(percent as usize / 4);
            // Who does not watch it is no reason to stop.
            let _ =
                write!(std::io::stderr(), "\r[{bars:<25}] {percent:3} %  {} of {} MiB", done >> 20, self.total >> 20);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            note("");
        }
    }
}

pub(crate) fn export(wanted: &ExportOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&wanted.named)?;
    let mut file = File::create(&wanted.file).map_err(CommandError::file("make", &wanted.file))?;
    let progress = Progress::new(segment.bytes());
    let (mut at, mut stamps) = (0, Vec::new());
    while at < segment.bytes() {
        let value = segment.get(at..segment.bytes().min(at + Segment::TRANSFER_BYTES_MAX as u64))?;
        file.write_all(&value).map_err(CommandError::file("write", &wanted.file))?;
        at += value.len() as u64;
        stamps.push(value.stamp());
        progress.at(at);
    }
    file.sync_all().map_err(CommandError::file("write", &wanted.file))?;
    drop(progress);
    let whole = stamps.windows(2).all(|pair| pair[0].version == pair[1].version);
    let version = stamps.last().map_or(0, |stamp| stamp.version.0);
    if json {
        println!("{}", json!({ "bytes": at, "version": version, "one_version": whole }));
    } else {
        println!("{at} bytes to {}, version {version}", wanted.file.display());
    }
    if whole { Ok(()) } else { Err(CommandError::Mixed) }
}

pub(crate) fn import(wanted: &ImportOptions, json: bool) -> Result<(), CommandError> {
    // What is no file is not opened: a named pipe would wait for who writes into it.
    let found = std::fs::metadata(&wanted.file).map_err(CommandError::file("open", &wanted.file))?;
    if !found.is_file() {
        let path = wanted.file.display();
        let way = "a pipe's bytes are put by `ddss put NAME -`";
        return Err(CommandError::Refused(format!("{path} is no regular file, so nobody knows its size: {way}")));
    }
    let mut file = File::open(&wanted.file).map_err(CommandError::file("open", &wanted.file))?;
    let bytes = file.metadata().map_err(CommandError::file("look at", &wanted.file))?.len();
    let client = connect(&wanted.named.place)?;
    let segment = match client.open(&wanted.named.name) {
        Err(error) if error.failure() == Some(ddss::Failure::NotFound) => {
            client.allocate(&wanted.named.name, Spec::new(bytes))?
        }
        found => found?,
    };
    if bytes > segment.bytes() {
        return Err(CommandError::Kind(format!(
            "{} has {bytes} bytes, and {} only {}: release it, and it is made anew",
            wanted.file.display(),
            segment.name(),
            segment.bytes()
        )));
    }
    let progress = Progress::new(bytes);
    // What other readers see in between is the old end behind the new begin, unless the holder alone reads.
    // It ends with this process, so that nobody waits for a lease that is long enough for a large file.
    let held = segment.lock_with(LockOptions::new().lease(IMPORT_MAX))?;
    let (mut at, mut version) = (0, held.version());
    let mut buffer = vec![0; Segment::TRANSFER_BYTES_MAX];
    while at < bytes {
        let length = file.read(&mut buffer).map_err(CommandError::file("read", &wanted.file))?;
        if length == 0 {
            break;
        }
        version = held.put(at, &buffer[..length])?.version;
        at += length as u64;
        progress.at(at);
    }
    drop(progress);
    held.unlock()?;
    if json {
        println!("{}", json!({ "bytes": at, "version": version.0 }));
    } else {
        println!("{at} bytes into {}, now {version}", segment.name());
    }
    Ok(())
}

pub(crate) fn watch(wanted: &WatchOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&wanted.named)?;
    let mut out = std::io::stdout().lock();
    let mut left = wanted.count;
    for stamp in segment.watch() {
        let stamp = stamp?;
        let mut line = if json { stamp_json(stamp) } else { Value::Null };
        let words = match wanted.kind {
            None => String::new(),
            Some(kind) => {
                let end = wanted.length.map_or(segment.bytes(), |length| wanted.offset.saturating_add(length));
                let value = segment.get(wanted.offset..end)?;
                if json {
                    line["value"] = kind.read(&value)?;
                    String::new()
                } else {
                    format!("  {}", kind.in_words(&value)?)
                }
            }
        };
        let written = if json {
            writeln!(out, "{line}")
        } else {
            told(&mut out, format_args!("{}  {}{words}", stamp.version, time_in_words(stamp.timestamp.micros())))
        };
        match written.and_then(|()| out.flush()) {
            // Whoever read it has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(CommandError::system(WRITE_OUT))?,
        }
        left = left.map(|left| left.saturating_sub(1));
        if left == Some(0) {
            break;
        }
    }
    Ok(())
}

/// The names that were given, and those that a pattern among them matches.
fn named(wanted: &ReleaseOptions) -> Result<Vec<String>, CommandError> {
    let mut names = Vec::new();
    let mut matched = false;
    for word in &wanted.names {
        if !Glob::new(word).is_pattern() {
            names.push(word.clone());
            continue;
        }
        let found = matching(&wanted.place, Some(word))?;
        matched |= !found.is_empty();
        names.extend(found.iter().map(|listing| listing.name.to_string()));
    }
    names.sort_unstable();
    names.dedup();
    if matched && !wanted.yes {
        names.iter().for_each(|name| note(name));
        confirm(&format!("Release these {}?", names.len()), wanted.yes)?;
    }
    Ok(names)
}

pub(crate) fn release(wanted: &ReleaseOptions, json: bool) -> Result<(), CommandError> {
    let client = connect(&wanted.place)?;
    let names = named(wanted)?;
    // One that is not there is told before any of the others is gone.
    let segments = names.iter().map(|name| client.open(name)).collect::<Result<Vec<_>, _>>()?;
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
        println!("no segment has such a name");
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_reads_as_hexdump_writes_it() {
        // If this broke, a byte would be read at another place.
        let line = dump_line(16, b"0123456789ab\0");
        assert_eq!(line, "00000010  30 31 32 33 34 35 36 37  38 39 61 62 00           |0123456789ab.|");
    }
}
