//! Locks of rows with real daemons: two nodes, holders that are killed, and leases that end.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, Error, ErrorKind, LockOptions, Spec, Table, Version};
use ddss_testkit::{Daemon, ScriptedClient, retry};
use std::time::Duration;

const CLIENT: &str = env!("CARGO_BIN_EXE_client");
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout of calls that are expected to time out.
const HASTE: Duration = Duration::from_millis(50);

fn client(daemon: &Daemon, timeout: Duration) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(timeout)).expect("the daemon serves")
}

fn open(daemon: &Daemon, name: &str, timeout: Duration) -> Table {
    let client = client(daemon, PATIENCE);
    let segment = retry(|| client.table::<[u8]>(name).open()).segment().with_timeout(timeout);
    <Table>::try_from(segment).unwrap()
}

fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

// If this failed, a row would stay locked after the death of its holder, or a holder would stop the other rows.
#[test]
fn row_lock_of_a_killed_holder_is_released_and_other_rows_serve_meanwhile() {
    let [home, other] = Daemon::pair().unwrap();
    let table = client(&home, PATIENCE).table::<[u8]>("rows").allocate(Spec::new(10).row_len(64)).unwrap();
    table.row(3).put(b"before").unwrap();
    for holder_at in [&home, &other] {
        open(holder_at, "rows", PATIENCE);
        let mut holder = ScriptedClient::start(CLIENT, holder_at.folder(), "auto").unwrap();
        assert!(holder.ask("open rows").unwrap().starts_with("ok"));
        let version = table.row(3).get().unwrap().version();
        assert_eq!(holder.ask("lock-row 3").unwrap(), format!("ok version {}", version.0));
        for daemon in [&home, &other] {
            let (rows, hasty) = (open(daemon, "rows", PATIENCE), open(daemon, "rows", HASTE));
            assert_eq!(failure(rows.row(3).lock_with(LockOptions::new().timeout(Duration::ZERO))), ErrorKind::Locked);
            assert_eq!(failure(hasty.row(3).get()), ErrorKind::TimedOut, "a strict get waits");
            assert_eq!(failure(hasty.row(3).put(b"they")), ErrorKind::TimedOut);
            let put = rows.row(4).put(b"free").unwrap();
            assert_eq!(rows.row(4).get().unwrap().stamp, put);
            let second = rows.row(5).lock().unwrap();
            second.word(0).fetch_add(1).unwrap();
            assert_eq!(second.get().unwrap().version(), Version(second.version().0 + 1), "its own get does not wait");
            second.unlock().unwrap();
        }
        holder.kill().unwrap();
        for daemon in [&home, &other] {
            let rows = open(daemon, "rows", PATIENCE);
            let next = rows.row(3).lock().unwrap();
            let put = next.put_if(next.version(), b"after").unwrap();
            assert_eq!((next.get().unwrap().stamp, &next.get().unwrap()[..5]), (put, &b"after"[..]));
        }
    }
}

// If this failed, a holder that was stopped for too long would overwrite the row of its successor on another node.
#[test]
fn row_lock_is_lost_with_its_lease_on_every_node() {
    let [home, other] = Daemon::pair().unwrap();
    client(&home, PATIENCE).table::<[u8]>("rows").allocate(Spec::new(10).row_len(64)).unwrap();
    for (late_at, next_at) in [(&home, &other), (&other, &home)] {
        let (late, next) = (open(late_at, "rows", PATIENCE), open(next_at, "rows", PATIENCE));
        let short = LockOptions::new().lease(Duration::from_millis(20));
        let (lost, long) = (late.row(1).lock_with(short).unwrap(), late.row(2).lock().unwrap());
        let won = next.row(1).lock().unwrap();
        assert!(won.token() > lost.token(), "tokens grow");
        let put = won.put(b"won").unwrap();
        assert_eq!(failure(lost.put(b"late")), ErrorKind::LockLost);
        assert_eq!(failure(lost.word(8).fetch_add(1)), ErrorKind::LockLost);
        assert_eq!(failure(lost.renew()), ErrorKind::LockLost);
        assert_eq!(failure(lost.unlock()), ErrorKind::LockLost);
        assert_eq!(won.get().unwrap().stamp, put);
        // The lock of another row by the same client is still in force.
        long.put(b"mine").unwrap();
        assert_eq!(failure(late.row(2).put(b"past the guard")), ErrorKind::OwnLock);
        let whole = next.segment().with_timeout(HASTE);
        assert_eq!(failure(whole.lock()), ErrorKind::TimedOut, "rows are locked");
        won.unlock().unwrap();
        long.unlock().unwrap();
        next.segment().lock().unwrap().unlock().unwrap();
    }
}

// If this failed, two clients on two nodes would change one row under its lock at the same time.
#[test]
fn row_locks_of_two_nodes_lose_no_update() {
    const ROUNDS: u64 = 60;
    let [home, other] = Daemon::pair().unwrap();
    let table = client(&home, PATIENCE).table::<[u8]>("rows").allocate(Spec::new(3).row_len(16)).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let rows = open(if worker % 2 == 0 { &home } else { &other }, "rows", PATIENCE);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let held = rows.row((worker + round) % 3).lock().unwrap();
                    let mut word = [0; 8];
                    held.get_into(0, &mut word).unwrap();
                    held.put(&(u64::from_le_bytes(word) + 1).to_le_bytes()).unwrap();
                    held.unlock().unwrap();
                }
            });
        }
    });
    let values = (0..3).map(|row| table.row(row).get().unwrap());
    let sum: u64 = values.map(|value| u64::from_le_bytes(value[..8].try_into().unwrap())).sum();
    assert_eq!(sum, 4 * ROUNDS);
}
