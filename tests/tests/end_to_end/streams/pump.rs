//! Unmodified programs on the wire by a rule: bytes, ends, fallback to TCP, inherited descriptors, and killed processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ddss_stream::Transport;
use ddss_testkit::{binary, preload_library, skipped};
use tempfile::TempDir;

use super::{
    DEADLINE, Killed, LEFT_BYTES, PORT, child, count, free_port, output_of, port_of, result, wait_for_listener,
};

pub(super) mod kills;
mod limits;

const RULES: &str = "use wire connect * *:*\nuse wire listen * *:*\n";
const ANSWER_BYTES: usize = 20 * LEFT_BYTES;
/// Kills of each kind.
const KILLS: usize = 5;

/// A pump and a file of rules, for programs that the test starts.
pub(super) struct Wire {
    folder: TempDir,
    pub(super) pump: Killed,
    name: String,
}

impl Wire {
    pub(super) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("rules"), RULES).unwrap();
        let mut command = Command::new(binary("ddss").unwrap());
        let mut pump = Killed(command.arg("stream-pump").stdout(Stdio::piped()).spawn().unwrap());
        let mut name = String::new();
        BufReader::new(pump.0.stdout.take().unwrap()).read_line(&mut name).unwrap();
        Self { folder, pump, name: name.trim_end().to_owned() }
    }

    fn rules(&self) -> PathBuf {
        self.folder.path().join("rules")
    }

    pub(super) fn put_on(&self, command: &mut Command) {
        command.env("LD_PRELOAD", preload_library().unwrap()).env("DDSS_STREAMS_PUMP", &self.name);
        command.env("DDSS_STREAMS_RULES", self.rules());
    }

    fn child(&self, part: &str) -> Command {
        let mut command = child(part);
        self.put_on(&mut command);
        command
    }

    /// Runs an acceptor and a connector to their ends.
    fn pair(&self, acceptor: &str, connector: &str) -> [Output; 2] {
        let mut accepting = self.child(acceptor).spawn().unwrap();
        let port = port_of(&mut accepting).to_string();
        let connecting = self.child(connector).env(PORT, port).spawn().unwrap();
        [accepting, connecting].map(output_of)
    }
}

