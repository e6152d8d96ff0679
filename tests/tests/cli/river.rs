//! `ddss river` with real programs, which are killed, interrupted and fail.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stderr, reason = "a member of a flow tells its test what it took")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_river::flow::{Each, Edge, Flow};
use ddss_river::{Queue, QueueOptions};
use ddss_testkit::{CommandOutput, Daemon, Process, binary, run_ddss};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Time limit on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn said(daemon: &Daemon, words: &[&str]) -> CommandOutput {
    run_ddss(daemon.folder(), words, "").unwrap()
}

fn done(daemon: &Daemon, words: &[&str]) -> String {
    let said = said(daemon, words);
    assert_eq!(said.code, 0, "{words:?}: {said:?}");
    said.out
}

/// The units of the list `u`, as JSON.
fn units(daemon: &Daemon) -> Vec<Value> {
    serde_json::from_str(&done(daemon, &["river", "units", "ls", "u", "--json"])).unwrap()
}

/// Starts a worker with a script for `sh`, which has the unit in `$1` and the folder for files in `$2`.
fn worker(daemon: &Daemon, name: &str, script: &str) -> Process {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["river", "units", "work", "u", "--", "sh", "-c", script, "sh", "{}"]).arg(daemon.folder());
    command.env("DDSS_DIR", daemon.folder());
    Process::start(command, daemon.folder(), name).unwrap()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn file(daemon: &Daemon, name: &str) -> PathBuf {
    daemon.folder().join(name)
}

/// Starts a file server over a directory of the daemon.
fn serve(daemon: &Daemon, name: &str) -> Process {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["river", "serve"]).arg(file(daemon, name)).env("DDSS_DIR", daemon.folder());
    let mut server = Process::start(command, daemon.folder(), &format!("serve-{name}")).unwrap();
    server.wait_until(PATIENCE, |server| server.stdout().contains("serves")).unwrap();
    server
}

/// Starts a consumer of the queue `q` with a script for `sh`.
fn take(daemon: &Daemon, name: &str, script: &str) -> Process {
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["river", "take", "q", "--", "sh", "-c", script]).env("DDSS_DIR", daemon.folder());
    Process::start(command, daemon.folder(), name).unwrap()
}

fn pid_in(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n')).map(|text| text.trim().to_owned())
}

// If this failed, nobody could spread work over processes from a shell, or would learn which units failed.
#[test]
fn program_runs_for_each_unit_and_failures_are_listed_and_retried() {
    let daemon = Daemon::start(1).unwrap();
    let said_add = run_ddss(daemon.folder(), &["river", "units", "add", "u"], "one\ntwo\n\nbad {}\n").unwrap();
    assert_eq!((said_add.code, said_add.out.as_str()), (0, "u: 3 units added, the first is unit 0\n"), "{said_add:?}");
    let script =
        "test -e \"$2/good\" || test \"$1\" = \"${1#bad}\" || exit 7; echo \"$1 $DDSS_UNIT $DDSS_UNIT_ATTEMPT\"";
    let folder = daemon.folder().to_str().unwrap();
    let work = ["river", "units", "work", "u", "-j", "2", "--", "sh", "-c", script, "sh", "{}", folder];
    let ended = said(&daemon, &work);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.out.contains("one 0 1\n") && ended.out.contains("two 1 1\n"), "{ended:?}");
    assert!(ended.out.contains("u: 2 units done here\n"), "{ended:?}");
    assert_eq!(
        ended.err.matches("unit 2 (bad {}): failed: its program ended with exit code 7").count(),
        3,
        "{ended:?}"
    );
    assert!(ended.err.contains("1 units of u have failed"), "{ended:?}");
    let listed = done(&daemon, &["river", "units", "ls", "u", "--state", "failed"]);
    assert!(listed.contains("bad {}") && listed.contains("exit code 7") && !listed.contains("one"), "{listed}");

    assert_eq!(done(&daemon, &["river", "units", "retry", "u"]), "u: 1 units are open again\n");
    std::fs::write(file(&daemon, "good"), b"").unwrap();
    assert!(done(&daemon, &work).contains("bad {} 2 4\n"));
    assert!(units(&daemon).iter().all(|unit| unit["state"] == "done"));
    // Without a placeholder the unit is on standard input.
    done(&daemon, &["river", "units", "add", "u", "three"]);
    assert!(done(&daemon, &["river", "units", "work", "u", "cat"]).contains("three"));

    for (words, error) in [
        (&["river", "units", "ls", "none"][..], "there is no list none: `ddss river units add` creates it"),
        (&["river", "units", "work", "u", "no-such-program"], "cannot run no-such-program"),
        (&["river", "units", "add", "u", "x", "--lease", "3"], "queue u has lease in ms 10000"),
        (&["river", "units", "add", "u", "x", "--lease", "10", "--copies", "2"], "queue u has copies 1"),
        (&["river", "units", "add", "u", "x", "--copies", "2"], "list u has --copies 1, not 2: leave the option out"),
    ] {
        let refused = said(&daemon, words);
        assert!(refused.code == 1 && refused.err.contains(error), "{refused:?}");
    }
}

