//! `hbbp-sys top`: the mix of the whole system as it runs, on a terminal or as plain lines.
//!
//! The main thread measures; another one estimates, draws, and answers keys. The terminal is left as it was however that
//! one ends. When the terminal is gone, so is the reader: the measurement ends.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Zoned;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::Event;

use super::closed_pipe::{Reader, reader_after};
use super::keyboard::{Heard, Keyboard};
use super::record::{Intervals, RecordOptions};
use crate::advice::words;
use hbbp_analysis::mix::Estimated;
use hbbp_code::blocks::DecodedText;
use hbbp_estimate::Rule;
use hbbp_model::profile::Output;
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::file::Compression;
use hbbp_model::snapshot::merge::merged;
use hbbp_output::report::Look;
use hbbp_output::report::top::{Asked, Facts, Figures, Rings, Screen, Tab, Table, draw, write_plain};

/// Time between two polls for the end of an interval, while no key is pressed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Measured time that is kept for saving.
const KEPT: Duration = Duration::from_secs(60);

/// What to show, and how.
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// What to measure.
    pub record: RecordOptions,
    /// Length of an interval.
    pub interval: Duration,
    /// Number of intervals; `None` until a key or a signal.
    pub times: Option<usize>,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
    /// The table that is shown first.
    pub screen: Screen,
    /// How it looks.
    pub look: Look,
    /// Whether it needs no terminal, and then the rows of each table.
    pub batch: Option<usize>,
}

/// Measures and shows interval after interval.
pub(crate) fn top(options: &TopOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let rule = super::rule::read_for_live(&options.rule)?;
    match options.batch {
        Some(top) => batch(options, top, &rule, out),
        None => screen(options, &rule),
    }
}

/// Prints the intervals. A closed pipe ends it.
fn batch(options: &TopOptions, top: usize, rule: &Rule, out: &mut dyn Write) -> anyhow::Result<()> {
    let intervals = Intervals::open(&options.record, options.interval)?;
    let mut decoded = DecodedText::default();
    for (nth, snapshot) in (0..options.times.unwrap_or(usize::MAX)).zip(intervals) {
        let snapshot = snapshot?;
        let estimated = Estimated::next(&snapshot, rule, &mut decoded);
        let figures = Figures::new(&estimated, options.look.demangle, words);
        let table = figures.table(options.screen.tab, options.screen.rings);
        let mut facts = figures.facts();
        if 0 < nth {
            // Once is enough.
            facts.without_executions = None;
        }
        let written = write_plain(&facts, &table, top, options.look, out);
        let reader = reader_after(written).context("failed to write an interval")?;
        if reader == Reader::Gone {
            break;
        }
    }
    Ok(())
}

fn screen(options: &TopOptions, rule: &Rule) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() {
        bail!("standard output is not a terminal: use `hbbp-sys top --batch`");
    }
    let intervals = Intervals::open(&options.record, options.interval)?;
    let ender = intervals.ender();
    // One interval may wait while another one is drawn; a screen that is slower gets longer intervals.
    let (profiles, shown) = sync_channel(1);
    thread::scope(|scope| {
        let screen = thread::Builder::new().name("screen".to_owned());
        let screen = screen.spawn_scoped(scope, move || {
            let shown = on_terminal(options, rule, &shown);
            ender.end();
            shown
        });
        let screen = screen.context("failed to start the thread of the screen")?;
        let intervals = intervals.take(options.times.unwrap_or(usize::MAX));
        let measured = measure(intervals, &profiles);
        drop(profiles);
        let shown = screen.join();
        measured?;
        shown.unwrap_or_else(|_| bail!("the thread of the screen ended unexpectedly"))
    })
}

/// Measures interval after interval, until the screen has ended.
fn measure(
    intervals: impl Iterator<Item = anyhow::Result<Snapshot>>,
    profiles: &SyncSender<Snapshot>,
) -> anyhow::Result<()> {
    for snapshot in intervals {
        if profiles.send(snapshot?).is_err() {
            break;
        }
    }
    Ok(())
}

/// Shows the intervals on the terminal, until there are no more or the user has seen enough.
fn on_terminal(options: &TopOptions, rule: &Rule, profiles: &Receiver<Snapshot>) -> anyhow::Result<()> {
    let keyboard = Keyboard::open()?;
    let mut terminal = ratatui::try_init().context("failed to set up the terminal")?;
    let shown = Shown {
        options,
        keyboard: &keyboard,
        screen: options.screen.clone(),
        kept: VecDeque::new(),
        page: 1,
    }
    .run(rule, profiles, &mut terminal);
    let restored = ratatui::try_restore().context("failed to restore the terminal");
    if keyboard.is_gone(Duration::ZERO) {
        // It would show the cursor again, and complain to the terminal that it cannot.
        mem::forget(terminal);
        return Ok(());
    }
    shown.and(restored)
}

/// What is on the screen, and the profiles of the last minute.
struct Shown<'a> {
    options: &'a TopOptions,
    keyboard: &'a Keyboard,
    screen: Screen,
    kept: VecDeque<Snapshot>,
    /// Lines of a page.
    page: usize,
}

