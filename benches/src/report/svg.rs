//! Hand-written SVG: text, lines and marks whose colours follow the reader's light or dark theme.

use std::fmt::Write as _;

/// Colours and letters. A picture that stands alone has them inside, a page once for all its pictures.
pub(crate) const STYLE: &str = "\
.fig{--paper:#ffffff;--ink:#18181b;--dim:#52525b;--grid:#e4e4e7;--mq:#b45309;--rmq:#6d28d9;--rcq:#0f766e;--auto:#be123c;\
--raw:#52525b;--peer:#1d4ed8;--without:#4d7c0f;font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\
@media (prefers-color-scheme:dark){.fig{--paper:#14171a;--ink:#f4f4f5;--dim:#b4b4bd;--grid:#33373d;--mq:#fbbf24;\
--rmq:#c4b5fd;--rcq:#2dd4bf;--auto:#fb7185;--raw:#b4b4bd;--peer:#7cb3ff;--without:#a3e635}}\
.fig .back{fill:var(--paper)}.fig text{fill:var(--ink);font-size:12px}.fig .head{font-size:17px;font-weight:600}\
.fig .says{font-size:13.5px;fill:var(--dim)}.fig .name{font-size:13px;font-weight:600}.fig .dim{fill:var(--dim)}\
.fig .grid{stroke:var(--grid);stroke-width:1}.fig .axis{stroke:var(--dim);stroke-width:1}\
.fig .line{fill:none;stroke-width:2;stroke-linejoin:round}.fig .dash{stroke-dasharray:5 4}.fig .bar{stroke:var(--paper)}\
.fig .hollow{fill:var(--paper);stroke-width:2.2}\
.fig .mq{--it:var(--mq)}.fig .rmq{--it:var(--rmq)}.fig .rcq{--it:var(--rcq)}.fig .auto{--it:var(--auto)}\
.fig .raw{--it:var(--raw)}.fig .peer{--it:var(--peer)}.fig .without{--it:var(--without)}\
.fig .line,.fig .hollow{stroke:var(--it)}.fig .mark,.fig .bar,.fig text.own{fill:var(--it)}\
.fig text.own{paint-order:stroke;stroke:var(--paper);stroke-width:4px}";

/// Anchor of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hang {
    Left,
    Middle,
    Right,
}

/// A drawing that grows.
#[derive(Debug, Default)]
pub(crate) struct Svg(String);

impl Svg {
    pub(crate) fn text(&mut self, at: (f64, f64), hang: Hang, class: &str, words: &str) {
        let anchor = match hang {
            Hang::Left => "start",
            Hang::Middle => "middle",
            Hang::Right => "end",
        };
        self.add(format_args!(
            r#"<text x="{:.1}" y="{:.1}" text-anchor="{anchor}" class="{class}">{}</text>"#,
            at.0,
            at.1,
            escaped(words)
        ));
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#));
    }

    pub(crate) fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!(r#"<polyline points="{}" class="{class}"/>"#, points.join(" ")));
    }

    /// A box with `hint` as tooltip.
    pub(crate) fn bar(&mut self, at: (f64, f64), size: (f64, f64), class: &str, hint: &str) {
        let ((x, y), (width, height)) = (at, size);
        let hint = escaped(hint);
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" class="{class}"><title>{hint}</title></rect>"#
        ));
    }

    /// Mark of a curve: each style has its own shape, so that colours are not needed to distinguish curves.
    pub(crate) fn mark(&mut self, at: (f64, f64), curve_style: &str, hint: &str) {
        let (x, y) = at;
        let shape = match curve_style {
            "mq" => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.8""#),
            "rmq" => format!(r#"<rect x="{:.1}" y="{:.1}" width="7" height="7""#, x - 3.5, y - 3.5),
            "rcq" => polygon(&[(x, y - 4.6), (x + 4.4, y + 3.6), (x - 4.4, y + 3.6)]),
            "auto" => polygon(&[(x, y - 5.0), (x + 5.0, y), (x, y + 5.0), (x - 5.0, y)]),
            "peer" => polygon(&[(x - 4.2, y - 3.6), (x + 4.2, y - 3.6), (x, y + 4.6)]),
            "without" => format!(r#"<rect x="{:.1}" y="{:.1}" width="10" height="3""#, x - 5.0, y - 1.5),
            _ => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.2""#),
        };
        self.add(format_args!(
            r#"{shape} class="mark {curve_style}"><title>{}</title></{}>"#,
            escaped(hint),
            kind(&shape)
        ));
    }

    /// The mark of a number of the paper.
    pub(crate) fn hollow(&mut self, at: (f64, f64), curve_style: &str, hint: &str) {
        let (x, y) = at;
        let shape = polygon(&[(x, y - 7.0), (x + 7.0, y), (x, y + 7.0), (x - 7.0, y)]);
        self.add(format_args!(r#"{shape} class="hollow {curve_style}"><title>{}</title></polygon>"#, escaped(hint)));
    }

    /// The whole picture.
    pub(crate) fn finish(self, id: &str, size: (f64, f64), title: &str, description: &str, alone: bool) -> String {
        let (width, height) = size;
        let style = if alone { format!("<style>{STYLE}</style>") } else { String::new() };
        let (title, description, body) = (escaped(title), escaped(description), self.0);
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="fig" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img" aria-labelledby="{id}-title {id}-desc"><title id="{id}-title">{title}</title><desc id="{id}-desc">{description}</desc>{style}<rect class="back" width="{width:.0}" height="{height:.0}" rx="8"/>
{body}</svg>
"#
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into a text does not fail.
        let _infallible = writeln!(self.0, "{element}");
    }
}

fn polygon(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!(r#"<polygon points="{}""#, points.join(" "))
}

fn kind(shape: &str) -> &str {
    shape[1..].split(' ').next().unwrap_or_default()
}

/// Text as it may stand in XML and HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// A text in lines of at most so many pixels, at so many pixels a letter.
pub(crate) fn wrapped(text: &str, width: f64, letter: f64) -> Vec<String> {
    let most = (width / letter) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
