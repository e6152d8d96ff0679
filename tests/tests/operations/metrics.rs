//! The metrics endpoint, with correct and with bad HTTP clients.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, free_tcp_port, skipped};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn monitored(options: DaemonOptions) -> (Daemon, SocketAddr) {
    let address = SocketAddr::new(LOOPBACK, free_tcp_port(LOOPBACK).unwrap());
    let daemon = options.argument("--metrics-listen").argument(address.port().to_string()).start().unwrap();
    (daemon, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes; returns the status code and the body of the answer, if there is one.
fn http_request(address: SocketAddr, words: &[u8]) -> Option<(u16, String, String)> {
    let mut stream = connect(address);
    // The daemon closes a refused connection immediately, so that a client cannot send everything.
    let _ = stream.write_all(words);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let code = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    if !words.starts_with(b"HEAD") {
        assert_eq!(length.parse::<usize>().unwrap(), body.len());
    }
    Some((code, head.to_owned(), body.to_owned()))
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let asked = http_request(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    let (code, _, body) = asked.unwrap_or_else(|| panic!("{path} is not answered"));
    (code, body)
}

fn value(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

// If this failed, a monitor would show other figures than those that the daemon has, or none.
#[test]
fn metrics_endpoint_reports_the_daemon_counters() {
    let (daemon, address) = monitored(DaemonOptions::new(3).unwrap());
    let client =
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(false))
            .unwrap();
    let segment = client.segment("watched").allocate(Spec::new(4096)).unwrap();
    (0..20).for_each(|_| assert!(segment.put(0, &[1; 1000]).is_ok()));
    let done = "ddss_operations_total{operation=\"put\",outcome=\"done\"}";
    let end = Instant::now() + PATIENCE;
    let metrics = loop {
        let (code, metrics) = get(address, "/metrics");
        assert_eq!(code, 200);
        if value(&metrics, done) == Some(20.0) && value(&metrics, "ddss_clients") == Some(1.0) {
            break metrics;
        }
        assert!(Instant::now() < end, "{metrics}");
    };
    assert_eq!(value(&metrics, "ddss_operation_bytes_total{operation=\"put\"}"), Some(20_000.0));
    assert_eq!(value(&metrics, "ddss_commits_total"), Some(20.0));
    let steps = "ddss_step_seconds_count{operation=\"put\",location=\"here\",step=\"total\"}";
    assert!(value(&metrics, steps).unwrap() >= 1.0);
    assert!(metrics.contains("ddss_info{node=\"3\","));
    assert!(!metrics.contains("watched"), "a name got out");
    let (code, health) = get(address, "/health?verbose");
    let health: Value = serde_json::from_str(&health).unwrap();
    assert_eq!((code, &health["healthy"], &health["node"]), (200, &true.into(), &3.into()));
    let (code, ready) = get(address, "/ready");
    assert_eq!((code, &serde_json::from_str::<Value>(&ready).unwrap()["ready"]), (200, &true.into()));
    let (code, head, body) = http_request(address, b"HEAD /metrics HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!((code, body.as_str()), (200, ""));
    assert!(head.contains("text/plain; version=0.0.4"));
}

/// Runs Prometheus' own reader on a page of metrics.
fn promtool(metrics: &str) -> io::Result<Output> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().unwrap().write_all(metrics.as_bytes())?;
    child.wait_with_output()
}

// If this failed, Prometheus would refuse the page, or its users would miss types, units or help.
#[test]
fn promtool_accepts_every_metric() {
    let (daemon, address) = monitored(DaemonOptions::new(1).unwrap().clustered());
    let client =
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(false))
            .unwrap();
    // Each of these calls adds rows to the page.
    let segment = client.segment("read").allocate(Spec::new(64)).unwrap();
    segment.put(0, &[1; 8]).unwrap();
    segment.get(0..8).unwrap();
    drop(segment.lock().unwrap());
    let (code, metrics) = get(address, "/metrics");
    assert_eq!(code, 200);
    let read = match promtool(&metrics) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return skipped("promtool_accepts_every_metric", "there is no promtool");
        }
        Err(error) => panic!("{error}"),
    };
    // Its findings about names and help end with a status, too.
    let complaints = [read.stdout, read.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(read.status.success(), "{complaints:?}\n{metrics}");

    let (name, _) = metrics.split_once("# HELP ").unwrap().1.split_once(' ').unwrap();
    for wrong in [format!("{metrics}ddss_broken{{ 1\n"), metrics.replacen(&format!("# HELP {name} "), "# ", 1)] {
        assert!(!promtool(&wrong).unwrap().status.success(), "promtool sees nothing wrong");
    }
}

