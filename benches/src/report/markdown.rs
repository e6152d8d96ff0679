//! The page of figures for the documentation.

use super::drawn::Drawn;
use super::picture::Picture;

/// The page `docs/notes/figures.md`: every figure with its picture, the paper's result, and the command under it.
pub fn markdown(command: &str, Drawn { machine, pictures }: &Drawn) -> String {
    let mut text = format!(
        "# Figures\n\nThe figures of the paper, measured again. Written by `{command}`; do not edit.\n\n\
         **Machine:** {machine}.\n\nClients and all daemons share the cores of this one machine, so compare orders, ratios and crossings and \
         not microseconds. MQ: message queues of the kernel both ways. RMQ: a ring for the request, a queue for the answer. RCQ: \
         rings both ways, both sides poll. Auto: as RCQ, but who waits long goes to sleep. Each drawn number is in `figures.json`.\n"
    );
    for picture in pictures.iter().filter(|picture| !picture.panels.is_empty()) {
        text += &one(picture);
    }
    let missing: Vec<&Picture> = pictures.iter().filter(|picture| picture.panels.is_empty()).collect();
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
