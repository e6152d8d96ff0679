//! A client process that gets, puts, adds, compares and swaps until it is stopped or killed.

use crate::cluster::NODES;
use crate::log::{End, Kind, Log, Record, now_ns};
use crate::maps::{FIRST_MAP, MAPS, MapWorker};
use ddss::{Client, ConnectOptions, Segment, Stamp, Strategy, Table};
use ddss_ipc::SharedMemory;
use ddss_testkit::Random;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The deadline of each call.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a segment of values: one mark, repeated.
pub(crate) const BYTES: usize = 64;
/// Places of values, and behind them those of counters. The last `ROWS` of each are rows of tables.
pub(crate) const VALUES: usize = 9;
pub(crate) const COUNTERS: usize = 6;
const ROWS: usize = 3;
/// All places: values, counters and maps.
pub(crate) const PLACES: usize = VALUES + COUNTERS + MAPS;
/// Rows of each table; its calls are those of row 1.
pub(crate) const TABLE_ROWS: u64 = 3;
/// Time limit for a call or a start on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn name(index: usize) -> String {
    format!("chaos/{index}")
}

/// Returns the mark of a value: its worker, the worker's life, and the number of the put.
pub(crate) fn mark(worker: u16, life: u16, sequence: u32) -> u64 {
    u64::from(worker) << 48 | u64::from(life) << 32 | u64::from(sequence)
}

/// Retries, because a starting worker may find a daemon that is just being killed.
pub(crate) fn patiently<T>(
    until: Instant,
    mut attempt: impl FnMut() -> Result<T, ddss::Error>,
) -> Result<T, ddss::Error> {
    loop {
        match attempt() {
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            ended => return ended,
        }
    }
}

/// Returns true if a place is a row of a table.
pub(crate) fn is_row(index: usize) -> bool {
    (VALUES - ROWS..VALUES).contains(&index) || index >= VALUES + COUNTERS - ROWS
}

/// A segment, or a row of a table.
pub(crate) struct Place {
    pub(crate) segment: Segment,
    pub(crate) offset: u64,
}

pub(crate) fn open_all(client: &Client) -> Result<Vec<Place>, ddss::Error> {
    let until = Instant::now() + PATIENCE;
    let place = |index| {
        let segment = patiently(until, || client.segment(&name(index)).open())?;
        let offset = <Table>::try_from(segment.clone()).map_or(0, |table| table.row_len());
        Ok(Place { segment, offset })
    };
    (0..VALUES + COUNTERS).map(place).collect()
}

pub(crate) fn attach(folder: &Path, strategy: Strategy, near: bool) -> Result<Client, ddss::Error> {
    patiently(Instant::now() + PATIENCE, || {
        Client::connect_with(
            ConnectOptions::new().directory(folder).strategy(strategy).local_reads(near).channels(1).timeout(TIMEOUT),
        )
    })
}

fn ended(result: &Result<(Stamp, u64), ddss::Error>) -> (End, u64, u64) {
    match result {
        Ok((stamp, value)) => (End::Done, stamp.version.0, *value),
        Err(error) if error.is_indeterminate() => (End::Unknown, 0, 0),
        Err(_) => (End::Failed, 0, 0),
    }
}

/// Returns the home of a segment.
pub(crate) fn home_of(index: usize) -> u16 {
    index as u16 % NODES + 1
}

/// Segments and rate of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The homes of its segments.
    pub(crate) homes: Vec<u16>,
    /// Pause between two calls.
    pub(crate) pause: Duration,
}

impl Plan {
    /// All kinds of calls, without pauses.
    pub(crate) fn all() -> Self {
        Self { homes: (1..=NODES).collect(), pause: Duration::ZERO }
    }

    pub(crate) fn words(&self) -> [String; 2] {
        let homes: Vec<String> = self.homes.iter().map(u16::to_string).collect();
        [homes.join(","), self.pause.as_micros().to_string()]
    }

    fn parse(homes: &str, pause: &str) -> Result<Self, Box<dyn Error>> {
        let homes = homes.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { homes, pause: Duration::from_micros(pause.parse()?) })
    }

    /// Pauses after a call with this outcome.
    fn pause_after(&self, end: End) {
        if end != End::Done {
            // A worker whose daemon is down pauses before the next call.
            std::thread::sleep(Duration::from_millis(1));
        }
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
    }

    /// Returns the segments of these whose home is one of the worker's.
    fn among(&self, mut segments: std::ops::Range<usize>) -> Vec<usize> {
        let mine = |index: &usize| self.homes.contains(&home_of(*index));
        segments.by_ref().filter(mine).collect()
    }
}

