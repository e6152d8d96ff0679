//! Unmodified programs under the preload library: bytes, ends, and killed processes.
//!
//! The programs are Redis and this test program itself, which knows nothing of the library. An environment variable
//! selects its part.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a child tells the test its result")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ddss_testkit::{binary, preload_library, skipped};

mod attacks;
mod bypass;
mod calls;
mod campaign;
mod costs;
mod declined;
mod images;
mod numbers;
mod phases;
mod pump;
mod shells;
mod signals;
mod waits;
mod wire;

/// Variable with the part that a child takes.
const PART: &str = "DDSS_TEST_STREAM_PART";
/// Variable with the port of the listener.
const PORT: &str = "DDSS_TEST_STREAM_PORT";
/// Round trips after which both ends have left TCP.
const ROUND_TRIPS: usize = 8;
/// Bytes that a killed writer leaves: fewer than a ring holds.
const LEFT_BYTES: usize = 50_000;
/// Kills of each end.
const KILLS: usize = 20;
/// Lines for a program of the system that reads its standard input.
const LINES: &[u8] = b"pear\napple\nfig\n";
const DEADLINE: Duration = Duration::from_secs(60);

// If this failed, a program would lose bytes that its peer wrote before it was killed.
#[test]
fn bytes_of_killed_writer_arrive_before_the_end() {
    for _ in 0..KILLS {
        let [acceptor, connector] = pair("count_to_end", "write_and_die", true);
        assert!(!connector.status.success());
        assert_eq!(result(&acceptor), format!("shared=true bytes={LEFT_BYTES}"));
    }
}

// If this failed, a writer would wait forever for a reader that was killed.
#[test]
fn write_to_killed_reader_fails() {
    for _ in 0..KILLS {
        let [acceptor, _] = pair("write_until_error", "die", true);
        let found = result(&acceptor);
        assert!(found == "shared=true error=BrokenPipe" || found == "shared=true error=ConnectionReset", "{found}");
    }
}

// If this failed, a program that shuts its writing side could not read the answer.
#[test]
fn half_closed_stream_still_carries_the_answer() {
    let [acceptor, connector] = pair("answer_at_end", "half_close", true);
    assert_eq!(result(&acceptor), format!("shared=true bytes={LEFT_BYTES}"));
    assert_eq!(result(&connector), format!("shared=true bytes={}", 20 * LEFT_BYTES));
}

// If this failed, a program under the library could not talk to a program without it.
#[test]
fn peer_without_library_is_served_over_tcp() {
    let [acceptor, connector] = pair("answer_at_end", "half_close", false);
    assert_eq!(result(&acceptor), format!("shared=false bytes={LEFT_BYTES}"));
    assert_eq!(result(&connector), format!("shared=false bytes={}", 20 * LEFT_BYTES));
}

// If this failed, a program that starts another one with its socket would pass it a stream that no process reads.
#[test]
fn stream_survives_exec() {
    let [acceptor, connector] = pair("answer_at_end", "exec_half_close", true);
    assert_eq!(result(&acceptor), format!("shared=true bytes={LEFT_BYTES}"));
    // The new image has the stream as its standard input, and reads it through a Unix socket.
    assert_eq!(result(&connector), format!("shared=false bytes={}", 20 * LEFT_BYTES));
}

// If this failed, the first program that users try would answer wrongly, or would stay on TCP.
#[test]
fn unmodified_redis_answers_through_shared_memory() {
    const NAME: &str = "unmodified_redis_answers_through_shared_memory";
    if Command::new("redis-server").arg("--version").output().is_err() {
        return skipped(NAME, "redis-server is not installed");
    }
    let (ddss, library) = (binary("ddss").unwrap(), preload_library().unwrap());
    let port = free_port().to_string();
    let arguments = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let mut server = Killed(run(&ddss, &library).arg("redis-server").args(arguments).spawn().unwrap());
    wait_for_listener(&port);
    let mut client = run(&ddss, &library)
        .args(["redis-cli", "-p", &port])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    let mut expected = String::new();
    for number in 1..=200 {
        writeln!(input, "incr counter").unwrap();
        expected.push_str(&format!("{number}\n"));
    }
    let value = "v".repeat(300_000);
    writeln!(input, "set large {value}\nget large").unwrap();
    expected.push_str(&format!("OK\n{value}\n"));
    // The client is still connected while its answers are read.
    let mut answers = vec![0; expected.len()];
    client.stdout.as_mut().unwrap().read_exact(&mut answers).unwrap();
    assert!(answers == expected.as_bytes(), "an answer is wrong");
    let listed = Command::new(&ddss).args(["streams", "--json"]).output().unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let ours = rows.as_array().unwrap().iter().filter(|row| row["acceptor"] == format!("127.0.0.1:{port}"));
    let transports: Vec<_> = ours.map(|row| row["transport"].as_str().unwrap().to_owned()).collect();
    assert_eq!(transports, ["same-node", "same-node"], "{rows}");
    drop(input);
    assert!(client.wait().unwrap().success());
    server.0.kill().unwrap();
}

