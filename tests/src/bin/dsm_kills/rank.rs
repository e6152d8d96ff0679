//! The program of a rank: it locks, computes, meets the others, and writes checkpoints.

use std::time::Duration;

use ddss::Client;
use ddss_dsm::{Homes, Launch, Region, Space, SpaceError};

use crate::Failed;
use crate::plate::{SIZE, band, cold, step, sum};

/// Deadline of a call.
const PATIENCE: Duration = Duration::from_secs(60);

/// Computes so many steps, with a checkpoint after each of `every`.
pub(crate) fn play(steps: u64, every: u64) -> Result<(), Failed> {
    let launch = Launch::from_environment()?;
    println!("pid {} {}", launch.rank, std::process::id());
    let ended = run(&launch, steps, every);
    if let Err(error) = &ended {
        println!("rank {}: {error}", launch.rank);
    }
    Ok(ended?)
}

fn run(launch: &Launch, steps: u64, every: u64) -> Result<(), SpaceError> {
    let client = Client::connect().map_err(|error| SpaceError::System(std::io::Error::other(error)))?;
    let mut space = Space::join(&client, &launch.space, launch.options(1 << 20).timeout(PATIENCE))?;
    let plates = [
        space.region::<f64>("even steps", SIZE * SIZE, Homes::FirstTouch)?,
        space.region::<f64>("odd steps", SIZE * SIZE, Homes::Blocks(1))?,
    ];
    let turns = space.region::<u64>("turns", 1, Homes::FirstTouch)?;
    println!("joined {} {}", launch.rank, space.restored().unwrap_or(0));
    if space.restored().is_none() && launch.rank == 0 {
        for plate in &plates {
            plate.write(&space, ..)?.copy_from_slice(&cold());
        }
    }
    space.barrier()?;
    for count in space.restored().unwrap_or(0)..steps {
        compute(&mut space, &plates, &turns, count)?;
        if every > 0 && (count + 1).is_multiple_of(every) {
            space.checkpoint(count + 1)?;
        }
    }
    if launch.rank == 0 {
        let plate = plates[(steps % 2) as usize].read(&space, ..)?;
        println!("result {} {}", sum(&plate), turns.get(&space, 0)?);
    }
    space.leave()
}

fn compute(space: &mut Space, plates: &[Region<f64>; 2], turns: &Region<u64>, count: u64) -> Result<(), SpaceError> {
    let [from, to] = [plates[(count % 2) as usize], plates[((count + 1) % 2) as usize]];
    let rows = band(space.rank().into());
    {
        let before = from.read(space, (rows.start - 1) * SIZE..(rows.end + 1) * SIZE)?;
        let mut after = to.write(space, rows.start * SIZE..rows.end * SIZE)?;
        step(&before, &mut after);
    }
    let section = space.lock(1)?;
    turns.write(&section, ..)?[0] += 1;
    section.unlock()?;
    space.barrier()
}
