//! An application with a node of its own: in its process, as in a test of a service. No daemon runs.
//!
//! The service counts visitors for each page. The test starts a node, gives two services its directory, and checks that they count
//! together, that they see each other's pages come and go, and that nothing is left behind.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Client, ConnectOptions, Error, SegmentEvent, Spec};
use ddssd::EphemeralNode;
use std::path::Path;
use std::time::Duration;

const VISITS: u64 = 500;

/// The application: it knows only the node's directory, which is `DDSS_DIR` in production.
struct Visits {
    client: Client,
}

impl Visits {
    fn start(folder: &Path) -> Result<Self, Error> {
        let client = Client::connect_with(ConnectOptions::new().directory(folder).timeout(Duration::from_secs(30)))?;
        Ok(Self { client })
    }

    /// Counts a visitor, and returns the number so far.
    fn count(&self, page: &str) -> Result<u64, Error> {
        let counter = self.client.segment(&format!("visits/{page}")).open_or_allocate(Spec::new(8))?;
        Ok(counter.word(0).fetch_add(1)?.before + 1)
    }

    fn forget(&self, page: &str) -> Result<(), Error> {
        self.client.segment(&format!("visits/{page}")).open()?.release()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = EphemeralNode::start()?;
    let (here, there) = (Visits::start(node.directory())?, Visits::start(node.directory())?);
    let mut pages = there.client.watch("visits/")?;

    std::thread::scope(|scope| {
        let counts = [&here, &there].map(|service| {
            scope
                .spawn(move || (0..VISITS).try_for_each(|_| service.count("home").map(drop)).map_err(|e| e.to_string()))
        });
        counts.into_iter().try_for_each(|count| count.join().expect("it does not panic"))
    })?;
    let total = here.count("home")? - 1;
    if total != 2 * VISITS {
        return Err(format!("{total} visits were counted of {}", 2 * VISITS).into());
    }
    let made = pages.next().ok_or("a watch is endless")??;
    here.forget("home")?;
    let gone = pages.next().ok_or("a watch is endless")??;
    match (made, gone) {
        (SegmentEvent::Created(made), SegmentEvent::Released(gone)) if made.name == gone => {
            println!("the other service saw {gone} come and go");
        }
        other => return Err(format!("the other service saw {other:?}").into()),
    }

    let folder = node.directory().to_owned();
    drop(node);
    if folder.exists() {
        return Err(format!("{} was left behind", folder.display()).into());
    }
    println!("{total} visits in a node of this process, which left nothing behind");
    Ok(())
}
