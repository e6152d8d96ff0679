//! **A checkpoint.** A long computation saves its state regularly. It is killed three times, resumes each time, on the
//! other node if need be, and gets the same result.
//!
//! ```sh
//! cargo run --example checkpoint
//! ```
//!
//! A put is atomic even if its process is killed, so one segment is enough and no file is renamed. `put_if` commits
//! only on the version that was read: if two workers ever run, the second fails at its next checkpoint and ends.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Cell, Spec};
use ddss_examples::{Failed, Nodes, Task, check, open_soon};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const NAME: &str = "examples/checkpoint";
const STEPS: u64 = 3_000;
/// Steps between two checkpoints.
const STEPS_EACH: u64 = 10;
/// Steps after which the worker is killed.
const KILLS: [u64; 3] = [500, 1_000, 2_000];

/// Complete state of the computation: 32 KiB.
#[derive(FromBytes, IntoBytes, Immutable, Clone, PartialEq)]
#[repr(C)]
struct State {
    steps: u64,
    cells: [u64; 4095],
}

impl State {
    fn new() -> Self {
        Self { steps: 0, cells: std::array::from_fn(|index| index as u64 + 1) }
    }

    /// Runs one step: each cell is mixed with its neighbour, so that one wrong byte would spoil all later results.
    fn step(&mut self) {
        for index in 0..self.cells.len() {
            let neighbour = self.cells[(index + 1) % self.cells.len()];
            self.cells[index] = (self.cells[index] ^ neighbour.rotate_left(7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.steps += 1;
    }
}

fn main() -> Result<(), Failed> {
    match Task::given() {
        Some(task) => compute(&task),
        None => start(),
    }
}

/// The worker: reads the last checkpoint, and continues from there.
fn compute(task: &Task) -> Result<(), Failed> {
    let client = task.client()?;
    let checkpoint: Cell<State> = open_soon(&client, NAME)?.cell(0)?;
    let last = checkpoint.get()?;
    let (mut state, mut version) = (last.value, last.stamp.version);
    println!("  a worker on {} goes on from step {}", client.node(), state.steps);
    while state.steps < STEPS {
        for _ in 0..STEPS_EACH {
            state.step();
        }
        version = checkpoint.put_if(version, &state)?.version;
    }
    Ok(())
}

fn start() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let segment = nodes.client(0)?.segment(NAME).allocate(Spec::new(size_of::<State>() as u64))?;
    let checkpoint: Cell<State> = segment.cell(0)?;
    checkpoint.put(&State::new())?;
    for (life, kill_at) in KILLS.into_iter().enumerate() {
        let worker = nodes.worker(life, "compute")?;
        let mut steps = 0;
        for stamp in segment.watch() {
            stamp?;
            steps = checkpoint.get()?.value.steps;
            if steps >= kill_at {
                break;
            }
        }
        worker.kill()?;
        println!("  the worker was killed; at least {steps} of {STEPS} steps are safe");
    }
    nodes.worker(KILLS.len(), "compute")?.finish()?;
    let result = checkpoint.get()?.value;
    segment.release()?;
    let mut expected = State::new();
    (0..STEPS).for_each(|_| expected.step());
    check(result == expected, || format!("step {} is not what it has to be", result.steps))?;
    println!("{STEPS} steps in {} lives: the same result as in one", KILLS.len() + 1);
    Ok(())
}
