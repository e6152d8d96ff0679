//! Network namespace and core of a thread.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Error;

/// Moves the calling thread into the network namespace called `name`, permanently. Processes that it starts from now on
/// begin there.
pub fn enter(name: &str) -> Result<(), Error> {
    let path = Path::new("/run/netns").join(name);
    let moved = File::open(&path)
        .and_then(|file| Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?));
    moved.map_err(Error::system(format!("entering network namespace {name}")))
}