// If this failed, an interrupted worker would leave programs that run for nobody, or units that wait for their lease.
#[test]
fn interrupted_worker_ends_its_program_and_gives_the_unit_back() {
    let daemon = Daemon::start(1).unwrap();
    done(&daemon, &["river", "units", "add", "u", "one", "--lease", "600"]);
    for round in 0..4 {
        let (started, mut first) = (
            file(&daemon, &format!("pid{round}")),
            worker(&daemon, &format!("worker{round}"), &format!("echo $$ > \"$2/pid{round}\"; sleep 1000")),
        );
        until("the program starts", || pid_in(&started).is_some());
        assert_eq!(units(&daemon)[0]["state"], "claimed");
        first.terminate().unwrap();
        assert_eq!(first.wait(PATIENCE).unwrap().unwrap().code(), Some(143), "{}", first.stderr());
        assert!(first.stderr().contains("interrupted: the work that was begun is given back"), "{}", first.stderr());
        assert!(!Path::new("/proc").join(pid_in(&started).unwrap()).exists(), "the program runs on");
        let unit = &units(&daemon)[0];
        assert_eq!((&unit["state"], &unit["strikes"]), (&"open".into(), &0.into()), "{unit}");
    }
    assert!(done(&daemon, &["river", "units", "work", "u", "true"]).contains("u: 1 units done here"));
}

// If this failed, the unit of a killed worker would be lost, or its program would work on beside the next one.
#[test]
fn unit_of_a_killed_worker_is_done_by_another_one() {
    let daemon = Daemon::start(1).unwrap();
    done(&daemon, &["river", "units", "add", "u", "one", "--lease", "2"]);
    let mut first = worker(&daemon, "first", "echo $$ > \"$2/pid\"; exec sleep 1000");
    until("the program starts", || pid_in(&file(&daemon, "pid")).is_some());
    first.kill().unwrap();
    let process = Path::new("/proc").join(pid_in(&file(&daemon, "pid")).unwrap());
    until("the program ends with its worker", || {
        std::fs::read_to_string(process.join("stat")).map_or(true, |stat| stat.contains(") Z "))
    });
    assert!(done(&daemon, &["river", "units", "work", "u", "true"]).contains("u: 1 units done here"));
    let unit = &units(&daemon)[0];
    assert_eq!((&unit["state"], &unit["attempts"], &unit["strikes"]), (&"done".into(), &2.into(), &1.into()), "{unit}");
}

