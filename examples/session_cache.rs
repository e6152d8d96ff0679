//! **A cache of sessions.** Two services on two nodes share the sessions of their users in one map. Each session counts
//! the requests of its user, and old sessions expire.
//!
//! ```sh
//! cargo run --example session_cache
//! ```
//!
//! If both services begin a session at the same time, it is created once, and no request is lost.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Client, EntryOptions, Map, Update};
use ddss_examples::{Failed, Nodes, PATIENCE, Task, check};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const NAME: &str = "examples/sessions";
const USERS: u64 = 500;
const REQUESTS: u64 = 4;

/// State of a session.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[repr(C)]
struct Session {
    user: u64,
    requests: u64,
    basket: [u32; 12],
}

type Sessions = Map<[u8; 16], Session>;

/// The token of a user's browser.
fn token(user: u64) -> [u8; 16] {
    (u128::from(user) << 64 | 0x5e55_1047).to_le_bytes()
}

fn main() -> Result<(), Failed> {
    match Task::given() {
        Some(task) => serve(&task.client()?),
        None => start(),
    }
}

/// A service: begins sessions that are new, and counts each request.
fn serve(client: &Client) -> Result<(), Failed> {
    let sessions: Sessions = client.map(NAME).wait()?;
    let mut begun = 0;
    for request in 0..REQUESTS * USERS {
        let user = request % USERS;
        let new = Session { user, requests: 0, basket: [0; 12] };
        let (session, is_new) = sessions.get_or_put(&token(user), &new)?;
        begun += u64::from(is_new);
        check(session.user == user, || format!("the session of user {user} is {session:?}"))?;
        let count = |session: Session| Update::Put(Session { requests: session.requests + 1, ..session });
        sessions.update(&token(user), |session| session.map_or(Update::Keep, |session| count(session.value)))?;
    }
    println!("  a service on {}: {begun} sessions begun, {} requests served", client.node(), REQUESTS * USERS);
    Ok(())
}

fn start() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let client = nodes.client(0)?;
    let sessions: Sessions = client.map(NAME).allocate(USERS)?;
    let services = [nodes.worker(0, "serve")?, nodes.worker(1, "serve")?];
    for service in services {
        service.finish()?;
    }
    for user in 0..USERS {
        let session = sessions.get(&token(user))?;
        let is_whole = session.is_some_and(|session| (session.user, session.requests) == (user, 2 * REQUESTS));
        check(is_whole, || format!("the session of user {user} is {session:?}"))?;
    }
    let counted = sessions.len()?;
    check(counted == USERS, || format!("{counted} sessions of {USERS} users"))?;

    // A session that is not used any more expires.
    let idle = Session { user: 1, requests: 0, basket: [0; 12] };
    sessions.put_with(&token(1), &idle, EntryOptions::new().ttl(Duration::from_millis(1)))?;
    let began = Instant::now();
    while sessions.get(&token(1))?.is_some() {
        check(began.elapsed() < PATIENCE, || "a session does not expire".to_owned())?;
    }
    sessions.segment().release()?;
    println!("{USERS} sessions, each begun once, with all requests of both services");
    Ok(())
}