/// Takes a part of a child that looks at its transport.
pub(super) fn act(part: &str, mut stream: TcpStream) {
    let names = format!("{}-{}", stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let transport = own_transport();
    match part {
        "answer" | "answer_again" => {
            let bytes = count(&mut stream);
            stream.write_all(&vec![7; ANSWER_BYTES]).unwrap();
            println!("\nRESULT {transport} bytes={bytes} {names}");
        }
        "ask" => {
            stream.set_nodelay(true).unwrap();
            stream.write_all(&vec![1; LEFT_BYTES]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            println!("\nRESULT {transport} bytes={} {names}", count(&mut stream));
        }
        part => panic!("no part {part}"),
    }
}

/// Returns the transport of this process's only connection, as `ddss streams` shows it.
fn own_transport() -> String {
    let own = std::process::id();
    let rows = ddss_stream::list();
    let found = rows.iter().find(|row| row.process == own);
    found.map_or("none".to_owned(), |row| format!("{:?}: {}", row.transport, row.reason.text()))
}

/// Forwards one connection and returns the first bytes of each direction.
fn record(to: u16) -> (u16, thread::JoinHandle<[Vec<u8>; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let recorder = thread::spawn(move || {
        let near = listener.accept().unwrap().0;
        let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
        let (near_copy, far_copy) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let back = thread::spawn(move || forward(far_copy, near_copy));
        [forward(near, far), back.join().unwrap()]
    });
    (port, recorder)
}

fn forward(mut from: TcpStream, mut to: TcpStream) -> Vec<u8> {
    let (mut first, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let bytes = from.read(&mut buffer).unwrap_or(0);
        first.extend(buffer[..bytes].iter().take(16 - first.len().min(16)));
        if bytes == 0 || to.write_all(&buffer[..bytes]).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return first;
        }
    }
}

// If this failed, a rule would promise frames with checksums, but the bytes would travel unprotected or not at all.
#[test]
fn rule_puts_unmodified_programs_on_the_wire() {
    let wire = Wire::start();
    let mut accepting = wire.child("wire_answer").spawn().unwrap();
    let own = port_of(&mut accepting);
    let (port, recorder) = record(own);
    let connecting = wire.child("wire_ask").env(PORT, port.to_string()).spawn().unwrap();
    let [acceptor, connector] = [accepting, connecting].map(|child| result(&output_of(child)));
    let start = format!("Wire: a rule chose the wire bytes={LEFT_BYTES} 127.0.0.1:{own}-127.0.0.1:");
    assert!(acceptor.starts_with(&start), "{acceptor}");
    let (start, end) =
        (format!("Wire: a rule chose the wire bytes={ANSWER_BYTES} 127.0.0.1:"), format!("-127.0.0.1:{port}"));
    assert!(connector.starts_with(&start) && connector.ends_with(&end), "{connector}");
    assert_eq!(recorder.join().unwrap(), [&b"MPA ID Req Frame"[..], b"MPA ID Rep Frame"]);
}

// If this failed, a server with the rule would serve no client without it.
#[test]
fn client_without_the_rule_is_served_over_tcp() {
    let wire = Wire::start();
    let mut accepting = wire.child("wire_answer").spawn().unwrap();
    let port = port_of(&mut accepting).to_string();
    let connecting = child("half_close").env(PORT, port).spawn().unwrap();
    let [acceptor, connector] = [accepting, connecting].map(|child| result(&output_of(child)));
    let start = format!("Tcp: the peer does not speak the wire bytes={LEFT_BYTES} ");
    assert!(acceptor.starts_with(&start), "{acceptor}");
    assert_eq!(connector, format!("shared=false bytes={ANSWER_BYTES}"));
}

// If this failed, a client with the rule could not use a server without it, or would send it the hello as bytes of the program.
#[test]
fn server_without_the_rule_is_used_over_a_second_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = thread::spawn(move || {
        let mut first = [0; 16];
        // This server answers the hello as it would any request that it does not know.
        let mut refused = listener.accept().unwrap().0;
        refused.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"MPA ID Req Frame");
        refused.write_all(b"400 bad request\r\n").unwrap();
        drop(refused);
        let mut served = listener.accept().unwrap().0;
        super::exchange(&mut served, false);
        assert_eq!(count(&mut served), LEFT_BYTES);
        served.write_all(&vec![7; ANSWER_BYTES]).unwrap();
    });
    let wire = Wire::start();
    let connecting = wire.child("wire_ask").env(PORT, port).spawn().unwrap();
    let connector = result(&output_of(connecting));
    let start = format!("Tcp: the peer does not speak the wire bytes={ANSWER_BYTES} ");
    assert!(connector.starts_with(&start), "{connector}");
    server.join().unwrap();
}

// If this failed, a program that was started without `ddss run` would lose its connections, or hide that they are
// plain.
#[test]
fn program_without_a_pump_stays_on_tcp_and_says_so() {
    let mut wire = Wire::start();
    wire.name = "no-such-pump".to_owned();
    let said = wire.pair("wire_answer", "wire_ask").map(|output| result(&output));
    assert!(said.iter().all(|text| text.starts_with("Tcp: a rule says wire, and no pump is there bytes=")), "{said:?}");
}

// If this failed, a server whose pump is not there would get the request of the wire as bytes of its client.
#[test]
fn acceptor_without_its_pump_reads_no_request_of_the_wire() {
    let (wire, mut without) = (Wire::start(), Wire::start());
    without.name = "no-such-pump".to_owned();
    let mut accepting = without.child("wire_answer_again").spawn().unwrap();
    let port = port_of(&mut accepting).to_string();
    let connecting = wire.child("wire_ask").env(PORT, port).spawn().unwrap();
    let [acceptor, connector] = [accepting, connecting].map(|child| result(&output_of(child)));
    let start = format!("Tcp: a rule says wire, and no pump is there bytes={LEFT_BYTES} ");
    assert!(acceptor.starts_with(&start), "{acceptor}");
    let start = format!("Tcp: the peer does not speak the wire bytes={ANSWER_BYTES} ");
    assert!(connector.starts_with(&start), "{connector}");

    // The same if the peer's pump died before the connection was accepted.
    let mut accepting = without.child("wire_answer_again").spawn().unwrap();
    let port = port_of(&mut accepting);
    let process = rustix::process::Pid::from_child(&accepting);
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let mut asking = TcpStream::connect(("127.0.0.1", port)).unwrap();
    asking.write_all(kills::HELLO).unwrap();
    rustix::net::sockopt::set_socket_linger(&asking, Some(Duration::ZERO)).unwrap();
    drop(asking);
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    let connecting = without.child("wire_ask").env(PORT, port.to_string()).spawn().unwrap();
    let [acceptor, _] = [accepting, connecting].map(|child| result(&output_of(child)));
    assert!(acceptor.contains(&format!(" bytes={LEFT_BYTES} ")), "{acceptor}");
}

