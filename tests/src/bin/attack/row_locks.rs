//! Attacks by locks of rows.

use crate::byzantine_client::{AttackResult, ByzantineClient, Target, expect_failure};
use crate::requests::{make, own_name};
use ddss_core::{
    ArenaRange, AtomicOp, LockRequest, LockToken, Operation, Outcome, Payload, PutConditions, Request, RequestId,
    SegmentId, Spec,
};

const ROWS: u64 = 4096;
const ROW_BYTES: u32 = 16;
const LEASE_US: u32 = 2_000_000;

fn lock(segment: SegmentId, row_offset: u64, no_wait: bool) -> Operation {
    let lock_request = LockRequest { shared: false, no_wait, lease_us: LEASE_US, row_offset: Some(row_offset) };
    Operation::Lock { segment, lock_request }
}

/// Takes the lock of a row and returns its token.
fn take(liar: &mut ByzantineClient, segment: SegmentId, row_offset: u64) -> Result<LockToken, String> {
    let locked = liar.ask(lock(segment, row_offset, true))?;
    expect_failure(&format!("no lock of its own row: {:?}", locked.outcome), locked.outcome != Outcome::Done)?;
    Ok(LockToken(u64::from_le_bytes(std::array::from_fn(|i| locked.data[i]))))
}

pub(crate) fn locks_what_is_no_row(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let table = make(&mut liar, &own_name("rows"), Spec::table(ROWS, ROW_BYTES))?;
    let row_bytes = u64::from(ROW_BYTES);
    for offset in [1, 8, row_bytes - 1, ROWS * row_bytes, ROWS * row_bytes + 8, u64::MAX - 7, u64::MAX] {
        liar.is_denied(&format!("a row at {offset}"), lock(table, offset, true))?;
    }
    let plain = make(&mut liar, &own_name("plain"), Spec::new(4096))?;
    for segment in [plain, target.secret] {
        for offset in [0, row_bytes, u64::MAX] {
            liar.is_denied(&format!("a row of no table at {offset}"), lock(segment, offset, true))?;
        }
    }
    // The token of one row is not valid for another row, nor for the table.
    let token = take(&mut liar, table, row_bytes)?;
    let conditions = PutConditions { token: Some(token), ..PutConditions::default() };
    for offset in [0, 2 * row_bytes, (ROWS - 1) * row_bytes] {
        let from = Payload::Arena(ArenaRange { slot: 0, bytes: 8 });
        liar.is_denied("a put of another row", Operation::Put { segment: table, offset, from, conditions })?;
        let atomic = Operation::Atomic { segment: table, offset, change: AtomicOp::Add(1), token: Some(token) };
        liar.is_denied("an atomic of another row", atomic)?;
    }
    liar.is_denied("a lock of a table with a locked row", {
        let lock_request = LockRequest { shared: true, no_wait: true, lease_us: LEASE_US, row_offset: None };
        Operation::Lock { segment: table, lock_request }
    })?;
    liar.ask(Operation::Release { segment: table })?;
    liar.ask(Operation::Release { segment: plain }).map(drop)
}

pub(crate) fn floods_locks_of_rows(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let table = make(&mut liar, &own_name("flood"), Spec::table(ROWS, ROW_BYTES))?;
    let offset_of = |row: u64| row * u64::from(ROW_BYTES);
    for row in 0..ROWS {
        take(&mut liar, table, offset_of(row))?;
    }
    // A wait for each row, all with one deadline.
    for row in 0..ROWS {
        let request = Request::new(RequestId(row), lock(table, offset_of(row), false));
        let position = liar.post(&Request { timeout_us: 50_000, parks: true, ..request }.encode());
        // At most a ring full of requests is on its way.
        if row % 32 == 31 {
            liar.wait(position)?;
        }
    }
    liar.look_around()?;
    // The attacker leaves its locks and waits behind. The daemon ends them, and then serves the next client.
    drop(liar);
    let mut next = ByzantineClient::attach(target)?;
    let name = own_name("after");
    let segment = make(&mut next, &name, Spec::table(2, ROW_BYTES))?;
    take(&mut next, segment, 0)?;
    next.ask(Operation::Release { segment }).map(drop)
}
