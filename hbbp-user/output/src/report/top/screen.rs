//! What the user chose: the table, the rings, the order, the filter, the row; and what each key changes of that.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::row::Row;
use hbbp_analysis::mix::Dimension;

/// A table of the screen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Tab {
    /// Functions with their modules.
    #[default]
    Functions,
    /// Modules.
    Modules,
    /// Process images.
    Processes,
    /// Mnemonics.
    Instructions,
    /// Categories of instructions.
    Categories,
    /// Instruction set extensions.
    Extensions,
}

/// Whose instructions are in the table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Rings {
    /// Both rings.
    #[default]
    Both,
    /// The kernel's.
    Kernel,
    /// User code.
    User,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Order {
    /// By falling share.
    #[default]
    Share,
    /// By falling share of the kernel.
    Kernel,
    /// By name.
    Name,
}

/// What is shown below the head.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Pane {
    /// The table.
    #[default]
    Table,
    /// The table, while a filter is typed.
    Typing,
    /// The code of a function, from this line on.
    Code(Vec<String>, usize),
    /// The keys.
    Help,
}

/// What a key asks of the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asked {
    /// To draw the screen again.
    Draw,
    /// To show the code of the chosen row.
    Code,
    /// To save a profile.
    Save,
    /// To end.
    Quit,
}

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// The table.
    pub tab: Tab,
    /// Whose instructions.
    pub rings: Rings,
    /// Whether the interval at hand stays.
    pub is_frozen: bool,
    /// What is to be said in the last line, once.
    pub message: Option<String>,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) pane: Pane,
    /// The chosen row.
    pub(super) selected: usize,
    /// The first row that is shown.
    pub(super) first: usize,
}

impl Tab {
    /// All of them, each with its key.
    pub(crate) const ALL: [(Self, char, &'static str); 6] = [
        (Self::Functions, 'f', "functions"),
        (Self::Modules, 'm', "modules"),
        (Self::Processes, 'p', "processes"),
        (Self::Instructions, 'i', "instructions"),
        (Self::Categories, 'c', "categories"),
        (Self::Extensions, 'e', "extensions"),
    ];

    /// Its dimensions.
    pub(crate) const fn dimensions(self) -> &'static [Dimension] {
        match self {
            Self::Functions => &[Dimension::Function, Dimension::Module],
            Self::Modules => &[Dimension::Module],
            Self::Processes => &[Dimension::Command, Dimension::Pid],
            Self::Instructions => &[Dimension::Mnemonic],
            Self::Categories => &[Dimension::Category],
            Self::Extensions => &[Dimension::Extension],
        }
    }

    fn next(self) -> Self {
        let mut all = Self::ALL.iter().map(|(tab, ..)| *tab).cycle();
        all.find(|tab| *tab == self);
        all.next().unwrap_or_default()
    }
}

impl Rings {
    /// The filter of a query, if any.
    pub(super) const fn filter(self) -> Option<&'static str> {
        match self {
            Self::Both => None,
            Self::Kernel => Some("ring=kernel"),
            Self::User => Some("ring=user"),
        }
    }

    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Both => "both rings",
            Self::Kernel => "kernel only",
            Self::User => "user only",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Both => Self::Kernel,
            Self::Kernel => Self::User,
            Self::User => Self::Both,
        }
    }
}

impl Order {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Kernel => "kernel",
            Self::Name => "name",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Share => Self::Kernel,
            Self::Kernel => Self::Name,
            Self::Name => Self::Share,
        }
    }
}

impl Screen {
    /// Begins with a table.
    pub fn with(tab: Tab) -> Self {
        Self {
            tab,
            ..Self::default()
        }
    }

    /// The chosen one of these rows.
    pub fn chosen<'a>(&self, rows: &[&'a Row]) -> Option<&'a Row> {
        rows.get(self.selected).copied()
    }

    /// Shows the code of a function.
    pub fn show_code(&mut self, lines: Vec<String>) {
        self.pane = Pane::Code(lines, 0);
    }

    /// Keeps the chosen row inside the table, and shows it, where there are `n_rows` of which `height` fit.
    pub(super) fn fit(&mut self, n_rows: usize, height: usize) {
        self.selected = self.selected.min(n_rows.saturating_sub(1));
        let lowest = self.selected.saturating_sub(height.saturating_sub(1));
        self.first = self.first.clamp(lowest, self.selected.max(lowest));
    }

    /// Answers a key, where a page has `page` lines.
    pub fn press(&mut self, key: KeyEvent, page: usize) -> Asked {
        if key.kind == KeyEventKind::Release {
            return Asked::Draw;
        }
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Asked::Quit,
                _ => Asked::Draw,
            };
        }
        match &mut self.pane {
            Pane::Typing => self.type_filter(key.code),
            Pane::Table => return self.in_table(key.code, page),
            Pane::Help => match key.code {
                KeyCode::Char('q') | KeyCode::F(10) => return Asked::Quit,
                _ => self.pane = Pane::Table,
            },
            Pane::Code(lines, first) => match key.code {
                KeyCode::Char('q') | KeyCode::F(10) => return Asked::Quit,
                KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace => self.pane = Pane::Table,
                code => *first = moved(*first, code, page).min(lines.len().saturating_sub(1)),
            },
        }
        Asked::Draw
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.pane = Pane::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.pane = Pane::Table;
            }
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        (self.selected, self.first) = (0, 0);
    }

    fn in_table(&mut self, key: KeyCode, page: usize) -> Asked {
        match key {
            KeyCode::Char('q') | KeyCode::F(10) => return Asked::Quit,
            KeyCode::Enter => return Asked::Code,
            KeyCode::Char('w') | KeyCode::F(2) => return Asked::Save,
            KeyCode::Char('/') | KeyCode::F(3 | 4) => self.pane = Pane::Typing,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.pane = Pane::Help,
            KeyCode::Char(' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('s') | KeyCode::F(6) => self.order = self.order.next(),
            KeyCode::Char('r') => self.rings = self.rings.next(),
            KeyCode::Tab => self.tab = self.tab.next(),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char(c) => {
                if let Some((tab, ..)) = Tab::ALL.iter().find(|(_, key, _)| *key == c) {
                    self.tab = *tab;
                }
            }
            code => {
                self.selected = moved(self.selected, code, page);
                return Asked::Draw;
            }
        }
        (self.selected, self.first) = (0, 0);
        Asked::Draw
    }
}

/// A position after a key that moves it.
const fn moved(at: usize, key: KeyCode, page: usize) -> usize {
    match key {
        KeyCode::Up => at.saturating_sub(1),
        KeyCode::Down => at.saturating_add(1),
        KeyCode::PageUp => at.saturating_sub(page),
        KeyCode::PageDown => at.saturating_add(page),
        KeyCode::Home => 0,
        // Bounded by what there is when it is drawn.
        KeyCode::End => usize::MAX,
        _ => at,
    }
}
