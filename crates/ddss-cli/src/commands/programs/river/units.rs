//! The commands `river units add`, `ls` and `retry`.

use super::content::{insert_bytes, one_line};
use super::work::work;
use crate::arguments::river::{UnitState, UnitsAddOptions, UnitsCommand, UnitsListOptions, UnitsOptions};
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::table::Table;
use ddss::{Client, ReplicationInfo};
use ddss_river::{QueueError, UnitInfo, UnitOptions, UnitQueue, UnitStatus};
use serde_json::{Map, Value, json};
use std::io::{BufRead, stdin};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

pub(super) fn run(command: &UnitsCommand, json: bool) -> Result<(), CommandError> {
    match command {
        UnitsCommand::Add(options) => add(options, json),
        UnitsCommand::Work(options) => work(options, json),
        UnitsCommand::Ls(options) => list(options, json),
        UnitsCommand::Retry(options) => retry(options, json),
    }
}

fn open(list: &UnitsOptions) -> Result<UnitQueue, CommandError> {
    match UnitQueue::open(&connect(&list.place)?, &list.name) {
        Err(QueueError::UnknownUnits { queue }) => {
            let next = "`ddss river units add` creates it";
            Err(CommandError::Refused(format!("there is no list {queue}: {next}")))
        }
        other => Ok(other?),
    }
}

/// Opens the list, or creates it. Options that are given have to be those of the list.
fn open_or_create(options: &UnitsAddOptions) -> Result<UnitQueue, CommandError> {
    let UnitsAddOptions { list, capacity, unit_bytes, lease_s, copies, .. } = options;
    let client = connect(&list.place)?;
    let is_given = capacity.is_some() || unit_bytes.is_some() || lease_s.is_some();
    if !is_given {
        match UnitQueue::open(&client, &list.name) {
            Err(QueueError::UnknownUnits { .. }) => {}
            other => {
                let opened = other?;
                check_copies(&client, &list.name, *copies)?;
                return Ok(opened);
            }
        }
    }
    let mut chosen = UnitOptions::new();
    if let Some(units) = capacity {
        chosen = chosen.capacity(u32::try_from(*units).unwrap_or(u32::MAX));
    }
    if let Some(bytes) = unit_bytes {
        chosen = chosen.unit_bytes_max(*bytes);
    }
    if let Some(seconds) = lease_s {
        chosen = chosen.lease(Duration::from_secs(*seconds));
    }
    Ok(UnitQueue::create(&client, &list.name, chosen.copies(copies.unwrap_or(1)))?)
}

/// Refuses another number of copies than the list has.
fn check_copies(client: &Client, name: &str, wanted: Option<u8>) -> Result<(), CommandError> {
    let Some(wanted) = wanted else { return Ok(()) };
    let replication = client.segment(&format!("river/{name}/units")).open()?.stat()?.replication;
    let copies = if replication == ReplicationInfo::None { 1 } else { 2 };
    if copies == wanted {
        return Ok(());
    }
    Err(CommandError::Refused(format!("list {name} has --copies {copies}, not {wanted}: leave the option out")))
}

fn add(options: &UnitsAddOptions, json: bool) -> Result<(), CommandError> {
    let lines = || stdin().lock().split(b'\n').filter(|line| line.as_ref().map_or(true, |line| !line.is_empty()));
    let units: Vec<Vec<u8>> = if options.units.is_empty() {
        lines().collect::<Result<_, _>>().map_err(CommandError::system("read standard input"))?
    } else {
        options.units.iter().map(|unit| unit.as_bytes().to_vec()).collect()
    };
    let added = open_or_create(options)?.add(&units)?;
    let name = &options.list.name;
    if json {
        println!("{}", json!({ "list": name, "first": added.start, "count": added.len() }));
    } else {
        println!("{name}: {} units added, the first is unit {}", added.len(), added.start);
    }
    Ok(())
}

fn list(options: &UnitsListOptions, json: bool) -> Result<(), CommandError> {
    let wanted = options.state.map(|state| match state {
        UnitState::Open => UnitStatus::Open,
        UnitState::Claimed => UnitStatus::Claimed,
        UnitState::Done => UnitStatus::Done,
        UnitState::Failed => UnitStatus::Failed,
    });
    let queue = open(&options.list)?;
    let units: Vec<UnitInfo> = queue
        .list()?
        .filter(|unit| unit.as_ref().map_or(true, |unit| wanted.is_none_or(|wanted| unit.status == wanted)))
        .collect::<Result<_, _>>()?;
    if json {
        println!("{}", Value::Array(units.iter().map(as_json).collect()));
        return Ok(());
    }
    let mut table = Table::new(&["UNIT", "STATE", "ATTEMPTS", "NODE", "PROCESS", "CONTENT", "RESULT"]);
    table.align_right(&[0, 2, 3, 4]);
    table.set_optional(&[4, 3, 2]);
    for unit in &units {
        table.row(vec![
            unit.number.to_string(),
            unit.status.to_string(),
            unit.attempts.to_string(),
            unit.node.to_string(),
            unit.process.to_string(),
            one_line(&unit.bytes),
            one_line(&unit.result),
        ]);
    }
    table.print_or("no such unit");
    Ok(())
}

fn as_json(unit: &UnitInfo) -> Value {
    let mut object = Map::new();
    object.insert("unit".to_owned(), unit.number.into());
    object.insert("state".to_owned(), unit.status.as_str().into());
    object.insert("attempts".to_owned(), unit.attempts.into());
    object.insert("strikes".to_owned(), unit.strikes.into());
    object.insert("node".to_owned(), unit.node.into());
    object.insert("process".to_owned(), unit.process.into());
    insert_bytes(&mut object, "content", &unit.bytes);
    insert_bytes(&mut object, "result", &unit.result);
    Value::Object(object)
}

fn retry(options: &UnitsOptions, json: bool) -> Result<(), CommandError> {
    let opened = open(options)?.retry()?;
    if json {
        println!("{}", json!({ "list": options.name, "opened": opened }));
    } else {
        println!("{}: {opened} units are open again", options.name);
    }
    Ok(())
}
