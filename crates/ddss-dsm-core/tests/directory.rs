//! Rows of the table of a space.

use ddss_dsm_core::limits::{
    FETCHES_MAX, LOG_SLOTS_MAX, MESSAGE_BYTES_MAX, PAGE_BYTES_MAX, PAGES_MAX, RANKS_MAX, RECORD_BYTES_MAX,
};
use ddss_dsm_core::{
    Config, DirectoryError, LogShape, Ordering, Protocol, ROW_BYTES, Rank, RankRow, SpaceRow, Stamps, Tuning,
};

fn config() -> Config {
    Config {
        rank: Rank::ZERO,
        ranks: 3,
        pages: 100,
        page_bytes: 4096,
        message_bytes: 512,
        protocol: Protocol::NewGenDsm,
        ordering: Ordering::Stamped,
        stamps: Stamps::PerHome,
        log: LogShape::default(),
        tuning: Tuning::default(),
    }
}

// If this failed, a rank could join a space with other settings: it would misread messages, or read stale bytes.
#[test]
fn space_row_names_the_setting_that_differs() {
    let (ours, row) = (config(), SpaceRow { key: [7; 32] });
    let encoded = row.encode(&ours);
    assert_eq!(SpaceRow::decode(&encoded, &Config { rank: Rank::new(2).unwrap(), ..ours }), Ok(row));
    let tuning = |fetches| Tuning { fetches, ..ours.tuning };
    let others = [
        ("ranks", Config { ranks: 4, ..ours }),
        ("fetches", Config { tuning: tuning(65), ..ours }),
        ("pages", Config { pages: 200, ..ours }),
        ("bytes of a page", Config { page_bytes: 8192, ..ours }),
        ("protocol", Config { protocol: Protocol::Draw, ..ours }),
        ("ordering", Config { ordering: Ordering::Placed, ..ours }),
        ("stamps", Config { stamps: Stamps::PerPage, ..ours }),
        ("bytes of a message", Config { message_bytes: 1024, ..ours }),
        ("records of the log", Config { log: LogShape { slots: 512, ..ours.log }, ..ours }),
        ("bytes of a record", Config { log: LogShape { record_bytes: 512, ..ours.log }, ..ours }),
    ];
    for (setting, other) in others {
        let found = SpaceRow::decode(&encoded, &other);
        assert!(matches!(found, Err(DirectoryError::Mismatch { name, .. }) if name == setting), "{setting}: {found:?}");
    }
    let mismatch = DirectoryError::Mismatch { name: "pages", theirs: 100, ours: 200 };
    assert_eq!(SpaceRow::decode(&encoded, &Config { pages: 200, ..ours }), Err(mismatch));
    for at in [3, 51] {
        let mut foreign = encoded;
        foreign[at] ^= 1;
        assert_eq!(SpaceRow::decode(&foreign, &ours), Err(DirectoryError::Format), "byte {at}");
    }
}

// If this failed, the greatest settings would not fit their fields, and each rank would be refused.
#[test]
fn space_row_has_room_for_the_greatest_settings() {
    let greatest = Config {
        ranks: RANKS_MAX,
        pages: PAGES_MAX,
        page_bytes: PAGE_BYTES_MAX,
        message_bytes: MESSAGE_BYTES_MAX,
        log: LogShape { slots: LOG_SLOTS_MAX, record_bytes: RECORD_BYTES_MAX },
        tuning: Tuning { fetches: FETCHES_MAX, ..Tuning::default() },
        ..config()
    };
    let row = SpaceRow { key: [7; 32] };
    assert_eq!(SpaceRow::decode(&row.encode(&greatest), &greatest), Ok(row));
}

// If this failed, a rank would connect to an address that no rank has.
#[test]
fn rank_rows_have_an_address_or_none() {
    for address in ["10.0.0.1:4000", "[fe80::1]:5"] {
        let row = RankRow { address: address.parse().unwrap(), process: 77 };
        assert_eq!(RankRow::decode(&row.encode()), Ok(Some(row)));
    }
    assert_eq!(RankRow::decode(&[0; ROW_BYTES]), Ok(None));
    assert_eq!(RankRow::decode(&[1; ROW_BYTES]), Err(DirectoryError::Format));
}
