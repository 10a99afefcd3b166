//! Lines of sample profiles compared with those of addr2line.

use std::collections::BTreeMap;
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions};
use object::{Object as _, ObjectSection as _};

use crate::kernel::{KernelFile, SOURCE};
use crate::tool;

/// Checks that the lines of a sample profile with a count are those of addr2line for every instruction of every
/// executed line.
#[track_caller]
pub(crate) fn check_lines(file: &KernelFile, profile: &str, times: u64) {
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for (idx, (start, _, bytes)) in &file.sections {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for ((first, last), n) in file.lines(*idx).into_iter().zip(1..) {
            let from = usize::try_from(first - start).unwrap();
            let decoder = Decoder::with_ip(64, &bytes[from..], first, DecoderOptions::NONE);
            let inside = decoder.into_iter().map(|i| i.ip()).take_while(|at| *at <= last);
            inside.for_each(|at| *counts.entry(at).or_default() += n * times);
        }
        let lines = addr2line(file, *idx, counts.keys());
        for (line, count) in lines.into_iter().zip(counts.values()) {
            let Some(line) = line else { continue };
            let most = expected.entry(line).or_default();
            *most = (*most).max(*count);
        }
    }
    assert!(9 <= file.functions.len() && 30 < expected.len(), "{expected:?}");
    assert_eq!(executed_lines(profile), expected, "{profile}");
}

/// The lines with a count, each with the functions that it is inlined in.
fn executed_lines(profile: &str) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    let mut path: Vec<String> = Vec::new();
    for line in profile.lines() {
        let depth = line.len() - line.trim_start().len();
        path.truncate(depth);
        if depth == 0 {
            path.push(line.split(':').next().unwrap().to_owned());
            continue;
        }
        let (key, value) = line.trim_start().split_once(": ").unwrap();
        match value.split(' ').next().unwrap().parse::<u64>() {
            Ok(0) => {}
            Ok(count) => assert!(lines.insert(format!("{} {key}", path.join(" ")), count).is_none()),
            Err(_) => path.push(format!("{key} {}", value.rsplit_once(':').unwrap().0)),
        }
    }
    lines
}

/// What addr2line says of addresses, in the form of [`executed_lines`]; `None` if it knows no line.
fn addr2line<'a>(
    file: &KernelFile,
    section: usize,
    addresses: impl Iterator<Item = &'a u64>,
) -> Vec<Option<String>> {
    let mut ask = Command::new("addr2line");
    ask.args(["-a", "-f", "-i", "-e"]).arg(&file.path);
    let bytes = std::fs::read(&file.path).unwrap();
    let parsed = object::File::parse(&*bytes).unwrap();
    let name = parsed
        .section_by_index(object::SectionIndex(section))
        .unwrap()
        .name()
        .unwrap()
        .to_owned();
    if file.sections[&section].0 == 0 {
        ask.args(["-j", &name]);
    }
    let said = tool::said(ask.args(addresses.map(|at| format!("{at:#x}"))));
    let mut answers: Vec<Vec<(String, String)>> = Vec::new();
    let mut lines = said.lines();
    while let Some(line) = lines.next() {
        match line.starts_with("0x") {
            true => answers.push(Vec::new()),
            false => answers
                .last_mut()
                .unwrap()
                .push((line.to_owned(), lines.next().unwrap().to_owned())),
        }
    }
    let source = std::fs::read_to_string(SOURCE).unwrap();
    answers
        .into_iter()
        .map(|frames| described(&frames, &source))
        .collect()
}

/// Frames of addr2line, innermost first, as a path of functions and lines from the outermost on.
fn described(frames: &[(String, String)], source: &str) -> Option<String> {
    let mut path: Vec<String> = Vec::new();
    for (function, place) in frames.iter().rev() {
        let (line, discriminator) = match place.split_once(" (discriminator ") {
            Some((line, number)) => (line, number.trim_end_matches(')').parse::<u64>().unwrap()),
            None => (place.as_str(), 0),
        };
        let line: u64 = line.rsplit_once(':')?.1.parse().ok()?;
        let heads = [format!("{function}(word"), format!("{function}(void")];
        let is_declared = |text: &str| heads.iter().any(|head| text.contains(head.as_str()));
        let declared = source.lines().position(is_declared)? as u64 + 1;
        // LLVM's packed form: of small numbers all bits but the first.
        let base = if discriminator & 1 == 0 {
            discriminator >> 1 & 0x1f
        } else {
            0
        };
        let key = match base {
            0 => (line - declared).to_string(),
            base => format!("{}.{base}", line - declared),
        };
        match path.last_mut() {
            None => path.push(function.clone()),
            Some(last) => *last = format!("{last} {function}"),
        }
        path.push(key);
    }
    (!path.is_empty()).then(|| path.join(" "))
}
