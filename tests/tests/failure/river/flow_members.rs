//! Members of flows for tests: the graphs that tests name, and processes that run them.
//!
//! The members are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a child tells its test what it did")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_river::flow::{Context, Each, Edge, Flow, FlowInfo, FlowOptions, Input, Module, Output};
use ddss_river::{Guarantee, UnitOptions, UnitQueue};
use ddss_testkit::{Daemon, Process};

pub(super) const CHILD: &str = "DDSS_TEST_FLOW";
pub(super) const NAME: &str = "tokens";
/// Deadline of everything that has to happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Lease of a process that is stopped. A living one must not miss it on a busy machine.
pub(super) const LEASE: Duration = Duration::from_secs(4);
pub(super) const MESSAGES: u32 = 300;

pub(super) fn connect(folder: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder)).unwrap()
}

pub(super) fn options(processes: u16) -> FlowOptions {
    let options = FlowOptions::new().processes(processes).members(4).lease(LEASE);
    options.timeout(PATIENCE).message_bytes_max(64 << 10)
}

/// Content of a message: some travel behind their header, most are written one-sided.
pub(super) fn content(number: u32) -> Vec<u8> {
    let words = [1, 90, 3_000][number as usize % 3];
    number.to_le_bytes().repeat(words)
}

pub(super) fn number(bytes: &[u8]) -> u32 {
    let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    assert_eq!(*bytes, content(number));
    number
}