// If this failed, a server that starts a program for each connection would lose it.
#[test]
fn connection_survives_exec_with_the_library_and_without_it() {
    let wire = Wire::start();
    let [acceptor, connector] = wire.pair("answer_at_end", "exec_half_close");
    assert_eq!(result(&acceptor), format!("shared=false bytes={LEFT_BYTES}"));
    assert_eq!(result(&connector), format!("shared=false bytes={ANSWER_BYTES}"));
    let Some(programs) = super::bypass::programs("connection_survives_exec_with_the_library_and_without_it") else {
        return;
    };
    let mut accepting = Command::new(programs.dynamic());
    accepting.args(["exec".as_ref(), programs.fixed().as_os_str()]).stdout(Stdio::piped());
    wire.put_on(&mut accepting);
    let mut accepting = accepting.spawn().unwrap();
    let port = port_of(&mut accepting).to_string();
    let connecting = wire.child("half_close").env(PORT, port).spawn().unwrap();
    let said = [accepting, connecting].map(|child| result(&output_of(child)));
    let connector = format!("shared=false bytes={ANSWER_BYTES}");
    assert_eq!(said, [format!("shared=0 extra=0 bytes={LEFT_BYTES}"), connector]);
}

// If this failed, bytes that a program wrote before it was killed would be lost with it.
#[test]
fn bytes_of_a_killed_program_arrive_before_the_end() {
    let wire = Wire::start();
    for _ in 0..KILLS {
        let [acceptor, connector] = wire.pair("count_to_end", "write_and_die");
        assert!(!connector.status.success());
        assert_eq!(result(&acceptor), format!("shared=false bytes={LEFT_BYTES}"));
    }
}

// If this failed, a program would take the death of its pump for the end of the stream, or wait forever.
#[test]
fn killed_pump_resets_both_programs() {
    for _ in 0..KILLS {
        let mut wire = Wire::start();
        let mut accepting = wire.child("read_until_error").spawn().unwrap();
        let port = port_of(&mut accepting);
        let connecting = wire.child("write_until_error").env(PORT, port.to_string()).spawn().unwrap();
        wait_for_bytes(port);
        wire.pump.0.kill().unwrap();
        let [acceptor, connector] = [accepting, connecting].map(|child| result(&output_of(child)));
        assert_eq!(acceptor, "shared=false error=ConnectionReset");
        let ends = ["shared=false error=BrokenPipe", "shared=false error=ConnectionReset"];
        assert!(ends.contains(&connector.as_str()), "{connector}");
    }
}

/// Waits until both ends are on the wire and have moved more bytes than the initial exchange has.
fn wait_for_bytes(port: u16) {
    let end = Instant::now() + DEADLINE;
    let is_moving = |row: &ddss_stream::StreamRow| {
        row.transport == Transport::Wire && row.acceptor.port() == port && row.tcp_read.max(row.tcp_written) > 1 << 16
    };
    while ddss_stream::list().iter().filter(|row| is_moving(row)).count() < 2 {
        assert!(Instant::now() < end, "the connection is not on the wire: {:?}", ddss_stream::list());
        thread::sleep(Duration::from_millis(2));
    }
}

fn run(wire: &Wire) -> Command {
    let mut command = Command::new(binary("ddss").unwrap());
    command.arg("run").arg("--library").arg(preload_library().unwrap()).arg("--rules").arg(wire.rules()).arg("--");
    command.stdout(Stdio::null());
    command
}

fn is_installed(program: &str) -> bool {
    let found =
        Command::new(program).arg("-h").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok()
}

fn transports(port: u16) -> Vec<String> {
    let listed = Command::new(binary("ddss").unwrap()).args(["streams", "--json"]).output().unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let ours = rows.as_array().unwrap().iter().filter(|row| row["acceptor"] == format!("127.0.0.1:{port}"));
    ours.map(|row| row["transport"].as_str().unwrap().to_owned()).collect()
}