// If this failed, work would be sent to a node that cannot register names, or the other way round.
#[test]
fn node_is_ready_when_leader_is_known() {
    let (_daemon, address) = monitored(DaemonOptions::new(1).unwrap().clustered());
    let end = Instant::now() + PATIENCE;
    while get(address, "/ready").0 != 200 {
        assert!(Instant::now() < end, "a cluster of one never has a leader: {}", get(address, "/ready").1);
    }
    // The leader applies its own membership a moment later.
    loop {
        let (_, metrics) = get(address, "/metrics");
        if (value(&metrics, "ddss_leader"), value(&metrics, "ddss_members")) == (Some(1.0), Some(1.0)) {
            break;
        }
        assert!(Instant::now() < end, "{metrics}");
    }
    // A voter of three without its peers knows no leader.
    let others = [DaemonOptions::new(8).unwrap(), DaemonOptions::new(9).unwrap()];
    let lonely = DaemonOptions::new(7).unwrap().peer(&others[0]).peer(&others[1]);
    let (_lonely, address) = monitored(lonely);
    let (code, ready) = get(address, "/ready");
    assert_eq!(code, 503);
    assert!(ready.contains("no leader"), "{ready}");
    assert_eq!(get(address, "/health").0, 200, "it lives all the same");
}

/// Repeats the request until the node is not ready, and runs an action between requests.
fn until_not_ready(address: SocketAddr, mut meanwhile: impl FnMut()) {
    let end = Instant::now() + PATIENCE;
    while get(address, "/ready").0 != 503 {
        assert!(Instant::now() < end, "{}", get(address, "/ready").1);
        meanwhile();
    }
    // The node stays not ready.
    std::thread::sleep(Duration::from_millis(600));
    let (code, ready) = get(address, "/ready");
    assert!(code == 503 && ready.contains("no leader"), "{ready}");
}

// If this failed, work would be sent to a node that cannot register names before its restart.
#[test]
fn node_with_failed_raft_log_is_not_ready() {
    let until_ready = |address| {
        let end = Instant::now() + PATIENCE;
        while get(address, "/ready").0 != 200 {
            assert!(Instant::now() < end, "{}", get(address, "/ready").1);
        }
    };
    // The log cannot grow, for a reason that free space does not remove: a limit on the size of files.
    let ignoring = ["env", "--ignore-signal=XFSZ"].map(str::to_owned).into();
    let (one, first) = monitored(DaemonOptions::new(1).unwrap().clustered().command_prefix(ignoring));
    let (mut two, second) = monitored(DaemonOptions::new(2).unwrap().joins(one.listen()));
    for address in [first, second] {
        until_ready(address);
    }
    let mut leave = Command::new(ddss_testkit::binary("ddss").unwrap());
    let left = leave.args(["cluster", "leave", "--dir"]).arg(two.folder()).output().unwrap();
    assert!(left.status.success(), "{}", String::from_utf8_lossy(&left.stderr));
    let status = two.process().wait(PATIENCE).unwrap().expect("a node that left ends by itself");
    assert_eq!(status.code(), Some(0), "{}", two.process().stderr());
    let hasty = Client::connect_with(ConnectOptions::new().directory(one.folder()).timeout(Duration::from_millis(300)))
        .unwrap();
    // Far longer than the documented limit.
    let patient = Client::connect_with(ConnectOptions::new().directory(one.folder()).timeout(PATIENCE)).unwrap();
    for _ in 0..100 {
        patient.segment(&"long/".repeat(20)).allocate(Spec::new(64)).unwrap().release().unwrap();
    }
    let bytes = std::fs::metadata(one.folder().join("state/raft.log")).unwrap().len();
    let longest = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    prlimit(Pid::from_raw(one.pid().cast_signed()), Resource::Fsize, longest).unwrap();
    let mut names = 0;
    until_not_ready(first, || {
        names += 1;
        let _ = hasty.segment(&format!("more-{names}")).allocate(Spec::new(64));
    });
}

