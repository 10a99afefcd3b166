//! Draws the screen: the head, the bars of both rings, the table or the code, and the keys.

use ratatui::Frame;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::bars::{bar, legend};
use super::figures::Facts;
use super::lines::{cut, name_width, row_line, titles};
use super::row::Row;
use super::screen::{Pane, Rings, Screen, Tab};
use super::table::Table;
use crate::report::look::Letters;
use crate::report::number::{grouped, percent};
use crate::report::page::entry_lines;
use hbbp_analysis::mix::Unit;

/// Lines above the table with its titles, and below it.
const HEAD: usize = 5;
const FOOT: usize = 1;

const KEYS: [(&str, &str); 12] = [
    ("f m p", "functions, modules, processes"),
    ("i c e", "instructions, categories, extensions"),
    ("Tab", "the next of these tables"),
    ("r", "both rings, kernel only, user only"),
    ("s F6", "order: by share, by the kernel's share, by name"),
    ("/ F4", "show only names with a text; Esc shows all"),
    ("Up Down PgUp PgDn Home End", "choose a row"),
    ("Enter", "code of the chosen function; Esc goes back"),
    ("Space", "freeze the screen; the measurement goes on"),
    ("w F2", "save the last minute as a profile"),
    ("h ? F1", "this help"),
    ("q F10 Ctrl-C", "quit"),
];

/// Draws the screen and returns the lines of a page. `interval` is none where nothing was measured yet.
pub fn draw(
    frame: &mut Frame<'_>,
    screen: &mut Screen,
    letters: Letters,
    interval: Option<(&Facts, &Table)>,
) -> usize {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = match interval {
        Some((facts, _)) => without_executions(facts, width),
        None => vec![Line::raw("measuring the first interval")],
    };
    let page = height.saturating_sub(lines.len() + HEAD + FOOT);
    if let Some((facts, _)) = interval {
        lines.extend(head(facts, screen, width));
    }
    lines.truncate(height.saturating_sub(FOOT));
    match &mut screen.pane {
        Pane::Code(code, first) => {
            *first = (*first).min(code.len().saturating_sub(page + 1));
            lines.extend(
                code.iter()
                    .skip(*first)
                    .take(page + 1)
                    .map(|line| Line::raw(cut(line, width))),
            );
        }
        Pane::Help => lines.extend(KEYS.map(|(keys, does)| {
            Line::from(vec![
                Span::styled(format!(" {keys:<28}"), Style::new().bold()),
                Span::raw(does),
            ])
        })),
        Pane::Table | Pane::Typing => {
            if let Some((facts, table)) = interval {
                lines.extend(table_lines(screen, facts.unit, table, width, page));
            }
        }
    }
    lines.truncate(height.saturating_sub(FOOT));
    lines.resize(height.saturating_sub(FOOT), Line::default());
    lines.push(foot(screen, width));
    for span in lines.iter_mut().flat_map(|line| &mut line.spans) {
        span.content = letters.shown(&span.content).into_owned().into();
    }
    frame.render_widget(Paragraph::new(lines), area);
    page
}

/// Why there are no executions, before anything else.
fn without_executions(facts: &Facts, width: usize) -> Vec<Line<'static>> {
    let sentence = facts.without_executions.as_deref();
    let lines = sentence.map_or_else(Vec::new, |sentence| entry_lines("", sentence, width));
    lines
        .into_iter()
        .map(|line| Line::styled(line, Style::new().bold()))
        .collect()
}

fn head(facts: &Facts, screen: &Screen, width: usize) -> Vec<Line<'static>> {
    let complete = facts
        .complete
        .map_or_else(String::new, |share| format!("{} % complete  ", percent(share)));
    let frozen = if screen.is_frozen { "FROZEN  " } else { "" };
    let seconds = facts.duration as f64 / 1e9;
    let first = format!(
        "{frozen}{}  {seconds:.1} s  {} samples  {complete}{} lost  overhead {} %",
        facts.host,
        grouped(facts.reached),
        grouped(facts.lost),
        percent(facts.overhead),
    );
    let mut lines = vec![Line::styled(cut(&first, width), Style::new().bold())];
    // Names of ten columns, shares of eight.
    let room = width.saturating_sub(18);
    let full = facts
        .rings
        .iter()
        .fold(0.0_f64, |most, ring| most.max(ring.share));
    for (name, ring) in ["kernel", "user"].into_iter().zip(&facts.rings) {
        let mut line = Line::raw(format!("{name:<7}{:>7} % ", percent(ring.share)));
        line.spans.extend(bar(ring, full, room).spans);
        lines.push(line);
    }
    lines.push(legend(&facts.rings, width));
    lines
}

