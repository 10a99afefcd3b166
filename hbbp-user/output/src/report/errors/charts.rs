//! Figures 3 and 4 of the HBBP paper (ISPASS 2018, section VIII.B) as SVG, in the styles of the page. The first has the most executed
//! mnemonics with the errors of the hybrid, the second the errors of all methods.

use std::io::{self, Write};

use super::tables::error_of;
use crate::report::number::{percent, scaled};
use hbbp_analysis::eval::{Amounts, Method};
use hbbp_model::printable::markup;

/// Mnemonics that a figure of the paper has.
const MOST: usize = 20;

/// The picture, and the room for what surrounds its plot, in pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 330.0;
const SIDES: f64 = 76.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 84.0;
const FLOOR: f64 = HEIGHT - BOTTOM;

/// Lines across the plot above the lowest one.
const STEPS: u8 = 5;

/// The part of the room of a mnemonic that its bars take.
const FILLED: f64 = 0.75;

/// The side of the plot with the numbers of an axis.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// An axis from 0 to a round number.
struct Axis {
    most: f64,
    shown: fn(f64) -> String,
}

/// The locations of mnemonics from left to right.
struct Places {
    width: f64,
}

/// Draws executions by the hybrid as bars, and the errors of these as dots.
pub(super) fn write_executions(mnemonics: &[(&str, Amounts)], out: &mut dyn Write) -> io::Result<()> {
    let mnemonics = first(mnemonics);
    let executions = Axis::new(mnemonics.iter().map(|(_, it)| it.hybrid), |it| {
        scaled(it, 3).trim().to_owned()
    });
    let errors = errors_axis(mnemonics, &[Method::Hybrid]);
    let places = Places::of(mnemonics);
    begin("Executions by mnemonic and their errors", out)?;
    executions.write(Side::Left, out)?;
    errors.write(Side::Right, out)?;
    for (nth, (mnemonic, amounts)) in (0u8..).zip(mnemonics) {
        let width = FILLED * places.width;
        let said = format!("{mnemonic}: {}", (executions.shown)(amounts.hybrid));
        bar(
            "executions",
            [places.middle(nth) - width / 2.0, width],
            executions.y(amounts.hybrid),
            &said,
            out,
        )?;
        if let Some(error) = error_of(amounts, Method::Hybrid) {
            writeln!(
                out,
                r#"<circle class="hybrid" cx="{:.1}" cy="{:.1}" r="4"><title>{}: {} %</title></circle>"#,
                places.middle(nth),
                errors.y(error),
                markup(mnemonic),
                percent(error)
            )?;
        }
        places.name(nth, mnemonic, out)?;
    }
    writeln!(out, "</svg>")
}

/// Draws the errors by each method as bars; a method that measured none of the mnemonics has none.
pub(super) fn write_errors(mnemonics: &[(&str, Amounts)], out: &mut dyn Write) -> io::Result<()> {
    let mnemonics = first(mnemonics);
    let measured = |method: &Method| mnemonics.iter().any(|(_, it)| 0.0 < it.by(*method));
    let methods: Vec<Method> = Method::ALL.into_iter().filter(measured).collect();
    let errors = errors_axis(mnemonics, &methods);
    let places = Places::of(mnemonics);
    let width = FILLED * places.width / methods.len().max(1) as f64;
    begin("Errors by mnemonic and method", out)?;
    errors.write(Side::Left, out)?;
    for (column, method) in (0u8..).zip(&methods) {
        let (class, left) = (class(*method), SIDES + 90.0 * f64::from(column));
        writeln!(
            out,
            r#"<rect class="{class}" x="{left}" y="4" width="12" height="12"/><text x="{}" y="14">{}</text>"#,
            left + 17.0,
            method.name()
        )?;
    }
    for (nth, (mnemonic, amounts)) in (0u8..).zip(mnemonics) {
        let left = places.middle(nth) - FILLED * places.width / 2.0;
        for (column, method) in (0u8..).zip(methods.iter().copied()) {
            if let Some(error) = error_of(amounts, method) {
                let said = format!("{mnemonic}: {} {} %", method.name(), percent(error));
                bar(
                    class(method),
                    [left + f64::from(column) * width, width],
                    errors.y(error),
                    &said,
                    out,
                )?;
            }
        }
        places.name(nth, mnemonic, out)?;
    }
    writeln!(out, "</svg>")
}

fn first<'a, 'b>(mnemonics: &'a [(&'b str, Amounts)]) -> &'a [(&'b str, Amounts)] {
    mnemonics.get(..MOST).unwrap_or(mnemonics)
}

/// The axis of the errors by these methods.
fn errors_axis(mnemonics: &[(&str, Amounts)], methods: &[Method]) -> Axis {
    let errors = mnemonics
        .iter()
        .flat_map(|(_, amounts)| methods.iter().filter_map(|method| error_of(amounts, *method)));
    Axis::new(errors, |error| format!("{} %", percent(error)))
}

/// The style of what a method has drawn.
const fn class(method: Method) -> &'static str {
    match method {
        Method::Hybrid => "hybrid",
        Method::Lbr => "lbr",
        Method::Ebs => "ebs",
    }
}

fn begin(label: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        r#"<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">"#
    )
}

/// A bar from its top to the floor, at a left edge and of a width.
fn bar(class: &str, [left, width]: [f64; 2], top: f64, said: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        r#"<rect class="{class}" x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{:.1}"><title>{}</title></rect>"#,
        FLOOR - top,
        markup(said)
    )
}