// If this failed, lines of a shell would be lost on their way through a queue, or nobody would see who is slow.
#[test]
fn lines_go_through_a_queue_to_programs_of_different_speed() {
    let daemon = Daemon::start(1).unwrap();
    let (mut fast, mut slow) = (take(&daemon, "fast", "cat; echo"), take(&daemon, "slow", "sleep 0.5; cat; echo"));
    let members = || -> Vec<Value> {
        let said = said(&daemon, &["river", "show", "q", "--json"]);
        serde_json::from_str::<Value>(&said.out)
            .map_or_else(|_| Vec::new(), |queue| queue["members"].as_array().unwrap().clone())
    };
    until("both have joined", || members().len() == 2);
    let lines: String = (0..60).map(|number| format!("line {number}\n")).collect();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| run_ddss(daemon.folder(), &["river", "put", "q", "--close"], &lines).unwrap());
        until("the members publish what they take and hold", || {
            let count = |name: &str| members().iter().filter(|member| member[name].as_u64() > Some(0)).count();
            count("taken") == 2 && count("put") == 1
        });
        let listed = done(&daemon, &["river", "ls"]);
        assert!(listed.contains("queue") && listed.contains("3 of 16"), "{listed}");
        let put = put.join().unwrap();
        assert_eq!(
            (put.code, put.out.as_str()),
            (0, "q: 60 messages were processed, and the queue is closed\n"),
            "{put:?}"
        );
    });
    for process in [&mut fast, &mut slow] {
        assert_eq!(process.wait(PATIENCE).unwrap().unwrap().code(), Some(0), "{}", process.stderr());
    }
    let (fast, slow) = (fast.stdout(), slow.stdout());
    let mut got: Vec<&str> = fast.lines().chain(slow.lines()).collect();
    got.sort_unstable();
    let mut expected: Vec<&str> = lines.lines().collect();
    expected.sort_unstable();
    assert_eq!(got, expected);
    assert!(fast.lines().count() > slow.lines().count(), "the slow consumer gets fewer");

    let closed = run_ddss(daemon.folder(), &["river", "put", "q"], "late\n").unwrap();
    assert!(closed.code == 1 && closed.err.contains("queue q is closed"), "{closed:?}");
    let unknown = said(&daemon, &["river", "show", "none"]);
    assert!(unknown.code == 1 && unknown.err.contains("there is no queue or flow none"), "{unknown:?}");
}

// If this failed, a user would look for the slow process in vain.
#[test]
fn top_shows_which_members_work_wait_for_room_and_wait_for_messages() {
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let open = |name: &str| Queue::open(&client, name, QueueOptions::new().send_slots(2).timeout(PATIENCE)).unwrap();
    let (full, worker, empty) = (open("full"), open("full"), open("empty"));
    let (producer, mut consumer, mut waiting) =
        (full.producer().unwrap(), worker.consumer().unwrap(), empty.consumer().unwrap());
    (0..2).for_each(|_| producer.put(b"message").unwrap());
    let message = consumer.take().unwrap().unwrap();
    std::thread::scope(|scope| {
        // A process that holds a message, one that waits for room, and one that waits for a message.
        let put = scope.spawn(|| producer.put(b"more"));
        let take = scope.spawn(|| waiting.take());
        let top = || serde_json::from_str::<Vec<Value>>(&done(&daemon, &["river", "top", "--json"])).unwrap();
        until("all of the time is where it is spent", || {
            let found = top();
            let most = |queue: &str, number: u64, what: &str| {
                let members = found.iter().filter(|found| found["queue"] == queue);
                let mut members = members.flat_map(|queue| queue["members"].as_array().unwrap());
                let member = members.find(|member| member["member"] == number);
                member.is_some_and(|member| member[what].as_f64() > Some(0.9))
            };
            most("full", 0, "blocked") && most("full", 1, "busy") && most("empty", 0, "idle")
        });
        let shown = done(&daemon, &["river", "top", "full"]);
        assert!(shown.contains("100 %") && !shown.contains("empty"), "{shown}");
        // A foreign table in the place of a flow ends no view of queues.
        let foreign = client.table::<[u8]>("river/full/flow").allocate(ddss::Spec::new(4).row_len(64)).unwrap();
        foreign.row(0).put(b"something else").unwrap();
        let _below = open("full/edge");
        let shown = done(&daemon, &["river", "top", "full"]);
        assert!(shown.contains("full/edge") && shown.contains("100 %"), "{shown}");
        message.acknowledge();
        put.join().unwrap().unwrap();
        empty.close().unwrap();
        assert!(take.join().unwrap().unwrap().is_none());
    });
    let unknown = said(&daemon, &["river", "top", "none"]);
    assert!(unknown.code == 1 && unknown.err.contains("no process has opened the queue or flow none"), "{unknown:?}");
}