fn table_lines(
    screen: &mut Screen,
    unit: Unit,
    table: &Table,
    width: usize,
    page: usize,
) -> Vec<Line<'static>> {
    let rows = table.arranged(screen);
    screen.fit(rows.len(), page);
    let title = Tab::ALL
        .iter()
        .find(|(tab, ..)| *tab == screen.tab)
        .map_or("", |(_, _, name)| name);
    let rings = match screen.rings {
        Rings::Both => String::new(),
        rings => format!(", {}", rings.name()),
    };
    let filter = match screen.filter.as_str() {
        "" => String::new(),
        filter => format!(", with \"{filter}\""),
    };
    let order = screen.order.name();
    let title = format!(
        "{}  {} by {order}{rings}{filter}",
        titles(unit),
        title.to_uppercase()
    );
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let mut lines = vec![Line::styled(format!("{:<width$}", cut(&title, width)), reversed)];
    let shown: Vec<&Row> = rows.iter().copied().skip(screen.first).take(page).collect();
    let names = table.names(&shown);
    let name_width = name_width(&names, width);
    let named = shown.iter().zip(&names).zip(screen.first..);
    lines.extend(named.map(|((row, names), nth)| {
        let line = row_line(row, names, name_width, width);
        if nth == screen.selected {
            Line::styled(
                format!("{line:<width$}"),
                Style::new().bold().add_modifier(Modifier::REVERSED),
            )
        } else {
            Line::raw(line)
        }
    }));
    if rows.is_empty() {
        lines.push(Line::raw("  nothing of that was executed in this interval"));
    }
    lines
}

