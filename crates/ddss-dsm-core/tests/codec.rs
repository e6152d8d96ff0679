//! Messages: each survives its way, and no bytes of a peer cause more than an error.

use ddss_dsm_core::diff::{PackedRuns, Run, find_runs, pack};
use ddss_dsm_core::message::{Codec, Message};
use ddss_dsm_core::{
    ChangedPages, Config, LogShape, Notice, Ordering, PageId, PageRange, Protocol, Rank, RankSet, Stamps, Tuning,
    VectorTime,
};
use proptest::prelude::*;

fn config() -> Config {
    Config {
        rank: Rank::ZERO,
        ranks: 3,
        pages: 100,
        page_bytes: 256,
        message_bytes: 512,
        protocol: Protocol::NewGenDsm,
        ordering: Ordering::Stamped,
        stamps: Stamps::PerHome,
        log: LogShape::default(),
        tuning: Tuning::default(),
    }
}

fn rank(index: usize) -> Rank {
    Rank::new(index).expect("a rank of the space")
}

fn ranks(all: &[usize]) -> RankSet {
    let mut set = RankSet::default();
    assert!(all.iter().all(|index| set.insert(rank(*index))));
    set
}

fn time() -> VectorTime {
    let mut time = VectorTime::default();
    (0..3).for_each(|index| time.raise(rank(index), 7 * index as u32 + 1));
    time
}

fn messages(runs: PackedRuns<'_>) -> Vec<Message<'_>> {
    let (page, slot, time) = (PageId(99), 5, time());
    let pages = vec![PageRange::one(PageId(0)), PageRange { first: PageId(98), pages: 2 }];
    let notices = vec![
        Notice { interval: 4, pages: ChangedPages::Exact(pages.clone()) },
        Notice { interval: 5, pages: ChangedPages::Coarse },
    ];
    vec![
        Message::LockRequest { lock: 1, time },
        Message::LockForward { lock: 1, requester: rank(2), time },
        Message::LockGrant { lock: 1, time, notices: Some(notices) },
        Message::LockGrant { lock: 1, time, notices: None },
        Message::BarrierArrive { barrier: 2, time },
        Message::BarrierDepart { barrier: 2, time },
        Message::SemaphorePost { semaphore: 3, time },
        Message::SemaphoreWait { semaphore: 3 },
        Message::SemaphoreGrant { semaphore: 3, time },
        Message::CounterAdd { counter: 4, delta: u64::MAX, time },
        Message::CounterValue { counter: 4, value: 1 << 40, time },
        Message::Stamp { interval: 9, pages },
        Message::Diff { page, interval: 9, sequence: 1 << 40, runs },
        Message::DiffAck { sequence: 1 << 40 },
        Message::PageRequest { page, slot, needed: time },
        Message::PageForward { page, requester: rank(1), slot, needed: time },
        Message::PageWritten { page, slot },
        Message::Appointed { page, slot },
        Message::Await { page, slot, needed: time },
        Message::Reached { page, slot },
        Message::Lost { rank: rank(2) },
        Message::GaveUp { rank: rank(0), missing: ranks(&[1, 2]) },
    ]
}

fn packed() -> Vec<u8> {
    let page: Vec<u8> = (0..=255).collect();
    let mut bytes = Vec::new();
    pack(&mut [Run { offset: 3, bytes: 4 }, Run { offset: 255, bytes: 1 }].as_slice(), &mut 0, &page, 400, &mut bytes);
    bytes
}

// If this failed, two ranks of one release would not understand each other.
#[test]
fn every_message_survives_its_way_and_no_shorter_or_longer_one_does() {
    let (codec, bytes) = (Codec::new(&config()), packed());
    for message in messages(PackedRuns::check(&bytes, 256).unwrap()) {
        let mut encoded = Vec::new();
        codec.encode(&message, &mut encoded);
        assert_eq!(codec.decode(&encoded).as_ref(), Ok(&message));
        // A diff without its last run is a diff.
        let is_diff = matches!(message, Message::Diff { .. });
        for end in 0..encoded.len() {
            assert!(is_diff || codec.decode(&encoded[..end]).is_err(), "{message:?} of {end} bytes");
        }
        encoded.push(0);
        assert!(codec.decode(&encoded).is_err(), "{message:?} with another byte");
    }
}

// If this failed, a peer could name a page, rank or index that no table has.
#[test]
fn fields_outside_the_space_are_refused() {
    let codec = Codec::new(&config());
    let refused = |message: &Message<'_>| {
        let mut encoded = Vec::new();
        codec.encode(message, &mut encoded);
        assert!(codec.decode(&encoded).is_err(), "{message:?}");
    };
    refused(&Message::PageWritten { page: PageId(100), slot: 0 });
    refused(&Message::PageWritten { page: PageId(0), slot: 1024 });
    refused(&Message::Lost { rank: rank(3) });
    refused(&Message::GaveUp { rank: rank(0), missing: ranks(&[1, 3]) });
    refused(&Message::LockRequest { lock: 1 << 16, time: time() });
    for range in [PageRange { first: PageId(99), pages: 2 }, PageRange { first: PageId(5), pages: 0 }] {
        refused(&Message::Stamp { interval: 1, pages: vec![range] });
    }
    refused(&Message::Stamp { interval: 1, pages: vec![PageRange { first: PageId(u32::MAX), pages: u32::MAX }] });
    // A range more costs its sender eight bytes, and the receiver a step for each page.
    for pages in [vec![PageId(5), PageId(5)], vec![PageId(5), PageId(4)]] {
        let pages: Vec<PageRange> = pages.into_iter().map(PageRange::one).collect();
        refused(&Message::Stamp { interval: 1, pages: pages.clone() });
        let notices = Some(vec![Notice { interval: 1, pages: ChangedPages::Exact(pages) }]);
        refused(&Message::LockGrant { lock: 1, time: time(), notices });
    }
    assert_eq!(PackedRuns::check(&[0, 1, 0, 0, 9], 256), PackedRuns::check(&[0], 1), "a run behind the page");
}

