//! Rows of a flow: its status, and what each member reports.

use ddss_river_core::limits::MODULES_MAX;
use ddss_river_core::{Life, MemberReport, ModuleState, Site};

/// Bytes of a row.
pub(crate) const ROW_BYTES: usize = 1024;
/// Members of a flow at most: founders are in one row.
pub(crate) const MEMBERS_MAX: u16 = 64;
/// Bytes of a reason at most.
const REASON_BYTES_MAX: usize = 240;

const STATUS: [u8; 4] = *b"FLW2";
const MEMBER: [u8; 4] = *b"FLM2";
/// Offset of the modules in the row of a member.
const MODULES_AT: usize = 24;
/// Offset of the attempt in the status.
const ATTEMPT_AT: usize = 20 + REASON_BYTES_MAX;
/// Offset of the finished modules, as bits, in the status.
const FINISHED_AT: usize = 276;
/// Offset of the founders in the status.
const FOUNDERS_AT: usize = 308;
/// Bytes of a founder.
const FOUNDER_BYTES: usize = 10;

const _: () = assert!(MODULES_AT + MODULES_MAX <= ROW_BYTES);
const _: () = assert!(ATTEMPT_AT + 4 <= FINISHED_AT);
const _: () = assert!(FINISHED_AT + MODULES_MAX / 8 <= FOUNDERS_AT);
const _: () = assert!(FOUNDERS_AT + MEMBERS_MAX as usize * FOUNDER_BYTES <= ROW_BYTES);

/// State of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowStatus {
    /// It waits for the members that begin it.
    Waiting,
    /// Its modules run.
    Running,
    /// All modules have ended.
    Ended,
    /// A module failed, or was lost with its member.
    Failed,
    /// A user has cancelled it.
    Cancelled,
}

impl FlowStatus {
    const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Ended, Self::Failed, Self::Cancelled];

    /// Returns its name, as commands show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns true if nothing follows.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Failed | Self::Cancelled)
    }
}

/// The module that ended a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) module: u16,
    pub(crate) member: u16,
    pub(crate) node: u16,
    pub(crate) reason: String,
}

/// A member that began the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Founder {
    pub(crate) place: u16,
    pub(crate) run: u32,
    pub(crate) site: Site,
}

/// Status of a flow: row 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StatusRow {
    pub(crate) status: FlowStatus,
    /// Number of the attempt, from 0 on.
    pub(crate) attempt: u32,
    /// Bytes of the graph, behind the rows of the members.
    pub(crate) graph_bytes: u32,
    pub(crate) founders: Vec<Founder>,
    /// Modules that an earlier attempt has ended.
    pub(crate) finished: Vec<bool>,
    pub(crate) verdict: Option<Verdict>,
}

impl StatusRow {
    pub(crate) fn new(graph_bytes: usize, modules: usize) -> Self {
        let finished = vec![false; modules];
        let graph_bytes = graph_bytes as u32;
        Self { status: FlowStatus::Waiting, attempt: 0, graph_bytes, founders: Vec::new(), finished, verdict: None }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = vec![0; ROW_BYTES];
        row[..4].copy_from_slice(&STATUS);
        row[4] = FlowStatus::ALL.iter().position(|status| *status == self.status).unwrap_or(0) as u8;
        row[5] = self.founders.len() as u8;
        row[6..8].copy_from_slice(&(self.finished.len() as u16).to_le_bytes());
        row[8..12].copy_from_slice(&self.graph_bytes.to_le_bytes());
        if let Some(Verdict { module, member, node, reason }) = &self.verdict {
            let end = (0..=reason.len().min(REASON_BYTES_MAX)).rev().find(|end| reason.is_char_boundary(*end));
            let reason = &reason.as_bytes()[..end.unwrap_or(0)];
            let halves = [*module, *member, *node, reason.len() as u16 + 1];
            row[12..20]
                .chunks_exact_mut(2)
                .zip(halves)
                .for_each(|(part, half)| part.copy_from_slice(&half.to_le_bytes()));
            row[20..20 + reason.len()].copy_from_slice(reason);
        }
        row[ATTEMPT_AT..ATTEMPT_AT + 4].copy_from_slice(&self.attempt.to_le_bytes());
        for module in self.finished.iter().enumerate().filter_map(|(module, finished)| finished.then_some(module)) {
            row[FINISHED_AT + module / 8] |= 1 << (module % 8);
        }
        for (part, founder) in row[FOUNDERS_AT..].chunks_exact_mut(FOUNDER_BYTES).zip(&self.founders) {
            part[..2].copy_from_slice(&founder.place.to_le_bytes());
            part[2..6].copy_from_slice(&founder.run.to_le_bytes());
            part[6..8].copy_from_slice(&founder.site.node.to_le_bytes());
            part[8..].copy_from_slice(&founder.site.cores.to_le_bytes());
        }
        row
    }

