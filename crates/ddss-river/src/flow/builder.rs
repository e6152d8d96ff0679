//! Building a flow, and its begin.

use super::error::{FlowError, ModuleError};
use super::member::Monitor;
use super::member::Progress;
use super::member::{Body, Context, Module};
use super::options::FlowOptions;
use super::ports::Edge;
use super::ports::Ground;
use super::ports::Input;
use super::ports::Output;
use super::remove::cancel;
use super::running::Running;
use super::tables::{FlowStatus, FlowTable, group_name};
use crate::error::{QueueError, check_new_name};
use ddss::Client;
use ddss_group::{JoinError, JoinOptions, Membership};
use ddss_river_core::{Each, FlowGraph, GraphError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Port in the directory: the members of a flow reach each other by its queues alone.
const NO_PORT: u16 = 9;
/// Longest time in which the last member of an earlier flow removes its names.
const REMOVAL_MAX: Duration = Duration::from_secs(10);
/// Time between two looks at them.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A graph of modules, which several processes run together. Each process is a member, and builds the same graph.
///
/// ```no_run
/// use ddss_river::flow::{Each, Edge, Flow};
/// let client = ddss::Client::connect()?;
/// let mut flow = Flow::join(&client, "words")?;
/// let read = flow.source("read", Each::Flow, |_, output| {
///     for line in std::io::stdin().lines() {
///         output.put(line?.as_bytes())?;
///     }
///     Ok(())
/// })?;
/// let count = flow.sink("count", Each::Core, |_, input| {
///     while let Some(line) = input.take()? {
///         println!("{}", line.split(|byte| *byte == b' ').count());
///         line.acknowledge();
///     }
///     Ok(())
/// })?;
/// flow.attach(read, count, Edge::queue())?;
/// flow.go()?.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Flow {
    client: Client,
    name: String,
    options: FlowOptions,
    graph: FlowGraph,
    bodies: Vec<Option<Body>>,
    edges: Vec<Edge>,
}

impl Flow {
    /// Begins to build a flow. The options, and the name in place of this one, are those that `ddss river run` tells its
    /// processes; else one process begins the flow.
    ///
    /// # Errors
    /// The name is reserved, or the environment has other values than `ddss river run` sets.
    pub fn join(client: &Client, name: &str) -> Result<Self, FlowError> {
        let launched = std::env::var("DDSS_RIVER_FLOW");
        Self::join_with(client, launched.as_deref().unwrap_or(name), FlowOptions::from_environment()?)
    }

    /// Begins to build a flow with these options.
    ///
    /// # Errors
    /// The name is reserved, or an option is outside its limits.
    pub fn join_with(client: &Client, name: &str, options: FlowOptions) -> Result<Self, FlowError> {
        check_new_name(name)?;
        options.check().map_err(QueueError::from)?;
        let (graph, bodies, edges) = (FlowGraph::default(), Vec::new(), Vec::new());
        Ok(Self { client: client.clone(), name: name.to_owned(), options, graph, bodies, edges })
    }

    /// Places a module: `body` runs in each instance, until its input ends. It may return early. Once all instances have returned,
    /// what others put into the module is dropped.
    ///
    /// # Errors
    /// The name is empty, too long or in use, or there are too many modules.
    pub fn place<F>(&mut self, name: &str, each: Each, body: F) -> Result<Module, FlowError>
    where
        F: Fn(&Context, &mut Input, &mut Output) -> Result<(), ModuleError> + Send + Sync + 'static,
    {
        let module = self.graph.place(name, each)?;
        self.bodies.push(Some(Arc::new(body)));
        Ok(Module(module))
    }

    /// Places a module without input. Its loss ends the flow: let sources that must not be lost read a [list](Self::list).
    ///
    /// # Errors
    /// As for [`place`](Self::place).
    pub fn source<F>(&mut self, name: &str, each: Each, body: F) -> Result<Module, FlowError>
    where
        F: Fn(&Context, &mut Output) -> Result<(), ModuleError> + Send + Sync + 'static,
    {
        self.place(name, each, move |context, _, output| body(context, output))
    }

    /// Places a module without output.
    ///
    /// # Errors
    /// As for [`place`](Self::place).
    pub fn sink<F>(&mut self, name: &str, each: Each, body: F) -> Result<Module, FlowError>
    where
        F: Fn(&Context, &mut Input) -> Result<(), ModuleError> + Send + Sync + 'static,
    {
        self.place(name, each, move |context, input, _| body(context, input))
    }

    /// Names a list of work, a [`UnitQueue`](crate::UnitQueue) that exists, as the beginning of an edge of units. The flow ends
    /// when each of its units is done or failed.
    ///
    /// # Errors
    /// As for [`place`](Self::place).
    pub fn list(&mut self, name: &str) -> Result<Module, FlowError> {
        let module = self.graph.place(name, Each::Outside)?;
        self.bodies.push(None);
        Ok(Module(module))
    }