proptest! {
    // If this failed, a peer could end the process of a rank.
    #[test]
    fn no_bytes_are_worse_than_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..22) {
        let codec = Codec::new(&config());
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok(message) = codec.decode(&bytes) {
            let mut encoded = Vec::new();
            codec.encode(&message, &mut encoded);
            prop_assert_eq!(encoded, bytes);
        }
    }

    // If this failed, a run would end or begin where blocks of bytes meet that are compared together.
    #[test]
    fn long_runs_are_found_over_the_edges_of_blocks(
        lengths in proptest::collection::vec(1usize..200, 1..12),
        changes in proptest::collection::vec(1u8.., 200),
        first_is_changed: bool,
    ) {
        let bytes: usize = lengths.iter().sum();
        let (mut page, mut expected, mut offset, mut is_changed) = (vec![7; bytes], Vec::new(), 0, first_is_changed);
        for length in lengths {
            if is_changed {
                page[offset..offset + length].iter_mut().zip(&changes).for_each(|(byte, change)| *byte ^= change);
                expected.push(Run { offset: offset as u32, bytes: length as u32 });
            }
            (offset, is_changed) = (offset + length, !is_changed);
        }
        let mut runs = Vec::new();
        find_runs(&vec![7; bytes], &page, &mut runs);
        prop_assert_eq!(runs, expected);
    }

    // If this failed, a diff would lose a changed byte, or send an unchanged one, which may be another rank's.
    #[test]
    fn runs_are_the_changed_bytes_and_nothing_else(
        twin in proptest::collection::vec(0u8..2, 256),
        page in proptest::collection::vec(0u8..2, 256),
        capacity in 5usize..300,
    ) {
        let mut runs = Vec::new();
        find_runs(&twin, &page, &mut runs);
        let within = |at: u32| runs.iter().any(|run| (run.offset..run.end()).contains(&at));
        for at in 0..256 {
            prop_assert_eq!(within(at), twin[at as usize] != page[at as usize]);
        }
        prop_assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].offset), "runs in order, with a gap");
        let (mut rest, mut cut, mut home) = (runs.as_slice(), 0, twin.clone());
        while !rest.is_empty() {
            let mut message = Vec::new();
            pack(&mut rest, &mut cut, &page, capacity, &mut message);
            prop_assert!(message.len() <= capacity);
            for (offset, run) in PackedRuns::check(&message, 256).unwrap().iter() {
                home[offset as usize..offset as usize + run.len()].copy_from_slice(run);
            }
        }
        prop_assert_eq!(home, page);
    }
}