// If this failed, a message whose program fails would be taken for processed, or be tried for ever.
#[test]
fn message_whose_program_fails_three_times_is_reported_by_its_producer() {
    let daemon = Daemon::start(1).unwrap();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| run_ddss(daemon.folder(), &["river", "put", "q", "--close"], "good\nbad\n").unwrap());
        let take = ["river", "take", "q", "--", "sh", "-c", "read line; test \"$line\" = good"];
        let taken = run_ddss(daemon.folder(), &take, "").unwrap();
        assert!(taken.code == 1 && taken.err.contains("the program failed for 3 messages"), "{taken:?}");
        let put = put.join().unwrap();
        assert!(put.code == 1 && put.err.contains("1 messages of queue q were not processed"), "{put:?}");
    });
}

// If this failed, a restart of the consumers, one after the other, would fail the message that each of them has in work.
#[test]
fn message_of_interrupted_consumers_is_processed_by_the_next_one() {
    let daemon = Daemon::start(1).unwrap();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| run_ddss(daemon.folder(), &["river", "put", "q", "--close"], "one\n").unwrap());
        for round in 0..4 {
            let started = file(&daemon, &format!("pid{round}"));
            let script = format!("echo $$ > {}; sleep 1000", started.display());
            let mut consumer = take(&daemon, &format!("take{round}"), &script);
            until("the program starts", || pid_in(&started).is_some());
            consumer.terminate().unwrap();
            assert_eq!(consumer.wait(PATIENCE).unwrap().unwrap().code(), Some(143), "{}", consumer.stderr());
        }
        let taken = done(&daemon, &["river", "take", "q", "--json"]);
        assert!(taken.contains(r#""redelivered":true"#), "{taken}");
        let put = put.join().unwrap();
        assert_eq!(put.code, 0, "{put:?}");
    });
}

// If this failed, a program that leaves a process behind would hold its message, and its producer, for ever.
#[test]
fn program_that_leaves_its_input_to_another_process_ends_its_message() {
    let daemon = Daemon::start(1).unwrap();
    // More than a pipe holds.
    let message = file(&daemon, "message");
    std::fs::write(&message, vec![b'x'; 1 << 20]).unwrap();
    let left = file(&daemon, "left");
    let script = format!("exec 3<&0; setsid sleep 1000 <&3 >/dev/null 2>&1 & echo $! > {}", left.display());
    std::thread::scope(|scope| {
        let put = scope.spawn(|| done(&daemon, &["river", "put", "q", message.to_str().unwrap()]));
        done(&daemon, &["river", "take", "q", "--count", "1", "--", "sh", "-c", &script]);
        assert_eq!(put.join().unwrap(), "q: 1 messages were processed\n");
    });
    let process = Pid::from_raw(pid_in(&left).unwrap().parse().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}

// If this failed, messages of a producer that was killed would be lost with a consumer that ends in order.
#[test]
fn consumer_takes_the_messages_of_a_dead_producer_before_it_ends() {
    let daemon = Daemon::start(1).unwrap();
    let (started, go) = (file(&daemon, "pid"), file(&daemon, "go"));
    let script = "echo $$ > $DDSS_DIR/pid; while ! test -e $DDSS_DIR/go; do sleep 0.05; done; cat; echo";
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["river", "take", "q", "--count", "1", "--", "sh", "-c", script]).env("DDSS_DIR", daemon.folder());
    let mut consumer = Process::start(command, daemon.folder(), "take").unwrap();
    let mut command = Command::new(binary("ddss").unwrap());
    let files = ["one", "two"].map(|name| file(&daemon, name));
    files.iter().for_each(|path| std::fs::write(path, path.file_name().unwrap().as_encoded_bytes()).unwrap());
    command.args(["river", "put", "q"]).args(&files).env("DDSS_DIR", daemon.folder());
    let mut producer = Process::start(command, daemon.folder(), "put").unwrap();
    until("the program starts", || pid_in(&started).is_some());
    let members = || -> Vec<Value> {
        let shown: Value = serde_json::from_str(&done(&daemon, &["river", "show", "q", "--json"])).unwrap();
        shown["members"].as_array().unwrap().clone()
    };
    until("both messages have left", || {
        let members = members();
        let has = |name: &str, count: u64| members.iter().any(|member| member[name] == count);
        has("held", 2) && has("taken", 1)
    });
    producer.kill().unwrap();
    until("its death is known", || members().len() == 1);
    std::fs::write(go, b"").unwrap();
    assert_eq!(consumer.wait(PATIENCE).unwrap().unwrap().code(), Some(0), "{}", consumer.stderr());
    assert_eq!(consumer.stdout(), "one\ntwo\n");
}

