//! The live view: draws, handles keys, and restores the terminal in every case.

use super::layout::{Heights, Rows};
use super::name_cache::NameCache;
use super::view::{Interval, Section, View};
use crate::arguments::TopOptions;
use crate::error::CommandError;
use crate::output::terminal_text::sanitize;
use crate::status_page::{StatusPage, format_count, now, read};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Sparkline};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval at which keys and signals are polled.
const EVENT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of rates in the sparkline.
const HISTORY: usize = 240;
/// Width of the title beside the sparkline.
const CHART_TITLE: u16 = 16;
/// Minimum width at which segments and clients stand side by side.
const WIDE: u16 = 150;

pub(crate) fn run(options: &TopOptions, json: bool) -> Result<(), CommandError> {
    let first = read(&options.place)?;
    let live = !json && !options.once && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !live {
        return print_once(options, first, json);
    }
    let stop = Arc::new(AtomicBool::new(false));
    // SIGHUP keeps its default action: a closed terminal needs no restoration.
    for signal in [SIGTERM, SIGINT] {
        let flag = signal_hook::flag::register(signal, Arc::clone(&stop));
        flag.map_err(CommandError::system("listen to signals"))?;
    }
    // `try_init` installs a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init().map_err(CommandError::system("initialize the terminal"))?;
    let ended = Screen::new(options, first).live(&mut terminal, &stop);
    ratatui::restore();
    ended
}

/// Prints the rates of one interval. After the end of a daemon, prints the rates over its lifetime.
fn print_once(options: &TopOptions, first: StatusPage, json: bool) -> Result<(), CommandError> {
    first.warn();
    let mut names = NameCache::default();
    let begin = Instant::now();
    let second = if first.has_ended() {
        None
    } else {
        std::thread::sleep(options.interval());
        Some(read(&options.place)?)
    };
    let now = second.as_ref().unwrap_or(&first);
    let same = now.status.daemon.run == first.status.daemon.run;
    let before = (second.is_some() && same).then_some(&first.status);
    let seconds = if before.is_some() { begin.elapsed().as_secs_f64() } else { lifetime(now) };
    let span = Interval { now, before, seconds };
    names.refresh(&options.place, span.hottest().iter().take(options.segments).map(|(row, _)| row.segment));
    if json {
        println!("{}", span.as_json(&names, options.segments));
    } else {
        span.view(&names, options.segments).print();
    }
    now.require_running()
}

/// Returns the time that a daemon has run, in seconds.
fn lifetime(page: &StatusPage) -> f64 {
    let daemon = &page.status.daemon;
    let end = if page.has_ended() { daemon.heartbeat_us } else { now().as_micros() as u64 };
    end.saturating_sub(daemon.started_us) as f64 / 1e6
}

/// State of the live view.
struct Screen<'a> {
    options: &'a TopOptions,
    names: NameCache,
    page: StatusPage,
    read_at: Instant,
    history: VecDeque<u64>,
    view: View,
    /// Number of segments above the visible ones.
    above: usize,
    paused: bool,
    /// Error of the last read of the status page.
    error: Option<String>,
}

impl<'a> Screen<'a> {
    fn new(options: &'a TopOptions, page: StatusPage) -> Self {
        let mut names = NameCache::default();
        let span = Interval { now: &page, before: None, seconds: lifetime(&page) };
        names.refresh(&options.place, span.hottest().iter().take(options.segments).map(|(row, _)| row.segment));
        let view = span.view(&names, options.segments);
        let (history, read_at) = (VecDeque::new(), Instant::now());
        Self { options, names, page, read_at, history, view, above: 0, paused: false, error: None }
    }

    fn live(mut self, terminal: &mut DefaultTerminal, stop: &AtomicBool) -> Result<(), CommandError> {
        let failed = || CommandError::system("draw in the terminal");
        let mut changed = true;
        while !stop.load(Ordering::Relaxed) {
            if self.read_at.elapsed() >= self.options.interval() && !self.paused {
                self.refresh();
                changed = true;
            }
            if changed {
                terminal.draw(|frame| self.draw(frame)).map_err(failed())?;
            }
            changed = false;
            if event::poll(EVENT_POLL_INTERVAL).map_err(failed())? {
                match self.handle_event(&event::read().map_err(failed())?) {
                    KeyAction::End => return Ok(()),
                    KeyAction::Change => changed = true,
                    KeyAction::Nothing => {}
                }
            }
        }
        Ok(())
    }

