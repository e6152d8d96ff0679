//! Rows of the table of a space.

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

// If this failed, a rank could join a space with other settings, and its messages would be misread.
#[test]
fn space_row_names_the_setting_that_differs() {
    let row = SpaceRow::of(&config(), [7; 32]).encode();
    assert_eq!(SpaceRow::decode(&row, &config()).map(|row| row.key), Ok([7; 32]));
    let other = Config { pages: 200, ..config() };
    let mismatch = DirectoryError::Mismatch { name: "pages", theirs: 100, ours: 200 };
    assert_eq!(SpaceRow::decode(&row, &other), Err(mismatch));
    let mut foreign = row;
    foreign[3] = b'2';
    assert_eq!(SpaceRow::decode(&foreign, &config()), Err(DirectoryError::Format));
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