// If this failed, a restart of a consumer would lose the messages of producers that were killed, the one in work without a word.
#[test]
fn consumer_that_gets_a_signal_processes_the_messages_of_a_dead_producer_before_it_ends() {
    let daemon = Daemon::start(1).unwrap();
    let script = "if mkdir $DDSS_DIR/begun 2>/dev/null; then exec sleep 1000; fi; cat; echo";
    let mut consumer = take(&daemon, "take", script);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["river", "put", "q"]).env("DDSS_DIR", daemon.folder());
    let mut producer = Process::start_with(command, reader.into(), daemon.folder(), "put").unwrap();
    std::io::Write::write_all(&mut writer, b"one\ntwo\n").unwrap();
    until("the program starts", || file(&daemon, "begun").exists());
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let table = client.table::<[u8]>("river/q").open().unwrap();
    let places = || (1..=16).filter(|place| table.row(*place).get().unwrap()[..4] == *b"MBR1").count();
    until("both messages have left", || {
        let members = Queue::inspect(&client, "q").unwrap().unwrap().members;
        members.iter().any(|member| member.held == 2) && members.len() == 2
    });
    producer.kill().unwrap();
    // The consumer clears it when the connection ends.
    until("its death is known", || places() == 1);
    consumer.terminate().unwrap();
    assert_eq!(consumer.wait(PATIENCE).unwrap().unwrap().code(), Some(143), "{}", consumer.stderr());
    assert_eq!((consumer.stdout().as_str(), consumer.stderr().contains("are lost")), ("one\ntwo\n", false));
}

// If this failed, a consumer would wait for ever beside another queue of its name, into which the producers put.
#[test]
fn consumer_of_a_released_queue_ends_and_the_next_one_meets_the_producers() {
    let daemon = Daemon::start(1).unwrap();
    let mut consumer = take(&daemon, "take", "cat");
    until("it has joined", || done(&daemon, &["river", "ls"]).contains('q'));
    done(&daemon, &["release", "river/q"]);
    assert_eq!(consumer.wait(PATIENCE).unwrap().unwrap().code(), Some(1), "{}", consumer.stderr());
    assert!(consumer.stderr().contains("was released: open the queue again"), "{}", consumer.stderr());
    let mut next = take(&daemon, "next", "cat");
    let message = file(&daemon, "message");
    std::fs::write(&message, "hello").unwrap();
    done(&daemon, &["river", "put", "q", "--close", message.to_str().unwrap()]);
    assert_eq!(next.wait(PATIENCE).unwrap().unwrap().code(), Some(0), "{}", next.stderr());
    assert_eq!(next.stdout(), "hello");
}

