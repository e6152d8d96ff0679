//! A module, and its instances.

use crate::flow::error::{FlowError, ModuleError};
use crate::flow::ports::Ground;
use crate::flow::ports::Input;
use crate::flow::ports::{Output, Outputs};
use ddss::Client;
use ddss_river_core::{ModuleId, Plan};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A module of a flow: [`Flow::place`](crate::flow::Flow::place).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Module(pub(crate) ModuleId);

/// Code of a module.
pub(crate) type Body = Arc<dyn Fn(&Context, &mut Input, &mut Output) -> Result<(), ModuleError> + Send + Sync>;

/// An instance of a module, as its code sees it.
pub struct Context {
    ground: Arc<Ground>,
    module: ModuleId,
    instance: u16,
    instances: u16,
    member: u16,
}

impl Context {
    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.ground.client
    }

    /// Returns the name of the flow.
    #[must_use]
    pub fn flow(&self) -> &str {
        &self.ground.flow
    }

    /// Returns the name of the module.
    #[must_use]
    pub fn module(&self) -> &str {
        self.ground.graph.name(self.module)
    }

    /// Returns the number of the instance: from 0 on, over all members that begin the flow.
    #[must_use]
    pub fn instance(&self) -> u16 {
        self.instance
    }

    /// Returns the number of instances with which the flow begins.
    #[must_use]
    pub fn instances(&self) -> u16 {
        self.instances
    }

    /// Returns the number of the member.
    #[must_use]
    pub fn member(&self) -> u16 {
        self.member
    }

    /// Returns true once the flow fails or is cancelled: the module should return.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ground.is_ending()
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("module", &self.module())
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// An instance that is to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance {
    pub(crate) module: ModuleId,
    pub(crate) number: u16,
    pub(crate) member: u16,
}

impl Instance {
    /// Runs the instance to its end. Returns the messages that have failed.
    pub(crate) fn run(self, ground: &Arc<Ground>, plan: &Plan, body: &Body) -> Result<u64, ModuleError> {
        let Self { module, number, member } = self;
        let outputs = Arc::new(Outputs::open(ground, module, number, plan)?);
        let mut input = Input::open(ground, module, number, &outputs)?;
        let mut output = Output { outputs: outputs.clone() };
        let ground = ground.clone();
        let context = Context { ground, module, instance: number, instances: plan.total(module), member };
        let ended = catch_unwind(AssertUnwindSafe(|| body(&context, &mut input, &mut output)));
        let ended = ended.unwrap_or_else(|panic| Err(format!("it panicked: {}", text(panic.as_ref())).into()));
        if let Err(error) = ended {
            input.abandon();
            return Err(error);
        }
        input.finish()?;
        Ok(outputs.take_unprocessed())
    }
}

/// Returns true if an error follows from the end of the flow, or the loss of a member, which the members report with its module.
pub(crate) fn is_consequence(error: &ModuleError) -> bool {
    use crate::error::QueueError::{Ended, Fenced, Lost, Stopped};
    let queue = match error.downcast_ref::<FlowError>() {
        Some(FlowError::Ending { .. }) => return true,
        Some(FlowError::Queue(queue)) => Some(queue),
        _ => error.downcast_ref(),
    };
    matches!(queue, Some(Ended { .. } | Fenced { .. } | Lost { .. } | Stopped { .. }))
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("see its message")
}
