//! An image loader: many decoders, and consumers of different speed.
//!
//! With queues any decoder claims the next picture, and any consumer takes the next thumbnail. In the static form, process i
//! decodes and consumes each n-th picture.

use super::blocks::{names, write_complete};
use super::images::thumbnail;
use super::job::{Form, Job};
use ddss_river::flow::{Each, Edge, Flow, FlowError, Message, ModuleError, Output};
use std::path::Path;
use std::time::Duration;

/// Time of the fastest consumer for a picture. The second one needs twice the time, and so on.
const STEP: Duration = Duration::from_millis(2);

/// Builds the flow.
pub(super) fn build(flow: &mut Flow, job: &Job) -> Result<(), FlowError> {
    let (from, out) = (job.folder("images"), job.folder("out"));
    let (names, decoders, edge) = match job.form {
        Form::Queues => (flow.list(&job.list("images"))?, Each::Core, Edge::units()),
        Form::Static => {
            let (folder, processes) = (from.clone(), usize::from(job.processes));
            let put = move |instance: u16, output: &mut Output| -> Result<(), ModuleError> {
                for name in names(&folder)?.iter().skip(instance.into()).step_by(processes) {
                    output.put(name.as_bytes())?;
                }
                Ok(())
            };
            (flow.source("names", job.each(), move |cx, output| put(cx.instance(), output))?, job.each(), job.edge())
        }
    };
    let decode = flow.place("decode", decoders, move |_, input, output| {
        while let Some(name) = input.take()? {
            let picture = thumbnail(&from.join(std::str::from_utf8(&name)?))?;
            output.put(&[&name[..], b"\n", &picture].concat())?;
            name.acknowledge();
        }
        Ok(())
    })?;
    let consume = flow.sink("consume", Each::Count(job.processes), move |cx, input| {
        while let Some(message) = input.take()? {
            consume(&out, cx.instance(), &message)?;
            message.acknowledge();
        }
        Ok(())
    })?;
    flow.attach(names, decode, edge)?;
    flow.attach(decode, consume, job.edge())
}

/// Uses a thumbnail, at the speed of this consumer, and writes it with the number of the consumer.
fn consume(out: &Path, instance: u16, message: &Message) -> Result<(), ModuleError> {
    let end = message.iter().position(|byte| *byte == b'\n').ok_or("a picture without its name")?;
    let (name, picture) = (std::str::from_utf8(&message[..end])?, &message[end + 1..]);
    std::thread::sleep(STEP * (u32::from(instance) + 1));
    let bytes = [&instance.to_le_bytes()[..], picture].concat();
    Ok(write_complete(out, name, &format!("consume-{instance}"), &bytes)?)
}
