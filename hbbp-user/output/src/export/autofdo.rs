//! The sample profile of LLVM in its text form, which clang's `-fprofile-sample-use` reads (the compiler's AutoFDO).
//!
//! ```text
//! function:total:head
//!  line[.discriminator]: executions [callee:calls ..]
//!  line[.discriminator]: inlined function:total
//!   ..
//! ```
//!
//! Lines count from the line that a function is declared at. The count of a line is that of the most frequently
//! executed instruction, times the copies that the compiler made of it, as in llvm-profgen
//! (`updateBodySamplesforFunctionProfile`, LLVM 22); lines of a function that did not run have the count 0, and its
//! total is the sum over its executed bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::counted::Executed;
use super::image::{FOR_ALL, Image, ImageRun, Written};
use hbbp_model::addr::ImageAddr;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::{Frame, Frames, Linked, NameIdx, SourceFrames};

/// Line and discriminator in a function.
type LineKey = (u16, u32);

/// What was counted in a function, or in one inlined copy of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionSamples {
    /// Executed bytes.
    pub total: u64,
    /// Entries by branches.
    pub head: u64,
    /// Executions by line.
    pub(crate) body: BTreeMap<LineKey, LineSamples>,
    /// Inlined copies by the line of the call and by name.
    pub inlined: BTreeMap<(LineKey, NameIdx), Self>,
}

impl FunctionSamples {
    /// A line with several calls runs as often as all of them together, as in llvm-profgen (`updateCallsiteSamples`).
    fn cover_calls(&mut self) {
        for line in self.body.values_mut() {
            let calls = line.calls.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
            line.count = line.count.max(calls);
        }
        self.inlined.values_mut().for_each(Self::cover_calls);
    }
}

/// What was counted in a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LineSamples {
    /// Executions.
    pub count: u64,
    /// Calls by the callee's name.
    pub calls: BTreeMap<NameIdx, u64>,
}

/// The profile of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleProfile {
    /// Functions that are not inlined, by name.
    pub functions: BTreeMap<String, FunctionSamples>,
    /// Sums, and what was left out.
    pub written: Written,
}

/// The locations in the file of an image that were executed or have branches, for which frames are needed.
pub fn locations<'a>(runs: &'a [ImageRun<'_>]) -> impl Iterator<Item = Linked> + 'a {
    runs.iter().flat_map(|run| {
        let branches = run.flow.into_iter().flat_map(|flow| flow.branches.keys());
        let ends = branches.flat_map(|(from, to)| [*from, *to].into_iter().flatten());
        let ran = run.executed().map(|executed| executed.site.addr);
        ran.chain(ends).filter_map(|at| run.layout.find(at))
    })
}

/// Builds the profile of an image from the executions of its instructions and the branches to its functions, in all
/// runs. An instruction that was loaded to several addresses was executed as often as all of them together.
pub fn sample_profile(image: &Image<'_>, frames: &SourceFrames) -> SampleProfile {
    let mut profile = SampleProfile::default();
    let mut amounts: BTreeMap<Option<u64>, (f64, u8)> = BTreeMap::new();
    for run in image.runs {
        for executed in run.executed() {
            let sum = amounts
                .entry(run.debug_addr(frames, executed.site.addr))
                .or_default();
            *sum = (sum.0 + executed.executions, executed.instruction.len);
        }
    }
    let mut locations: Vec<Option<Executions>> = vec![None; frames.stacks.len()];
    let executions: Vec<f64> = amounts.values().map(|(executions, _)| *executions).collect();
    for ((at, (_, len)), count) in amounts.iter().zip(image.numbers.of(&executions)) {
        let stack = at.and_then(|at| frames.at.get(&at));
        match stack.and_then(|stack| locations.get_mut(stack.0 as usize)) {
            Some(location) => {
                location.get_or_insert_default().add(count, *len);
                profile.written.add(FOR_ALL, count);
            }
            None => profile.written.leave_out(NO_FRAMES, count),
        }
    }
    profile.add_branches(image, frames);
    let locations = || frames.stacks.iter().zip(&locations);
    let outermost = |stack: &Frames| stack.first().map(|frame| frame.function);
    let ran = locations().filter(|(_, executions)| executions.is_some());
    let ran: BTreeSet<Option<NameIdx>> = ran.map(|(stack, _)| outermost(stack)).collect();
    for (stack, executions) in locations().filter(|(stack, _)| ran.contains(&outermost(stack))) {
        profile.add_location(frames, stack, executions.unwrap_or_default());
    }
    profile
        .functions
        .values_mut()
        .for_each(FunctionSamples::cover_calls);
    profile
}

/// What the instructions of a source location executed.
#[derive(Clone, Copy, Debug, Default)]
struct Executions {
    /// Of the most frequently executed instruction.
    most: u64,
    /// In bytes of code, of all.
    bytes: u64,
}

impl Executions {
    fn add(&mut self, count: u64, len: u8) {
        self.most = self.most.max(count);
        self.bytes = self.bytes.saturating_add(count.saturating_mul(u64::from(len)));
    }
}

impl ImageRun<'_> {
    /// The executed instructions of the image.
    fn executed(&self) -> impl Iterator<Item = Executed> {
        self.counted.executed_in(Some(std::slice::from_ref(&self.module)))
    }

    /// The address in the debug information.
    fn debug_addr(&self, frames: &SourceFrames, at: ImageAddr) -> Option<u64> {
        frames.addr(&self.layout.find(at)?)
    }
}