// If this failed, unmodified programs could not read mirrored files, or nobody would learn of a damaged mirror.
#[test]
fn collection_is_loaded_read_by_programs_and_verified() {
    let daemon = Daemon::start(1).unwrap();
    let mut servers = ["one", "two"].map(|name| serve(&daemon, name));
    let text: String = (0..100_000).map(|number| format!("line {number}\n")).collect();
    let source = file(&daemon, "source");
    std::fs::write(&source, &text).unwrap();
    let loaded = done(&daemon, &["river", "load", "pages", source.to_str().unwrap()]);
    assert!(loaded.contains("in 1 parts, each on two file servers"), "{loaded}");
    assert_eq!(done(&daemon, &["river", "cat", "pages"]), text);
    let copy = file(&daemon, "copy");
    done(&daemon, &["river", "cat", "pages", "--into", copy.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&copy).unwrap() == text, "another file");
    assert!(done(&daemon, &["river", "verify", "pages"]).contains("both mirrors of each part are complete"));
    servers[0].terminate().unwrap();
    assert!(servers[0].wait(PATIENCE).unwrap().unwrap().success(), "{}", servers[0].stderr());
    assert_eq!(done(&daemon, &["river", "cat", "pages"]), text);
    let damaged = said(&daemon, &["river", "verify", "pages", "--timeout", "2"]);
    assert!(damaged.code == 1 && damaged.out.contains("does not answer"), "{damaged:?}");
    let files = done(&daemon, &["river", "files"]);
    assert!(files.contains("pages") && !done(&daemon, &["river", "ls"]).contains("pages"), "{files}");
    let copy = file(&daemon, "copy of none");
    assert_eq!(said(&daemon, &["river", "cat", "none", "--into", copy.to_str().unwrap()]).code, 1);
    assert!(!copy.exists() && !copy.with_added_extension("partial").exists());
    let unknown = said(&daemon, &["river", "cat", "none"]);
    assert!(unknown.code == 1 && unknown.err.contains("there is no collection none: load it"), "{unknown:?}");
}

// If this failed, a file server that its users have given up would look as if it served them, for ever.
#[test]
fn file_server_that_was_stopped_for_too_long_ends_with_an_error() {
    let daemon = Daemon::start(1).unwrap();
    let (mut stopped, _other) = (serve(&daemon, "one"), serve(&daemon, "two"));
    stopped.pause().unwrap();
    std::thread::sleep(Duration::from_secs(15));
    stopped.resume().unwrap();
    assert_eq!(stopped.wait(PATIENCE).unwrap().unwrap().code(), Some(1), "{}", stopped.stderr());
    assert!(stopped.stderr().contains("no process finds it any more; start it again"), "{}", stopped.stderr());
}

// If this failed, file servers would outlive their directory, and look as if they served those who come later.
#[test]
fn file_servers_whose_directory_is_released_end_with_an_error() {
    let daemon = Daemon::start(1).unwrap();
    let servers = ["one", "two"].map(|name| serve(&daemon, name));
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    client.segment("river/files").open().unwrap().release().unwrap();
    for mut server in servers {
        assert_eq!(server.wait(PATIENCE).unwrap().unwrap().code(), Some(1), "{}", server.stderr());
        assert!(server.stderr().contains("or river/files was released or lost"), "{}", server.stderr());
    }
}

