//! Example of the lock manager: transfers between two accounts, each under both locks. Run several together: a process
//! that holds both locks never sees half of a transfer.

use std::error::Error;
use std::io::{self, Write};

use ddss::{Cell, Client, ErrorKind, Version};
use ddss_apps::locks::LockManager;

fn account(client: &Client, name: &str) -> Result<Cell<i64>, ddss::Error> {
    let account = client.segment(name).open_or_allocate(8)?.cell(0)?;
    match account.put_if(Version(0), &100) {
        // Another process has opened it.
        Err(error) if error.kind() == ErrorKind::VersionMismatch => {}
        put => drop(put?),
    }
    Ok(account)
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