/// Amounts without a line.
const NO_FRAMES: &str = "of instructions without debug information";

impl SampleProfile {
    fn add_location(&mut self, frames: &SourceFrames, stack: &[Frame], executions: Executions) {
        let Some((samples, leaf)) = self.leaf(frames, stack, executions.bytes) else {
            return;
        };
        if let Some(line) = leaf.line {
            let copies = duplication(leaf.discriminator);
            let line = samples.body.entry((line, base(leaf.discriminator))).or_default();
            line.count = line.count.max(executions.most.saturating_mul(copies));
        }
    }

    /// The samples of the innermost function of a stack, which is made; `total` is added to every function of it.
    fn leaf<'a>(
        &'a mut self,
        frames: &SourceFrames,
        stack: &[Frame],
        total: u64,
    ) -> Option<(&'a mut FunctionSamples, Frame)> {
        let (outermost, inner) = stack.split_first()?;
        let mut frame = *outermost;
        let name = canonical(frames.name(frame.function)).to_owned();
        let mut samples = self.functions.entry(name).or_default();
        samples.total = samples.total.saturating_add(total);
        for next in inner {
            let key = ((frame.line?, base(frame.discriminator)), next.function);
            samples = samples.inlined.entry(key).or_default();
            samples.total = samples.total.saturating_add(total);
            frame = *next;
        }
        Some((samples, frame))
    }

    fn add_branches(&mut self, image: &Image<'_>, frames: &SourceFrames) {
        let mut amounts: BTreeMap<(Option<u64>, Option<u64>), f64> = BTreeMap::new();
        for run in image.runs {
            for ((from, to), branch) in run.flow.into_iter().flat_map(|flow| &flow.branches) {
                let [from, to] = [from, to].map(|end| end.and_then(|at| run.debug_addr(frames, at)));
                *amounts.entry((from, to)).or_default() += branch.executions;
            }
        }
        let executions: Vec<f64> = amounts.values().copied().collect();
        for ((from, to), count) in amounts.keys().zip(image.numbers.of(&executions)) {
            let Some(callee) = to.and_then(|to| frames.entries.get(&to)) else {
                continue;
            };
            let name = canonical(frames.name(*callee)).to_owned();
            let samples = self.functions.entry(name).or_default();
            samples.head = samples.head.saturating_add(count);
            self.written.add("entries of functions", count);
            let stack = from.and_then(|from| frames.stack_at(from));
            if let Some((samples, leaf)) = stack.and_then(|stack| self.leaf(frames, stack, 0))
                && let Some(line) = leaf.line
            {
                let line = samples.body.entry((line, base(leaf.discriminator))).or_default();
                let calls = line.calls.entry(*callee).or_default();
                *calls = calls.saturating_add(count);
            }
        }
    }
}

/// Writes a profile; functions with the largest totals first.
pub fn write_autofdo(profile: &SampleProfile, frames: &SourceFrames, out: &mut dyn Write) -> io::Result<()> {
    let mut functions: Vec<_> = profile.functions.iter().collect();
    functions.sort_by(|a, b| b.1.total.cmp(&a.1.total).then(a.0.cmp(b.0)));
    for (name, samples) in functions {
        writeln!(out, "{}:{}:{}", harmless(name), samples.total, samples.head)?;
        write_body(samples, frames, 1, out)?;
    }
    Ok(())
}

