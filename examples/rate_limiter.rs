//! **A rate limiter.** Services on two nodes share one limit for each customer, and never admit one request too many.
//!
//! ```sh
//! cargo run --example rate_limiter
//! ```
//!
//! Each customer has a row of a table with a bucket of tokens. A request takes one with `checked_sub`, which does nothing
//! when none is left: one round trip to the home of the table, and no lock. A refill is `fetch_max`: it fills the bucket up
//! to its limit, however many tokens are left, so a refill that comes twice does no harm.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Client, Spec, Table};
use ddss_examples::{Failed, Nodes, Task, check, open_soon};

const NAME: &str = "examples/limits";
const CUSTOMERS: u64 = 20;
/// Tokens of a full bucket.
const LIMIT: u64 = 50;
const REFILLS: u64 = 4;
const SERVICES: usize = 4;
/// Requests of each customer at each service: more than all refills together permit.
const REQUESTS: u64 = 200;

/// Words of a row.
const TOKENS: u64 = 0;
const ADMITTED: u64 = 8;
const REFUSED: u64 = 16;

fn main() -> Result<(), Failed> {
    match Task::given() {
        Some(task) => serve(&task.client()?),
        None => limit(),
    }
}

/// Takes a token of a customer, and returns true if there was one.
fn is_admitted(buckets: &Table, customer: u64) -> Result<bool, ddss::Error> {
    Ok(buckets.row(customer).word(TOKENS).checked_sub(1)?.before > 0)
}

/// A service: admits requests of all customers in turn, and reports how many.
fn serve(client: &Client) -> Result<(), Failed> {
    let buckets = <Table>::try_from(open_soon(client, NAME)?)?;
    let mut admitted = [0; CUSTOMERS as usize];
    for request in 0..REQUESTS * CUSTOMERS {
        let customer = request % CUSTOMERS;
        admitted[customer as usize] += u64::from(is_admitted(&buckets, customer)?);
    }
    for (customer, admitted) in (0..).zip(admitted) {
        buckets.row(customer).word(ADMITTED).fetch_add(admitted)?;
        buckets.row(customer).word(REFUSED).fetch_add(REQUESTS - admitted)?;
    }
    println!("  a service on {} admitted {} requests", client.node(), admitted.iter().sum::<u64>());
    Ok(())
}

/// Fills the bucket of each customer, and returns the number of tokens that were added.
fn refill(buckets: &Table) -> Result<[u64; CUSTOMERS as usize], Failed> {
    let mut added = [0; CUSTOMERS as usize];
    for (customer, added) in (0..).zip(&mut added) {
        *added = LIMIT.saturating_sub(buckets.row(customer).word(TOKENS).fetch_max(LIMIT)?.before);
    }
    Ok(added)
}

fn limit() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let buckets = nodes.client(0)?.table::<[u8]>(NAME).allocate(Spec::new(CUSTOMERS).row_len(24))?;
    let mut granted = refill(&buckets)?;
    let services: Result<Vec<_>, _> = (0..SERVICES).map(|index| nodes.worker(index, "serve")).collect();
    for _ in 0..REFILLS {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let added = refill(&buckets)?;
        granted.iter_mut().zip(added).for_each(|(granted, added)| *granted += added);
    }
    for service in services? {
        service.finish()?;
    }
    let mut total = 0;
    for (customer, granted) in (0..).zip(granted) {
        let row = buckets.row(customer).get()?;
        let word = |at: u64| u64::from_le_bytes(std::array::from_fn(|byte| row[at as usize + byte]));
        let (left, admitted, refused) = (word(TOKENS), word(ADMITTED), word(REFUSED));
        check(admitted + left == granted, || {
            format!("customer {customer} had {granted} tokens: {admitted} requests admitted and {left} tokens left")
        })?;
        check(admitted + refused == SERVICES as u64 * REQUESTS, || format!("{refused} requests were refused"))?;
        total += admitted;
    }
    buckets.segment().release()?;
    check(total >= CUSTOMERS * LIMIT, || format!("{total} requests were admitted"))?;
    println!("{SERVICES} services on two nodes: each token of {CUSTOMERS} customers admitted one request");
    Ok(())
}
