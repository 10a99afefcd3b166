//! The errors of a profile against exact counts, as text or as JSON of the format `hbbp-sys.eval/1`.
//!
//! Errors are fractions of the reference, in text as percent; a group without a reference has none.
//! In JSON a field may be added within version 1; nothing is renamed, removed or given another meaning.

mod evaluated;
mod sampling;

use std::io::{self, Write};

use serde::Serialize;

use super::TextOrJson;
use super::look::Look;
use super::number::{percent, scaled};
use super::page::Page;
use super::table::{Line, Table};
pub use evaluated::{Errors, SamplingMethod};
use hbbp_analysis::eval::{Amounts, Calibration, Evaluation, Group, LEAST, Level, Method, SAMPLES};
use hbbp_model::names::{Demangle, function};
use hbbp_model::printable::write_json;
use sampling::SamplingJson;

/// Digits of amounts in text.
const DIGITS: usize = 4;

impl<'a> Errors<'a> {
    /// The errors of an evaluation, with at most `top` groups and mnemonics in text.
    pub fn new(evaluation: &'a Evaluation, level: Level, top: Option<usize>) -> Self {
        let whole = evaluation.groups(Level::Whole).into_iter().next();
        Self {
            evaluation,
            level,
            whole: whole.unwrap_or_default(),
            groups: evaluation.groups(level),
            top,
            sampling: &[],
        }
    }

