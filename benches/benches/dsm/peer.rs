//! Two ranks: the measuring process, and a process that is the home of all pages.

use std::env;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use ddss::{Client, ConnectOptions};
use ddss_apps::dsm::Settings;
use ddss_benches::harness::on_all_cores;
use ddss_dsm::{Homes, Rank, Region, Space, SpaceOptions, Stamps};
use ddss_testkit::Daemon;

/// First argument of the home: the daemon's directory and the number of the way follow.
const FLAG: &str = "--home-of";
/// Pages of the home, as in the paper.
pub(super) const PAGES: usize = 1024;
/// Time of a call at most: the home waits while other figures are measured.
const CALL_MAX: Duration = Duration::from_secs(3600);
const BYTES: u64 = (PAGES as u64 + 16) * 4096;

/// A page.
pub(super) type Page = [u64; 512];

/// Returns each protocol with each ordering.
pub(super) fn ways() -> impl Iterator<Item = Settings> {
    Settings::all(2).filter(|settings| settings.stamps == Stamps::PerHome)
}

/// Returns the path of the rows of a protocol and an ordering.
pub(super) fn path(way: Settings) -> String {
    format!("tcp-lo/{}/t1", way.way())
}

/// Counters of the home's handler between two barriers.
pub(super) type HomeCounts = [u64; 3];

/// Regions of both ranks.
struct Regions {
    pages: Region<Page>,
    counts: Region<HomeCounts>,
}

fn join(directory: &Path, rank: u16, way: Settings) -> (Space, Regions) {
    let client = Client::connect_with(ConnectOptions::new().directory(directory)).expect("the daemon takes clients");
    let options = SpaceOptions::new(way.ranks, BYTES).rank(rank).timeout(CALL_MAX);
    let options = options.protocol(way.protocol, way.ordering, way.stamps);
    let mut space = Space::join(&client, "pages", options).expect("two ranks find each other");
    let pages = space.region("pages", PAGES, Homes::Rank(Rank::ZERO)).expect("the space has room");
    let counts = space.region("counts", 1, Homes::Rank(Rank::ZERO)).expect("the space has room");
    (space, Regions { pages, counts })
}

/// Is the home, if this program was started for that. It returns when it is killed, or alone.
pub(super) fn run_as_home() -> bool {
    let arguments: Vec<String> = env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == FLAG) else { return false };
    let [directory, number] = &arguments[at + 1..] else { panic!("{FLAG} DIRECTORY NUMBER") };
    let number = number.parse().expect("a number");
    let way = ways().nth(number).expect("the number of a way");
    let (mut space, regions) = join(Path::new(directory), 0, way);
    for round in 0_u64.. {
        // Each second round is a fresh one: the other rank holds no page.
        if round.is_multiple_of(2) {
            for page in regions.pages.write(&space, ..).expect("the space lives").iter_mut() {
                page[0] = round;
            }
        }
        if space.barrier().is_err() {
            break;
        }
        let before = space.statistics().expect("the space lives");
        if space.barrier().is_err() {
            break;
        }
        let after = space.statistics().expect("the space lives");
        let counts = [
            after.handler_ns - before.handler_ns,
            after.handled - before.handled,
            after.handler_bytes - before.handler_bytes,
        ];
        regions.counts.put(&space, 0, counts).expect("the space lives");
    }
    true
}

/// The measuring rank, between two barriers of the home, which it ends when it is dropped.
pub(super) struct Pair {
    space: Space,
    regions: Regions,
    home: Child,
    rounds: u64,
    /// Pages that this rank has fetched in this fresh round.
    fetched: usize,
    _daemon: Daemon,
}

impl Pair {
    /// Starts the home, in a fresh round.
    pub(super) fn start(way: Settings) -> Pair {
        let number = ways().position(|other| other == way).expect("it is one of all");
        on_all_cores(|| {
            let daemon = Daemon::start(1).expect("a daemon starts");
            let mut command = Command::new(env::current_exe().expect("this program has a path"));
            command.arg(FLAG).arg(daemon.folder()).arg(number.to_string());
            let home = command.spawn().expect("this program starts");
            let (mut space, regions) = join(daemon.folder(), 1, way);
            space.barrier().expect("the home lives");
            Pair { space, regions, home, rounds: 1, fetched: 0, _daemon: daemon }
        })
    }

    /// Goes on to the next round.
    pub(super) fn next(&mut self) {
        for _ in 0..2 {
            self.space.barrier().expect("the home lives");
        }
        self.rounds += 1;
        self.fetched = 0;
    }

    /// Goes on to the next round in which this rank holds no page.
    pub(super) fn refresh(&mut self) {
        self.next();
        if self.rounds.is_multiple_of(2) {
            self.next();
        }
    }

    /// Returns true if the next pages are not fetched yet.
    pub(super) fn has(&self, count: usize) -> bool {
        self.rounds % 2 == 1 && self.fetched + count <= PAGES
    }

    /// Fetches the next pages in one view. Returns a number of each.
    pub(super) fn fetch(&mut self, count: usize) -> u64 {
        let at = self.fetched;
        self.fetched += count;
        let pages = self.regions.pages.read(&self.space, at..at + count).expect("the home lives");
        pages.iter().map(|page| page[0]).sum()
    }

    /// Changes all pages.
    pub(super) fn change(&mut self, change: impl FnMut(&mut Page)) {
        let mut pages = self.regions.pages.write(&self.space, ..).expect("the home lives");
        pages.iter_mut().for_each(change);
    }

    /// Returns what the home's handler did in the round before.
    pub(super) fn counts_before(&self) -> HomeCounts {
        self.regions.counts.get(&self.space, 0).expect("the home lives")
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // An error means that it has ended.
        drop(self.home.kill());
        drop(self.home.wait());
    }
}