// If this failed, Ctrl-C would leave parts on two disks that nobody can tell from those in use, and keep the name taken.
#[test]
fn interrupted_load_leaves_neither_parts_nor_a_name() {
    let daemon = Daemon::start(1).unwrap();
    let _servers = ["one", "two"].map(|name| serve(&daemon, name));
    let names = |server: &str| std::fs::read_dir(file(&daemon, server)).unwrap().count();
    for signal in [true, false] {
        let mut command = Command::new(binary("ddss").unwrap());
        command.args(["river", "load", "pages"]).env("DDSS_DIR", daemon.folder());
        // A pipe that stays open.
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut load = Process::start_with(command, reader.into(), daemon.folder(), "load").unwrap();
        std::io::Write::write_all(&mut writer, &vec![7; 1 << 20]).unwrap();
        until("a part is written", || names("one") == 2 && names("two") == 2);
        if signal {
            load.terminate().unwrap();
        } else {
            kill_process(Pid::from_raw(load.pid().cast_signed()).unwrap(), Signal::INT).unwrap();
        }
        let code = if signal { 143 } else { 130 };
        assert_eq!(load.wait(PATIENCE).unwrap().unwrap().code(), Some(code), "{}", load.stderr());
        assert!(load.stderr().contains("interrupted: the collection is not loaded"), "{}", load.stderr());
        until("the parts are dropped", || names("one") == 1 && names("two") == 1);
        assert_eq!(done(&daemon, &["river", "files", "--json"]), "[]\n");
    }
}

// If this failed, one word on a command line would keep all file servers of a cluster out.
#[test]
fn names_of_the_file_servers_are_refused_and_a_foreign_table_ends_no_list() {
    let daemon = Daemon::start(1).unwrap();
    for words in [
        &["river", "put", "files"][..],
        &["river", "put", "files/pages"],
        &["river", "units", "add", "files", "one"],
        &["river", "units", "ls", "files"],
    ] {
        let refused = said(&daemon, words);
        assert!(refused.code == 1 && refused.err.contains("river/files and what is below it belong"), "{refused:?}");
    }
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let table = client.table::<[u8]>("river/files/foreign").allocate(ddss::Spec::new(4).row_len(64)).unwrap();
    table.row(0).put(b"something else").unwrap();
    let files = said(&daemon, &["river", "files"]);
    assert!(files.code == 0 && files.out.contains("unreadable"), "{files:?}");
}

// If this failed, a script would go on behind a process that lost messages, or end because one of several was killed.
#[test]
fn run_reports_a_process_that_failed_and_forgives_one_that_was_killed() {
    let daemon = Daemon::start(1).unwrap();
    let run = |flow: &str, end: &str| {
        let program = format!("mkdir \"$DDSS_DIR/{flow}\" 2>/dev/null || {end}");
        said(&daemon, &["river", "run", flow, "-n", "2", "--", "sh", "-c", &program])
    };
    let failed = run("failed", "exit 3");
    assert!(failed.code == 1 && failed.err.contains("flow failed has ended, but process "), "{failed:?}");
    assert!(failed.err.contains("ended with status 3"), "{failed:?}");
    let killed = run("killed", "kill -9 $$");
    assert!(killed.code == 0 && killed.err.contains("was killed by signal 9"), "{killed:?}");
}

/// A member of a flow, as `ddss river run` starts it: this program again.
fn is_flow_member() -> bool {
    if std::env::var_os("DDSS_RIVER_FLOW").is_none() {
        return false;
    }
    let client = Client::connect().unwrap();
    let mut flow = Flow::join(&client, "ignored").unwrap();
    let list = flow.list("pages").unwrap();
    let check = flow.place("check", Each::Member, |_, input, output| {
        while let Some(unit) = input.take()? {
            if &unit[..] == b"bad" && std::env::var_os("FLOW_IS_GOOD").is_none() {
                return Err("a bad unit".into());
            }
            output.put(&unit)?;
            unit.acknowledge();
        }
        Ok(())
    });
    let take = flow.sink("take", Each::Flow, |_, input| {
        while let Some(message) = input.take()? {
            eprintln!("took {}", String::from_utf8_lossy(&message));
            message.acknowledge();
        }
        Ok(())
    });
    let (check, take) = (check.unwrap(), take.unwrap());
    flow.attach(list, check, Edge::units()).unwrap();
    flow.attach(check, take, Edge::queue()).unwrap();
    if let Err(error) = flow.go().and_then(|running| running.wait()) {
        eprintln!("{error}");
        std::process::exit(3);
    }
    true
}

