//! Example of the cache: a slow page is rendered once for all processes of all nodes. Run several together, on several
//! nodes.

use std::error::Error;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use ddss::Client;
use ddss_apps::cache::{Cache, CacheOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::connect()?;
    let options = CacheOptions { age_max: Duration::from_secs(10), ..CacheOptions::default() };
    let pages = Cache::open(&client, "example/pages", options)?;
    let mut out = io::stdout().lock();
    for turn in 1..=3 {
        let begin = Instant::now();
        let page = pages.get_or_load(b"/index.html", || {
            thread::sleep(Duration::from_millis(300));
            Ok::<_, ddss_apps::Error>(b"<h1>slow</h1>".to_vec())
        })?;
        writeln!(out, "turn {turn}: {} bytes after {:?}", page.len(), begin.elapsed())?;
    }
    Ok(())
}