/// The interval on the screen.
struct Interval<'a> {
    figures: &'a Figures<'a>,
    facts: Facts,
    /// The last requested table: an arrow key requests the same one again.
    table: Option<((Tab, Rings), Table)>,
}

impl<'a> Interval<'a> {
    fn new(figures: &'a Figures<'a>) -> Self {
        Self {
            figures,
            facts: figures.facts(),
            table: None,
        }
    }

    fn shown(&mut self, screen: &Screen) -> (&Facts, &Table) {
        let asked = (screen.tab, screen.rings);
        let found = self.table.take().filter(|(found, _)| *found == asked);
        let found = found.unwrap_or_else(|| (asked, self.figures.table(screen.tab, screen.rings)));
        (&self.facts, &self.table.insert(found).1)
    }
}

impl Shown<'_> {
    fn run(
        mut self,
        rule: &Rule,
        profiles: &Receiver<Snapshot>,
        terminal: &mut DefaultTerminal,
    ) -> anyhow::Result<()> {
        let mut decoded = DecodedText::default();
        let mut next = self.wait(profiles, terminal, None)?;
        while let Some(snapshot) = next {
            let estimated = Estimated::next(&snapshot, rule, &mut decoded);
            let figures = Figures::new(&estimated, self.options.look.demangle, words);
            next = self.wait(profiles, terminal, Some(&figures))?;
            self.keep(snapshot);
        }
        Ok(())
    }

    /// Shows an interval and handles keys, until the next interval arrives or the last one has ended.
    fn wait(
        &mut self,
        profiles: &Receiver<Snapshot>,
        terminal: &mut DefaultTerminal,
        figures: Option<&Figures<'_>>,
    ) -> anyhow::Result<Option<Snapshot>> {
        let mut interval = figures.map(Interval::new);
        self.draw(terminal, interval.as_mut())?;
        loop {
            // Keys are answered at once; a new interval may wait a moment.
            let asked = match self.keyboard.wait(LOOK_EVERY)? {
                Heard::Gone => return Ok(None),
                Heard::Nothing => None,
                Heard::Event(Event::Key(key)) => Some(self.screen.press(key, self.page)),
                Heard::Event(_) => Some(Asked::Draw),
            };
            match asked {
                Some(Asked::Quit) => return Ok(None),
                Some(Asked::Save) => self.save(figures),
                Some(Asked::Code) => self.show_code(interval.as_mut(), terminal),
                Some(Asked::Draw) | None => {}
            }
            if asked.is_some() {
                self.draw(terminal, interval.as_mut())?;
            }
            match profiles.recv_timeout(Duration::ZERO) {
                Ok(snapshot) if self.screen.is_frozen && figures.is_some() => self.keep(snapshot),
                Ok(snapshot) => return Ok(Some(snapshot)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    fn draw(
        &mut self,
        terminal: &mut DefaultTerminal,
        interval: Option<&mut Interval<'_>>,
    ) -> anyhow::Result<()> {
        let shown = interval.map(|interval| interval.shown(&self.screen));
        let letters = self.options.look.letters;
        let drawn = terminal.draw(|frame| self.page = draw(frame, &mut self.screen, letters, shown));
        drawn.map(|_| ()).context("failed to draw the screen")
    }

    fn show_code(&mut self, interval: Option<&mut Interval<'_>>, terminal: &DefaultTerminal) {
        let width = terminal.size().map_or(80, |size| usize::from(size.width));
        let code = interval.and_then(|interval| {
            let figures = interval.figures;
            let (_, table) = interval.shown(&self.screen);
            let row = self.screen.chosen(&table.arranged(&self.screen))?;
            figures.code(row, width)
        });
        match code {
            Some(lines) => self.screen.show_code(lines),
            None => self.screen.message = Some("only functions have code: press f, choose one".to_owned()),
        }
    }

    /// Keeps a profile for saving, and forgets those before the last minute.
    fn keep(&mut self, snapshot: Snapshot) {
        self.kept.push_back(snapshot);
        let length = |snapshot: &Snapshot| Duration::from_nanos(snapshot.run.duration);
        let mut kept: Duration = self.kept.iter().map(length).sum();
        while let Some(oldest) = self
            .kept
            .front()
            .map(length)
            .filter(|oldest| KEPT < kept.saturating_sub(*oldest))
        {
            kept = kept.saturating_sub(oldest);
            self.kept.pop_front();
        }
    }

    fn save(&mut self, figures: Option<&Figures<'_>>) {
        let path = PathBuf::from(Zoned::now().strftime("hbbp-%Y%m%d-%H%M%S.hbbp").to_string());
        let now = figures.map(Figures::snapshot).cloned();
        let runs = self.kept.iter().cloned().chain(now);
        self.screen.message = Some(match save(runs, &path) {
            Ok(()) => format!("saved the last minute as {}", path.display()),
            Err(error) => format!("not saved: {error:#}"),
        });
    }
}

fn save(runs: impl Iterator<Item = Snapshot>, path: &Path) -> anyhow::Result<()> {
    Output::open(path)?.save(&merged(runs)?, Compression::Fast, &mut io::sink())
}
