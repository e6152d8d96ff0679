//! Rules of the administrator: the first match decides.
//!
//! ```text
//! # use auto|same|tcp|wire  listen|connect  PROGRAM  ADDRESS[/PREFIX]:PORTS
//! use tcp   connect  *            *:5432
//! use auto  listen   redis-*      127.0.0.0/8:6379-6389
//! use wire  connect  curl         10.0.0.0/8:*
//! # allow listen|connect  PROGRAM  USER: memory may be shared with peers of this user, if their rules allow it too
//! allow listen redis-* www-data
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

/// File with the rules.
const RULES_VARIABLE: &str = "DDSS_STREAMS_RULES";
/// Rules of a file.
const RULES_MAX: usize = 1024;

/// End of a connection that a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Listen,
    Connect,
}

/// Transport that a rule chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// Shared memory if both ends have the library and are on this node, else TCP.
    SameNode,
    Tcp,
    /// The Sockets Direct Protocol on TCP, carried by the pump.
    Wire,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    choice: Choice,
    end: End,
    program: String,
    network: Option<(IpAddr, u8)>,
    ports: (u16, u16),
}

/// A user with whom an end may share memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Allowance {
    end: End,
    program: String,
    user: u32,
}

/// One line of the rules.
enum Line {
    Use(Rule),
    Allow(Allowance),
}

/// File with the numbers of users.
const USERS: &str = "/etc/passwd";

static RULES: OnceLock<Vec<Rule>> = OnceLock::new();

/// Reads the rules that concern this program.
pub(crate) fn load() {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    let text = std::env::var_os(RULES_VARIABLE).map(std::fs::read_to_string);
    let rules = match text {
        Some(Ok(text)) => parse(&text),
        Some(Err(_)) => Err("cannot be read".to_owned()),
        None => Ok((Vec::new(), Vec::new())),
    };
    let (rules, allowances) = rules.unwrap_or_else(|wrong| {
        // A rule that is not understood may be one that forbids: nothing is shared then.
        crate::sys::report(&format!("ddss-preload: rules: {wrong}; every connection stays on tcp\n"));
        let tcp = |end| Rule { choice: Choice::Tcp, end, program: "*".into(), network: None, ports: (0, u16::MAX) };
        (vec![tcp(End::Listen), tcp(End::Connect)], Vec::new())
    });
    let users = |end| {
        let found = allowances.iter().filter(|allowance| allowance.end == end && matches(&allowance.program, &program));
        found.map(|allowance| allowance.user).collect()
    };
    ddss_stream::allow_users(users(End::Listen), users(End::Connect));
    let _ = RULES.set(rules.into_iter().filter(|rule| matches(&rule.program, &program)).collect());
}

/// Returns the transport of a connection.
pub(crate) fn choice(end: End, address: SocketAddr) -> Choice {
    let rules = RULES.get().map(Vec::as_slice).unwrap_or_default();
    let ip = address.ip().to_canonical();
    let found = rules.iter().find(|rule| {
        rule.end == end
            && (rule.ports.0..=rule.ports.1).contains(&address.port())
            && rule.network.is_none_or(|(network, prefix)| is_inside(ip, network, prefix))
    });
    found.map_or(Choice::SameNode, |rule| rule.choice)
}

fn parse(text: &str) -> Result<(Vec<Rule>, Vec<Allowance>), String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.split('#').next().unwrap_or("").trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty()).take(RULES_MAX);
    let (mut rules, mut allowances) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        match parse_line(line).ok_or_else(|| format!("line {number} is not a rule"))? {
            Line::Use(rule) => rules.push(rule),
            Line::Allow(allowance) => allowances.push(allowance),
        }
    }
    Ok((rules, allowances))
}

fn parse_line(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    match words.next()? {
        "use" => parse_rule(words).map(Line::Use),
        "allow" => parse_allowance(words).map(Line::Allow),
        _ => None,
    }
}

fn parse_end(word: &str) -> Option<End> {
    match word {
        "listen" => Some(End::Listen),
        "connect" => Some(End::Connect),
        _ => None,
    }
}

fn parse_allowance<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Allowance> {
    let end = parse_end(words.next()?)?;
    let program = words.next()?.to_owned();
    let user = user_number(words.next()?)?;
    words.next().is_none().then_some(Allowance { end, program, user })
}

/// Returns the number of a user by name or number.
fn user_number(user: &str) -> Option<u32> {
    if let Ok(number) = user.parse() {
        return Some(number);
    }
    let users = std::fs::read_to_string(USERS).ok()?;
    let found = users.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':'));
    found?.split(':').nth(1)?.parse().ok()
}

fn parse_rule<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Rule> {
    let choice = match words.next()? {
        "auto" | "same" => Choice::SameNode,
        "tcp" => Choice::Tcp,
        "wire" => Choice::Wire,
        _ => return None,
    };
    let end = parse_end(words.next()?)?;
    let program = words.next()?.to_owned();
    let (address, ports) = words.next()?.rsplit_once(':')?;
    if words.next().is_some() {
        return None;
    }
    let network = match address {
        "*" => None,
        address => {
            let (ip, prefix) = address.split_once('/').map_or((address, None), |(ip, prefix)| (ip, Some(prefix)));
            let ip: IpAddr = ip.trim_matches(['[', ']']).parse().ok()?;
            let longest = if ip.is_ipv4() { 32 } else { 128 };
            let prefix = prefix.map_or(Some(longest), |prefix| prefix.parse().ok())?;
            (prefix <= longest).then_some(Some((ip, prefix)))?
        }
    };
    let ports = match ports {
        "*" => (0, u16::MAX),
        ports => {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            (first.parse().ok()?, last.parse().ok()?)
        }
    };
    Some(Rule { choice, end, program, network, ports })
}

fn is_inside(ip: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let (ip, network, bits) = match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => (u128::from(u32::from(ip)), u128::from(u32::from(network)), 32),
        (IpAddr::V6(ip), IpAddr::V6(network)) => (ip.into(), network.into(), 128),
        _ => return false,
    };
    let shift = bits - u32::from(prefix);
    shift == 128 || ip >> shift == network >> shift
}

/// Matches a name with a pattern in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name
            .strip_prefix(start)
            .is_some_and(|left| (0..=left.len()).any(|at| left.is_char_boundary(at) && matches(rest, &left[at..]))),
    }
}