/// One call and its result.
struct Call<'a> {
    place: &'a Place,
    /// Value of a put, or expected word of a swap.
    value: u64,
}

impl Call<'_> {
    /// Makes the call and returns its outcome. A swap that found another word counts as a read.
    fn make(&self, kind: Kind) -> (Kind, Result<(Stamp, u64), ddss::Error>) {
        let Call { place: Place { segment, offset }, value } = *self;
        let offset = *offset;
        let ended = match kind {
            Kind::Get => {
                let mut bytes = [0; BYTES];
                segment.get_into(offset, &mut bytes).map(|stamp| (stamp, whole(&bytes)))
            }
            Kind::Put => {
                let mut bytes = [0; BYTES];
                bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
                segment.put(offset, &bytes).map(|stamp| (stamp, value))
            }
            Kind::Add => segment.word(offset).fetch_add(1).map(|changed| (changed.stamp, changed.before)),
            Kind::Swap | Kind::Look => {
                let swapped = segment.word(offset).compare_and_swap(value, value + 1);
                let ended = swapped.map(|changed| (changed.stamp, changed.before));
                let found_another = ended.as_ref().is_ok_and(|&(_, before)| before != value);
                return (if found_another { Kind::Look } else { Kind::Swap }, ended);
            }
            Kind::Insert | Kind::Remove | Kind::Find => unreachable!("a map has its own calls"),
        };
        (kind, ended)
    }
}

/// `FOLDER LOG STOP WORKER LIFE HOMES PAUSE`.
pub(crate) fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [folder, log, stop, worker, life, homes, pause] = words else {
        return Err("a worker takes seven words".into());
    };
    let (worker, life): (u16, u16) = (worker.parse()?, life.parse()?);
    let plan = Plan::parse(homes, pause)?;
    let stop = SharedMemory::open_file(&PathBuf::from(stop))?;
    let mut log = Log::open(&PathBuf::from(log))?;
    // Rings and queues, local reads and calls to the daemon.
    let strategy = if worker % 8 == 7 { Strategy::Rmq } else { Strategy::Auto };
    let client = attach(&PathBuf::from(folder), strategy, worker.is_multiple_of(2))?;
    let places = open_all(&client)?;
    let mut random = Random::new(u64::from(worker) << 20 | u64::from(life) << 4 | 7);
    let (values, counters) = (plan.among(0..VALUES), plan.among(VALUES..VALUES + COUNTERS));
    let (maps, mut map_worker) = (plan.among(FIRST_MAP..PLACES), MapWorker::new(&client, worker, life)?);
    let mut seen = [0; VALUES + COUNTERS];
    let mut sequence = 0;
    for _ in 0..Log::CALLS_MAX {
        if stop.load(0, Ordering::Relaxed)? != 0 {
            break;
        }
        if random.below(5) == 0 {
            let place = maps[random.below(maps.len() as u64) as usize];
            let end = map_worker.call(place, &mut random, &mut log)?;
            plan.pause_after(end);
            continue;
        }
        let (kind, among) = match random.below(20) {
            0..12 => (Kind::Get, &values),
            12..17 => (Kind::Put, &values),
            17..18 => (Kind::Add, &counters),
            _ => (Kind::Swap, &counters),
        };
        let segment = among[random.below(among.len() as u64) as usize];
        sequence += u32::from(kind == Kind::Put);
        let value = if kind == Kind::Put { mark(worker, life, sequence) } else { seen[segment] };
        let began_ns = now_ns();
        let (kind, result) = Call { place: &places[segment], value }.make(kind);
        let ended_ns = now_ns();
        let (end, version, mut saw) = ended(&result);
        match kind {
            Kind::Put => saw = value,
            // The next life of this worker has the next number.
            Kind::Add | Kind::Swap if end == End::Done => seen[segment] = saw + 1,
            Kind::Look => seen[segment] = saw,
            _ => {}
        }
        log.add(&Record { kind, end, segment, began_ns, ended_ns, version, value: saw })?;
        plan.pause_after(end);
    }
    Ok(())
}

/// Mark of a torn value.
pub(crate) const TORN: u64 = u64::MAX;

/// Returns the mark of which all bytes are, or [`TORN`].
pub(crate) fn whole(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(std::array::from_fn(|i| word[i])));
    let first = words.next().unwrap_or(TORN);
    if words.all(|word| word == first) { first } else { TORN }
}