/// Returns the next event of the live page.
fn next_event(events: &mut BufReader<TcpStream>) -> Value {
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0, "the events ended");
    }
    serde_json::from_str(&line["data: ".len()..]).unwrap()
}

fn events(address: SocketAddr, host: &str) -> BufReader<TcpStream> {
    let mut stream = connect(address);
    stream.write_all(format!("GET /events HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
    BufReader::new(stream)
}

// If this failed, the live page would show nothing, or load something from elsewhere.
#[test]
fn live_page_needs_only_this_daemon_and_shows_what_it_does() {
    let (daemon, address) = monitored(DaemonOptions::new(3).unwrap());
    let client =
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(false))
            .unwrap();
    let segment = client.segment("watched").allocate(Spec::new(4096)).unwrap();
    let (code, head, page) = http_request(address, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(code, 200);
    assert!(head.contains("text/html") && head.contains("Content-Security-Policy: default-src 'none';"), "{head}");
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "the page uses {outside}");
    }
    // A name might hold markup: the page itself has none.
    client.segment("</script><b>").allocate(Spec::new(64)).unwrap().put(0, &[1]).unwrap();
    let end = Instant::now() + PATIENCE;
    while !get(address, "/").1.contains("segment 3.") {
        assert!(Instant::now() < end, "the page shows no segment");
    }
    assert!(!get(address, "/").1.contains("</script><b>"));
    let mut shown = events(address, &address.to_string());
    let first = next_event(&mut shown);
    assert_eq!((&first["node"], &first["ready"], &first["cluster"]), (&3.into(), &true.into(), &Value::Null));
    let end = Instant::now() + PATIENCE;
    let busy = loop {
        (0..20).for_each(|_| assert!(segment.put(0, &[1; 1000]).is_ok()));
        let event = next_event(&mut shown);
        let rate = |list: &str| event[list][0]["per_s"].as_f64();
        if rate("shards") > Some(0.0) && rate("segments") > Some(0.0) {
            break event;
        }
        assert!(Instant::now() < end, "{event}");
    };
    assert_eq!((&busy["segments"][0]["name"], &busy["segments"][0]["home"]), (&"watched".into(), &3.into()));
    let puts = busy["operations"].as_array().unwrap().iter().find(|operation| operation["kind"] == "put").unwrap();
    assert!(puts["bytes_per_s"].as_f64() >= Some(1000.0) && puts["failed"] == 0, "{busy}");
    assert_eq!(busy["gauges"]["segments"], 2);
}

// If this failed, one client could end the live pages of others, or keep the daemon busy with them.
#[test]
fn live_pages_are_few_and_no_other_connection_ends_them() {
    let (_daemon, address) = monitored(DaemonOptions::new(1).unwrap());
    let mut shown: Vec<_> = (0..8).map(|_| events(address, "localhost")).collect();
    shown.iter_mut().for_each(|events| assert_eq!(next_event(events)["node"], 1));
    assert_eq!(http_request(address, b"GET /events HTTP/1.1\r\n\r\n").unwrap().0, 503);
    let crowd: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
    assert_eq!(get(address, "/health").0, 200);
    shown.iter_mut().for_each(|events| assert_eq!(next_event(events)["node"], 1));
    drop(crowd);
    // A browser that says more than its request gets no more events.
    let mut talking = shown.remove(0);
    talking.get_mut().write_all(&[b'a'; 4096]).unwrap();
    let mut rest = Vec::new();
    let ended = talking.read_to_end(&mut rest);
    assert!(ended.is_err() || rest.len() < 64 << 10, "{} bytes", rest.len());
}

