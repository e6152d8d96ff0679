//! A consumer of the demonstration `river`, in a client process.

use super::child::reply;
use crate::error::CommandError;
use ddss::{Client, ConnectOptions};
use ddss_river::{Queue, QueueOptions};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Bytes of a message: its number, again and again.
pub(super) const MESSAGE_BYTES: usize = 16 << 10;
/// Bytes of a number in the file of a consumer.
pub(super) const NUMBER_BYTES: usize = 4;
/// Time that a consumer needs for a message.
pub(super) const WORK_TIME: Duration = Duration::from_millis(5);

/// Connects to a node, and opens a queue.
pub(super) fn open(folder: &Path, queue: &str) -> Result<Queue, CommandError> {
    let client = Client::connect_with(ConnectOptions::new().directory(folder))?;
    let options = QueueOptions::new().message_bytes_max(MESSAGE_BYTES as u32);
    Ok(Queue::open(&client, queue, options)?)
}

/// Takes messages until the queue is closed. The number of each is in the file before it is acknowledged, so that the file of a process
/// that is killed has all that no other process repeats.
pub(super) fn take(folder: &Path, queue: &str, file: &Path) -> Result<(), CommandError> {
    let queue = open(folder, queue)?;
    let mut consumer = queue.consumer()?;
    let file_error = CommandError::system("write the numbers of messages");
    let mut file = OpenOptions::new().create(true).append(true).open(file).map_err(file_error)?;
    reply(&json!({ "done": "joined" }))?;
    while let Some(message) = consumer.take()? {
        std::thread::sleep(WORK_TIME);
        file.write_all(&message[..NUMBER_BYTES]).map_err(CommandError::system("write the number of a message"))?;
        message.acknowledge();
    }
    reply(&json!({ "done": "ended" }))
}
