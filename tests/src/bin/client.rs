//! A client process that executes one call for each line of standard input, and answers with a line `ok ..` or `error
//! ..`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it talks to its test")]

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Duration;

use ddss::{Batch, Client, ConnectOptions, LockGuard, LockOptions, Model, Segment, Spec, Strategy, Table, Version};
use ddss_testkit::pattern;

/// Number of keys that `map-churn` inserts and removes.
const MAP_KEYS: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: client FOLDER STRATEGY")?;
    let strategy: Strategy = arguments.next().ok_or("usage: client FOLDER STRATEGY")?.parse()?;
    let client =
        match Client::connect_with(ConnectOptions::new().directory(folder).strategy(strategy).local_reads(false)) {
            Ok(client) => client,
            Err(error) => {
                answer(&format!("error {error}"))?;
                return Ok(());
            }
        };
    answer("ok attached")?;
    let (mut segment, mut held) = (None, None);
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let said = match obey(&client, &mut segment, &mut held, &words) {
            Ok(said) => format!("ok {said}"),
            Err(error) => format!("error {error}"),
        };
        answer(&said)?;
    }
    Ok(())
}

fn answer(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Models by name; the bounds of models with stale gets are close to zero.
fn model_of(name: &str) -> Result<Model, String> {
    Ok(match name {
        "null" => Model::Null,
        "read" => Model::Read,
        "write" => Model::Write,
        "strict" => Model::Strict,
        "version" => Model::Version,
        "delta" => Model::Delta(1),
        "temporal" => Model::Temporal(1),
        other => return Err(format!("there is no model {other}")),
    })
}

fn obey(
    client: &Client,
    segment: &mut Option<Segment>,
    held: &mut Option<LockGuard<Segment>>,
    words: &[&str],
) -> Result<String, Box<dyn Error>> {
    let current = segment.as_ref().ok_or("no segment was opened");
    match *words {
        ["ping"] => client.ping().map(|()| "there".to_owned()).map_err(Into::into),
        ["allocate", name, bytes] => {
            let made = segment.insert(client.segment(name).allocate(Spec::new(bytes.parse()?))?);
            Ok(format!("{} bytes", made.len()))
        }
        ["allocate-as", model, name, bytes] => {
            let spec = Spec::new(bytes.parse()?).model(model_of(model)?);
            Ok(format!("{} bytes", segment.insert(client.segment(name).allocate(spec)?).len()))
        }
        ["allocate-mirrored", name, bytes] => {
            let spec = Spec::new(bytes.parse()?).copies(2);
            Ok(format!("{} bytes", segment.insert(client.segment(name).allocate(spec)?).len()))
        }
        ["open", name] => {
            let found = segment.insert(client.segment(name).open()?);
            Ok(format!("{} bytes at {}", found.len(), found.id().home()))
        }
        ["put", offset, length, seed] => {
            let stamp = current?.put(offset.parse()?, &pattern(seed.parse()?, length.parse()?))?;
            Ok(format!("version {}", stamp.version.0))
        }
        ["get", offset, length, seed] => {
            let mut bytes = vec![0; length.parse()?];
            let stamp = current?.get_into(offset.parse()?, &mut bytes)?;
            let expected = pattern(seed.parse()?, bytes.len());
            match bytes.iter().zip(&expected).position(|(found, expected)| found != expected) {
                None => Ok(format!("version {} equal", stamp.version.0)),
                Some(at) => Ok(format!("version {} differs at {at}", stamp.version.0)),
            }
        }
        ["add", offset, number] => {
            let changed = current?.word(offset.parse()?).fetch_add(number.parse()?)?;
            Ok(format!("before {} version {}", changed.before, changed.stamp.version.0))
        }
        ["add-many", offset, times] => {
            let segment = current?;
            for _ in 0..times.parse()? {
                segment.word(offset.parse()?).fetch_add(1)?;
            }
            Ok(String::new())
        }
        ["cas", offset, expected, new] => {
            let changed = current?.word(offset.parse()?).compare_and_swap(expected.parse()?, new.parse()?)?;
            Ok(format!("before {}", changed.before))
        }
        ["put-if", version, length, seed] => {
            let bytes = pattern(seed.parse()?, length.parse()?);
            Ok(format!("version {}", current?.put_if(Version(version.parse()?), 0, &bytes)?.version.0))
        }
        ["newer", version] => Ok(format!("version {}", current?.wait_newer_than(Version(version.parse()?))?.version.0)),
        ["lock"] => Ok(format!("version {}", held.insert(current?.lock()?).version().0)),
        ["lock-row", row] => {
            let guard = <Table>::try_from(current?.clone())?.row(row.parse()?).lock()?;
            let version = guard.version();
            // Keeps the lock until the process dies, for tests of the death of its holder.
            std::mem::forget(guard);
            Ok(format!("version {}", version.0))
        }
        ["lock-alive", lease_ms] => {
            let options = LockOptions::new().lease(Duration::from_millis(lease_ms.parse()?)).keep_alive();
            Ok(format!("token {}", held.insert(current?.lock_with(options)?).token()))
        }
        ["put-held", length, seed] => {
            let bytes = pattern(seed.parse()?, length.parse()?);
            Ok(format!("version {}", held.as_ref().ok_or("no lock")?.put(0, &bytes)?.version.0))
        }
        ["unlock"] => held.take().ok_or("no lock")?.unlock().map(|()| String::new()).map_err(Into::into),
        ["whole", length] => whole(current?, length.parse()?),
        ["put-for-ever", length] => {
            let segment = current?;
            let bytes: [Vec<u8>; 2] = [0, 1].map(|seed| pattern(seed, length.parse().unwrap_or(8)));
            answer("ok writing")?;
            for turn in 0.. {
                segment.put(0, &bytes[turn % 2])?;
            }
            Ok(String::new())
        }
        ["map-churn", name] => change_map(client, name),
        ["allocate-churn", prefix, count] => allocate_many(client, prefix, count.parse()?),
        ["release"] => segment.take().ok_or("no segment")?.release().map(|()| String::new()).map_err(Into::into),
        _ => Err(format!("no such call: {words:?}").into()),
    }
}

/// Gets many times while a client runs `put-for-ever`; each value must be one of the two that it writes.
fn whole(segment: &Segment, length: usize) -> Result<String, Box<dyn Error>> {
    let values: [Vec<u8>; 2] = [0, 1].map(|seed| pattern(seed, length));
    let mut bytes = vec![0; length];
    let (mut last, mut changes) = (0, 0);
    for _ in 0..300 {
        let stamp = segment.get_into(0, &mut bytes)?;
        if bytes != values[0] && bytes != values[1] {
            return Ok(format!("torn at version {}", stamp.version.0));
        }
        if stamp.version.0 < last {
            return Ok(format!("version {} after {last}", stamp.version.0));
        }
        changes += u64::from(stamp.version.0 != last);
        last = stamp.version.0;
    }
    Ok(format!("whole {changes}"))
}

/// Allocates this many segments together and releases them, until the process is killed.
fn allocate_many(client: &Client, prefix: &str, count: usize) -> Result<String, Box<dyn Error>> {
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}/{number}")).collect();
    answer("ok allocating")?;
    loop {
        let mut batch = Batch::new();
        let tickets = names.iter().map(|name| batch.allocate(name, 64)).collect::<Result<Vec<_>, _>>()?;
        let mut replies = client.run(batch)?;
        let mut batch = Batch::new();
        for ticket in tickets {
            batch.release(&replies.take(ticket)?)?;
        }
        client.run(batch)?.ok()?;
    }
}

/// Inserts and removes keys until the process is killed. The words of a value name its key, so that a test finds mixed
/// values.
fn change_map(client: &Client, name: &str) -> Result<String, Box<dyn Error>> {
    let map = client.map::<u64, [u64; 64]>(name).open()?;
    answer("ok changing")?;
    for turn in 0u64.. {
        let key = turn % MAP_KEYS;
        if turn % 3 == 0 {
            map.remove(&key)?;
        } else {
            map.put(&key, &[turn * MAP_KEYS + key; 64])?;
        }
    }
    Ok(String::new())
}
