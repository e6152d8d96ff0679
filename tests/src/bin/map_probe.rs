//! Tries to map the areas of a node's memory, and prints the result. Tests run it as another user.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it talks to its test")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let socket = PathBuf::from(std::env::args().nth(1).ok_or("usage: look SOCKET")?);
    for area in 0..8 {
        match ddss_ipc::SharedMemory::map_area(&socket, area, Duration::from_secs(5)) {
            Ok(Some(memory)) if memory.store(0, 1, Ordering::Relaxed).is_err() => {
                println!("area {area}: open, to be read only");
            }
            Ok(Some(_)) => println!("area {area}: open, to be written"),
            Ok(None) => println!("area {area}: the daemon refused"),
            Err(error) => println!("area {area}: {error}"),
        }
    }
    Ok(())
}
