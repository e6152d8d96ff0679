//! Connection to the daemon, and the commands `ping` and `allocate`.

use crate::arguments::{AllocateOptions, DaemonOptions, SegmentOptions};
use crate::error::CommandError;
use ddss::{Client, ConnectOptions, Mode, Segment, Spec};
use serde_json::json;
use std::time::{Duration, Instant};

/// Connects to the daemon in the directory that the arguments name.
pub(crate) fn connect(place: &DaemonOptions) -> Result<Client, CommandError> {
    connect_with_channels(place, 1)
}

/// Connects for so many threads.
pub(crate) fn connect_with_channels(place: &DaemonOptions, channels: usize) -> Result<Client, CommandError> {
    Ok(Client::connect_with(options(place).channels(channels))?)
}

fn options(place: &DaemonOptions) -> ConnectOptions {
    match &place.dir {
        Some(folder) => ConnectOptions::new().directory(folder),
        None => ConnectOptions::new(),
    }
}

/// Connects for calls that may wait for a lock, or until a cluster has recovered.
pub(crate) fn connect_patiently(place: &DaemonOptions) -> Result<Client, CommandError> {
    /// Timeout of a call.
    const PATIENCE: Duration = Duration::from_secs(30);
    Ok(Client::connect_with(options(place).timeout(PATIENCE).channels(1))?)
}

/// Opens the segment that the arguments name.
pub(crate) fn open(named: &SegmentOptions) -> Result<Segment, CommandError> {
    Ok(connect(&named.place)?.segment(&named.name).open()?)
}

/// Prints a segment that was allocated.
pub(crate) fn describe(segment: &Segment, json: bool) {
    let (name, bytes, home) = (segment.name(), segment.len(), segment.id().home());
    if json {
        println!("{}", json!({ "name": name, "bytes": bytes, "home": home.0, "id": segment.id().to_bits() }));
    } else {
        println!("{name}: {bytes} bytes at {home}, {}", segment.id());
    }
}

pub(crate) fn ping(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
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

/// Returns the specification of a segment of that many bytes, in whole rows if `row` is not 0.
fn sized(bytes: u64, row: u32) -> Result<Spec, CommandError> {
    let Some(rows) = bytes.checked_div(row.into()) else { return Ok(Spec::new(bytes)) };
    if !row.is_multiple_of(8) || rows * u64::from(row) != bytes {
        let text = format!("bytes is {bytes}, and may be a multiple of the row's {row}, which is a multiple of 8");
        return Err(CommandError::InvalidSize(text));
    }
    Ok(Spec::new(rows).row_len(row))
}

pub(crate) fn allocate(options: &AllocateOptions, json: bool) -> Result<(), CommandError> {
    let spec = sized(options.bytes, options.row.unwrap_or_default())?.model(options.model).mode(Mode(options.mode));
    let spec = spec.placement(options.home).copies(options.copies).storage(options.storage).history(options.history);
    let segment = connect(&options.named.place)?.segment(&options.named.name).allocate(spec)?;
    describe(&segment, json);
    Ok(())
}
