//! The report as a single page: pictures, fonts and scripts are embedded.

use std::fmt::Write as _;

use super::chart::draw;
use super::machine::Machine;
use super::picture::{Curves, Panel, Picture};
use super::rows::{Entry, Rows};
use super::run::BenchRun;
use super::svg::{STYLE, escaped};

const PAGE_STYLE: &str = "\
:root{color-scheme:light dark;--page:#f4f4f5;--card:#ffffff;--text:#18181b;--soft:#52525b;--rule:#d4d4d8;--link:#1d4ed8}\
@media (prefers-color-scheme:dark){:root{--page:#0b0d0f;--card:#14171a;--text:#f4f4f5;--soft:#b4b4bd;--rule:#33373d;--link:#7cb3ff}}\
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--text);\
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\
main{max-width:1080px;margin:0 auto;padding:24px 16px 64px}h1{font-size:28px;line-height:1.2;margin:8px 0}\
h2{font-size:20px;margin:0 0 8px}p{margin:8px 0;max-width:75ch}.soft{color:var(--soft)}a{color:var(--link)}\
section{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:20px;margin:20px 0}\
.fig{max-width:100%;height:auto;display:block}.wide{overflow-x:auto}\
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}th,td{text-align:left;padding:4px 14px 4px 0;\
border-bottom:1px solid var(--rule);vertical-align:top}th{font-weight:600}caption{text-align:left;font-weight:600;padding:8px 0 4px}\
.compared td:nth-child(1){min-width:100px}.compared td:nth-child(3){min-width:220px}\
code,pre{font:13px/1.5 ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}pre{white-space:pre-wrap;margin:8px 0;\
padding:8px 10px;background:var(--page);border-radius:6px}summary{cursor:pointer;margin-top:10px}nav ul{columns:2;column-gap:40px;padding-left:20px}\
a:focus-visible,summary:focus-visible{outline:3px solid var(--link);outline-offset:2px}\
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--card);padding:8px}";