fn write_body(
    samples: &FunctionSamples,
    frames: &SourceFrames,
    depth: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (key, line) in &samples.body {
        write!(out, "{:depth$}{}: {}", "", Shown(*key), line.count)?;
        let mut calls: Vec<(u64, &str)> = line
            .calls
            .iter()
            .map(|(callee, calls)| (*calls, canonical(frames.name(*callee))))
            .collect();
        calls.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        for (calls, callee) in calls {
            write!(out, " {}:{calls}", harmless(callee))?;
        }
        writeln!(out)?;
    }
    for ((key, name), inlined) in &samples.inlined {
        let name = harmless(canonical(frames.name(*name)));
        writeln!(out, "{:depth$}{}: {name}:{}", "", Shown(*key), inlined.total)?;
        write_body(inlined, frames, depth + 1, out)?;
    }
    Ok(())
}

/// A line, with its discriminator if it has one.
struct Shown(LineKey);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            (line, 0) => write!(f, "{line}"),
            (line, discriminator) => write!(f, "{line}.{discriminator}"),
        }
    }
}

/// The name without what a compiler appends to copies of a function: `.llvm.N` and `.part.N`
/// (`FunctionSamples::getCanonicalFnName`, LLVM 22).
pub(super) fn canonical(name: &str) -> &str {
    let mut name = name;
    for suffix in [".llvm.", ".part."] {
        if let Some((stem, number)) = name.rsplit_once(suffix)
            && !number.contains('.')
        {
            name = stem;
        }
    }
    name
}

/// The part of a discriminator that distinguishes blocks of a line. LLVM packs three numbers into one
/// (`DILocation::getBaseDiscriminatorFromDiscriminator`, LLVM 22).
fn base(discriminator: u64) -> u32 {
    component(discriminator)
}

/// How many copies the compiler made of the instruction, by unrolling and vectorizing loops.
fn duplication(discriminator: u64) -> u64 {
    u64::from(component(after_component(discriminator)).max(1))
}

/// The first number in a packed discriminator: 0 in one bit, up to 31 in seven, more in fourteen.
fn component(packed: u64) -> u32 {
    let packed = u32::try_from(packed & u64::from(u32::MAX)).unwrap_or(0);
    if packed & 1 != 0 {
        return 0;
    }
    let number = packed >> 1;
    if number & 0x20 == 0 {
        number & 0x1f
    } else {
        (number >> 1) & 0xfe0 | number & 0x1f
    }
}

/// What follows the first number.
const fn after_component(packed: u64) -> u64 {
    if packed & 1 != 0 {
        packed >> 1
    } else if packed & 0x40 != 0 {
        packed >> 14
    } else {
        packed >> 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminators_are_packed_numbers() {
        assert_eq!((base(0), duplication(0)), (0, 1));
        assert_eq!((base(2), duplication(2)), (1, 1), "a plain discriminator of 1");
        // Base 3 in seven bits, then 4 copies.
        let packed = 3 << 1 | (4 << 1) << 7;
        assert_eq!((base(packed), duplication(packed)), (3, 4));
        // Base 40 = 0b1_01000 takes fourteen bits.
        assert_eq!(base(((40 & 0xfe0) << 1 | 0x20 | 40 & 0x1f) << 1), 40);
        // No base, then 2 copies.
        assert_eq!((base(1 | 2 << 1 << 1), duplication(1 | 2 << 1 << 1)), (0, 2));
    }

    #[test]
    fn executed_bytes_count_in_each_function_of_a_stack() {
        let frames = SourceFrames {
            names: vec!["outer".to_owned(), "inner".to_owned()],
            ..SourceFrames::default()
        };
        let frame = |function, line| Frame {
            function: NameIdx(function),
            line: Some(line),
            discriminator: 0,
        };
        let stack = [frame(0, 3), frame(1, 5)];
        let mut profile = SampleProfile::default();
        let mut executions = Executions::default();
        executions.add(10, 4);
        profile.add_location(&frames, &stack, executions);
        profile.add_location(&frames, &stack[..1], executions);
        let outer = &profile.functions["outer"];
        let inner = &outer.inlined[&((3, 0), NameIdx(1))];
        assert_eq!((outer.total, inner.total), (80, 40));
        let counts = [&outer.body[&(3, 0)], &inner.body[&(5, 0)]].map(|line| line.count);
        assert_eq!(counts, [10, 10]);
    }

    #[test]
    fn copies_of_a_function_have_its_name() {
        assert_eq!(canonical("f.llvm.123"), "f");
        assert_eq!(canonical("f.part.0"), "f");
        assert_eq!(canonical("f.constprop.0"), "f.constprop.0");
        assert_eq!(canonical("f"), "f");
    }
}
