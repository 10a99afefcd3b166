//! The phases of a run as a picture: a row for each cluster, a bar for each run of slices in it, a dot for its simulation
//! point. Plain SVG, without scripts and fonts of its own.

use std::io::{self, Write};

use super::simpoint::SimPoints;
use hbbp_model::printable::markup;

/// Width of the bars, height of a row, and room for words on the left, in pixels.
const WIDTH: f64 = 960.0;
const ROW: f64 = 22.0;
const LEFT: f64 = 90.0;

/// Twelve colours that are distinguished also by those who see few (Okabe and Ito's eight, and four darker ones).
const COLOURS: [&str; 12] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#444444", "#004c78",
    "#9a6a00", "#00694d", "#8e3f00",
];

/// Writes the picture; `title` says what it is of.
pub fn write_plot(points: &SimPoints, title: &str, out: &mut dyn Write) -> io::Result<()> {
    let n = points.labels.len().max(1) as f64;
    let rows = points.points.len() as f64;
    let (width, height) = (LEFT + WIDTH + 20.0, ROW * (rows + 3.0));
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
    )?;
    writeln!(out, "<title>{}</title>", markup(title))?;
    writeln!(out, r#"<text x="4" y="15">{}</text>"#, markup(title))?;
    let x = |slice: f64| LEFT + WIDTH * slice / n;
    let y = |cluster: usize| ROW * (cluster as f64 + 1.0);
    let mut from = 0;
    for run in points.labels.chunk_by(|a, b| a == b) {
        let cluster = run.first().map_or(0, |label| *label as usize);
        let (left, right) = (x(from as f64), x((from + run.len()) as f64));
        from += run.len();
        writeln!(
            out,
            r#"<rect x="{left:.2}" y="{}" width="{:.2}" height="{}" fill="{}"/>"#,
            y(cluster) + 3.0,
            right - left,
            ROW - 6.0,
            colour(cluster)
        )?;
    }
    for (cluster, (slice, weight)) in points.points.iter().enumerate() {
        writeln!(
            out,
            r#"<text x="4" y="{}">{cluster}: {:.1} %</text>"#,
            y(cluster) + ROW * 0.7,
            100.0 * weight
        )?;
        writeln!(
            out,
            r#"<circle cx="{:.2}" cy="{}" r="5" fill="white" stroke="black"><title>interval {slice}</title></circle>"#,
            x(f64::from(*slice) + 0.5),
            y(cluster) + ROW / 2.0
        )?;
    }
    writeln!(
        out,
        r#"<text x="{LEFT}" y="{}">interval 0 to {}; a row for each phase with its weight, a dot for its simulation point</text>"#,
        y(points.points.len()) + ROW,
        points.labels.len().saturating_sub(1)
    )?;
    writeln!(out, "</svg>")
}

fn colour(cluster: usize) -> &'static str {
    COLOURS.get(cluster % COLOURS.len()).copied().unwrap_or("#000000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_bars_and_points_are_dots() {
        let points = SimPoints {
            labels: vec![0, 0, 1, 1, 1, 0],
            points: vec![(1, 0.5), (3, 0.5)],
        };
        let mut svg = Vec::new();
        write_plot(&points, "<a & b>", &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        assert_eq!(svg.matches("<rect").count(), 3);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(
            svg.contains("&lt;a &amp; b&gt;") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
    }
}