/// The whole page.
pub fn page(machine: &Machine, ran: &[BenchRun], pictures: &[Picture], rows: &Rows) -> String {
    let mut body = String::new();
    head(&mut body, machine, ran, pictures);
    for picture in pictures {
        section(&mut body, picture);
    }
    raw(&mut body, rows);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>DDSS in figures</title>\n\
         <style>{PAGE_STYLE}{STYLE}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#figures\">To the figures</a>\n\
         <main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Writing into a text does not fail.
macro_rules! say {
    ($body:expr, $($words:tt)*) => { let _infallible = writeln!($body, $($words)*); };
}

fn head(body: &mut String, machine: &Machine, ran: &[BenchRun], pictures: &[Picture]) {
    say!(body, "<header>\n<h1>DDSS in figures</h1>");
    say!(
        body,
        "<p>DDSS is one logical shared memory for a cluster: a process names a segment, and any process on any node reads and \
         writes it. It follows a paper of 2007 (Vaidyanathan, Lai, Narravula, Panda: <em>Optimized Distributed Data Sharing \
         Substrate in Multi-Core Commodity Clusters</em>). Each figure below is one of that paper, measured again, with the \
         paper’s own numbers beside it.</p>"
    );
    say!(
        body,
        "<p>A client asks its node’s daemon in one of four ways. <strong>MQ</strong>: message queues of the kernel both ways. \
         <strong>RMQ</strong>: a ring in shared memory for the request, a message queue for the answer. <strong>RCQ</strong>: \
         rings both ways, and both sides poll. <strong>Auto</strong>: as RCQ, but who waits long goes to sleep; the paper does \
         not have it.</p>"
    );
    say!(body, "<p class=\"soft\">Measured on: {}.</p>", escaped(&machine.words()));
    say!(
        body,
        "<p class=\"soft\">The paper’s machines: 70 nodes of 8 cores (2.33 GHz), InfiniBand. Ours is one machine with {} cores on \
         which clients and all daemons run together: compare orders, ratios and crossings, not microseconds.</p></header>",
        machine.cores
    );
    say!(body, "<nav aria-label=\"Figures\" id=\"figures\"><ul>");
    for Picture { id, number, title, .. } in pictures {
        say!(body, "<li><a href=\"#{id}-place\">{}: {}</a></li>", escaped(number), escaped(title));
    }
    say!(body, "</ul></nav>");
    compared(body, pictures);
    if !ran.is_empty() {
        say!(body, "<details><summary>What was run</summary><div class=\"wide\"><table><tbody>");
        for BenchRun { command, seconds, skipped, passed, .. } in ran {
            let how = if *passed { "" } else { "FAILED" };
            let command = escaped(command);
            say!(
                body,
                "<tr><td><code>{command}</code></td><td>{seconds:.0} s {how}</td><td>{}</td></tr>",
                escaped(&skipped.join("; "))
            );
        }
        say!(body, "</tbody></table></div></details>");
    }
}

/// The paper's orders and crossings, all in one place.
fn compared(body: &mut String, pictures: &[Picture]) {
    say!(
        body,
        "<section><h2>What the paper reports, and what is here</h2><div class=\"wide\"><table class=\"compared\">"
    );
    say!(body, "<thead><tr><th>Figure</th><th>What</th><th>The paper</th><th>Here</th><th>So</th></tr></thead><tbody>");
    for picture in pictures {
        for line in picture.paper_values.iter().filter(|line| {
            !line.verdict.is_empty() && !line.paper.contains("no numbers") && !line.paper.contains("without numbers")
        }) {
            let cells =
                [&line.what, &line.paper, &line.here, &line.verdict].map(|cell| format!("<td>{}</td>", escaped(cell)));
            let (id, number) = (picture.id, escaped(picture.number));
            say!(body, "<tr><td><a href=\"#{id}-place\">{number}</a></td>{}</tr>", cells.concat());
        }
    }
    say!(body, "</tbody></table></div></section>");
}

fn section(body: &mut String, picture: &Picture) {
    let Picture { id, number, title, .. } = picture;
    say!(body, "<section id=\"{id}-place\"><h2>{}: {}</h2>", escaped(number), escaped(title));
    if picture.panels.is_empty() {
        say!(body, "<p><strong>{}</strong> This makes it:</p>", escaped(&picture.says));
    } else {
        say!(body, "<div class=\"wide\">{}</div>", draw(picture, false));
    }
    if !picture.paper_values.is_empty() && !picture.panels.is_empty() {
        say!(body, "<div class=\"wide\"><table><caption>The paper’s numbers beside ours</caption>");
        say!(body, "<thead><tr><th></th><th>The paper</th><th>Here</th><th>So</th></tr></thead><tbody>");
        for line in &picture.paper_values {
            let cells = [&line.paper, &line.here, &line.verdict].map(|cell| format!("<td>{}</td>", escaped(cell)));
            say!(body, "<tr><th scope=\"row\">{}</th>{}</tr>", escaped(&line.what), cells.concat());
        }
        say!(body, "</tbody></table></div>");
    }
    for note in &picture.notes {
        say!(body, "<p class=\"soft\">{}</p>", escaped(note));
    }
    let commands: Vec<String> = picture.commands.iter().map(|command| escaped(command)).collect();
    say!(body, "<pre>{}</pre>", commands.join("\n"));
    for panel in &picture.panels {
        if let Panel::Curves(curves) = panel {
            table(body, curves);
        }
    }
    say!(body, "</section>");
}

/// Numbers of a panel as a table, for readers who cannot see it or need exact values.
fn table(body: &mut String, curves: &Curves) {
    let mut xs: Vec<f64> = curves.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    say!(body, "<details><summary>Numbers: {}</summary><div class=\"wide\"><table>", escaped(&curves.title));
    let names: String = curves.curves.iter().map(|curve| format!("<th>{}</th>", escaped(&curve.label))).collect();
    say!(body, "<thead><tr><th>{}</th>{names}</tr></thead><tbody>", escaped(&curves.x.0));
    for x in xs {
        let cell = |curve: &super::picture::Curve| {
            let point = curve.points.iter().find(|point| point.0 == x);
            format!("<td>{}</td>", point.map_or_else(String::new, |point| curves.y.1.words(point.1)))
        };
        let cells: String = curves.curves.iter().map(cell).collect();
        say!(body, "<tr><th scope=\"row\">{}</th>{cells}</tr>", curves.x.1.words(x));
    }
    say!(body, "</tbody></table></div></details>");
}

/// Every row, as it was measured.
fn raw(body: &mut String, rows: &Rows) {
    say!(
        body,
        "<section><h2>All rows</h2><p class=\"soft\">The same is in <code>results.csv</code> and <code>results.json</code> beside this page.</p>"
    );
    say!(body, "<details><summary>{} rows</summary><div class=\"wide\"><table>", rows.0.len());
    let head = [
        "bench",
        "name",
        "op",
        "size",
        "mode",
        "under way",
        "p50 µs",
        "p99 µs",
        "ops/s",
        "p99.9 µs",
        "of limit",
        "notes",
    ];
    let head: String = head.iter().map(|name| format!("<th>{name}</th>")).collect();
    say!(body, "<thead><tr>{head}</tr></thead><tbody>");
    for entry in &rows.0 {
        let Entry { bench, name, op, size, mode, outstanding, p50_us, p99_us, ops_per_s, notes, .. } = entry;
        let more = |column| entry.more(column).map_or_else(String::new, |number| format!("{number:.3}"));
        let words = [bench, name, op, &size.to_string(), mode, &outstanding.to_string()].map(|word| escaped(word));
        let numbers = [
            format!("{p50_us:.3}"),
            format!("{p99_us:.3}"),
            format!("{ops_per_s:.0}"),
            more("p999_us"),
            more("of_limit"),
        ];
        let cells: String =
            words.iter().chain(&numbers).chain([&escaped(notes)]).map(|cell| format!("<td>{cell}</td>")).collect();
        say!(body, "<tr>{cells}</tr>");
    }
    say!(body, "</tbody></table></div></details></section>");
}