// If this failed, `ddss streams` would say that no program runs with the library while one waits for its first connection.
#[test]
fn program_without_connections_is_counted() {
    let mut program = Command::new("sleep");
    let program = Killed(program.arg("60").env("LD_PRELOAD", preload_library().unwrap()).spawn().unwrap());
    let end = Instant::now() + DEADLINE;
    while !ddss_stream::processes().contains(&program.0.id()) {
        assert!(Instant::now() < end, "the program is not counted: {:?}", ddss_stream::processes());
        std::thread::sleep(Duration::from_millis(2));
    }
    let said = Command::new(binary("ddss").unwrap()).arg("streams").output().unwrap();
    let said = [said.stdout, said.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    // Programs of other tests may have connections.
    assert!(!said.contains("no program runs with the library"), "{said}");
}

/// The part of a child process, and no test of its own.
#[test]
fn part_of_a_child() {
    let Ok(part) = std::env::var(PART) else { return };
    if part == "resume" {
        return act(&part, std::io::stdin().as_fd().try_clone_to_owned().unwrap().into());
    }
    if let Some(part) = part.strip_prefix("declined_") {
        return declined::act(part);
    }
    let stream = match std::env::var(PORT) {
        Ok(port) => TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap(),
        Err(_) => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            println!("\nPORT {}", listener.local_addr().unwrap().port());
            if part == "wire_answer_again" {
                // The request of the first connection is no byte of the program.
                let refused = listener.accept().unwrap().0.read(&mut [0; 64]).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConnectionReset);
            }
            listener.accept().unwrap().0
        }
    };
    act(&part, stream);
    std::process::exit(0);
}

fn act(part: &str, mut stream: TcpStream) {
    let is_connector = std::env::var_os(PORT).is_some();
    if part != "resume" {
        exchange(&mut stream, is_connector);
    }
    match part {
        "talk_to_image" => return images::talk(stream),
        "read_of_images" => return images::read_of_images(stream),
        "images_by_fork" | "images_by_spawn" => {
            return images::write_around_images(stream, part == "images_by_fork");
        }
        _ => {}
    }
    if let Some(part) = part.strip_prefix("wire_") {
        return pump::act(part, stream);
    }
    let shared = std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:ddss-stream ");
    match part {
        "count_to_end" | "answer_at_end" => {
            let bytes = count(&mut stream);
            if part == "answer_at_end" {
                stream.write_all(&vec![7; 20 * LEFT_BYTES]).unwrap();
            }
            println!("\nRESULT shared={shared} bytes={bytes}");
        }
        "write_and_die" => {
            stream.write_all(&vec![1; LEFT_BYTES]).unwrap();
            die();
        }
        "die" => die(),
        "write_until_error" => {
            let failed = loop {
                if let Err(error) = stream.write_all(&[1; 10_000]) {
                    break error.kind();
                }
            };
            println!("\nRESULT shared={shared} error={failed:?}");
        }
        "read_until_error" => {
            let failed = stream.read_to_end(&mut Vec::new()).unwrap_err().kind();
            println!("\nRESULT shared={shared} error={failed:?}");
        }
        "exec_half_close" => exec_with(&stream),
        "ask_lines" => {
            stream.write_all(LINES).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            println!("\nRESULT shared={shared} {}", answer.replace('\n', " "));
        }
        _ => {
            stream.write_all(&vec![1; LEFT_BYTES]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            println!("\nRESULT shared={shared} bytes={}", count(&mut stream));
        }
    }
}

/// Replaces the program by itself; the socket becomes the new image's standard input.
fn exec_with(stream: &TcpStream) {
    let socket = stream.as_fd().try_clone_to_owned().unwrap();
    let failed = child("resume").stdin(socket).stdout(Stdio::inherit()).exec();
    panic!("{failed}");
}

fn die() {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

fn exchange(stream: &mut TcpStream, is_connector: bool) {
    let mut answer = [0; 8];
    for round in 0..ROUND_TRIPS as u64 {
        let sent = round.to_ne_bytes();
        if is_connector {
            stream.write_all(&sent).unwrap();
        }
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, sent);
        if !is_connector {
            stream.write_all(&sent).unwrap();
        }
    }
}

fn count(stream: &mut TcpStream) -> usize {
    let (mut bytes, mut buffer) = (0, [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return bytes,
            Ok(found) => bytes += found,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => panic!("{bytes} bytes, then {error}"),
        }
    }
}

/// Runs an acceptor and a connector to their ends.
fn pair(acceptor: &str, connector: &str, has_connector_library: bool) -> [Output; 2] {
    let library = preload_library().unwrap();
    let mut accepting = child(acceptor).env("LD_PRELOAD", &library).spawn().unwrap();
    let port = port_of(&mut accepting);
    let mut connecting = child(connector);
    connecting.env(PORT, port.to_string());
    if has_connector_library {
        connecting.env("LD_PRELOAD", &library);
    }
    let connecting = connecting.spawn().unwrap();
    [accepting, connecting].map(output_of)
}

fn child(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["streams::part_of_a_child", "--exact", "--nocapture", "--test-threads=1"]).env(PART, part);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

fn port_of(child: &mut Child) -> u16 {
    wait_for_line(child, "PORT ")[5..].parse().unwrap()
}

/// Returns the next line of a child that begins with these words.
fn wait_for_line(child: &mut Child, words: &str) -> String {
    let (mut line, mut byte) = (String::new(), [0]);
    loop {
        if let Err(error) = child.stdout.as_mut().unwrap().read_exact(&mut byte) {
            panic!("no {words:?}, but {line:?}: {error}, {:?}", child.wait());
        }
        match byte[0] {
            b'\n' if line.starts_with(words) => return line,
            b'\n' => line.clear(),
            byte => line.push(byte.into()),
        }
    }
}

/// Waits for a child. If the child hangs, it is killed, and the test fails.
fn output_of(mut child: Child) -> Output {
    let end = Instant::now() + DEADLINE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("a program hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

fn result(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().find_map(|line| line.strip_prefix("RESULT ")).map(str::to_owned);
    found.unwrap_or_else(|| panic!("no result: {output:?}"))
}

fn run(ddss: &Path, library: &Path) -> Command {
    let mut command = Command::new(ddss);
    command.arg("run").arg("--library").arg(library).arg("--");
    command.stdout(Stdio::null());
    command
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for_listener(port: &str) {
    let end = Instant::now() + DEADLINE;
    while TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_err() {
        assert!(Instant::now() < end, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