/// Waits until a file exists.
pub(super) fn wait_for(file: &Path) {
    let end = Instant::now() + PATIENCE;
    while !file.exists() {
        assert!(Instant::now() < end, "{}", file.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Says what an instance does, in one line: other threads write too.
macro_rules! say {
    ($($what:tt)*) => { println!("{}", format!($($what)*)) };
}

/// Places a source of all messages.
pub(super) fn put_all(flow: &mut Flow, each: Each) -> Module {
    let put = |cx: &Context, output: &mut Output| {
        let (instance, instances) = (u32::from(cx.instance()), u32::from(cx.instances()));
        for number in (0..MESSAGES).filter(|number| number % instances == instance) {
            output.put(&content(number))?;
        }
        Ok(())
    };
    flow.source("put", each, put).unwrap()
}

/// Places a sink that says what it takes.
pub(super) fn take_all(flow: &mut Flow, each: Each) -> Module {
    let take = |cx: &Context, input: &mut Input| {
        while let Some(message) = input.take()? {
            say!("took {} {} {}", number(&message), message.is_redelivered(), cx.instance());
            message.acknowledge();
        }
        say!("ended {}", cx.instance());
        Ok(())
    };
    flow.sink("take", each, take).unwrap()
}

/// Places a module that passes messages on. The victim stops at its tenth one until the file `go` exists, any other member at its
/// first one until `begin` does.
pub(super) fn pass(flow: &mut Flow, each: Each, folder: PathBuf, is_victim: bool) -> Module {
    let pass = move |_: &Context, input: &mut Input, output: &mut Output| {
        let mut count = 0;
        while let Some(message) = input.take()? {
            count += 1;
            if message.is_redelivered() {
                say!("again {}", number(&message));
            }
            match (is_victim, count) {
                (true, 10) => {
                    say!("holds {}", number(&message));
                    wait_for(&folder.join("go"));
                }
                (false, 1) => wait_for(&folder.join("begin")),
                _ => {}
            }
            output.put(&message)?;
            message.acknowledge();
        }
        Ok(())
    };
    flow.place("pass", each, pass).unwrap()
}

/// Places a sink that waits behind its last message until the file `late` exists.
fn take_late(flow: &mut Flow, folder: PathBuf) -> Module {
    let take = move |cx: &Context, input: &mut Input| {
        while let Some(message) = input.take()? {
            say!("took {} {} {}", number(&message), message.is_redelivered(), cx.instance());
            message.acknowledge();
        }
        say!("at its end");
        wait_for(&folder.join("late"));
        Ok(())
    };
    flow.sink("take", Each::Flow, take).unwrap()
}

/// Places a module that passes messages on, each after a while.
fn pass_slowly(flow: &mut Flow) -> Module {
    let pass = |_: &Context, input: &mut Input, output: &mut Output| {
        while let Some(message) = input.take()? {
            std::thread::sleep(Duration::from_millis(50));
            output.put(&message)?;
            message.acknowledge();
        }
        Ok(())
    };
    flow.place("pass", Each::Member, pass).unwrap()
}

/// Builds the graph that a test names.
pub(super) fn build(graph: &str, client: &Client, folder: &Path, options: FlowOptions, is_victim: bool) -> Flow {
    let mut flow = Flow::join_with(client, NAME, options).unwrap();
    match graph {
        "queue" => {
            // The two single instances are in different members.
            let (put, take) = (put_all(&mut flow, Each::Flow), take_all(&mut flow, Each::Flow));
            flow.attach(put, take, Edge::queue()).unwrap();
        }
        "chain" | "held" => {
            let put = put_all(&mut flow, Each::Flow);
            let pass = pass(&mut flow, Each::Member, folder.to_owned(), is_victim);
            let take = take_all(&mut flow, Each::Flow);
            if graph == "held" {
                flow.holds_data(pass).unwrap();
            }
            flow.attach(put, pass, Edge::queue()).unwrap();
            flow.attach(pass, take, Edge::queue()).unwrap();
        }
        "key" => {
            let (put, take) = (put_all(&mut flow, Each::Member), take_all(&mut flow, Each::Count(3)));
            flow.attach(put, take, Edge::by_key(|message| &message[..1])).unwrap();
        }
        "one" => {
            let (put, take) = (put_all(&mut flow, Each::Count(3)), take_all(&mut flow, Each::Count(3)));
            flow.attach(put, take, Edge::one_to_one()).unwrap();
        }
        "all" => {
            let (put, take) = (put_all(&mut flow, Each::Member), take_all(&mut flow, Each::Count(3)));
            flow.attach(put, take, Edge::all_to_all()).unwrap();
        }
        "late" => {
            let (put, take) = (put_all(&mut flow, Each::Flow), take_late(&mut flow, folder.to_owned()));
            flow.attach(put, take, Edge::queue()).unwrap();
        }
        "late-list" => {
            let (list, pass) = (flow.list("pages").unwrap(), pass_slowly(&mut flow));
            let take = take_late(&mut flow, folder.to_owned());
            flow.attach(list, pass, Edge::units()).unwrap();
            flow.attach(pass, take, Edge::queue()).unwrap();
        }
        "pairs" => {
            let (list, pass) = (flow.list("pages").unwrap(), pass_slowly(&mut flow));
            let take = take_all(&mut flow, Each::Member);
            flow.attach(list, pass, Edge::units()).unwrap();
            flow.attach(pass, take, Edge::one_to_one()).unwrap();
        }
        "list" | "slow" => {
            let list = flow.list("pages").unwrap();
            let units = UnitOptions::new().unit_bytes_max(16 << 10).capacity(4 * MESSAGES).lease(LEASE);
            let pass = match graph {
                "slow" => pass_slowly(&mut flow),
                _ => pass(&mut flow, Each::Member, folder.to_owned(), is_victim),
            };
            let take = take_all(&mut flow, Each::Member);
            flow.attach(list, pass, Edge::units()).unwrap();
            flow.attach(pass, take, Edge::units_with(units)).unwrap();
        }
        other => panic!("{other}"),
    }
    flow
}

/// Creates the list of work that the graph `list` reads.
pub(super) fn fill_list(client: &Client) -> UnitQueue {
    let options = UnitOptions::new().unit_bytes_max(16 << 10).capacity(MESSAGES).lease(LEASE);
    let list = UnitQueue::create(client, "pages", options).unwrap();
    let units: Vec<Vec<u8>> = (0..MESSAGES).map(content).collect();
    list.add(&units).unwrap();
    list
}

/// Starts this program again, as a member.
pub(super) fn start(
    test: &str,
    daemon: &Daemon,
    job: &str,
    graph: &str,
    processes: u16,
    guarantee: Guarantee,
) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("river::{test}"), "--nocapture"]);
    command.env(CHILD, format!("{graph} {job} {processes} {guarantee:?} {}", daemon.folder().display()));
    Process::start(command, daemon.folder(), job).unwrap()
}

