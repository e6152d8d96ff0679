//! The pages of figures for the documentation.

use super::drawn::Drawn;
use super::picture::{Paper, Picture};

/// Papers with the pages of their figures.
pub const PAGES: [(Paper, &str); 3] =
    [(Paper::Ddss, "figures.md"), (Paper::Sdp, "stream-figures.md"), (Paper::River, "river-figures.md")];

/// Head of a page, and the sentences that explain its words.
fn head(paper: Paper) -> [&'static str; 2] {
    match paper {
        Paper::Ddss => [
            "# Figures\n\nThe figures of the paper, measured again.",
            "Clients and all daemons share the cores of this one machine, so compare orders, ratios and crossings and \
             not microseconds. MQ: message queues of the kernel both ways. RMQ: a ring for the request, a queue for the answer. RCQ: \
             rings both ways, both sides poll. Auto: as RCQ, but who waits long goes to sleep.",
        ],
        Paper::Sdp => [
            "# Figures of streams\n\nThe figures of the paper about the Sockets Direct Protocol over iWARP, measured again.",
            "Basic: the plan of the specification, with private buffers and credits. Enhanced: the paper's plan, with one \
             buffer, appended messages, and TCP's flow control. Both ends share one machine: compare ratios.",
        ],
        Paper::River => [
            "# Figures of River\n\nThe figures of the paper about data flow around slow nodes, measured again.",
            "The peak is the rate of all disks. A slow processor has a quarter of its time, a slow disk half of its rate. Curves without \
             dashes are computed in virtual time by the engines of `ddss-river-core`, with disks of 5.45 MB/s.",
        ],
    }
}

/// The page of a paper: every figure with its picture, the paper's result, and the command under it.
pub fn markdown(paper: Paper, command: &str, Drawn { machine, pictures }: &Drawn) -> String {
    let [title, words] = head(paper);
    let mut text = format!(
        "{title} Written by `{command}`; do not edit.\n\n\
         **Machine:** {machine}.\n\n{words} Each drawn number is in `figures.json`.\n"
    );
    let own = || pictures.iter().filter(|picture| picture.paper == paper);
    for picture in own().filter(|picture| !picture.panels.is_empty()) {
        text += &one(picture);
    }
    let missing: Vec<&Picture> = own().filter(|picture| picture.panels.is_empty()).collect();
    if !missing.is_empty() {
        text += "\n## Not measured here\n\n| figure | what | command |\n| --- | --- | --- |\n";
        for Picture { number, title, commands, .. } in missing {
            text += &format!("| {number} | {title} | `{}` |\n", commands.join("`, `"));
        }
    }
    text
}

fn one(picture: &Picture) -> String {
    let Picture { id, number, title, says, paper_values, commands, notes, .. } = picture;
    let mut text = format!("\n## {number}: {title}\n\n{says}\n\n![{number}: {title}](figures/{id}.svg)\n\n");
    text += "| | the paper | here | so |\n| --- | --- | --- | --- |\n";
    for line in paper_values {
        let cells = [&line.what, &line.paper, &line.here, &line.verdict].map(|cell| cell.replace('|', "\\|"));
        text += &format!("| {} |\n", cells.join(" | "));
    }
    for note in notes {
        text += &format!("\n{note}\n");
    }
    text + &format!("\n```sh\n{}\n```\n", commands.join("\n"))
}