// If this failed, names would be seen on other machines, or by pages of other sites in a browser on this one.
#[test]
fn live_page_shows_names_on_this_machine_only() {
    let port = free_tcp_port(LOOPBACK).unwrap();
    let any = format!("0.0.0.0:{port}");
    let open = DaemonOptions::new(1).unwrap().argument("--metrics-listen").argument(any).start().unwrap();
    let (local, address) = monitored(DaemonOptions::new(2).unwrap());
    let shown = |daemon: &Daemon, address: SocketAddr, host: &str| {
        let client =
            Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).local_reads(false))
                .unwrap();
        let segment = client.segment("private").open_or_allocate(Spec::new(64)).unwrap();
        segment.put(0, &[1]).unwrap();
        let mut events = events(address, host);
        let end = Instant::now() + PATIENCE;
        loop {
            let event = next_event(&mut events);
            if event["segments"][0]["puts"].as_u64() >= Some(1) {
                return event.to_string();
            }
            assert!(Instant::now() < end, "{event}");
        }
    };
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:7480"] {
        assert!(shown(&local, address, host).contains("private"), "{host}");
    }
    for host in ["rebound.example", "localhost.example:80", "127.0.0.1.example"] {
        assert!(!shown(&local, address, host).contains("private"), "{host}");
    }
    assert!(!shown(&open, SocketAddr::new(LOOPBACK, port), "localhost").contains("private"), "the listener is open");
}

// If this failed, any client of the metrics port could stop it, or the daemon.
#[test]
fn bad_http_requests_are_refused_and_delay_no_scrape() {
    let (daemon, address) = monitored(DaemonOptions::new(1).unwrap());
    let huge = [b"GET /".as_slice(), &vec![b'a'; 1 << 20]].concat();
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X-More: of the same\r\n".repeat(10_000));
    let long = [b"POST /metrics HTTP/1.1\r\nContent-Length: 9000000\r\n\r\n".as_slice(), &vec![0; 30_000]].concat();
    for (words, code) in [
        (b"GET /nothing HTTP/1.1\r\n\r\n".as_slice(), 404),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /\0 HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"\xff\xfe\xfd\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (&huge, 431),
        (many.as_bytes(), 431),
        (&long, 405),
    ] {
        let answered = http_request(address, words);
        // The sender of too many bytes may see only the end of the connection.
        if let Some((found, ..)) = answered {
            assert_eq!(found, code, "{:?}", String::from_utf8_lossy(&words[..words.len().min(60)]));
        } else {
            assert!(words.len() > 10_000, "{:?} is not answered", String::from_utf8_lossy(words));
        }
    }
    // One endlessly slow connection, and many silent ones.
    let mut slow = connect(address);
    let silent: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
    let began = Instant::now();
    let mut asked = 0;
    let closed = loop {
        assert_eq!(get(address, "/health").0, 200, "others wait for the slow ones");
        asked += 1;
        if slow.write_all(b"a").is_err() || began.elapsed() > PATIENCE {
            break began.elapsed() < PATIENCE;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(closed && asked > 5, "who never ends is never closed");
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "who says nothing is never closed");
    }
    // Too many connections: the oldest ones end, and the next one is answered.
    let mut crowd: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
    for _ in 0..3 {
        assert_eq!(get(address, "/health").0, 200, "a crowd keeps others out");
    }
    assert_eq!(crowd[0].read(&mut [0; 1]).unwrap_or(0), 0, "the oldest connection is still there");
    drop(crowd);
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap();
    client.ping().unwrap();
}

// If this failed, a port conflict would be silent, or a port would be open without configuration.
#[test]
fn metrics_port_is_off_by_default_and_conflict_is_reported() {
    let (_daemon, address) = monitored(DaemonOptions::new(1).unwrap());
    let folder = ddss_testkit::TempNode::new().unwrap();
    let mut command = Command::new(ddss_testkit::binary("ddssd").unwrap());
    command.arg("--dir").arg(folder.path()).arg("--metrics-listen").arg(address.to_string());
    let output = command.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{why}");
    assert!(why.contains(&address.to_string()) && why.contains("cannot listen"), "{why}");
    let quiet = Daemon::start(2).unwrap();
    let sockets = std::fs::read_to_string(format!("/proc/{}/net/tcp", quiet.pid())).unwrap();
    let inodes: Vec<&str> = sockets.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)).collect();
    let links = std::fs::read_dir(format!("/proc/{}/fd", quiet.pid())).unwrap().flatten();
    for link in links.filter_map(|entry| std::fs::read_link(entry.path()).ok()) {
        let name = link.to_string_lossy().into_owned();
        let inode = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        assert!(inode.is_none_or(|inode| !inodes.contains(&inode)), "an open port: {name}");
    }
}