    /// The same by sampling method, for these.
    #[must_use]
    pub fn by_sampling(self, sampling: &'a [SamplingMethod<'a>]) -> Self {
        Self { sampling, ..self }
    }

    /// Writes them; text looks as `look` says.
    pub fn write(&self, format: TextOrJson, look: Look, out: &mut dyn Write) -> io::Result<()> {
        match format {
            TextOrJson::Json => write_json(&Document::new(self), out),
            TextOrJson::Text => self.text(&mut Page { look, out }),
        }
    }

    fn text(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Evaluation {
            taken,
            samples,
            stacks,
            ..
        } = self.evaluation;
        let total = scaled(self.whole.total().reference, DIGITS);
        let taken = taken.map_or_else(String::new, |taken| {
            format!(", {} taken branches", scaled(taken, DIGITS))
        });
        page.entry("reference  ", &format!("{total} instructions{taken}"))?;
        let (samples, stacks) = (scaled(*samples, DIGITS), scaled(*stacks, DIGITS));
        page.entry(
            "measured   ",
            &format!("{samples} samples of instructions, {stacks} branch stacks"),
        )?;
        self.notes(page)?;
        if !self.sampling.is_empty() {
            return self.sampling(page);
        }
        let columns = Method::ALL.map(|method| (method.name(), method));
        page.heading("Average weighted error over mnemonics, in % of the reference")?;
        let demangle = page.look.demangle;
        page.table(
            &self.group_table(&columns, Group::average_weighted, demangle),
            |_| None,
        )?;
        page.heading("The same of shares of all instructions, in %")?;
        page.table(&self.group_table(&columns, Group::share_error, demangle), |_| {
            None
        })?;
        page.heading("Accuracy error over blocks, in % of the reference")?;
        page.table(&self.group_table(&columns, Group::block_error, demangle), |_| {
            None
        })?;
        page.heading("Executions by mnemonic, and their errors in %")?;
        let amounts = self.mnemonic_table(|amounts| *amounts, |amount| scaled(amount, DIGITS));
        page.table(&amounts, |_| None)?;
        page.heading("Shares of all instructions by mnemonic in %, and their errors in % of the share")?;
        let total = self.whole.total();
        let shares = self.mnemonic_table(|amounts| amounts.shares(&total), percent);
        page.table(&shares, |_| None)
    }

    /// What is compared, how near estimates are for their errors, and the distance by address.
    fn notes(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Evaluation {
            left_out, iterates, ..
        } = self.evaluation;
        if 0.0 < *left_out {
            let left_out = scaled(*left_out, DIGITS);
            page.entry(
                "left out   ",
                &format!("{left_out} instructions of code that the reference does not count"),
            )?;
        }
        if *iterates {
            page.entry(
                "REP        ",
                "the reference counts each iteration of a string instruction, the profile one instruction",
            )?;
        }
        if let Some(Calibration {
            mnemonics,
            within,
            functions,
            functions_within,
        }) = self.evaluation.calibration
        {
            let least = percent(LEAST);
            let of_functions = match functions {
                0 => String::new(),
                _ => format!(" and {functions_within} of {functions} functions of {SAMPLES} samples or more"),
            };
            page.entry(
                "errors     ",
                &format!(
                    "{within} of {mnemonics} mnemonics of {least} % or more{of_functions} are within two standard errors"
                ),
            )?;
        }
        let distances = Method::ALL.map(|method| {
            let distance = self.evaluation.distance(method)?;
            Some(format!("{} {} %", method.name(), percent(distance)))
        });
        let distances: Vec<String> = distances.into_iter().flatten().collect();
        if distances.is_empty() {
            return Ok(());
        }
        let distances = distances.join(", ");
        page.entry(
            "distance   ",
            &format!("{distances} of the executions are at the wrong address"),
        )
    }

    fn shown<T>(&self, rows: &[T]) -> usize {
        self.top.map_or(rows.len(), |top| top.min(rows.len()))
    }

    fn group_table(
        &self,
        columns: &[(&str, Method)],
        error_of: fn(&Group, Method) -> Option<f64>,
        demangle: Demangle,
    ) -> Table {
        let titles = self.level.titles().iter().map(|title| (*title).to_owned());
        let methods = columns.iter().map(|(title, _)| (*title).to_owned());
        let numbers = |group: &Group| {
            let instructions = scaled(group.total().reference, DIGITS);
            let errors = columns.iter().map(|(_, method)| error(error_of(group, *method)));
            std::iter::once(instructions).chain(errors).collect()
        };
        let mut whole = vec![String::new(); self.level.titles().len()];
        if let Some(first) = whole.first_mut() {
            "all".clone_into(first);
        }
        let shown = self.groups.iter().take(self.shown(&self.groups));
        // Names are of the same kinds in every row; only functions are ever mangled.
        let name = |name: &String| function(name, demangle);
        let rows = shown.map(|group| Line::Row(group.key.iter().map(name).collect(), numbers(group)));
        let total = [Line::Rule, Line::Row(whole, numbers(&self.whole))];
        Table {
            names: titles.collect(),
            numbers: std::iter::once("instructions".to_owned())
                .chain(methods)
                .collect(),
            lines: rows.chain(total).collect(),
        }
    }

    /// What `of` makes of the executions by mnemonic, as `shown` shows it, and the errors.
    fn mnemonic_table(&self, of: impl Fn(&Amounts) -> Amounts, shown: fn(f64) -> String) -> Table {
        let mut rows: Vec<(&String, Amounts)> = self
            .whole
            .mnemonics
            .iter()
            .map(|(name, all)| (name, of(all)))
            .collect();
        rows.sort_by(|a, b| b.1.reference.total_cmp(&a.1.reference));
        rows.truncate(self.shown(&rows));
        let numbers = |amounts: &Amounts| {
            let measured = Method::ALL.map(|method| {
                let deviation = (amounts.by(method) - amounts.reference).abs();
                let error = (0.0 < amounts.reference).then(|| deviation / amounts.reference);
                [shown(amounts.by(method)), self::error(error)]
            });
            [&[shown(amounts.reference)][..], &measured.concat()].concat()
        };
        let titles = Method::ALL.map(|method| [method.name().to_owned(), "error".to_owned()]);
        Table {
            names: vec!["mnemonic".to_owned()],
            numbers: [&["reference".to_owned()][..], &titles.concat()].concat(),
            lines: rows
                .iter()
                .map(|(mnemonic, amounts)| Line::Row(vec![(*mnemonic).clone()], numbers(amounts)))
                .collect(),
        }
    }
}

fn error(error: Option<f64>) -> String {
    error.map_or_else(|| "-".to_owned(), percent)
}