// If this failed, a flow would need a script to start its processes, or nobody would see why one has ended.
#[test]
fn processes_of_a_flow_are_started_shown_cancelled_and_resumed() {
    if is_flow_member() {
        return;
    }
    let daemon = Daemon::start(1).unwrap();
    let own = std::env::current_exe().unwrap();
    let test = "river::processes_of_a_flow_are_started_shown_cancelled_and_resumed";
    let run = |options: &[&str]| {
        let program = ["--", own.to_str().unwrap(), "--exact", test, "--nocapture"];
        said(&daemon, &[&["river", "run", "checks", "-n", "2"], options, &program[..]].concat())
    };
    done(&daemon, &["river", "units", "add", "pages", "one", "two", "bad"]);
    let failed = run(&[]);
    let why = "flow checks has ended: module check of member ";
    assert!(failed.code == 1 && failed.err.contains(why) && failed.err.contains("failed: a bad unit"), "{failed:?}");
    assert!(failed.err.contains("flow checks has not ended: process "), "{failed:?}");

    let listed: Vec<Value> = serde_json::from_str(&done(&daemon, &["river", "ls", "--json"])).unwrap();
    let flow = listed.iter().find(|found| found["kind"] == "flow").unwrap();
    assert_eq!((&flow["name"], &flow["state"], &flow["members"]), (&"checks".into(), &"failed".into(), &0.into()));
    let shown: Value = serde_json::from_str(&done(&daemon, &["river", "show", "checks", "--json"])).unwrap();
    assert!(shown["failure"].as_str().unwrap().contains("a bad unit"), "{shown}");
    assert_eq!(shown["edges"][0]["kind"], "units");
    assert!(shown["edges"][0]["waiting"].as_u64().unwrap() >= 1, "{shown}");
    let text = done(&daemon, &["river", "show", "checks"]);
    assert!(
        text.contains("checks: failed, 0 members") && text.contains("check") && text.contains("a bad unit"),
        "{text}"
    );
    let dot = done(&daemon, &["river", "dot", "checks"]);
    assert!(dot.contains("\"pages\" -> \"check\" [label=\"units\"];"), "{dot}");
    assert!(run(&[]).err.contains("--resume` repeats it"));

    // What was done stays done.
    let units = |state: &str| -> Vec<Value> {
        serde_json::from_str(&done(&daemon, &["river", "units", "ls", "pages", "--state", state, "--json"])).unwrap()
    };
    let before = units("done").len();
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["river", "run", "checks", "-n", "2", "--resume", "--"]).arg(&own).args([
        "--exact",
        test,
        "--nocapture",
    ]);
    command.env("DDSS_DIR", daemon.folder()).env("FLOW_IS_GOOD", "1");
    let mut resumed = Process::start(command, daemon.folder(), "resumed").unwrap();
    assert!(resumed.wait(PATIENCE).unwrap().unwrap().success(), "{}", resumed.stderr());
    assert_eq!(units("done").len(), 3);
    let taken = resumed.stderr().matches("took ").count();
    assert!(taken == 3 - before, "{taken} of {before}: {}", resumed.stderr());
    let unknown = said(&daemon, &["river", "cancel", "checks"]);
    assert!(unknown.code == 1 && unknown.err.contains("there is no flow checks"), "{unknown:?}");
    assert!(said(&daemon, &["river", "dot", "checks"]).err.contains("there is no flow checks"));

    let refused = said(&daemon, &["river", "run", "x", "-n", "3", "--of", "2", "--", "true"]);
    assert!(refused.err.contains("this command starts 3 of 2 processes"), "{refused:?}");
    // A flow that failed is removed on demand.
    done(&daemon, &["river", "units", "add", "pages", "bad"]);
    assert_eq!(run(&[]).code, 1);
    assert_eq!(done(&daemon, &["river", "cancel", "checks"]), "checks: removed\n");
    assert_eq!(done(&daemon, &["river", "ls", "--json"]).matches("checks").count(), 0);
}