impl Axis {
    /// To the next number with a first digit of 1, 2 or 5.
    fn new(values: impl Iterator<Item = f64>, shown: fn(f64) -> String) -> Self {
        let most = values.fold(0.0, f64::max);
        let power = 10_f64.powf(most.log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let round = round.into_iter().find(|round| most <= *round);
        Self {
            most: round.filter(|_| 0.0 < most).unwrap_or(1.0),
            shown,
        }
    }

    fn y(&self, value: f64) -> f64 {
        FLOOR - (FLOOR - TOP) * value / self.most
    }

    fn write(&self, side: Side, out: &mut dyn Write) -> io::Result<()> {
        let (x, anchor) = match side {
            Side::Left => (SIDES - 6.0, "end"),
            Side::Right => (WIDTH - SIDES + 6.0, "start"),
        };
        for step in 0..=STEPS {
            let value = self.most * f64::from(step) / f64::from(STEPS);
            let (y, shown) = (self.y(value), (self.shown)(value));
            writeln!(
                out,
                r#"<line x1="{SIDES}" x2="{}" y1="{y:.1}" y2="{y:.1}"/><text x="{x}" y="{:.1}" text-anchor="{anchor}">{shown}</text>"#,
                WIDTH - SIDES,
                y + 4.0
            )?;
        }
        Ok(())
    }
}

impl Places {
    fn of(mnemonics: &[(&str, Amounts)]) -> Self {
        Self {
            width: (WIDTH - 2.0 * SIDES) / mnemonics.len().max(1) as f64,
        }
    }

    fn middle(&self, nth: u8) -> f64 {
        SIDES + self.width * (f64::from(nth) + 0.5)
    }

    fn name(&self, nth: u8, mnemonic: &str, out: &mut dyn Write) -> io::Result<()> {
        let (x, y) = (self.middle(nth) + 4.0, FLOOR + 14.0);
        writeln!(
            out,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="end" transform="rotate(-50 {x:.1} {y:.1})">{}</text>"#,
            markup(mnemonic)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(reference: f64, hybrid: f64, lbr: f64, ebs: f64) -> Amounts {
        Amounts {
            reference,
            ebs,
            lbr,
            hybrid,
        }
    }

    type Chart = fn(&[(&str, Amounts)], &mut dyn Write) -> io::Result<()>;

    fn drawn(write: Chart, of: &[(&str, Amounts)]) -> String {
        let mut svg = Vec::new();
        write(of, &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    /// The tops of what has a class, as parts of the height of the plot.
    fn heights(svg: &str, class: &str, attribute: &str) -> Vec<f64> {
        let marked = svg
            .lines()
            .filter(|line| line.contains(&format!("class=\"{class}\"")) && line.contains("<title>"));
        let y = marked.map(|line| {
            line.split(&format!(" {attribute}=\""))
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap()
        });
        y.map(|y| (FLOOR - y.parse::<f64>().unwrap()) / (FLOOR - TOP))
            .collect()
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-3, "{found} {expected}");
        }
    }

    /// Axes end at 2 k executions and at 50 and 200 %.
    #[test]
    fn bars_and_dots_are_as_high_as_their_figures() {
        let of = [
            ("MOV", amounts(1000.0, 1500.0, 1000.0, 900.0)),
            ("<i>", amounts(400.0, 500.0, 360.0, 1200.0)),
            ("NEVER", amounts(0.0, 1.0, 0.0, 0.0)),
        ];
        let executions = drawn(write_executions, &of);
        assert_near(&heights(&executions, "executions", "y"), &[0.75, 0.25, 0.0005]);
        // What the reference has not has no error.
        assert_near(&heights(&executions, "hybrid", "cy"), &[1.0, 0.5]);
        let errors = drawn(write_errors, &of);
        assert_near(&heights(&errors, "hybrid", "y"), &[0.25, 0.125]);
        assert_near(&heights(&errors, "lbr", "y"), &[0.0, 0.05]);
        assert_near(&heights(&errors, "ebs", "y"), &[0.05, 1.0]);
        for svg in [executions, errors] {
            assert!(svg.contains("&lt;i&gt;") && !svg.contains("<i>"), "{svg}");
        }
    }

    #[test]
    fn twenty_mnemonics_are_drawn_and_none_is_an_empty_plot() {
        let names: Vec<String> = (0..30).map(|n| format!("M{n}")).collect();
        let of: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), amounts(3.0, 3.0, 3.0, 3.0)))
            .collect();
        assert_eq!(
            heights(&drawn(write_executions, &of), "executions", "y").len(),
            20
        );
        // No error is an axis of its own.
        assert_near(&heights(&drawn(write_errors, &of), "lbr", "y"), &[0.0; 20]);
        let alone = drawn(write_errors, &[("MOV", amounts(3.0, 2.0, 2.0, 0.0))]);
        assert!(alone.contains("hybrid") && !alone.contains("ebs"), "{alone}");
        let empty = drawn(write_errors, &[]);
        assert!(empty.ends_with("</svg>\n") && !empty.contains("NaN"), "{empty}");
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (most, end) in [
            (0.0, 1.0),
            (0.013, 0.02),
            (0.02, 0.02),
            (3.0, 5.0),
            (70.0, 100.0),
            (2e9, 2e9),
        ] {
            let axis = Axis::new([most, most / 2.0].into_iter(), |_| String::new());
            assert!((axis.most / end - 1.0).abs() < 1e-12, "{most}: {}", axis.most);
        }
    }
}