    /// Reads the status page again.
    fn refresh(&mut self) {
        let seconds = self.read_at.elapsed().as_secs_f64();
        self.read_at = Instant::now();
        let page = match read(&self.options.place) {
            Ok(page) => page,
            Err(error) => return self.error = Some(ddss_admin::format_error_chain(&error)),
        };
        self.error = None;
        let same = page.status.daemon.run == self.page.status.daemon.run;
        let span = Interval {
            now: &page,
            before: same.then_some(&self.page.status),
            seconds: if same { seconds } else { lifetime(&page) },
        };
        let shown = span.hottest();
        self.names.refresh(&self.options.place, shown.iter().take(self.options.segments).map(|(row, _)| row.segment));
        self.history.push_back(span.calls_per_second() as u64);
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        self.view = span.view(&self.names, self.options.segments);
        self.page = page;
    }

    fn handle_event(&mut self, event: &Event) -> KeyAction {
        let key = match event {
            Event::Key(key) if key.kind == KeyEventKind::Press => key,
            Event::Resize(..) => return KeyAction::Change,
            _ => return KeyAction::Nothing,
        };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return KeyAction::End,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return KeyAction::End,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Down | KeyCode::Char('j') => self.above += 1,
            KeyCode::Up | KeyCode::Char('k') => self.above = self.above.saturating_sub(1),
            KeyCode::PageDown => self.above += 10,
            KeyCode::PageUp => self.above = self.above.saturating_sub(10),
            KeyCode::Home => self.above = 0,
            _ => return KeyAction::Nothing,
        }
        self.above = self.above.min(self.view.segments.table.len().saturating_sub(1));
        KeyAction::Change
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let view = &self.view;
        let area = frame.area();
        let rates = view.rate_lines(area.width.into());
        let wide = area.width >= WIDE;
        let room = usize::from(area.height).saturating_sub(2 + rates.len());
        let [segments, latency, clients, peers] =
            [&view.segments, &view.latency, &view.clients, &view.peers].map(|section| section.table.len());
        let heights = Heights::within(room, wide, Rows { segments, latency, clients, peers });
        let parts = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(rates.len() as u16),
            Constraint::Length(heights.chart),
            Constraint::Length(heights.latency),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .split(area);
        let alive = if self.page.life.is_serving() { Style::new().green() } else { Style::new().red() };
        frame.render_widget(Line::styled(self.view.head.as_str(), alive.add_modifier(Modifier::BOLD)), parts[0]);
        frame.render_widget(Text::from_iter(rates), parts[1]);
        self.chart(frame, parts[2]);
        section(frame, parts[3], &view.latency, 0);
        let (left, right) = if wide {
            let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)]);
            let halves = halves.split(parts[4]);
            (halves[0], halves[2])
        } else {
            let under = Constraint::Length(heights.clients + heights.peers);
            let both = Layout::vertical([Constraint::Fill(1), under]).split(parts[4]);
            (both[0], both[1])
        };
        section(frame, left, &view.segments, self.above);
        let under = Layout::vertical([Constraint::Fill(1), Constraint::Length(heights.peers)]).split(right);
        section(frame, under[0], &view.clients, 0);
        section(frame, under[1], &view.peers, 0);
        let paused = if self.paused { "  paused" } else { "" };
        let seconds = self.options.interval().as_secs_f64();
        let keys = format!("q quit  p pause  ↑↓ segments  each {seconds:.1} s{paused}{}", heights.missing());
        let last = self.error.clone().unwrap_or(keys);
        frame.render_widget(Line::from(last).dim(), parts[5]);
    }

    /// Draws the calls per second of the last intervals, and their maximum.
    fn chart(&self, frame: &mut Frame<'_>, area: Rect) {
        let sides = Layout::horizontal([Constraint::Length(CHART_TITLE), Constraint::Fill(1)]).split(area);
        let shown: Vec<u64> = self.history.iter().rev().take(sides[1].width.into()).rev().copied().collect();
        let most = shown.iter().max().copied().unwrap_or(0);
        let mut title = Text::from(Line::from("calls per second").bold());
        title.push_line(Line::from(format!("to {}", format_count(most as f64))).dim());
        frame.render_widget(Paragraph::new(title), sides[0]);
        frame.render_widget(Sparkline::default().data(shown).cyan(), sides[1]);
    }
}

enum KeyAction {
    Nothing,
    Change,
    End,
}

/// Draws a title, the table header, and the rows that fit.
fn section(frame: &mut Frame<'_>, area: Rect, section: &Section, above: usize) {
    if area.height < 3 || section.table.is_empty() {
        return;
    }
    let mut lines = section.table.format_lines(area.width.into()).into_iter();
    let head = lines.next().unwrap_or_default();
    let mut text = Text::from(Line::from(section.title).bold());
    text.push_line(Line::from(head).dim());
    for line in lines.skip(above).take(usize::from(area.height) - 2) {
        text.push_line(Line::from(sanitize(&line)));
    }
    frame.render_widget(Paragraph::new(text), area);
}