fn foot(screen: &Screen, width: usize) -> Line<'static> {
    let text = match (&screen.message, &screen.pane) {
        (Some(message), _) => message.clone(),
        (None, Pane::Typing) => format!("show names with: {}_", screen.filter),
        (None, Pane::Code(..)) => "Esc back  Up Down PgUp PgDn scroll  q quit".to_owned(),
        (None, Pane::Help) => "any key goes back".to_owned(),
        (None, Pane::Table) => {
            "q quit  h help  fmpice tables  r rings  s order  / filter  Enter code  w save".to_owned()
        }
    };
    Line::styled(cut(&text, width), Style::new().add_modifier(Modifier::DIM))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent};

    use super::super::figures::RingShare;
    use super::super::plain::write_plain;
    use super::*;
    use crate::report::look::Look;
    use crate::report::number::columns;
    use hbbp_analysis::mix::Category;
    use hbbp_model::names::Demangle;

    fn facts() -> Facts {
        let ring = |share: f64| RingShare {
            share,
            categories: vec![(Category::Transfer, 0.6 * share), (Category::Call, 0.4 * share)],
        };
        Facts {
            without_executions: None,
            host: "host".to_owned(),
            duration: 1_000_000_000,
            reached: 2013,
            complete: Some(0.998),
            lost: 3,
            overhead: 0.004,
            unit: Unit::TimeWeightedSamples,
            rings: [ring(0.25), ring(0.75)],
        }
    }

    fn table(n: usize) -> Table {
        let row = |nth: usize| Row {
            key: vec![format!("f{nth}"), "/usr/lib/libx.so".to_owned()],
            share: 1.0 / (nth + 1) as f64,
            error: 0.001,
            kernel: 0.0,
        };
        Table {
            by: Tab::Functions.dimensions(),
            demangle: Demangle::On,
            rows: (0..n).map(row).collect(),
        }
    }

    fn screen_of(screen: &mut Screen, table: &Table, width: u16, height: u16) -> Vec<String> {
        screen_in(Letters::Unicode, screen, table, [width, height])
    }

    fn screen_in(letters: Letters, screen: &mut Screen, table: &Table, size: [u16; 2]) -> Vec<String> {
        let [width, height] = size;
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| _ = draw(frame, screen, letters, Some((&facts(), table))))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        let lines = cells.chunks(usize::from(width));
        lines
            .map(|line| {
                line.iter()
                    .map(|cell| cell.symbol())
                    .collect::<String>()
                    .trim_end()
                    .to_owned()
            })
            .collect()
    }

    fn press(screen: &mut Screen, keys: &[KeyCode]) {
        for key in keys {
            screen.press(KeyEvent::from(*key), 10);
        }
    }

    #[test]
    fn small_and_large_screens_show_the_same() {
        for (width, height) in [(80, 24), (200, 60)] {
            let shown = screen_of(&mut Screen::default(), &table(100), width, height);
            assert_eq!(
                shown[0],
                "host  1.0 s  2,013 samples  99.80 % complete  3 lost  overhead 0.40 %"
            );
            assert!(
                shown[1].starts_with("kernel   25.00 % DDD") && shown[2].starts_with("user     75.00 % DDD")
            );
            assert!(shown[3].starts_with("D data transfer 60 %"), "{}", shown[3]);
            assert!(
                shown[4].starts_with(" % of time     +/- % kernel  FUNCTIONS by share"),
                "{}",
                shown[4]
            );
            // The module is next to its function, however wide the screen is.
            assert_eq!(shown[5], "    100.00    0.10     0.00  f0   libx.so");
            assert!(shown[usize::from(height) - 2].contains("  f"));
            let keys = &shown[usize::from(height) - 1];
            assert!(keys.starts_with("q quit") && keys.ends_with("w save"), "{keys}");
        }
    }

    #[test]
    fn long_names_leave_room_for_their_modules() {
        let mut table = table(3);
        table.rows[0].key[0] = "a".repeat(300);
        for width in [40, 80, 200] {
            let shown = screen_of(&mut Screen::default(), &table, width, 24);
            assert!(
                shown[5].contains('…') && shown[5].ends_with("libx.so"),
                "{shown:?}"
            );
            let column = |line: &str| columns(line.strip_suffix("libx.so").unwrap());
            assert_eq!(column(&shown[5]), column(&shown[6]), "{shown:?}");
        }
    }

    /// Names are shortened by a letter of our own, and others' are of any.
    #[test]
    fn letters_are_those_of_the_locale() {
        let mut table = table(3);
        table.rows[0].key[0] = "a".repeat(300);
        table.rows[1].key[0] = "größer 漢".to_owned();
        let (mut first, mut second) = (Screen::default(), Screen::default());
        let unicode = screen_in(Letters::Unicode, &mut first, &table, [80, 24]);
        let ascii = screen_in(Letters::Ascii, &mut second, &table, [80, 24]);
        assert!(!unicode.iter().all(|line| line.is_ascii()), "{unicode:?}");
        assert!(ascii.iter().all(|line| line.is_ascii()), "{ascii:?}");
        assert_eq!(ascii[4], unicode[4]);
        assert!(
            ascii[5].contains("aa.aa") && ascii[5].ends_with("libx.so"),
            "{ascii:?}"
        );
    }

    /// The same without a screen.
    #[test]
    fn plain_lines_are_in_the_letters_of_the_locale() {
        let mut table = table(3);
        table.rows[0].key[0] = "a".repeat(300);
        let printed = |letters| {
            let look = Look {
                width: 60,
                letters,
                ..Look::default()
            };
            let mut out = Vec::new();
            write_plain(&facts(), &table, 3, look, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (ascii, unicode) = (printed(Letters::Ascii), printed(Letters::Unicode));
        assert!(ascii.is_ascii() && !unicode.is_ascii(), "{ascii}{unicode}");
        assert_eq!(ascii, unicode.replace('…', "."));
    }

    #[test]
    fn help_fits_a_usual_terminal() {
        for (keys, does) in KEYS {
            assert!(30 + does.len() <= 80 && keys.len() <= 28, "{keys}: {does}");
        }
        let mut screen = Screen::default();
        press(&mut screen, &[KeyCode::Char('h')]);
        let shown = screen_of(&mut screen, &table(3), 80, 24);
        assert!(
            shown.iter().any(|line| line.ends_with("categories, extensions")),
            "{shown:?}"
        );
    }

    #[test]
    fn keys_move_and_filter() {
        let mut screen = Screen::default();
        press(&mut screen, &[KeyCode::End]);
        let shown = screen_of(&mut screen, &table(100), 80, 24);
        assert!(shown[22].contains("f99"), "{shown:?}");
        press(
            &mut screen,
            &[
                KeyCode::Char('/'),
                KeyCode::Char('7'),
                KeyCode::Char('7'),
                KeyCode::Enter,
            ],
        );
        let shown = screen_of(&mut screen, &table(100), 80, 24);
        assert!(shown[5].contains("f77") && shown[6].is_empty(), "{shown:?}");
        press(
            &mut screen,
            &[
                KeyCode::Esc,
                KeyCode::Char('s'),
                KeyCode::Char('s'),
                KeyCode::Char('p'),
            ],
        );
        assert_eq!((screen.tab, screen.filter.as_str()), (Tab::Processes, ""));
        let shown = screen_of(&mut screen, &table(3), 80, 24);
        assert!(shown[4].contains("PROCESSES by name"), "{}", shown[4]);
    }

    #[test]
    fn code_scrolls_to_its_end_and_goes_back() {
        let mut screen = Screen::default();
        screen.show_code((0..50).map(|nth| format!("line {nth}")).collect());
        press(&mut screen, &[KeyCode::End]);
        let shown = screen_of(&mut screen, &table(3), 80, 24);
        assert_eq!((shown[22].as_str(), shown[4].as_str()), ("line 49", "line 31"));
        press(&mut screen, &[KeyCode::Esc]);
        assert!(screen_of(&mut screen, &table(3), 80, 24)[5].contains("f0"));
    }

    #[test]
    fn tiny_screens_and_no_rows_do_no_harm() {
        for (width, height) in [(1, 1), (5, 3), (17, 6), (80, 2)] {
            for keys in [vec![], vec![KeyCode::Char('h')], vec![KeyCode::Char('/')]] {
                let mut screen = Screen::default();
                press(&mut screen, &keys);
                screen_of(&mut screen, &table(40), width, height);
                screen_of(&mut screen, &table(0), width, height);
            }
        }
    }
}
