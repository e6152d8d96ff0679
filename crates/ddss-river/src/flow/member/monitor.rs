//! The thread of a member: it begins the flow with the others, runs instances, and notices ends and deaths.
//!
//! Each step is a conditional put into the table of the flow, and is repeated until it succeeds. So any member can make it, and a
//! daemon that restarts, or a table that moves to its replica, only delays it.

use super::module::{Body, Instance, is_consequence};
use super::outcome::{Outcome, Progress};
use crate::flow::error::{FlowError, ModuleError};
use crate::flow::ports::Ground;
use crate::flow::tables::FlowTable;
use crate::flow::tables::{FlowStatus, Founder, MemberRow, StatusRow, Verdict};
use ddss::Version;
use ddss_group::{Change, GroupState, Incarnation, Member, Membership};
use ddss_river_core::{Each, FlowProgress, Life, ModuleId, ModuleState, Plan, Site};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two rounds.
const ROUND: Duration = Duration::from_millis(25);
/// Time beyond a lease in which the members report which module was lost, before a member reports what followed from it.
const VERDICT_MARGIN: Duration = Duration::from_secs(5);

/// Instances of a module in this process.
#[derive(Clone, Copy, Default)]
struct Local {
    /// Instances that are to start once the row of this member says so.
    wanted: u16,
    /// Number of the first one.
    first: u16,
    running: u16,
}

/// The thread of a member.
pub(crate) struct Monitor {
    ground: Arc<Ground>,
    table: FlowTable,
    membership: Membership,
    group: GroupState,
    bodies: Vec<Option<Body>>,
    progress: Arc<Progress>,
    row: MemberRow,
    /// Version of the own row, and whether it says what `row` says.
    version: Version,
    is_written: bool,
    /// Plan, once the flow has begun, and the members that began it.
    plan: Option<Arc<Plan>>,
    founders: Vec<(u16, u32)>,
    locals: Vec<Local>,
    threads: Vec<JoinHandle<()>>,
    /// First error of an instance here, and when it came.
    failure: Option<(ModuleId, ModuleError, Instant)>,
}

