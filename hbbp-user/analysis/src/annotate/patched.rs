//! What a static image has where the executed code has other bytes.

use super::annotated::Line;
use super::disassembly::disassembled;
use hbbp_model::addr::ImageAddr;
use hbbp_model::names::Demangle;
use hbbp_model::snapshot::Module;

/// The static text of the code of one version.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StaticText {
    /// Address of the first byte, where the code was executed.
    pub start: ImageAddr,
    /// The bytes of the static image.
    pub bytes: Vec<u8>,
    /// For each of them, whether the executed byte differs for a reason other than relocation.
    pub differs: Vec<bool>,
}

/// Writes at the first instruction of each run of instructions that differ what the static image has instead.
pub(super) fn mark(lines: &mut [Line], linked: &StaticText, module: &Module, demangle: Demangle) {
    let offset = |addr: ImageAddr| addr.since(linked.start).and_then(|at| usize::try_from(at).ok());
    let differs = |line: &Line| {
        let range = offset(line.addr).map(|at| at..at.saturating_add(line.bytes.len()));
        let differs = range.and_then(|range| linked.differs.get(range));
        differs.is_some_and(|differs| differs.contains(&true))
    };
    if !lines.iter().any(differs) {
        return;
    }
    let code = disassembled(module, linked.start, &linked.bytes, demangle);
    for run in lines.chunk_by_mut(|a, b| differs(a) && differs(b)) {
        let Some((first, last)) = run.first().zip(run.last()).filter(|(first, _)| differs(first)) else {
            continue;
        };
        let end = last.addr.0.saturating_add(last.bytes.len() as u64);
        let start = first.addr.0;
        let replaced = code
            .iter()
            .filter(|it| it.addr.0 < end && start < it.addr.0 + it.len as u64);
        let replaced: Vec<String> = replaced.map(|it| it.text.clone()).collect();
        if let Some(first) = run.first_mut() {
            first.linked = replaced;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::Flow;
    use hbbp_estimate::Figure;
    use hbbp_model::snapshot::ModuleKind;

    /// The first of the instructions that differ says what was there.
    #[test]
    fn first_differing_instruction_has_the_old_bytes() {
        let module = Module {
            name: "[kernel]".to_owned(),
            kind: ModuleKind::Kernel,
            build_id: Vec::new(),
            symbols: Vec::new(),
        };
        let line = |addr, bytes: &[u8]| Line {
            addr: ImageAddr(addr),
            bytes: bytes.to_vec(),
            text: String::new(),
            flow: Flow::Next,
            block: None,
            executions: Figure::default(),
            time: None,
            cpi: None,
            predictions: None,
            samples: 0,
            source: None,
            linked: Vec::new(),
        };
        // A retpoline became an LFENCE and an indirect jump; the static image has one call.
        let mut lines = [
            line(0x1000, &[0x90]),
            line(0x1001, &[0x0f, 0xae, 0xe8]),
            line(0x1004, &[0xff, 0xe0]),
            line(0x1006, &[0xc3]),
        ];
        let linked = StaticText {
            start: ImageAddr(0x1000),
            bytes: vec![0x90, 0xe8, 0, 0, 0, 0, 0xc3],
            differs: vec![false, true, true, true, true, true, false],
        };
        mark(&mut lines, &linked, &module, Demangle::On);
        let shown: Vec<usize> = lines.iter().map(|line| line.linked.len()).collect();
        assert_eq!(shown, [0, 1, 0, 0]);
        assert!(lines[1].linked[0].starts_with("call"), "{:?}", lines[1].linked);
    }
}
