//! Tables with real daemons: rows over two nodes, and the death of a client or a daemon in the middle of a put.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, Error, ErrorKind, Mode, Permissions, RowEvent, Spec, Storage, Version};
use ddss_testkit::{Daemon, ScriptedClient, pattern, retry};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const CLIENT: &str = env!("CARGO_BIN_EXE_client");

fn client(daemon: &Daemon, near: bool) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(near))
        .expect("the daemon serves")
}

// If this failed, a row would have different bytes or another version on another node.
#[test]
fn rows_of_a_table_are_read_and_written_on_both_nodes() {
    let [home, other] = Daemon::pair().unwrap();
    for row_bytes in [8, 200, 5000, 60_000] {
        let name = format!("rows-{row_bytes}");
        let here = client(&home, true).table::<[u8]>(&name).allocate(Spec::new(5).row_len(row_bytes)).unwrap();
        let there_client = client(&other, true);
        let there = retry(|| there_client.table::<[u8]>(&name).open());
        let served = client(&home, false).table::<[u8]>(&name).open().unwrap();
        let length = row_bytes as usize;
        for round in 1..4u64 {
            for row in 0..5 {
                let seed = round * 10 + row;
                let writer = if (round + row) % 2 == 0 { &here } else { &there };
                let bytes = pattern(seed, length);
                let put = writer.row(row).put_if(Version(round - 1), &bytes).unwrap();
                assert_eq!(put.version, Version(round));
                for reader in [&here, &there, &served] {
                    let value = reader.row(row).get().unwrap();
                    assert_eq!((value.stamp, &value[..]), (put, &bytes[..]), "{row_bytes}");
                    let late = reader.row(row).put_if(Version(round - 1), &[0; 8]).unwrap_err();
                    assert_eq!(late.kind(), ErrorKind::VersionMismatch);
                }
            }
        }
        assert_eq!(there.row(4).word(0).fetch_add(0).unwrap().stamp.version, Version(4));
        let crossing = there.segment().get(u64::from(row_bytes) - 1..u64::from(row_bytes) + 1).unwrap_err();
        assert_eq!(crossing.kind(), ErrorKind::OutOfRange);
        // New permissions move a table.
        here.segment()
            .set_permissions(Permissions { mode: Mode(0o644), ..here.segment().stat().unwrap().permissions })
            .unwrap();
        for reader in [&here, &there, &served] {
            assert_eq!(reader.row(3).get().unwrap()[..], pattern(33, length)[..]);
        }
        there.segment().release().unwrap();
        assert_eq!(here.row(0).get().unwrap_err().kind(), ErrorKind::NotFound);
    }
}

// If this failed, a crash of one application would leave half of a row to all others.
#[test]
fn row_put_is_atomic_when_writer_is_killed() {
    let [home, other] = Daemon::pair().unwrap();
    let row_bytes = 100_000;
    let table = client(&home, true).table::<[u8]>("torn").allocate(Spec::new(2).row_len(row_bytes)).unwrap();
    table.row(1).put(&pattern(5, row_bytes as usize)).unwrap();
    let far_client = client(&other, true);
    let far = retry(|| far_client.table::<[u8]>("torn").open());
    for daemon in [&home, &other] {
        let mut writer = ScriptedClient::start(CLIENT, daemon.folder(), "auto").unwrap();
        assert!(writer.ask("open torn").unwrap().starts_with("ok"));
        // The scripted client puts offset 0 on: row 0.
        assert_eq!(writer.ask(&format!("put-for-ever {row_bytes}")).unwrap(), "ok writing");
        let before = table.row(0).get().unwrap().version();
        while table.row(0).get().unwrap().version().0 < before.0 + 20 {}
        writer.kill().unwrap();
        for reader in [&table, &far] {
            let value = reader.row(0).get().unwrap();
            // It writes two patterns in turn.
            assert!([0, 1].into_iter().any(|seed| value[..] == pattern(seed, row_bytes as usize)[..]), "a torn row");
            assert_eq!(reader.row(1).get().unwrap()[..], pattern(5, row_bytes as usize)[..]);
        }
        let version = table.row(0).get().unwrap().version();
        assert_eq!(far.row(0).put_if(version, b"next").unwrap().version.0, version.0 + 1);
    }
}

// If this failed, an acknowledged put of a row would be lost with its daemon, or half of another one would stay.
#[test]
fn row_put_is_atomic_when_daemon_is_killed() {
    const ROW_BYTES: usize = 100_000;
    for storage in [Storage::Memory, Storage::File] {
        let mut daemon = Daemon::start(1).unwrap();
        let spec = Spec::new(3).row_len(ROW_BYTES as u32).storage(storage);
        let table = client(&daemon, true).table::<[u8]>("rows").allocate(spec).unwrap();
        table.row(0).put(&pattern(1, ROW_BYTES)).unwrap();
        let mut last = 0;
        for round in 0..4 {
            // The last put waits this long for the dead daemon.
            let writer =
                Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(Duration::from_secs(1)))
                    .unwrap();
            let rows = writer.table::<[u8]>("rows").open().unwrap();
            let began = last;
            let put = std::thread::spawn(move || {
                let mut last = began;
                while rows.row(1).put(&pattern(last + 1, ROW_BYTES)).is_ok() {
                    last += 1;
                }
                last
            });
            std::thread::sleep(Duration::from_millis(30 + 7 * round));
            daemon.kill().unwrap();
            let acknowledged = put.join().unwrap();
            daemon.restart().unwrap();
            let value = table.row(1).get().unwrap();
            // The version counts the puts, so it names the put whose bytes the row must hold.
            assert!([acknowledged, acknowledged + 1].contains(&value.version().0), "{storage:?}: a put was lost");
            last = value.version().0;
            assert!(last == 0 || value[..] == pattern(last, ROW_BYTES)[..], "{storage:?}: a mix of two puts");
            assert_eq!(table.row(0).get().unwrap()[..], pattern(1, ROW_BYTES)[..]);
            assert_eq!(table.row(2).get().unwrap().version(), Version(0));
        }
        assert!(last > 0, "nothing was put");
        let put = table.row(1).put_if(Version(last), b"after").unwrap();
        assert_eq!(put.version.0, last + 1);
    }
}