/// The whole document.
#[derive(Serialize)]
struct Document {
    /// Name and version of this format.
    format: &'static str,
    /// Near taken branches of the reference; null if it does not count them.
    taken: Option<f64>,
    /// Samples of instruction pointers that EBS had.
    samples: f64,
    /// Branch stacks that LBR had.
    stacks: f64,
    /// Instructions of the profile that the reference does not count, by the hybrid.
    left_out: f64,
    /// Half the sum of the absolute differences of the shares of all addresses, as a fraction; null if the reference has no
    /// addresses.
    distance: ErrorsJson,
    /// Mnemonics of a thousandth of the reference or more, functions of a hundred samples or more, and those whose estimate is within
    /// two standard errors; null if
    /// the reference leaves code out, or counts otherwise.
    calibration: Option<Calibration>,
    /// The sampling methods that were requested; absent where none was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    methods: Vec<SamplingJson>,
    /// Everything.
    whole: GroupJson,
    /// The groups of the requested level, by falling reference.
    groups: Vec<GroupJson>,
}

#[derive(Serialize)]
struct GroupJson {
    /// Ring, module, function, as far as the level goes.
    key: Vec<String>,
    /// Executed instructions.
    instructions: AmountsJson,
    /// Average weighted error over mnemonics, as a fraction; null if the reference has nothing.
    average_weighted_error: ErrorsJson,
    /// The same of shares of all instructions of the group.
    share_error: ErrorsJson,
    /// Accuracy error over blocks, likewise.
    block_error: ErrorsJson,
    mnemonics: Vec<MnemonicJson>,
}

#[derive(Serialize)]
struct ErrorsJson {
    hybrid: Option<f64>,
    lbr: Option<f64>,
    ebs: Option<f64>,
}

#[derive(Serialize)]
struct AmountsJson {
    reference: f64,
    hybrid: f64,
    lbr: f64,
    ebs: f64,
}

#[derive(Serialize)]
struct MnemonicJson {
    mnemonic: String,
    #[serde(flatten)]
    executions: AmountsJson,
}

impl Document {
    fn new(errors: &Errors<'_>) -> Self {
        Self {
            format: "hbbp-sys.eval/1",
            taken: errors.evaluation.taken,
            samples: errors.evaluation.samples,
            stacks: errors.evaluation.stacks,
            left_out: errors.evaluation.left_out,
            distance: ErrorsJson::new(&|method| errors.evaluation.distance(method)),
            calibration: errors.evaluation.calibration,
            methods: errors
                .sampling
                .iter()
                .map(|method| SamplingJson::new(method, &errors.whole))
                .collect(),
            whole: GroupJson::new(&errors.whole),
            groups: errors.groups.iter().map(GroupJson::new).collect(),
        }
    }
}

impl ErrorsJson {
    fn new(of: &dyn Fn(Method) -> Option<f64>) -> Self {
        Self {
            hybrid: of(Method::Hybrid),
            lbr: of(Method::Lbr),
            ebs: of(Method::Ebs),
        }
    }
}

impl GroupJson {
    fn new(group: &Group) -> Self {
        let mnemonics = group.mnemonics.iter().map(|(mnemonic, amounts)| MnemonicJson {
            mnemonic: mnemonic.clone(),
            executions: AmountsJson::new(amounts),
        });
        Self {
            key: group.key.clone(),
            instructions: AmountsJson::new(&group.total()),
            average_weighted_error: ErrorsJson::new(&|method| group.average_weighted(method)),
            share_error: ErrorsJson::new(&|method| group.share_error(method)),
            block_error: ErrorsJson::new(&|method| group.block_error(method)),
            mnemonics: mnemonics.collect(),
        }
    }
}

impl AmountsJson {
    const fn new(amounts: &Amounts) -> Self {
        let Amounts {
            reference,
            ebs,
            lbr,
            hybrid,
        } = *amounts;
        Self {
            reference,
            hybrid,
            lbr,
            ebs,
        }
    }
}