    /// Says that a module holds data of messages that it has acknowledged: its loss ends the flow.
    ///
    /// # Errors
    /// The module is of another flow.
    pub fn holds_data(&mut self, module: Module) -> Result<(), FlowError> {
        Ok(self.graph.set_holds_data(module.0)?)
    }

    /// Joins the output of a module to the input of another.
    ///
    /// # Errors
    /// A module of another flow, a second edge between two modules, or too many edges.
    pub fn attach(&mut self, from: Module, to: Module, edge: Edge) -> Result<(), FlowError> {
        self.graph.attach(from.0, to.0, edge.kind)?;
        self.edges.push(edge);
        Ok(())
    }

    /// Joins the other members, and runs the modules of this one. Waits until all processes that begin the flow have joined.
    ///
    /// # Errors
    /// The graph cannot run, that of the others differs, too few processes join in time, or the flow has ended.
    pub fn go(self) -> Result<Running, FlowError> {
        self.graph.check()?;
        let Self { client, name, options, graph, bodies, edges } = self;
        let (membership, table, attempt) = enter(&client, &name, &options, &graph)?;
        let ground = Arc::new(Ground::new(name, client, graph, edges, options));
        let progress = Arc::new(Progress::default());
        let monitor = Monitor::new(ground.clone(), table.clone(), attempt, membership, bodies, progress.clone())?;
        let thread = std::thread::Builder::new().name("ddss-flow".to_owned()).spawn(move || monitor.run())?;
        let running = Running { ground, table, progress, thread: Some(thread) };
        running.wait_for_begin()?;
        Ok(running)
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow").field("name", &self.name).field("graph", &self.graph).finish_non_exhaustive()
    }
}

fn join_group(client: &Client, flow: &str, options: &FlowOptions, graph: &FlowGraph) -> Result<Membership, FlowError> {
    let address = SocketAddr::new(options.queue.endpoint.listen, NO_PORT);
    let settings = options.encode(graph.hash());
    let join = JoinOptions::new(options.queue.members, address).settings(settings);
    let join = join.lease(options.queue.endpoint.lease).copies(options.queue.copies);
    Membership::join(client, &group_name(flow), &join).map_err(|error| {
        let JoinError::OtherSettings { theirs, .. } = error else { return error.into() };
        let flow = flow.to_owned();
        match FlowOptions::hash_in(&theirs) {
            None => QueueError::ReservedName { queue: flow }.into(),
            Some(hash) if hash != graph.hash() => GraphError::Different { flow: hash, own: graph.hash() }.into(),
            Some(_) => {
                let (setting, theirs, ours) = options.difference(&theirs).unwrap_or(("settings", 0, 0));
                FlowError::OtherSetting { flow, setting, theirs, ours }
            }
        }
    })
}

/// Takes a place in a flow that has not ended, or creates the flow. Returns the attempt, too.
fn enter(
    client: &Client,
    flow: &str,
    options: &FlowOptions,
    graph: &FlowGraph,
) -> Result<(Membership, FlowTable, u32), FlowError> {
    let end = Instant::now() + REMOVAL_MAX;
    loop {
        let error = match try_to_enter(client, flow, options, graph) {
            Ok(Some(entered)) => return Ok(entered),
            Ok(None) => FlowError::Over { flow: flow.to_owned() },
            // Another process removes the names.
            Err(error) if error.is_not_found() => error,
            Err(error) => return Err(error),
        };
        if Instant::now() >= end {
            return Err(error);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Takes a place as [`enter`] does. `None` if an earlier flow of this name has ended, and its members are about to leave.
fn try_to_enter(
    client: &Client,
    flow: &str,
    options: &FlowOptions,
    graph: &FlowGraph,
) -> Result<Option<(Membership, FlowTable, u32)>, FlowError> {
    let over = || Err(FlowError::Over { flow: flow.to_owned() });
    // Before the group: a flow that is over, or another program, leaves none behind.
    if let Some(table) = FlowTable::open(client, flow)? {
        match table.status()?.0.status {
            // Its last member removes it, unless it was killed before.
            FlowStatus::Ended if !cancel(client, flow)? => return Ok(None),
            FlowStatus::Ended => {}
            status if status.is_over() => return over(),
            _ => table.compare(graph)?,
        }
    }
    let membership = join_group(client, flow, options, graph)?;
    let table = FlowTable::create(client, flow, graph, options.queue.copies)?;
    let status = table.status()?.0;
    match status.status {
        FlowStatus::Ended => Ok(None),
        over_now if over_now.is_over() => over(),
        _ => {
            // The table is released behind the group: the place may be one of a flow that has ended.
            let has_place = membership.group_state().has_place().is_ok_and(|has_place| has_place);
            Ok(has_place.then_some((membership, table, status.attempt)))
        }
    }
}
