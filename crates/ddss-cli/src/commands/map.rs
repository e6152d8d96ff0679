//! The commands of maps: allocate, get, put, remove, ls and watch.

use crate::arguments::map::{
    MapAllocateOptions, MapCommand, MapKeyOptions, MapListOptions, MapOptions, MapPutOptions, MapWatchOptions,
};
use crate::connect::{connect, describe};
use crate::error::{CommandError, WRITE_STDOUT};
use crate::output::terminal_text::{is_printable_text, write_line};
use crate::output::value_format::ValueFormat;
use ddss::{EntryOptions, ErrorKind, MapEvent, Mode, Spec};
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::time::Duration;

pub(crate) fn run(command: &MapCommand, json: bool) -> Result<(), CommandError> {
    match command {
        MapCommand::Allocate(options) => allocate(options, json),
        MapCommand::Get(options) => get(options, json),
        MapCommand::Put(options) => put(options, json),
        MapCommand::Remove(options) => remove(options, json),
        MapCommand::Ls(options) => list(options, json),
        MapCommand::Watch(options) => watch(options, json),
    }
}

fn open(options: &MapOptions) -> Result<ddss::Map, CommandError> {
    Ok(connect(&options.named.place)?.map(&options.named.name).open()?)
}

/// Encodes a key or a value of `length` bytes. Text is filled up with zeroes; other formats have to fit.
fn encode(words: &str, kind: Option<ValueFormat>, length: usize) -> Result<Vec<u8>, CommandError> {
    let mut bytes = kind.unwrap_or(ValueFormat::Utf8).encode(words)?;
    if matches!(kind, None | Some(ValueFormat::Utf8 | ValueFormat::Json)) && bytes.len() < length {
        bytes.resize(length, 0);
    }
    Ok(bytes)
}

/// Formats a key or a value as one line: in that format, else as text, or in hexadecimal digits if it is no text.
fn format(bytes: &[u8], kind: Option<ValueFormat>) -> Result<String, CommandError> {
    let is_line = is_printable_text(bytes) && !bytes.iter().any(|byte| matches!(byte, b'\n' | b'\t'));
    kind.unwrap_or(if is_line { ValueFormat::Utf8 } else { ValueFormat::Hex }).format(bytes)
}

/// Adds a key or a value to a JSON object: in that format, or in hexadecimal digits.
fn insert_json(
    object: &mut Map<String, Value>,
    name: &str,
    bytes: &[u8],
    kind: Option<ValueFormat>,
) -> Result<(), CommandError> {
    let (name, kind) = kind.map_or((format!("{name}_hex"), ValueFormat::Hex), |kind| (name.to_owned(), kind));
    object.insert(name, kind.decode(bytes)?);
    Ok(())
}

fn no_such_key(options: &MapKeyOptions) -> CommandError {
    let (name, key) = (&options.map.named.name, &options.key);
    CommandError::Refused(format!("there is no key {key} in {name}: `ddss map ls {name}` lists the entries"))
}

fn allocate(options: &MapAllocateOptions, json: bool) -> Result<(), CommandError> {
    let MapAllocateOptions { named, keys, key_bytes, value_bytes, mode, home, copies, storage } = options;
    let spec = Spec::new(*keys).entry_len(*key_bytes as usize, *value_bytes as usize).mode(Mode(*mode));
    let spec = spec.placement(*home).copies(*copies).storage(*storage);
    let map: ddss::Map = connect(&named.place)?.map(&named.name).allocate(spec)?;
    describe(map.segment(), json);
    Ok(())
}

fn get(options: &MapKeyOptions, json: bool) -> Result<(), CommandError> {
    let map = open(&options.map)?;
    let key = encode(&options.key, options.map.key_kind, map.entry_len().0)?;
    let Some(value) = map.get(&key)? else { return Err(no_such_key(options)) };
    if json {
        let mut answer = Map::new();
        insert_json(&mut answer, "value", &value, options.map.kind)?;
        println!("{}", Value::Object(answer));
    } else {
        println!("{}", format(&value, options.map.kind)?);
    }
    Ok(())
}

