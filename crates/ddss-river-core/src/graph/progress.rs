//! The progress of a flow, from what its members report.

use super::flow::{Each, FlowGraph, ModuleId};
use super::plan::Plan;

/// State of a module in a member.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum ModuleState {
    /// The member has not started it.
    #[default]
    Idle,
    /// Instances of it run.
    Running,
    /// Each instance has ended in order, and all that it has put is acknowledged.
    Done,
}

/// Life of a member.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Life {
    /// It takes part.
    #[default]
    Alive,
    /// It has left.
    Left,
    /// It is lost.
    Dead,
}

/// Report of a member about itself, or of others about a dead one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberReport {
    /// Place of the member.
    pub place: u16,
    /// Random number of its process.
    pub run: u32,
    /// Life.
    pub life: Life,
    /// State of each module. A process in the place of another one keeps what that one has done.
    pub modules: Vec<ModuleState>,
}

/// FlowProgress of a flow.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct FlowProgress {
    /// For each module, whether it has ended in all members: nothing follows from it.
    pub ended: Vec<bool>,
    /// Module that a lost member has not ended, and that no other one can end, with the member's place.
    pub lost: Option<(ModuleId, u16)>,
    /// Modules that no member runs any more, though their input may not be at its end.
    pub orphaned: Vec<ModuleId>,
}

impl FlowProgress {
    /// Returns true if all modules have ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }
}

/// Instances of a module, by what has become of them.
#[derive(Default)]
struct InstanceCounts {
    running: usize,
    done: usize,
    lost: Option<u16>,
}

impl InstanceCounts {
    fn count(&mut self, place: u16, state: ModuleState, life: Life) {
        match (state, life) {
            (ModuleState::Done, _) => self.done += 1,
            (_, Life::Alive) => self.running += 1,
            (_, Life::Left | Life::Dead) => self.lost = self.lost.or(Some(place)),
        }
    }
}

impl FlowGraph {
    /// Returns the progress of a flow. `founders` are place and run of the members of the plan, `finished` the modules that an
    /// earlier attempt has ended. With `is_fail_stop` no module is replaceable.
    #[must_use]
    pub fn progress(
        &self,
        plan: &Plan,
        founders: &[(u16, u32)],
        members: &[MemberReport],
        finished: &[bool],
        is_fail_stop: bool,
    ) -> FlowProgress {
        let mut progress = FlowProgress::default();
        for module in self.modules() {
            let is_finished = finished.get(module.index()).is_some_and(|finished| *finished);
            if is_finished || self.each(module) == Each::Outside {
                progress.ended.push(true);
                continue;
            }
            let counts = count_instances(module, plan, founders, members);
            let is_lost = counts.lost.filter(|_| is_fail_stop || !self.is_replaceable(module));
            progress.lost = progress.lost.or(is_lost.map(|place| (module, place)));
            // An instance is done when the whole input is acknowledged: then nothing is left of a lost one.
            progress.ended.push(is_lost.is_none() && counts.running == 0 && counts.done > 0);
            if is_lost.is_none() && counts.running == 0 && counts.done == 0 {
                progress.orphaned.push(module);
            }
        }
        progress
    }
}

fn count_instances(module: ModuleId, plan: &Plan, founders: &[(u16, u32)], members: &[MemberReport]) -> InstanceCounts {
    let mut counts = InstanceCounts::default();
    let state = |member: &MemberReport| member.modules.get(module.index()).copied().unwrap_or_default();
    for (_, (place, run)) in founders.iter().enumerate().filter(|(index, _)| plan.count(module, *index) > 0) {
        match members.iter().find(|member| member.place == *place) {
            Some(member) if member.run == *run => counts.count(*place, state(member), member.life),
            // Another process has the place, and keeps what was done.
            Some(member) if state(member) == ModuleState::Done => counts.done += 1,
            _ => counts.lost = counts.lost.or(Some(*place)),
        }
    }
    let is_founder = |member: &&MemberReport| {
        let planned = founders.iter().position(|founder| *founder == (member.place, member.run));
        planned.is_some_and(|index| plan.count(module, index) > 0)
    };
    for member in members.iter().filter(|member| !is_founder(member) && state(member) != ModuleState::Idle) {
        counts.count(member.place, state(member), member.life);
    }
    counts
}