// If this failed, the first program with `epoll` that a user gives a rule would answer wrongly.
#[test]
fn unmodified_redis_answers_on_the_wire() {
    const NAME: &str = "unmodified_redis_answers_on_the_wire";
    if !is_installed("redis-server") {
        return skipped(NAME, "redis-server is not installed");
    }
    let (wire, port) = (Wire::start(), free_port());
    let text = port.to_string();
    let arguments = ["--port", &text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let _server = Killed(run(&wire).arg("redis-server").args(arguments).spawn().unwrap());
    wait_for_listener(&text);
    let client = run(&wire).args(["redis-cli", "-p", &text]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut client = Killed(client.unwrap());
    let mut input = client.0.stdin.take().unwrap();
    let value = "v".repeat(300_000);
    let mut expected = String::new();
    for number in 1..=200 {
        writeln!(input, "incr counter").unwrap();
        expected.push_str(&format!("{number}\n"));
    }
    writeln!(input, "set large {value}\nget large").unwrap();
    expected.push_str(&format!("OK\n{value}\n"));
    let mut answers = vec![0; expected.len()];
    client.0.stdout.as_mut().unwrap().read_exact(&mut answers).unwrap();
    assert!(answers == expected.as_bytes(), "an answer is wrong");
    assert_eq!(transports(port), ["wire", "wire"]);
    drop(input);
    assert!(client.0.wait().unwrap().success());
}

// If this failed, a server that forks for each connection would lose bytes, or its children would share one stream.
#[test]
fn unmodified_socat_forks_on_the_wire() {
    const NAME: &str = "unmodified_socat_forks_on_the_wire";
    if !is_installed("socat") {
        return skipped(NAME, "socat is not installed");
    }
    let (wire, port) = (Wire::start(), free_port());
    let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr");
    let _server = Killed(run(&wire).args(["socat", &listen, "EXEC:cat"]).spawn().unwrap());
    wait_for_listener(&port.to_string());
    let clients: Vec<_> = (0..3_u8)
        .map(|number| {
            thread::spawn({
                let mut client = run(&wire);
                let connect = format!("TCP:127.0.0.1:{port}");
                client.args(["socat", "-t", "60", "-", &connect]).stdin(Stdio::piped()).stdout(Stdio::piped());
                move || echo(client.spawn().unwrap(), number)
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

fn echo(mut client: Child, number: u8) {
    let bytes: Vec<u8> = (0..400_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ number).collect();
    let (mut input, sent) = (client.stdin.take().unwrap(), bytes.clone());
    let writer = thread::spawn(move || input.write_all(&sent).unwrap());
    let output = client.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == bytes, "{} of {} bytes, or others", output.stdout.len(), bytes.len());
}

// If this failed, the usual file server and the usual client would lose bytes of `sendfile` or of a non-blocking connect.
#[test]
fn unmodified_curl_fetches_from_nginx_on_the_wire() {
    const NAME: &str = "unmodified_curl_fetches_from_nginx_on_the_wire";
    if !is_installed("nginx") || !is_installed("curl") {
        return skipped(NAME, "nginx or curl is not installed");
    }
    let (wire, port) = (Wire::start(), free_port());
    let folder = wire.folder.path();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(folder.join("file"), &bytes).unwrap();
    let configuration = nginx_configuration(folder, port);
    std::fs::write(folder.join("nginx.conf"), configuration).unwrap();
    let mut server = run(&wire);
    server.args(["nginx", "-p"]).arg(folder).arg("-c").arg(folder.join("nginx.conf")).stderr(Stdio::null());
    let _server = Killed(server.spawn().unwrap());
    wait_for_listener(&port.to_string());
    for _ in 0..3 {
        let (recorded, recorder) = record(port);
        let url = format!("http://127.0.0.1:{recorded}/file");
        let mut client = run(&wire);
        client.args(["curl", "-sS", "--fail", "--max-time", "60", &url]).stdout(Stdio::piped());
        let output = client.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout == bytes, "{} of {} bytes, or others", output.stdout.len(), bytes.len());
        assert_eq!(recorder.join().unwrap(), [&b"MPA ID Req Frame"[..], b"MPA ID Rep Frame"]);
    }
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.write_all(b"GET /file HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&bytes), "{} bytes", answer.len());
}

fn nginx_configuration(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {folder}/pid;\nerror_log /dev/null;\nevents {{ worker_connections 64; }}\n\
         http {{ access_log off; sendfile on; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
         server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
}