impl Monitor {
    pub(crate) fn new(
        ground: Arc<Ground>,
        table: FlowTable,
        attempt: u32,
        membership: Membership,
        bodies: Vec<Option<Body>>,
        progress: Arc<Progress>,
    ) -> Result<Self, FlowError> {
        let modules = bodies.len();
        let place = membership.ours().member.0;
        let (before, version) = table.member(place)?;
        // What a process that had this place before has done stays done, in this attempt.
        let done =
            before.filter(|before| before.attempt == attempt).map(|before| before.report.modules).unwrap_or_default();
        let kept = |module: usize| match done.get(module) {
            Some(ModuleState::Done) => ModuleState::Done,
            _ => ModuleState::Idle,
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let site = Site { node: ground.client.node().0, cores: cores.try_into().unwrap_or(u16::MAX) };
        let report = ddss_river_core::MemberReport {
            place,
            run: membership.ours().run,
            life: Life::Alive,
            modules: (0..modules).map(kept).collect(),
        };
        Ok(Self {
            group: membership.group_state(),
            row: MemberRow { report, attempt, process: std::process::id(), site },
            ground,
            table,
            membership,
            bodies,
            progress,
            version,
            is_written: false,
            plan: None,
            founders: Vec::new(),
            locals: vec![Local::default(); modules],
            threads: Vec::new(),
            failure: None,
        })
    }

    /// Makes rounds until the flow has ended, and waits for the instances here.
    pub(crate) fn run(mut self) {
        let mut complete = Instant::now();
        let outcome = loop {
            match self.round() {
                Ok(None) => complete = Instant::now(),
                Ok(Some(outcome)) => break outcome,
                // A table that is gone does not come back.
                Err(error) if error.is_not_found() => break Outcome::Removed,
                // The modules go on while a daemon restarts, or the tables move to another node.
                Err(error) if error.is_passing() && complete.elapsed() < self.patience() => {}
                Err(error) => break Outcome::Broken(error.to_string()),
            }
            self.ground.begin_round();
            self.progress.wait(Instant::now() + ROUND, |state| !state.ends.is_empty() || state.is_dropped);
        };
        if outcome != Outcome::Ended {
            self.ground.abort();
        }
        self.progress.change(|state| state.outcome = Some(outcome));
        for thread in self.threads.drain(..) {
            // Its panic was reported as the end of its instance.
            let _ = thread.join();
        }
        self.row.report.life = Life::Left;
        // Without a daemon the others notice that this process has gone.
        let _ = self.table.put_member(&self.row, self.version);
        self.progress.change(|state| state.is_over = true);
    }

    /// Returns the time for which the tables may be away.
    fn patience(&self) -> Duration {
        let endpoint = &self.ground.options.queue.endpoint;
        endpoint.lease.saturating_add(endpoint.timeout)
    }

    fn round(&mut self) -> Result<Option<Outcome>, FlowError> {
        if self.progress.read(|state| state.is_dropped) {
            return Ok(Some(Outcome::Dropped));
        }
        self.take_ends();
        if let Some(outcome) = self.take_changes() {
            return Ok(Some(outcome));
        }
        let (status, version) = self.table.status()?;
        if status.attempt != self.row.attempt {
            return Ok(Some(Outcome::Fenced));
        }
        match status.status {
            FlowStatus::Ended => return Ok(Some(Outcome::Ended)),
            FlowStatus::Cancelled => return Ok(Some(Outcome::Cancelled)),
            FlowStatus::Failed => {
                let unknown = Verdict { module: Verdict::NO_MODULE, member: 0, node: 0, reason: String::new() };
                return Ok(Some(Outcome::Failed(status.verdict.unwrap_or(unknown))));
            }
            FlowStatus::Waiting | FlowStatus::Running => {}
        }
        if !self.write_row()? {
            return Ok(Some(Outcome::Fenced));
        }
        let members = self.table.members(self.ground.options.queue.members, status.attempt)?;
        self.find_dead(&members)?;
        if status.status == FlowStatus::Waiting {
            self.begin(status, version, &members)?;
            return Ok(None);
        }
        let plan = self.enter(&status, &members)?;
        self.start_instances(&plan, &status, &members);
        self.advance(status, version, &plan, &members)?;
        Ok(None)
    }

    /// Notes the instances that have ended.
    fn take_ends(&mut self) {
        for (module, end) in self.progress.change(|state| std::mem::take(&mut state.ends)) {
            let local = &mut self.locals[module.index()];
            local.running -= 1;
            match end {
                Ok(unprocessed) => {
                    self.progress.change(|state| state.unprocessed += unprocessed);
                    if local.running == 0 && local.wanted == 0 && self.failure.is_none() {
                        self.set_state(module, ModuleState::Done);
                    }
                }
                // A cause comes before what followed from it.
                Err(error) => match &self.failure {
                    Some((_, first, _)) if !is_consequence(first) || is_consequence(&error) => {}
                    _ => self.failure = Some((module, error, Instant::now())),
                },
            }
        }
    }

    fn set_state(&mut self, module: ModuleId, state: ModuleState) {
        self.row.report.modules[module.index()] = state;
        self.is_written = false;
    }

    /// Takes the news of the group.
    fn take_changes(&mut self) -> Option<Outcome> {
        while let Some(change) = self.membership.next_change() {
            match change {
                Change::Replaced => return Some(Outcome::Fenced),
                // Without its directory nobody learns of deaths: one member would do the work of all, and never end.
                Change::Released => return Some(Outcome::Removed),
                Change::LockFree(member) => {
                    if let Ok(Some(run)) = self.group.run_of(member) {
                        self.membership.evict(Incarnation { member, run }, false);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Writes the own row, if it has changed. Returns false if others have lost this process.
    fn write_row(&mut self) -> Result<bool, FlowError> {
        if self.is_written {
            return Ok(true);
        }
        let (found, version) = self.table.member(self.row.report.place)?;
        let is_ours = |found: &MemberRow| found.report.run == self.row.report.run;
        let has_place = match &found {
            Some(found) if is_ours(found) => found.report.life != Life::Dead,
            // The row of a process that had the place before, or of one that has it now.
            Some(_) => self.group.has_place()?,
            None => true,
        };
        if !has_place {
            return Ok(false);
        }
        if let Some(written) = self.table.put_member(&self.row, version)? {
            (self.version, self.is_written) = (written, true);
        }
        Ok(true)
    }

    /// Marks members that are dead. The living member with the smallest place looks at all others, and they at it.
    fn find_dead(&self, members: &[MemberRow]) -> Result<(), FlowError> {
        let ours = self.row.report.place;
        let is_other = |member: &&MemberRow| member.report.life == Life::Alive && member.report.place != ours;
        let first = members.iter().find(is_other).map(|member| member.report.place);
        let is_first = first.is_none_or(|first| ours < first);
        for member in members.iter().filter(is_other).filter(|member| is_first || Some(member.report.place) == first) {
            let place = Member(member.report.place);
            if self.group.run_of(place)? == Some(member.report.run) {
                self.membership.suspect(place);
                continue;
            }
            let (found, version) = self.table.member(place.0)?;
            let found = found.filter(|found| found.report.run == member.report.run);
            if let Some(mut dead) = found.filter(|found| found.report.life == Life::Alive) {
                dead.report.life = Life::Dead;
                self.table.put_member(&dead, version)?;
            }
        }
        Ok(())
    }

    /// Begins the flow once enough processes have joined.
    fn begin(&mut self, mut status: StatusRow, version: Version, members: &[MemberRow]) -> Result<(), FlowError> {
        let alive: Vec<&MemberRow> = members.iter().filter(|member| member.report.life == Life::Alive).collect();
        self.progress.change(|state| state.joined = alive.len() as u16);
        let processes = usize::from(self.ground.options.processes);
        if alive.len() < processes {
            return Ok(());
        }
        let founder = |member: &&MemberRow| {
            let MemberRow { report, site, .. } = member;
            Founder { place: report.place, run: report.run, site: *site }
        };
        status.founders = alive.iter().take(processes).map(founder).collect();
        let sites: Vec<Site> = status.founders.iter().map(|founder| founder.site).collect();
        status.status = match self.ground.graph.plan(&sites) {
            Ok(_) => FlowStatus::Running,
            Err(error) => {
                let (member, node) = (self.row.report.place, self.row.site.node);
                status.verdict = Some(Verdict { module: Verdict::NO_MODULE, member, node, reason: error.to_string() });
                FlowStatus::Failed
            }
        };
        // Without success another member has begun it.
        self.table.put_status(&status, version)?;
        Ok(())
    }

    /// Returns the plan of a flow that runs. At the first time this member chooses its instances.
    fn enter(&mut self, status: &StatusRow, members: &[MemberRow]) -> Result<Arc<Plan>, FlowError> {
        if let Some(plan) = &self.plan {
            return Ok(plan.clone());
        }
        let sites: Vec<Site> = status.founders.iter().map(|founder| founder.site).collect();
        let plan = Arc::new(self.ground.graph.plan(&sites)?);
        self.founders = status.founders.iter().map(|founder| (founder.place, founder.run)).collect();
        let ours = (self.row.report.place, self.row.report.run);
        let founder = self.founders.iter().position(|founder| *founder == ours);
        let has_ended = self.ended_in_others(&plan, status, members);
        for module in self.ground.graph.modules() {
            let is_finished = status.finished.get(module.index()).is_some_and(|finished| *finished);
            let is_done = self.row.report.modules[module.index()] == ModuleState::Done;
            let (count, first) = match founder {
                Some(founder) => (plan.count(module, founder), plan.first(module, founder)),
                None if has_ended[module.index()] => (0, 0),
                None => (self.wanted_by_joiner(module, &plan, members), plan.total(module).saturating_add(ours.0)),
            };
            if count > 0 && !is_finished && !is_done {
                self.want(module, count, first);
            }
        }
        self.plan = Some(plan.clone());
        self.progress.change(|state| state.has_begun = true);
        Ok(plan)
    }

    /// Returns the progress of the flow, by what these members report.
    fn flow_progress<'a>(
        &self,
        plan: &Plan,
        status: &StatusRow,
        members: impl Iterator<Item = &'a MemberRow>,
    ) -> FlowProgress {
        let reports: Vec<_> = members.map(|member| member.report.clone()).collect();
        let is_fail_stop = self.ground.options.is_fail_stop();
        self.ground.graph.progress(plan, &self.founders, &reports, &status.finished, is_fail_stop)
    }

    /// Returns for each module whether it has ended in the other members. Of one that has not begun the flow nothing is missing.
    fn ended_in_others(&self, plan: &Plan, status: &StatusRow, members: &[MemberRow]) -> Vec<bool> {
        let others = members.iter().filter(|member| member.report.run != self.row.report.run);
        self.flow_progress(plan, status, others).ended
    }

    /// Returns the instances that a member runs which joins a flow that runs: those that its node has not. Modules with so many
    /// instances in the flow are started again by [`adopt`](Self::adopt) alone.
    fn wanted_by_joiner(&self, module: ModuleId, plan: &Plan, members: &[MemberRow]) -> u16 {
        let graph = &self.ground.graph;
        if !graph.is_replaceable(module) || self.ground.options.is_fail_stop() {
            return 0;
        }
        let is_here = members.iter().any(|MemberRow { report, site, .. }| {
            let founder = self.founders.iter().position(|founder| *founder == (report.place, report.run));
            // It may not have written yet that it runs the module.
            let is_planned = founder.is_some_and(|index| plan.count(module, index) > 0);
            let runs = match report.modules.get(module.index()) {
                Some(ModuleState::Running) => true,
                Some(ModuleState::Idle) => is_planned,
                Some(ModuleState::Done) | None => false,
            };
            runs && report.life == Life::Alive && site.node == self.row.site.node
        });
        match graph.each(module) {
            Each::Member => 1,
            Each::Node => u16::from(!is_here),
            Each::Core if !is_here => self.row.site.cores,
            Each::Core | Each::Flow | Each::Count(_) | Each::Outside => 0,
        }
    }

    fn want(&mut self, module: ModuleId, count: u16, first: u16) {
        let local = &mut self.locals[module.index()];
        (local.wanted, local.first) = (local.wanted + count, first);
        self.set_state(module, ModuleState::Running);
    }

    /// Starts the instances that the own row announces: from then on the others wait for their end.
    fn start_instances(&mut self, plan: &Arc<Plan>, status: &StatusRow, members: &[MemberRow]) {
        if !self.is_written || self.locals.iter().all(|local| local.wanted == 0) {
            return;
        }
        let is_founder = self.founders.contains(&(self.row.report.place, self.row.report.run));
        let has_ended = self.ended_in_others(plan, status, members);
        for module in self.ground.graph.modules() {
            let Local { wanted, first, running } = self.locals[module.index()];
            // The others may have ended the module before the row said that this member runs it, too.
            if wanted > 0 && running == 0 && !is_founder && has_ended[module.index()] {
                self.locals[module.index()].wanted = 0;
                self.set_state(module, ModuleState::Idle);
                continue;
            }
            for number in first..first + wanted {
                let started = self.start_instance(Instance { module, number, member: self.row.report.place }, plan);
                let local = &mut self.locals[module.index()];
                (local.wanted, local.running) = (local.wanted - 1, local.running + 1);
                if let Err(error) = started {
                    self.progress.change(|state| state.ends.push((module, Err(error.into()))));
                }
            }
        }
    }

    fn start_instance(&mut self, instance: Instance, plan: &Arc<Plan>) -> std::io::Result<()> {
        let Some(body) = self.bodies[instance.module.index()].clone() else { return Ok(()) };
        let (ground, progress, plan) = (self.ground.clone(), self.progress.clone(), plan.clone());
        let name = format!("river-{}", ground.graph.name(instance.module));
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let end = instance.run(&ground, &plan, &body);
            progress.change(|state| state.ends.push((instance.module, end)));
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends what has ended, and starts again what no member runs any more.
    fn advance(
        &mut self,
        status: StatusRow,
        version: Version,
        plan: &Plan,
        members: &[MemberRow],
    ) -> Result<(), FlowError> {
        let progress = self.flow_progress(plan, &status, members.iter());
        for module in self.ground.graph.modules().filter(|module| progress.ended[module.index()]) {
            self.ground.end_module(module);
        }
        if let Some(verdict) = self.verdict(&progress, &status) {
            let failed = StatusRow { status: FlowStatus::Failed, verdict: Some(verdict), ..status };
            self.table.put_status(&failed, version)?;
        } else if progress.has_ended() {
            self.table.put_status(&StatusRow { status: FlowStatus::Ended, ..status }, version)?;
        } else {
            self.adopt(&progress, plan, members);
        }
        Ok(())
    }

    /// Starts an instance of modules that no member runs any more, in the living member with the smallest place.
    fn adopt(&mut self, progress: &FlowProgress, plan: &Plan, members: &[MemberRow]) {
        let mut alive = members.iter().filter(|member| member.report.life == Life::Alive);
        if alive.next().is_none_or(|first| first.report.run != self.row.report.run) {
            return;
        }
        for module in &progress.orphaned {
            if self.row.report.modules[module.index()] == ModuleState::Idle {
                self.want(*module, 1, plan.total(*module).saturating_add(self.row.report.place));
            }
        }
    }

    /// Returns the module that ends the flow: one that failed here, or one that was lost with its member.
    fn verdict(&self, progress: &FlowProgress, status: &StatusRow) -> Option<Verdict> {
        if let Some((module, place)) = progress.lost {
            let founder = status.founders.iter().find(|founder| founder.place == place);
            let node = founder.map_or(0, |founder| founder.site.node);
            let reason = "was lost: its process is gone".to_owned();
            return Some(Verdict { module: module.index() as u16, member: place, node, reason });
        }
        let (module, error, since) = self.failure.as_ref()?;
        let patience = self.ground.options.queue.endpoint.lease.saturating_add(VERDICT_MARGIN);
        if is_consequence(error) && since.elapsed() < patience {
            return None;
        }
        let (member, node) = (self.row.report.place, self.row.site.node);
        Some(Verdict { module: module.index() as u16, member, node, reason: format!("failed: {error}") })
    }
}
