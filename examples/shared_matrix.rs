//! **A shared matrix.** Workers on two nodes multiply two matrices, block by block, into a third one.
//!
//! ```sh
//! cargo run --release --example shared_matrix
//! ```
//!
//! The factors are typed slices of more than 1 MiB: each worker reads each of them under one version. The product is a
//! table with one row of the matrix in each row, so workers never disturb each other. A worker takes the next block
//! with `fetch_add`, so that a fast one takes more. One worker is killed; the block that it had taken is found by the
//! versions of its rows, and computed by another process.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Array, Client, Spec, Table, Version};
use ddss_examples::{Failed, Nodes, PATIENCE, Task, check, open_soon};

const LEFT: &str = "examples/matrix/left";
const RIGHT: &str = "examples/matrix/right";
const PRODUCT: &str = "examples/matrix/product";
const NEXT: &str = "examples/matrix/next";
/// Rows and columns.
const SIZE: usize = 384;
const BLOCK_ROWS: usize = 8;
const BLOCKS: u64 = (SIZE / BLOCK_ROWS) as u64;

type Row = [f64; SIZE];

fn main() -> Result<(), Failed> {
    match Task::given() {
        Some(task) => work(&task),
        None => multiply(),
    }
}

/// Computes one block of rows of the product.
fn compute(left: &[Row], right: &[Row], product: &Table<Row>, block: u64) -> Result<(), Failed> {
    let first = block as usize * BLOCK_ROWS;
    for (row, factors) in left.iter().enumerate().skip(first).take(BLOCK_ROWS) {
        let mut sums: Row = [0.0; SIZE];
        for (factor, line) in factors.iter().zip(right) {
            sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += factor * value);
        }
        // A row that another worker has computed already stays.
        match product.row(row as u64).put_if(Version(0), &sums) {
            Err(error) if error.kind() == ddss::ErrorKind::VersionMismatch => {}
            ended => drop(ended?),
        }
    }
    Ok(())
}

/// A worker takes blocks until none is left.
fn work(task: &Task) -> Result<(), Failed> {
    let client = task.client()?;
    let (left, right) = (factor(&client, LEFT)?, factor(&client, RIGHT)?);
    let product = Table::try_from(open_soon(&client, PRODUCT)?)?;
    let next = open_soon(&client, NEXT)?;
    let mut computed = 0;
    loop {
        let block = next.word(0).fetch_add(1)?.before;
        if block >= BLOCKS {
            println!("  a worker on {} computed {computed} of {BLOCKS} blocks", client.node());
            return Ok(());
        }
        if task.name == "hang" {
            // Until it is killed, with its block.
            std::thread::sleep(PATIENCE);
        }
        compute(&left, &right, &product, block)?;
        computed += 1;
    }
}

/// Reads a whole factor, all of one version.
fn factor(client: &Client, name: &str) -> Result<Vec<Row>, Failed> {
    let matrix: Array<Row> = open_soon(client, name)?.array(0)?;
    let mut rows = vec![[0.0; SIZE]; SIZE];
    matrix.get_into(0, &mut rows)?;
    Ok(rows)
}

/// Small integers, so that sums of products are exact in whatever order they are added.
fn element(row: usize, column: usize, salt: usize) -> f64 {
    ((row * 7 + column * 13 + salt) % 17) as f64 - 8.0
}

/// Multiplies a matrix and a vector.
fn apply(matrix: &[Row], vector: &Row) -> Row {
    std::array::from_fn(|row| matrix[row].iter().zip(vector).map(|(left, right)| left * right).sum())
}

fn multiply() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let client = nodes.client(0)?;
    let new =
        |salt| -> Vec<Row> { (0..SIZE).map(|row| std::array::from_fn(|column| element(row, column, salt))).collect() };
    let (left, right) = (new(1), new(5));
    let mut factors = Vec::new();
    for (name, matrix) in [(LEFT, &left), (RIGHT, &right)] {
        let shared = client.segment(name).allocate((SIZE * size_of::<Row>()) as u64)?;
        shared.array::<Row>(0)?.put_slice(0, matrix)?;
        factors.push(shared);
    }
    let product: Table<Row> = client.table(PRODUCT).allocate(SIZE as u64)?;
    let next = client.segment(NEXT).allocate(Spec::new(8))?;
    let unlucky = nodes.worker(1, "hang")?;
    next.with_timeout(PATIENCE).wait_newer_than(Version(0))?;
    unlucky.kill()?;
    let workers: Result<Vec<_>, _> = (0..4).map(|index| nodes.worker(index, "multiply")).collect();
    for worker in workers? {
        worker.finish()?;
    }
    // A block that its worker never computed has rows of version 0.
    let mut recovered = 0;
    for block in 0..BLOCKS {
        if product.row(block * BLOCK_ROWS as u64).get()?.stamp.version == Version(0) {
            compute(&left, &right, &product, block)?;
            recovered += 1;
        }
    }
    verify(&left, &right, &product)?;
    for shared in factors {
        shared.release()?;
    }
    next.release()?;
    product.segment().release()?;
    check(recovered == 1, || format!("{recovered} blocks of one dead worker"))?;
    println!("{BLOCKS} blocks by workers on two nodes, the one of a dead worker recovered, and the product is right");
    Ok(())
}

/// Compares the product's effect on vectors with that of its factors.
fn verify(left: &[Row], right: &[Row], product: &Table<Row>) -> Result<(), Failed> {
    let mut rows = Vec::with_capacity(SIZE);
    for row in 0..SIZE {
        let found = product.row(row as u64).get()?;
        check(found.stamp.version == Version(1), || format!("row {row} has {}", found.stamp.version))?;
        rows.push(found.value);
    }
    for salt in 0..4 {
        let vector: Row = std::array::from_fn(|index| element(index, salt, 3));
        check(apply(&rows, &vector) == apply(left, &apply(right, &vector)), || "the product is wrong".to_owned())?;
    }
    Ok(())
}
