//! Example of the lock manager: transfers between two accounts, each under both locks. Run several together: a process
//! that holds both locks never sees half of a transfer.

use std::error::Error;
use std::io::{self, Write};

use ddss::{Client, ErrorKind, Shared};
use ddss_apps::locks::LockManager;

fn account(client: &Client, name: &str) -> Result<Shared<i64>, ddss::Error> {
    match Shared::allocate(client, name, &100) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Shared::open(client, name),
        made => made,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::connect()?;
    let [alice, bob] = ["example/alice", "example/bob"].map(|name| account(&client, name));
    let (alice, bob) = (alice?, bob?);
    let locks = LockManager::new(&client, "example");
    for _ in 0..1000 {
        // A process that names them in the opposite order gets them in the same order.
        let held = locks.acquire_all(&["alice", "bob"])?;
        alice.update(|balance| *balance -= 1)?;
        bob.update(|balance| *balance += 1)?;
        drop(held);
    }
    let (alice, bob) = (alice.get()?, bob.get()?);
    writeln!(io::stdout(), "alice has {}, bob has {}", alice.value, bob.value)?;
    Ok(())
}
