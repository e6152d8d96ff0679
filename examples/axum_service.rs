//! **An axum service that shares state between two nodes.** The same small web service runs on both; each returns the
//! visits of a page for the whole cluster.
//!
//! ```sh
//! cargo run --example axum_service               # ends by itself, after a few hundred requests
//! cargo run --example axum_service -- --stay     # until you stop it: curl -X POST http://127.0.0.1:PORT/visits/2
//! ```
//!
//! A handler holds an `aio::Segment` as its state, as it would hold a pool of database connections. There is no server
//! in between: a visit at the home's node is a call to its daemon, a visit at the other node is a message to the home,
//! and a query is a read of memory.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use ddss::{ErrorKind, Spec, aio};
use ddss_examples::{Failed, Nodes, PATIENCE, check, may_come};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const NAME: &str = "examples/visits";
const PAGES: u64 = 16;
const VISITS: u64 = 200;

type Answer = Result<String, (StatusCode, String)>;

/// Maps errors to HTTP. After an indeterminate call the client decides whether to repeat it.
fn http_error(error: ddss::Error) -> (StatusCode, String) {
    let status = match error.kind() {
        ErrorKind::OutOfRange => StatusCode::NOT_FOUND,
        ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, error.to_string())
}

/// POST: one more visit. The home adds, so no visit is lost.
async fn visit(State(visits): State<aio::Segment>, Path(page): Path<u64>) -> Answer {
    let changed = visits.word(page.saturating_mul(8)).fetch_add(1).await.map_err(http_error)?;
    Ok(format!("{}\n", changed.before + 1))
}

/// GET: the number of visits.
async fn page_visits(State(visits): State<aio::Segment>, Path(page): Path<u64>) -> Answer {
    let place = page.saturating_mul(8);
    let value = visits.get(place..place.saturating_add(8)).await.map_err(http_error)?;
    let count: [u8; 8] = value[..].try_into().map_err(|_| (StatusCode::NOT_FOUND, "no such page".to_owned()))?;
    Ok(format!("{}\n", u64::from_le_bytes(count)))
}

/// The service on one node: an application writes no more than this.
async fn serve(visits: aio::Segment) -> Result<SocketAddr, Failed> {
    let service = Router::new().route("/visits/{page}", get(page_visits).post(visit)).with_state(visits);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(address)
}

fn main() -> Result<(), Failed> {
    let stay = std::env::args().nth(1).is_some_and(|word| word == "--stay");
    let nodes = if stay { Nodes::start(2)? } else { Nodes::take(2)? };
    run(&nodes, stay)
}

#[tokio::main(flavor = "current_thread")]
async fn run(nodes: &Nodes, stay: bool) -> Result<(), Failed> {
    let (first, second) = (nodes.client(0)?.aio()?, nodes.client(1)?.aio()?);
    let visits = first.segment(NAME).allocate(Spec::new(PAGES * 8)).await?;
    let services = [serve(visits.clone()).await?, serve(open_soon(&second).await?).await?];
    println!("services at http://{} (node 1) and http://{} (node 2)", services[0], services[1]);
    if stay {
        std::future::pending::<()>().await;
    }
    let ended = timeout(PATIENCE, try_out(services)).await;
    visits.release().await?;
    ended?
}

/// A few hundred requests, some at a time, to both services in turn.
async fn try_out(services: [SocketAddr; 2]) -> Result<(), Failed> {
    let mut tasks = JoinSet::new();
    for number in 0..VISITS {
        let service = services[number as usize % 2];
        tasks.spawn(request(service, "POST", number % PAGES));
        if tasks.len() == 16 {
            tasks.join_next().await.expect("some are under way")??;
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    for service in services {
        let mut sum = 0;
        for page in 0..PAGES {
            sum += request(service, "GET", page).await?.trim().parse::<u64>()?;
        }
        check(sum == VISITS, || format!("{service} counts {sum} of {VISITS} visits"))?;
    }
    let wrong = request(services[1], "GET", PAGES).await;
    check(wrong.is_err_and(|error| error.to_string().contains("404")), || "a page that is none was found".to_owned())?;
    println!("{VISITS} visits through two services: both count all of them");
    Ok(())
}

/// A request as a browser would send it.
async fn request(service: SocketAddr, method: &str, page: u64) -> Result<String, Failed> {
    let mut stream = TcpStream::connect(service).await?;
    let asked = format!("{method} /visits/{page} HTTP/1.1\r\nHost: {service}\r\nConnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no end of its head")?;
    let status = head.lines().next().unwrap_or_default();
    check(status.contains("200"), || format!("{status}: {body}"))?;
    Ok(body.to_owned())
}

/// Opens the segment as soon as its name has reached this node.
async fn open_soon(client: &aio::Client) -> Result<aio::Segment, Failed> {
    let open = async {
        loop {
            match client.segment(NAME).open().await {
                Err(error) if may_come(&error) => sleep(Duration::from_millis(5)).await,
                ended => return ended,
            }
        }
    };
    Ok(timeout(PATIENCE, open).await??)
}