fn put(options: &MapPutOptions, json: bool) -> Result<(), CommandError> {
    let MapPutOptions { entry, value, new, expire_s } = options;
    let map = open(&entry.map)?;
    let key = encode(&entry.key, entry.map.key_kind, map.entry_len().0)?;
    let value = encode(value, entry.map.kind, map.entry_len().1)?;
    let options = if *new { EntryOptions::new().if_absent() } else { EntryOptions::new() };
    let options = expire_s.map_or(options, |ttl_s| options.ttl(Duration::from_secs(ttl_s)));
    let written = map.put_with(&key, &value, options);
    let (name, key) = (&entry.map.named.name, &entry.key);
    let is_new = match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(CommandError::Refused(format!(
                "the key {key} is in {name} already, nothing was written: omit --new to replace its value"
            )));
        }
        written => written?.is_new,
    };
    if json {
        println!("{}", json!({ "new": is_new }));
    } else {
        println!("{key}: {}", if is_new { "a new key" } else { "replaced" });
    }
    Ok(())
}

fn remove(options: &MapKeyOptions, json: bool) -> Result<(), CommandError> {
    let map = open(&options.map)?;
    let key = encode(&options.key, options.map.key_kind, map.entry_len().0)?;
    if !map.remove(&key)? {
        return Err(no_such_key(options));
    }
    if json {
        println!("{}", json!({ "removed": true }));
    } else {
        println!("{}: removed", options.key);
    }
    Ok(())
}

/// Writes a line to standard output; `false` if its reader has closed the pipe and wants no more.
fn write_entry(words: &str) -> Result<bool, CommandError> {
    let mut out = io::stdout().lock();
    match write_line(&mut out, format_args!("{words}")).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(CommandError::system(WRITE_STDOUT)),
    }
}

fn list(options: &MapListOptions, json: bool) -> Result<(), CommandError> {
    let MapListOptions { map: MapOptions { key_kind, kind, .. }, prefix } = options;
    let map = open(&options.map)?;
    let prefix = key_kind.unwrap_or(ValueFormat::Utf8).encode(prefix.as_deref().unwrap_or_default())?;
    for entry in map.entries() {
        let (key, value) = entry?;
        if !key.starts_with(&prefix) {
            continue;
        }
        let line = if json {
            let mut entry = Map::new();
            insert_json(&mut entry, "key", &key, *key_kind)?;
            insert_json(&mut entry, "value", &value, *kind)?;
            Value::Object(entry).to_string()
        } else {
            format!("{}\t{}", format(&key, *key_kind)?, format(&value, *kind)?)
        };
        if !write_entry(&line)? {
            return Ok(());
        }
    }
    Ok(())
}

fn watch(options: &MapWatchOptions, json: bool) -> Result<(), CommandError> {
    let MapWatchOptions { entry: MapKeyOptions { map: MapOptions { key_kind, kind, .. }, key }, count } = options;
    let map = open(&options.entry.map)?;
    let key = encode(key, *key_kind, map.entry_len().0)?;
    let absent = map.get(&key)?.is_none().then_some(Ok(None));
    let events = map
        .watch(&key)
        .map(|event| Ok::<_, ddss::Error>(if let MapEvent::Put { value, .. } = event? { Some(value) } else { None }));
    for (shown, present) in (1..).zip(absent.into_iter().chain(events)) {
        let line = match present? {
            Some(value) if json => {
                let mut entry = Map::new();
                insert_json(&mut entry, "value", &value, *kind)?;
                Value::Object(entry).to_string()
            }
            Some(value) => format(&value, *kind)?,
            None if json => json!({ "absent": true }).to_string(),
            None => "(absent)".to_owned(),
        };
        if !write_entry(&line)? || count.is_some_and(|count| count <= shown) {
            return Ok(());
        }
    }
    // The watch ends with the map.
    Ok(map.segment().stat().map(drop)?)
}
