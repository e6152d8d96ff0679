//! A peer of our fabric over RDMA adapters that shares no code with it: verbs and rdma_cm of rdma-core, as `rdma-sys`
//! declares them. `crates/ddss-verbs/tests/foreign/mod.rs` starts it, writes commands to it, and reads a line for each.
//!
//! `foreign_peer connect SOURCE ADDRESS PORT` connects; `foreign_peer listen ADDRESS` prints `listening PORT` and serves
//! one connection. Then it prints `connected KEY ADDRESS BYTES ATOMICS`: its own window, and whether its adapter has
//! atomics. Commands, with numbers in decimal and bytes in hexadecimal digits:
//!
//! ```text
//! fill OFFSET BYTES                   ok
//! show OFFSET COUNT                   ok BYTES
//! read KEY ADDRESS OFFSET COUNT       ok           from the peer into the own window
//! write KEY ADDRESS OFFSET COUNT      ok           from the own window to the peer
//! swap KEY ADDRESS COMPARE SWAP       ok BEFORE
//! add KEY ADDRESS ADD                 ok BEFORE
//! send OFFSET COUNT                   ok
//! receive                             ok BYTES
//! ```
//!
//! An operation that the adapter completes with an error answers `failed STATUS`, one that the end of the connection leaves
//! without a completion `failed disconnected`, and one that the adapter does not take `refused ERRNO`.
//! The end of the commands ends the connection and the program.

mod connection;

use std::io::{self, BufRead};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;

use connection::{Connection, Failure, Listener, Operation, end_after};

/// Seconds after which the program ends itself, even during a wait.
const SECONDS_MAX: u32 = 120;

fn main() -> ExitCode {
    end_after(SECONDS_MAX);
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match open(&words).and_then(|mut connection| serve(&mut connection)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("foreign_peer {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn open(words: &[&str]) -> io::Result<Connection> {
    match words {
        ["connect", source, address, port] => {
            let address = SocketAddrV4::new(parse(address)?, parse(port)?);
            Connection::connect(parse::<Ipv4Addr>(source)?, address)
        }
        ["listen", address] => {
            let listener = Listener::new(parse(address)?)?;
            println!("listening {}", listener.port());
            listener.accept()
        }
        _ => Err(io::Error::other("usage: foreign_peer connect SOURCE ADDRESS PORT | listen ADDRESS")),
    }
}

fn serve(connection: &mut Connection) -> io::Result<()> {
    let window = connection.window();
    println!("connected {} {} {} {}", window.key, window.address, window.bytes, connection.has_atomics());
    for line in io::stdin().lock().lines() {
        match execute(connection, &line?) {
            Ok(result) => println!("{}", format!("ok {result}").trim_end()),
            Err(Failure::Status(status)) => println!("failed {status}"),
            Err(Failure::Refused(errno)) => println!("refused {errno}"),
            Err(Failure::Disconnected) => println!("failed disconnected"),
            Err(Failure::Broken(error)) => return Err(error),
        }
    }
    connection.disconnect();
    Ok(())
}

fn execute(connection: &mut Connection, line: &str) -> Result<String, Failure> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["fill", offset, bytes] => {
            connection.fill(parse(offset)?, &from_hex(bytes)?)?;
            Ok(String::new())
        }
        ["show", offset, count] => Ok(to_hex(&connection.show(parse(offset)?, parse(count)?)?)),
        [word @ ("read" | "write"), key, address, offset, count] => {
            let operation = if word == "read" { Operation::Read } else { Operation::Write };
            connection.transfer(operation, parse(key)?, parse(address)?, parse(offset)?, parse(count)?)?;
            Ok(String::new())
        }
        ["swap", key, address, compare, swap] => {
            let operation = Operation::CompareSwap { compare: parse(compare)?, swap: parse(swap)? };
            Ok(connection.change(operation, parse(key)?, parse(address)?)?.to_string())
        }
        ["add", key, address, add] => {
            let operation = Operation::FetchAdd { add: parse(add)? };
            Ok(connection.change(operation, parse(key)?, parse(address)?)?.to_string())
        }
        ["send", offset, count] => {
            connection.transfer(Operation::Send, 0, 0, parse(offset)?, parse(count)?)?;
            Ok(String::new())
        }
        ["receive"] => Ok(to_hex(&connection.receive()?)),
        _ => Err(Failure::Broken(io::Error::other(format!("unknown command: {line}")))),
    }
}

fn parse<T: std::str::FromStr>(word: &str) -> io::Result<T> {
    word.parse().map_err(|_| io::Error::other(format!("cannot parse {word}")))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> io::Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect::<Option<_>>().ok_or_else(|| io::Error::other("these are no hexadecimal digits"))
}
