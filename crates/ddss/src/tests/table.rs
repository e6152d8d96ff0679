//! Tests of `api/tables/table.rs`.

use crate::Model;
use crate::testing::{TestNode, block_on};
use crate::*;
use std::time::Duration;

const MODELS: [Model; 5] = [Model::Null, Model::Read, Model::Write, Model::Strict, Model::Temporal(1000)];

#[test]
fn rows_have_versions_of_their_own_on_every_path() {
    // If this broke, a put of one row would refuse a conditional put of another, or be read as another row.
    let node = TestNode::start();
    let (local, remote) = (node.local_read_client(), node.client());
    for (index, model) in MODELS.into_iter().enumerate() {
        let name = format!("table-{index}");
        let here = local.table::<[u8]>(&name).allocate(Spec::new(50).row_len(100).model(model)).unwrap();
        let there = remote.table::<[u8]>(&name).open().unwrap();
        assert_eq!((there.len(), there.row_len()), (50, 104));
        let first = there.row(7).put(&[7; 104]).unwrap();
        let second = here.row(8).put_with(&[(3, &[8; 9])], PutOptions::new()).unwrap();
        assert_eq!((first.version, second.version), (Version(1), Version(1)));
        let again = there.row(7).put_with(&[(100, b"7777")], PutOptions::new().if_version(first.version)).unwrap();
        assert_eq!(again.version, Version(2), "{model:?}");
        let late = here.row(7).put_if(first.version, b"late").unwrap_err();
        assert_eq!((late.kind(), late.is_indeterminate()), (ErrorKind::VersionMismatch, false));
        assert_eq!(late.version(), Some(Version(2)), "{late}");
        for table in [&here, &there] {
            let (seven, eight, nine) =
                (table.row(7).get().unwrap(), table.row(8).get().unwrap(), table.row(9).get().unwrap());
            assert_eq!((seven.stamp, eight.stamp, nine.version()), (again, second, Version(0)), "{model:?}");
            assert_eq!((&seven[..100], &seven[100..]), (&[7; 100][..], &b"7777"[..]));
            assert_eq!((&eight[..3], &eight[3..12], &eight[12..]), (&[0; 3][..], &[8; 9][..], &[0; 92][..]));
            assert!(nine.iter().all(|&byte| byte == 0));
            let mut part = [0; 6];
            assert_eq!(table.row(7).get_into(98, &mut part).unwrap(), again);
            assert_eq!(&part, b"\x07\x077777");
        }
        there.segment().release().unwrap();
        assert_eq!(here.row(7).get().unwrap_err().kind(), ErrorKind::NotFound, "{model:?}");
    }
}

#[test]
fn calls_outside_of_one_row_are_refused() {
    // If this broke, a call would change two rows under one version, or memory behind the table.
    let node = TestNode::start();
    let (client, local) = (node.client(), node.local_read_client());
    let table = client.table::<[u8]>("table").allocate(Spec::new(4).row_len(16)).unwrap();
    let of = |error: Error| error.kind();
    assert_eq!(of(table.row(4).get().unwrap_err()), ErrorKind::OutOfRange);
    assert_eq!(of(table.row(0).put_with(&[(9, &[0; 8])], PutOptions::new()).unwrap_err()), ErrorKind::OutOfRange);
    assert_eq!(of(table.row(3).word(16).fetch_add(1).unwrap_err()), ErrorKind::OutOfRange);
    assert_eq!(of(table.row(3).word(4).fetch_add(1).unwrap_err()), ErrorKind::BadArgument);
    // The daemon checks as well, since clients may not.
    for raw in [client.segment("table").open().unwrap(), local.segment("table").open().unwrap()] {
        assert_eq!(of(raw.get(8..24).unwrap_err()), ErrorKind::OutOfRange);
        assert_eq!(of(raw.put(8, &[1; 16]).unwrap_err()), ErrorKind::OutOfRange);
        assert_eq!(of(raw.put(8, &[1; 400]).unwrap_err()), ErrorKind::OutOfRange);
        assert_eq!(of(raw.put_many(&[(0, b"a"), (16, b"b")]).unwrap_err()), ErrorKind::OutOfRange);
        assert_eq!(of(raw.get_many(&[0..1, 16..17]).unwrap_err()), ErrorKind::OutOfRange);
        let of_a_table = raw.wait_newer_than(Version(0)).unwrap_err();
        assert!(of_a_table.to_string().contains("Row::wait_newer_than"), "{of_a_table}");
        assert_eq!(of(of_a_table), ErrorKind::WrongShape);
        // Several ranges of one row are one version.
        let put = raw.put_many(&[(16, b"ab"), (30, b"yz")]).unwrap();
        let values = raw.get_many(&[16..18, 30..32]).unwrap();
        assert_eq!((&values[0][..], &values[1][..], values[0].stamp), (&b"ab"[..], &b"yz"[..], put));
    }
    assert!((0..4).filter(|&row| table.row(row).get().unwrap().version() > Version(0)).eq([1]));
    let plain = client.segment("plain").allocate(Spec::new(16)).unwrap();
    assert_eq!(of(<Table>::try_from(plain).unwrap_err()), ErrorKind::WrongShape);
    assert_eq!(of(client.table::<[u8]>("other").allocate(Spec::new(8)).unwrap_err()), ErrorKind::BadArgument);
}