/// Finds the file below a directory that contains these bytes, and their offset.
fn find_bytes(folder: &Path, wanted: &[u8]) -> Option<(PathBuf, usize)> {
    std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return find_bytes(&path, wanted);
        }
        let bytes = std::fs::read(&path).ok()?;
        bytes.windows(wanted.len()).position(|part| part == wanted).map(|at| (path, at))
    })
}

// If this failed, a program would retry forever on a damaged row, or the complete table would be lost with it.
#[test]
fn damaged_row_has_an_error_of_its_own_and_other_rows_serve() {
    const HEADER_BYTES: usize = 16;
    let [mut home, other] = Daemon::pair().unwrap();
    let table = client(&home, true).table::<[u8]>("damaged").allocate(Spec::new(3).row_len(64)).unwrap();
    let marker: Vec<u8> = pattern(77, 64);
    for (row, bytes) in [(0, &[1; 64][..]), (1, &marker), (2, &[2; 64])] {
        table.row(row).put(bytes).unwrap();
    }
    let far_client = client(&other, true);
    let far = retry(|| far_client.table::<[u8]>("damaged").open());
    home.kill().unwrap();
    let (path, at) = find_bytes(home.folder(), &marker).expect("the row outlives its daemon");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut state = [0; 8];
    file.read_exact_at(&mut state, (at - HEADER_BYTES) as u64).unwrap();
    assert_eq!(u64::from_le_bytes(state), 2, "version 1, and no commit under way");
    // A version that no entry of the undo log names, in the middle of its commit.
    file.write_all_at(&101u64.to_le_bytes(), (at - HEADER_BYTES) as u64).unwrap();
    home.restart().unwrap();
    let served = client(&home, false).table::<[u8]>("damaged").open().unwrap();
    for reader in [&table, &far, &served] {
        retry(|| reader.row(0).get());
        for error in [
            reader.row(1).get().unwrap_err(),
            reader.row(1).put(b"x").unwrap_err(),
            reader.row(1).word(0).fetch_add(1).unwrap_err(),
        ] {
            assert_eq!(
                (error.kind(), error.is_indeterminate(), error.is_retryable()),
                (ErrorKind::Damaged, false, false)
            );
        }
        assert_eq!(
            (&reader.row(0).get().unwrap()[..], &reader.row(2).get().unwrap()[..]),
            (&[1; 64][..], &[2; 64][..])
        );
        reader.row(2).put(&[2; 64]).unwrap();
    }
    // The table can still be released.
    far.segment().release().unwrap();
}

// If this failed, a cache in front of a table would keep an old row: of another node, or after a restart of the home.
#[test]
fn watches_of_rows_go_on_from_another_node_and_over_a_restart() {
    /// Takes the next event, behind errors while the home is away.
    fn next<E>(watch: &mut impl Iterator<Item = Result<E, Error>>) -> E {
        let end = Instant::now() + PATIENCE;
        loop {
            match watch.next().expect("the table exists") {
                Ok(event) => return event,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        }
    }
    let [mut home, other] = Daemon::pair().unwrap();
    let here = client(&home, true).table::<[u8]>("rows").allocate(Spec::new(50).row_len(8)).unwrap();
    let there_client = client(&other, true);
    let there = retry(|| there_client.table::<[u8]>("rows").open());
    let (mut rows, mut row) = (there.watch(), there.row(7).watch());
    assert_eq!((next(&mut rows), next(&mut row).version), (RowEvent::Missed, Version(0)));
    for number in 0..50 {
        let writer = if number % 2 == 0 { &here } else { &there };
        writer.row(number).put(b"first").unwrap();
        assert_eq!(next(&mut rows), RowEvent::Changed { row: number });
    }
    assert_eq!(next(&mut row).version, Version(1));
    home.kill().unwrap();
    home.restart().unwrap();
    let put = retry(|| here.row(7).put(b"second"));
    // The next daemon does not know the earlier changes.
    let seen = next(&mut row);
    assert_eq!(next(&mut rows), RowEvent::Missed);
    assert!(seen.version > Version(1) && seen <= put, "{seen:?} and {put:?}");
    there.row(9).put(b"second").unwrap();
    assert_eq!(next(&mut rows), RowEvent::Changed { row: 9 });
    there.segment().release().unwrap();
    assert!(row.next().is_none() && rows.next().is_none());
}
