//! The commands that make, read, write and release one segment.

use crate::arguments::{AllocateOptions, GetOptions, Named, Place, PutOptions};
use crate::failure::CommandError;
use ddss::{Client, Placement, Segment, Spec, Stamp};
use serde_json::json;
use std::io::{Read, Write};
use std::time::Instant;

fn connect(place: &Place) -> Result<Client, CommandError> {
    let builder = match &place.dir {
        Some(folder) => Client::builder().folder(folder),
        None => Client::builder(),
    };
    Ok(builder.lanes(1).connect()?)
}

fn open(named: &Named) -> Result<Segment, CommandError> {
    Ok(connect(&named.place)?.open(&named.name)?)
}

fn describe(segment: &Segment, json: bool) {
    let (name, bytes, home) = (segment.name(), segment.bytes(), segment.id().home());
    if json {
        println!("{}", json!({ "name": name, "bytes": bytes, "home": home.0, "id": segment.id().to_bits() }));
    } else {
        println!("{name}: {bytes} bytes at {home}, {}", segment.id());
    }
}

fn stamp_json(stamp: Stamp) -> serde_json::Value {
    json!({ "version": stamp.version.0, "timestamp_us": stamp.timestamp.micros() })
}

pub(crate) fn ping(place: &Place, json: bool) -> Result<(), CommandError> {
    let client = connect(place)?;
    client.ping()?;
    let began = Instant::now();
    client.ping()?;
    let micros = began.elapsed().as_secs_f64() * 1e6;
    if json {
        println!("{}", json!({ "node": client.node().0, "round_trip_us": micros }));
    } else {
        println!("{} answered in {micros:.1} µs ({})", client.node(), client.strategy());
    }
    Ok(())
}

pub(crate) fn allocate(wanted: &AllocateOptions, json: bool) -> Result<(), CommandError> {
    let mut spec = Spec::new(wanted.bytes);
    (spec.model, spec.mode) = (wanted.model, wanted.mode);
    spec.placement = wanted.home.map_or(spec.placement, Placement::Node);
    let segment = connect(&wanted.named.place)?.allocate(&wanted.named.name, spec)?;
    describe(&segment, json);
    Ok(())
}

pub(crate) fn stat(named: &Named, json: bool) -> Result<(), CommandError> {
    describe(&open(named)?, json);
    Ok(())
}

pub(crate) fn get(wanted: &GetOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&wanted.named)?;
    let value = match wanted.length {
        Some(length) => segment.get(wanted.offset..wanted.offset.saturating_add(length))?,
        None => segment.get(wanted.offset..)?,
    };
    if json {
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut answer = stamp_json(value.stamp());
        answer["hex"] = hex.into();
        println!("{answer}");
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(&value).and_then(|()| out.flush()).map_err(CommandError::system("write to standard output"))
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
    let stamp = open(&given.named)?.put(given.offset, &bytes)?;
    if json {
        println!("{}", stamp_json(stamp));
    } else {
        println!("{} bytes, now {}", bytes.len(), stamp.version);
    }
    Ok(())
}

pub(crate) fn release(named: &Named, json: bool) -> Result<(), CommandError> {
    open(named)?.release()?;
    if json {
        println!("{}", json!({ "released": named.name }));
    } else {
        println!("{}: released", named.name);
    }
    Ok(())
}