#[test]
fn row_atomics_count_by_row_and_no_update_is_lost() {
    // If this broke, a counter in a table would lose increments.
    let node = TestNode::start();
    let client = node.client();
    let table: Table<[u64; 3]> = client.table("counters").allocate(10).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let table: Table<[u64; 3]> = node.local_read_client().table("counters").open().unwrap();
            scope.spawn(move || {
                for _ in 0..100 {
                    table.row(3).word(8).fetch_add(2).unwrap();
                    table.row(3).update(|[first, ..]| *first += 1).unwrap();
                    table.row(4).update(|[.., last]| *last += 1).unwrap();
                }
            });
        }
    });
    let (three, four) = (table.row(3).get().unwrap(), table.row(4).get().unwrap());
    assert_eq!((three.value, three.stamp.version), ([400, 800, 0], Version(800)));
    assert_eq!((four.value, four.stamp.version), ([0, 0, 400], Version(400)));
    let lost = table.row(4).word(16).compare_and_swap(1, 2).unwrap();
    assert_eq!((lost.before, lost.stamp.version), (400, Version(400)));
    assert_eq!(table.row(4).word(16).swap(9).unwrap().before, 400);
    // A condition that does not hold leaves the row and its version as they are.
    let raised = [table.row(4).word(16).fetch_max(12).unwrap(), table.row(4).word(16).fetch_max(11).unwrap()];
    assert_eq!(raised.map(|raised| (raised.before, raised.stamp.version.0)), [(9, 402), (12, 402)]);
    let taken = [table.row(4).word(16).checked_sub(10).unwrap(), table.row(4).word(16).checked_sub(10).unwrap()];
    assert_eq!(taken.map(|taken| (taken.before, taken.stamp.version.0)), [(12, 403), (2, 403)]);
    assert_eq!(table.row(3).get().unwrap().stamp.version, Version(800));
}

