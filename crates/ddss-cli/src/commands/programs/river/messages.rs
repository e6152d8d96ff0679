//! The commands `river put` and `take`.

use super::content::insert_bytes;
use super::program::{Interruption, Program, ProgramEnd};
use crate::arguments::river::{JoinQueueOptions, RiverPutOptions, RiverTakeOptions};
use crate::connect::connect;
use crate::error::{CommandError, WRITE_STDOUT};
use crate::output::terminal_text::print_warning;
use ddss_river::{Message, Queue, QueueError, QueueOptions};
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{BufRead, Write, stdin, stdout};
use std::time::Duration;

/// Time for which a consumer waits before it looks for a signal.
const TAKE_MAX: Duration = Duration::from_millis(200);

/// Joins a queue with its own settings, or creates it.
fn join(join: &JoinQueueOptions, timeout: Duration) -> Result<Queue, CommandError> {
    let JoinQueueOptions { queue, message_bytes, members, listen } = join;
    let client = connect(&queue.place)?;
    let found = Queue::inspect(&client, &queue.name)?;
    let mut options = found.map_or_else(QueueOptions::new, |found| found.options).timeout(timeout);
    if let Some(bytes) = message_bytes {
        options = options.message_bytes_max(u32::try_from(*bytes).unwrap_or(u32::MAX));
    }
    if let Some(members) = members {
        options = options.members(*members);
    }
    if let Some(address) = listen {
        options = options.listen(*address);
    }
    Ok(Queue::open(&client, &queue.name, options)?)
}

pub(super) fn put(options: &RiverPutOptions, json: bool) -> Result<(), CommandError> {
    let name = &options.join.queue.name;
    let queue = join(&options.join, Duration::from_secs(options.timeout_s))?;
    let producer = queue.producer()?;
    let (mut messages, mut bytes) = (0_u64, 0_u64);
    let mut put = |message: &[u8]| -> Result<(), CommandError> {
        producer.put(message)?;
        (messages, bytes) = (messages + 1, bytes + message.len() as u64);
        Ok(())
    };
    for file in &options.files {
        put(&std::fs::read(file).map_err(CommandError::file("read", file))?)?;
    }
    if options.files.is_empty() {
        for line in stdin().lock().split(b'\n') {
            put(&line.map_err(CommandError::system("read standard input"))?)?;
        }
    }
    if options.close {
        queue.close()?;
    } else {
        producer.flush()?;
    }
    if json {
        println!("{}", json!({ "queue": name, "messages": messages, "bytes": bytes, "closed": options.close }));
    } else {
        let closed = if options.close { ", and the queue is closed" } else { "" };
        println!("{name}: {messages} messages were processed{closed}");
    }
    Ok(())
}

pub(super) fn take(options: &RiverTakeOptions, json: bool) -> Result<(), CommandError> {
    let program = if options.program.is_empty() { None } else { Some(Program::new(&options.program, json)?) };
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CommandError::system("listen to signals"))?;
    let queue = join(&options.join, TAKE_MAX)?;
    let mut consumer = queue.consumer()?;
    let (interruption, listening) = (Interruption::default(), signals.handle());
    let ended = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut first = None;
            for signal in signals.forever() {
                first = first.or(u8::try_from(signal).ok());
                interruption.raise();
            }
            first
        });
        let mut failed = 0_u64;
        let mut taken = 0;
        let mut serve = || -> Result<(), CommandError> {
            let (mut count, mut is_ending) = (options.count, false);
            // No other consumer would get the messages of dead producers that wait here.
            while count.is_none_or(|count| taken < count) || queue.last_copies() > 0 {
                if interruption.is_raised() {
                    if is_ending {
                        break;
                    }
                    (count, is_ending) = (Some(0), true);
                    interruption.heed();
                    continue;
                }
                let message = match consumer.take() {
                    Ok(Some(message)) => message,
                    Ok(None) => return Ok(()),
                    Err(QueueError::TimedOut { .. }) => continue,
                    Err(error) => return Err(error.into()),
                };
                taken += 1;
                failed += u64::from(!process(message, program.as_ref(), &interruption, json)?);
            }
            Ok(())
        };
        let served = serve();
        match queue.last_copies() {
            0 => {}
            lost => {
                print_warning(&format!("{lost} messages of producers that are dead were waiting here, and are lost"))
            }
        }
        listening.close();
        let first = first.join().unwrap_or_else(|reason| std::panic::resume_unwind(reason));
        served.map(|()| (first, failed))
    });
    match ended? {
        (Some(signal), _) => Err(CommandError::Returned { signal }),
        (None, 0) => Ok(()),
        (None, failed) => Err(CommandError::Refused(format!(
            "the program failed for {failed} messages: another consumer gets them, or they have failed"
        ))),
    }
}

/// Processes a message. Returns false if its program failed: another consumer gets it then, as after a signal.
fn process(
    message: Message,
    program: Option<&Program<'_>>,
    interruption: &Interruption,
    json: bool,
) -> Result<bool, CommandError> {
    let Some(program) = program else {
        if json {
            print_json(&message, None);
        } else {
            let mut out = stdout().lock();
            let written = out.write_all(&message).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
            written.map_err(CommandError::system(WRITE_STDOUT))?;
        }
        message.acknowledge();
        return Ok(true);
    };
    let (code, is_done) = match program.run(&message, &[], interruption, || false)? {
        ProgramEnd::Exited(status) => (status.code(), status.success()),
        ProgramEnd::Stopped => (None, false),
    };
    let is_interrupted = !is_done && interruption.is_raised();
    if json {
        print_json(&message, Some(code));
    }
    if is_done {
        message.acknowledge();
    } else if is_interrupted {
        // The signal is not the fault of the message.
        message.give_back();
    }
    Ok(is_done || is_interrupted)
}

fn print_json(message: &Message, code: Option<Option<i32>>) {
    let mut object = Map::new();
    insert_bytes(&mut object, "message", message);
    object.insert("redelivered".to_owned(), message.is_redelivered().into());
    if let Some(code) = code {
        object.insert("exit_code".to_owned(), code.into());
    }
    println!("{}", Value::Object(object));
}
