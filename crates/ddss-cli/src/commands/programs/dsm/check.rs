//! `dsm run --check`: traces of the ranks, and the races in them.

use crate::error::CommandError;
use ddss_dsm::Races;
use std::path::{Path, PathBuf};

/// Races that are shown.
const SHOWN_MAX: usize = 20;

/// Folder with the traces of one run, which is removed when this value is dropped.
pub(super) struct Traces(PathBuf);

impl Traces {
    pub(super) fn create(attempt: u32) -> Result<Self, CommandError> {
        let folder = std::env::temp_dir().join(format!("ddss-dsm-check-{}-{attempt}", std::process::id()));
        std::fs::create_dir(&folder).map_err(CommandError::file("create", &folder))?;
        Ok(Self(folder))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Prints the races that the ranks have left in their traces. Fails if there is one, and if ranks that `have_ended` well
    /// have accesses that were not compared.
    pub(super) fn report(&self, have_ended: bool) -> Result<(), CommandError> {
        let spaces = Races::find(&self.0)?;
        if spaces.is_empty() && have_ended {
            let why = "no rank has left a trace: the program joins with the options of `ddss_dsm::Launch`";
            return Err(CommandError::Refused(why.to_owned()));
        }
        let mut found = 0;
        for races in &spaces {
            let space = if spaces.len() > 1 { format!(" in {}", races.space) } else { String::new() };
            for (race, barriers, count) in races.found.iter().take(SHOWN_MAX) {
                let times = if *count > 1 { format!(", {count} times") } else { String::new() };
                println!("race: {race} behind barrier {barriers}{times}{space}");
            }
            if races.found.len() > SHOWN_MAX {
                println!("and {} more{space}", races.found.len() - SHOWN_MAX);
            }
            for rank in &races.incomplete {
                eprintln!("ddss: rank {rank} did not leave the space{space}: races behind its last call are not found");
            }
            found += races.found.len();
        }
        if found > 0 {
            return Err(CommandError::Refused(format!("{found} races: order these accesses by a barrier or a lock")));
        }
        if have_ended && spaces.iter().any(|races| !races.incomplete.is_empty()) {
            let why = "the check is not complete: each rank has to leave its spaces before it ends";
            return Err(CommandError::Refused(why.to_owned()));
        }
        Ok(())
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // A folder that is left is in the way of no other run.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
