//! A pump at its limits: it refuses what it cannot carry, does not spin, and goes on with the rest.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ddss_stream::Descriptor;
use ddss_stream::limits::{PUMP_CONTROLS_MAX, PUMP_HANDOVERS_MAX};
use ddss_stream::pump::PumpClient;
use ddss_testkit::{binary, skipped};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, getrlimit};

use super::super::{DEADLINE, Killed};

/// Descriptors of the pump that soon has none left.
const FEW: usize = 48;
/// Connections that are handed to it: each would need two.
const CONNECTIONS: usize = 60;
/// Program images that connect to it.
const PROGRAMS: usize = 80;
/// Time in which a pump without work must not compute, and the ticks of a hundredth of a second that it may.
const PAUSE: Duration = Duration::from_secs(1);
const TICKS_MAX: u64 = 20;

/// Starts a pump that may have so many descriptors. Returns it with its name.
fn start(descriptors: usize) -> (Killed, String) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n $1 && exec $0 stream-pump"]).arg(binary("ddss").unwrap());
    let mut pump = Killed(command.arg(descriptors.to_string()).stdout(Stdio::piped()).spawn().unwrap());
    let mut name = String::new();
    BufReader::new(pump.0.stdout.take().unwrap()).read_line(&mut name).unwrap();
    (pump, name.trim_end().to_owned())
}

/// A peer without the library, and the end of its server's program.
struct Carried {
    peer: TcpStream,
    program: UnixStream,
}

impl Carried {
    /// Hands a server's socket to the pump. `None`: it stays with the program, as it was.
    fn hand_over(client: PumpClient) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = OwnedFd::from(listener.accept().unwrap().0);
        peer.set_read_timeout(Some(DEADLINE)).unwrap();
        let Ok(program) = client.hand_over(Descriptor(server.as_raw_fd()), true) else {
            let mut server = TcpStream::from(server);
            server.write_all(b"as before").unwrap();
            drop(server);
            let mut text = String::new();
            peer.read_to_string(&mut text).unwrap();
            assert_eq!(text, "as before");
            return None;
        };
        let program = UnixStream::from(program);
        program.set_read_timeout(Some(DEADLINE)).unwrap();
        Some(Self { peer, program })
    }

    /// Exchanges bytes. False: the pump has reset both ends.
    fn is_carried(&mut self) -> bool {
        let mut room = [0; 8];
        let asked = self.peer.write_all(b"question");
        if let Err(error) = self.program.read_exact(&mut room) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            // The kernel reports a reset once: here, if it came before the write.
            let of_peer = asked.and_then(|()| self.peer.read(&mut room));
            assert_eq!(of_peer.unwrap_err().kind(), ErrorKind::ConnectionReset);
            return false;
        }
        self.program.write_all(b"answered").unwrap();
        self.peer.read_exact(&mut room).unwrap();
        assert_eq!(&room, b"answered");
        true
    }

    /// Ends the connection in order.
    fn end(mut self) {
        self.peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(self.program.read(&mut [0; 8]).unwrap(), 0);
        drop(self.program);
        assert_eq!(self.peer.read(&mut [0; 8]).unwrap(), 0);
    }
}

/// Connects to a pump as a program image does.
fn connect(name: &str) -> OwnedFd {
    // A program that another test starts must not inherit it: it would keep it open, and lack the number.
    let flags = SocketFlags::CLOEXEC;
    let control = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::connect(&control, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    control
}

/// Returns true if the pump has closed its end.
fn is_refused(control: &OwnedFd) -> bool {
    rustix::net::recv(control, &mut [0; 1], RecvFlags::DONTWAIT).is_ok()
}

/// Waits until the pump has refused so many images.
fn wait_for_refusals(controls: &[OwnedFd], count: usize) {
    let deadline = Instant::now() + DEADLINE;
    let refused = || controls.iter().filter(|control| is_refused(control)).count();
    while refused() < count {
        assert!(Instant::now() < deadline, "{} refused instead of {count}", refused());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(refused(), count);
}

/// Returns the processor time that the pump has used, in ticks.
fn ticks(pump: &Killed) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pump.0.id())).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

// If this failed, a pump without descriptors would take a whole core, or would never serve again.
#[test]
fn pump_without_descriptors_resets_connections_and_goes_on() {
    let (pump, name) = start(FEW);
    let client = PumpClient::connect(&name).unwrap();
    let handed: Vec<_> = (0..CONNECTIONS).filter_map(|_| Carried::hand_over(client)).collect();
    assert_eq!(handed.len(), CONNECTIONS);
    let mut carried: Vec<_> = handed.into_iter().filter_map(|mut one| one.is_carried().then_some(one)).collect();
    assert!((FEW / 4..FEW / 2).contains(&carried.len()), "{} are carried", carried.len());
    // Images that come now are refused: their connections stay on TCP.
    let controls: Vec<_> = (0..PROGRAMS).map(|_| connect(&name)).collect();
    wait_for_refusals(&controls[2..], PROGRAMS - 2);
    let before = ticks(&pump);
    std::thread::sleep(PAUSE);
    assert!(ticks(&pump) - before < TICKS_MAX, "{} ticks without work", ticks(&pump) - before);
    carried.drain(..6).for_each(Carried::end);
    assert!(carried.iter_mut().all(Carried::is_carried));
    let late = PumpClient::connect(&name).unwrap();
    assert!(Carried::hand_over(late).unwrap().is_carried());
}

// If this failed, images beyond the limit would hand connections to a pump that never serves them.
#[test]
fn images_beyond_the_limit_are_refused() {
    let needed = 2 * PUMP_CONTROLS_MAX as u64;
    if getrlimit(Resource::Nofile).current.is_some_and(|limit| limit < needed) {
        return skipped("images_beyond_the_limit_are_refused", "the limit of descriptors is low");
    }
    let (_pump, name) = start(needed as usize);
    let mut controls: Vec<_> = (0..PUMP_CONTROLS_MAX).map(|_| connect(&name)).collect();
    controls.extend((0..PROGRAMS).map(|_| connect(&name)));
    wait_for_refusals(&controls, PROGRAMS);
    assert!(controls[..PUMP_CONTROLS_MAX].iter().all(|control| !is_refused(control)));
    // Room is used again.
    drop(controls.drain(..2));
    let deadline = Instant::now() + DEADLINE;
    while !PumpClient::connect(&name).and_then(Carried::hand_over).is_some_and(|mut one| one.is_carried()) {
        assert!(Instant::now() < deadline, "room is not used again");
    }
}

// If this failed, one image with many connections would keep others waiting, or would lose those that come in one burst.
#[test]
fn burst_of_connections_is_carried_or_stays_on_tcp() {
    let (pump, name) = start(FEW + 8 * PUMP_HANDOVERS_MAX);
    let (first, second) = (PumpClient::connect(&name).unwrap(), PumpClient::connect(&name).unwrap());
    rustix::process::kill_process(rustix::process::Pid::from_child(&pump.0), rustix::process::Signal::STOP).unwrap();
    let mut handed: Vec<_> = (0..2 * PUMP_HANDOVERS_MAX).filter_map(|_| Carried::hand_over(first)).collect();
    let mut other = Carried::hand_over(second).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&pump.0), rustix::process::Signal::CONT).unwrap();
    assert!(other.is_carried() && handed.len() > PUMP_HANDOVERS_MAX, "{}", handed.len());
    assert!(handed.iter_mut().all(Carried::is_carried));
}
