//! Settings that all ranks of a space have in common.

use ddss_dsm_core::limits::{
    FETCHES_MAX, LOG_SLOTS_MAX, MESSAGE_BYTES_MAX, PAGE_BYTES_MAX, PAGES_MAX, RANKS_MAX, RECORD_BYTES_MAX,
};
use ddss_dsm_core::{Config, LogShape, Ordering, Protocol, Rank, SettingsError, Stamps, Tuning};

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
fn settings_name_the_setting_that_differs() {
    let ours = config();
    let encoded = ours.encode_settings();
    assert_eq!(Config { rank: Rank::new(2).unwrap(), ..ours }.compare_settings(&encoded), Ok(()));
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
        let found = other.compare_settings(&encoded);
        assert!(matches!(found, Err(SettingsError::Mismatch { name, .. }) if name == setting), "{setting}: {found:?}");
    }
    let mismatch = SettingsError::Mismatch { name: "pages", theirs: 100, ours: 200 };
    assert_eq!(Config { pages: 200, ..ours }.compare_settings(&encoded), Err(mismatch));
    for at in [3, 19] {
        let mut foreign = encoded;
        foreign[at] ^= 1;
        assert_eq!(ours.compare_settings(&foreign), Err(SettingsError::Format), "byte {at}");
    }
}

// If this failed, the greatest settings would not fit their fields, and each rank would be refused.
#[test]
fn settings_have_room_for_the_greatest_settings() {
    let greatest = Config {
        ranks: RANKS_MAX,
        pages: PAGES_MAX,
        page_bytes: PAGE_BYTES_MAX,
        message_bytes: MESSAGE_BYTES_MAX,
        log: LogShape { slots: LOG_SLOTS_MAX, record_bytes: RECORD_BYTES_MAX },
        tuning: Tuning { fetches: FETCHES_MAX, ..Tuning::default() },
        ..config()
    };
    assert_eq!(greatest.compare_settings(&greatest.encode_settings()), Ok(()));
}