    /// Decodes the status. `None` if no member of this release has written it.
    pub(crate) fn decode(row: &[u8]) -> Option<Self> {
        let row: &[u8; ROW_BYTES] = row.try_into().ok()?;
        if row[..4] != STATUS {
            return None;
        }
        let half = |at: usize| u16::from_le_bytes([row[at], row[at + 1]]);
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| row[at + byte]));
        let (status, founders, modules) = (*FlowStatus::ALL.get(usize::from(row[4]))?, row[5], usize::from(half(6)));
        if u16::from(founders) > MEMBERS_MAX || modules > MODULES_MAX {
            return None;
        }
        let verdict = match usize::from(half(18)) {
            0 => None,
            length => {
                let reason = row.get(20..20 + length - 1).filter(|reason| reason.len() <= REASON_BYTES_MAX)?;
                let reason = std::str::from_utf8(reason).ok()?.to_owned();
                Some(Verdict { module: half(12), member: half(14), node: half(16), reason })
            }
        };
        let finished = (0..modules).map(|module| row[FINISHED_AT + module / 8] & 1 << (module % 8) != 0).collect();
        let founders = (0..usize::from(founders)).map(|number| {
            let at = FOUNDERS_AT + number * FOUNDER_BYTES;
            let site = Site { node: half(at + 6), cores: half(at + 8) };
            Founder { place: half(at), run: word(at + 2), site }
        });
        let (attempt, graph_bytes, founders) = (word(ATTEMPT_AT), word(8), founders.collect());
        Some(Self { status, attempt, graph_bytes, founders, finished, verdict })
    }
}

/// Row of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MemberRow {
    pub(crate) report: MemberReport,
    /// Attempt of the flow that the process takes part in.
    pub(crate) attempt: u32,
    pub(crate) process: u32,
    pub(crate) site: Site,
}

impl MemberRow {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = vec![0; ROW_BYTES];
        row[..4].copy_from_slice(&MEMBER);
        row[4..8].copy_from_slice(&self.report.run.to_le_bytes());
        row[8..12].copy_from_slice(&self.process.to_le_bytes());
        row[12..14].copy_from_slice(&self.site.node.to_le_bytes());
        row[14..16].copy_from_slice(&self.site.cores.to_le_bytes());
        row[16..18].copy_from_slice(&(self.report.modules.len() as u16).to_le_bytes());
        row[18] = match self.report.life {
            Life::Alive => 0,
            Life::Left => 1,
            Life::Dead => 2,
        };
        row[20..24].copy_from_slice(&self.attempt.to_le_bytes());
        for (byte, state) in row[MODULES_AT..].iter_mut().zip(&self.report.modules) {
            *byte = match state {
                ModuleState::Idle => 0,
                ModuleState::Running => 1,
                ModuleState::Done => 2,
            };
        }
        row
    }

    /// Decodes the row of a place. `None` if no process has written it.
    pub(crate) fn decode(row: &[u8], place: u16) -> Option<Self> {
        let row: &[u8; ROW_BYTES] = row.try_into().ok()?;
        let half = |at: usize| u16::from_le_bytes([row[at], row[at + 1]]);
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| row[at + byte]));
        let modules = usize::from(half(16));
        if row[..4] != MEMBER || modules > MODULES_MAX {
            return None;
        }
        let life = match row[18] {
            0 => Life::Alive,
            1 => Life::Left,
            _ => Life::Dead,
        };
        let states = row[MODULES_AT..MODULES_AT + modules].iter().map(|state| match state {
            0 => ModuleState::Idle,
            1 => ModuleState::Running,
            _ => ModuleState::Done,
        });
        let report = MemberReport { place, run: word(4), life, modules: states.collect() };
        let site = Site { node: half(12), cores: half(14) };
        Some(Self { report, attempt: word(20), process: word(8), site })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip_and_foreign_rows_are_refused() {
        // If this broke, a member would forget who began the flow, or believe bytes of another release.
        let founder = |place| Founder { place, run: 7 + u32::from(place), site: Site { node: 3, cores: 9 } };
        let reason = "x".repeat(REASON_BYTES_MAX);
        let status = StatusRow {
            status: FlowStatus::Failed,
            attempt: u32::MAX,
            graph_bytes: 1 << 20,
            founders: (0..MEMBERS_MAX).map(founder).collect(),
            finished: (0..MODULES_MAX).map(|module| module % 3 == 0).collect(),
            verdict: Some(Verdict { module: 255, member: 63, node: 9, reason }),
        };
        assert_eq!(StatusRow::decode(&status.encode()), Some(status.clone()));
        assert_eq!(StatusRow::decode(&[0; ROW_BYTES]), None);
        let mut long = status.encode();
        long[18..20].copy_from_slice(&(REASON_BYTES_MAX as u16 + 2).to_le_bytes());
        assert_eq!(StatusRow::decode(&long), None, "a reason that is too long");
        let modules = vec![ModuleState::Idle, ModuleState::Running, ModuleState::Done];
        let report = MemberReport { place: 5, run: 4, life: Life::Dead, modules };
        let member = MemberRow { report, attempt: 1 << 30, process: 99, site: Site { node: 1, cores: 2 } };
        assert_eq!(MemberRow::decode(&member.encode(), 5), Some(member));
        assert_eq!(MemberRow::decode(&status.encode(), 5), None);
    }
}