/// Runs the member that `start` asked for. Returns false in the test itself.
pub(super) fn is_child() -> bool {
    let Ok(words) = std::env::var(CHILD) else { return false };
    let words: Vec<&str> = words.splitn(5, ' ').collect();
    let [graph, job, processes, guarantee, folder] = words[..] else { panic!("{words:?}") };
    let all = [Guarantee::AtLeastOnce, Guarantee::AtMostOnce, Guarantee::FailStop];
    let guarantee = all.into_iter().find(|one| format!("{one:?}") == guarantee).unwrap();
    let (folder, client) = (Path::new(folder), connect(Path::new(folder)));
    let copies = if job.ends_with("-copied") { 2 } else { 1 };
    let options = options(processes.parse().unwrap()).guarantee(guarantee).copies(copies);
    let flow = build(graph, &client, folder, options, job.starts_with("victim"));
    match flow.go().and_then(|running| {
        say!("runs");
        running.wait()
    }) {
        Ok(()) => say!("flow ended"),
        Err(error) => say!("error {error}"),
    }
    true
}

/// Lets the members of a node go on.
pub(super) fn release(daemon: &Daemon, file: &str) {
    std::fs::write(daemon.folder().join(file), b"").unwrap();
}

/// Numbers of the messages that a process took, with the instance.
pub(super) fn taken(process: &Process) -> Vec<(u32, bool, u16)> {
    let lines = process.stdout();
    let words = lines.lines().filter_map(|line| line.strip_prefix("took "));
    let parse = |line: &str| {
        let [number, flag, instance] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        (number.parse().unwrap(), flag.parse().unwrap(), instance.parse().unwrap())
    };
    words.map(parse).collect()
}

/// Waits until a process has written a line that begins so. Returns the rest of it.
pub(super) fn line(process: &mut Process, start: &str) -> String {
    let found = |process: &Process| {
        let text = process.stdout();
        // A line may be in work.
        text.split_inclusive('\n').find_map(|line| Some(line.strip_suffix('\n')?.strip_prefix(start)?.to_owned()))
    };
    process.wait_until(PATIENCE, |process| found(process).is_some()).unwrap();
    found(process).unwrap()
}

/// Waits for a member, whose flow has ended in order.
pub(super) fn finish(process: &mut Process) {
    let status = process.wait(PATIENCE).unwrap();
    let said = format!("{} {}", process.stdout(), process.stderr());
    assert!(status.is_some_and(|status| status.success()) && said.contains("flow ended"), "{said}");
}

/// Fails unless the flow has left no name.
pub(super) fn assert_removed(daemon: &Daemon) {
    let client = connect(daemon.folder());
    let end = Instant::now() + PATIENCE;
    loop {
        let left: Vec<String> = client.list(&format!("river/{NAME}")).map(|info| info.unwrap().name).collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Numbers of all messages that were taken, of which none may be lost.
pub(super) fn assert_complete(all: &[(u32, bool, u16)]) -> BTreeMap<u32, Vec<bool>> {
    let mut flags: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
    all.iter().for_each(|(number, flag, _)| flags.entry(*number).or_default().push(*flag));
    let lost: Vec<_> = (0..MESSAGES).filter(|number| !flags.contains_key(number)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    flags
}

/// Waits until so many processes have joined the flow.
pub(super) fn until_joined(daemon: &Daemon, members: usize) {
    until_flow(daemon, |found| found.members.len() >= members);
}

/// Waits until a process has joined the flow.
pub(super) fn until_member(daemon: &Daemon, process: &Process) {
    until_flow(daemon, |found| found.members.iter().any(|member| member.process == process.pid()));
}

fn until_flow(daemon: &Daemon, is_so: impl Fn(&FlowInfo) -> bool) {
    let (client, end) = (connect(daemon.folder()), Instant::now() + PATIENCE);
    loop {
        // While its table is created, some rows are missing.
        let found = FlowInfo::read(&client, NAME).ok().flatten();
        if found.as_ref().is_some_and(&is_so) {
            return;
        }
        assert!(Instant::now() < end, "{found:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