#[test]
fn wait_for_a_row_ends_with_its_put_and_no_other() {
    // If this broke, a watcher would poll, miss the change of its row, or wake for the change of another.
    let node = TestNode::start();
    let (writer, watcher) = (node.client(), node.client());
    let table = writer.table::<[u8]>("watched").allocate(Spec::new(8).row_len(16)).unwrap();
    let there = watcher.table::<[u8]>("watched").open().unwrap();
    let hasty = <Table>::try_from(there.segment().with_timeout(Duration::from_millis(30))).unwrap();
    table.row(3).put(b"first").unwrap();
    assert_eq!(there.row(3).wait_newer_than(Version(0)).unwrap().version, Version(1), "it is there already");
    let (tasks, woken) = (aio::Segment::from(there.segment()), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            woken.wait();
            let table = <aio::Table>::try_from(tasks).unwrap();
            block_on(async {
                // One wait of each row but 3, and several of row 3.
                let mut stamps = Vec::new();
                for row in [0, 1, 2, 3, 3, 3, 4] {
                    let wait = table.row(row).wait_newer_than(Version(u64::from(row == 3))).await;
                    stamps.push(wait.unwrap().version);
                }
                stamps
            })
        });
        woken.wait();
        for row in [5, 6, 7] {
            table.row(row).put(b"another").unwrap();
            assert_eq!(hasty.row(4).wait_newer_than(Version(0)).unwrap_err().kind(), ErrorKind::TimedOut);
        }
        for row in [4, 3, 2, 1, 0] {
            table.row(row).word(8).fetch_add(1).unwrap();
        }
        assert_eq!(waits.join().unwrap(), [1, 1, 1, 2, 2, 2, 1].map(Version));
    });
    assert_eq!(there.row(8).wait_newer_than(Version(0)).unwrap_err().kind(), ErrorKind::OutOfRange);
    let late = table.clone();
    let waits = std::thread::spawn(move || there.row(3).wait_newer_than(Version(99)));
    late.segment().release().unwrap();
    assert_eq!(waits.join().unwrap().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn lock_of_the_table_excludes_puts_of_its_rows() {
    // If this broke, a holder of the table's lock would see rows change.
    let node = TestNode::start();
    let (mine, theirs) = (node.client(), node.short_timeout_client());
    let table = mine.table::<[u8]>("locked").allocate(Spec::new(4).row_len(16)).unwrap();
    let other = theirs.table::<[u8]>("locked").open().unwrap();
    let held = table.segment().lock().unwrap();
    assert_eq!(other.row(1).put(b"they").unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(other.row(1).get().unwrap_err().kind(), ErrorKind::TimedOut);
    held.put(16, b"mine").unwrap();
    held.unlock().unwrap();
    assert_eq!(&other.row(1).get().unwrap()[..4], b"mine");
    assert_eq!(other.row(1).put(b"they").unwrap().version, Version(2));
}

#[test]
fn readers_of_a_row_see_whole_values_beside_its_writer() {
    // If this broke, a reader would act on a torn row.
    let node = TestNode::start();
    let (local, remote) = (node.local_read_client(), node.client());
    let here = local.table::<[u8]>("beside").allocate(Spec::new(3).row_len(192)).unwrap();
    let there = remote.table::<[u8]>("beside").open().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for turn in 0..5_000u32 {
                there.row(1).put(&[turn as u8; 192]).unwrap();
                there.row(2).put(&[!turn as u8; 192]).unwrap();
            }
        });
        let (mut last, mut steps) = (Version(0), 0);
        while !writer.is_finished() {
            let value = here.row(1).get().unwrap();
            assert!(value.iter().all(|byte| *byte == value[0]), "two values in one");
            assert!(value.version() >= last, "time ran backwards");
            steps += u64::from(value.version() > last);
            last = value.version();
        }
        assert!(steps > 0, "nothing was seen to change");
    });
}

#[test]
fn async_table_reads_rows_of_blocking_table() {
    // If this broke, a row would depend on its reader.
    let node = TestNode::start();
    let (threads, tasks) = (node.client(), node.client().aio().unwrap());
    let table = threads.table::<[u8]>("table").allocate(Spec::new(10).row_len(32)).unwrap();
    block_on(async {
        let same = tasks.table::<[u8]>("table").open().await.unwrap();
        let put = same.row(3).put_with(&[(8, b"task")], PutOptions::new()).await.unwrap();
        assert_eq!((table.row(3).get().unwrap().stamp, &table.row(3).get().unwrap()[8..12]), (put, &b"task"[..]));
        assert_eq!(same.row(3).put_if(put.version, b"x").await.unwrap().version, Version(2));
        assert_eq!(same.row(4).word(0).fetch_add(5).await.unwrap().before, 0);
        let typed = aio::Table::<u64>::try_from(same.segment().clone()).unwrap();
        assert_eq!(typed.row(4).update(|word| *word += 1).await.unwrap().value, 6);
        let own: aio::Table<u32> = tasks.table("own").allocate(5).await.unwrap();
        own.row(4).put(&9).await.unwrap();
        assert_eq!(*threads.table::<u32>("own").open().unwrap().row(4).get().unwrap(), 9);
    });
}
