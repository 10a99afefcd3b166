//! What a trigger counts while a stream runs: instructions or branches of its text, cycles of its record.

use hashbrown::HashMap;
use hbbp_decode::Decoder;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::is_kernel;
use iced_x86::{FlowControl, InstructionInfoFactory};

use super::Sample;
use hbbp_model::addr::Va;
use hbbp_model::kinds::{Kinds, kind, kind_of};
use hbbp_model::snapshot::{Event, EventUnit};

/// Text of a process.
#[derive(Clone, Debug)]
pub struct RanText {
    /// Operand and address size in bits to decode it with.
    pub bits: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The text of a process at a time: process id, time in ns, address, and the length in bytes, of which there may be
/// fewer.
pub(super) type FindText<'a> = dyn FnMut(u32, u64, Va, usize) -> Option<RanText> + 'a;

/// The longest instruction in bytes (SDM vol. 2, 2.3.11).
const LONGEST_INSTRUCTION: u64 = 15;

/// What an event counts that triggers stacks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Trigger {
    /// Cycles, or the ticks of a clock.
    Time,
    /// Instructions.
    Instructions,
    /// Branches, taken or not.
    Branches,
    /// Something that streams do not show.
    Other,
}

impl Trigger {
    /// Of an event.
    pub(super) fn of(event: &Event) -> Self {
        match event.unit {
            EventUnit::Cycles | EventUnit::Nanoseconds => Self::Time,
            EventUnit::Instructions => Self::Instructions,
            _ if is_branches(&event.name) => Self::Branches,
            _ => Self::Other,
        }
    }
}

/// Whether an event of this name counts all branches: those of perf, of Intel and of AMD (Zen).
fn is_branches(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let base = name
        .split([':', '/'])
        .find(|part| !part.is_empty() && !part.starts_with("cpu"));
    matches!(
        base,
        Some("branches" | "branch-instructions" | "br_inst_retired.all_branches" | "ex_ret_brn")
    )
}

/// Distinct streams whose text is decoded once; beyond that, each time.
const CAPACITY: usize = 1 << 20;

/// Longest stream in bytes that is believed, as when streams are located.
pub(super) const LONGEST: u64 = 64 << 10;

/// Instructions and branches of the streams so far.
#[derive(Debug, Default)]
pub(super) struct StreamCosts {
    /// By process of user code, start, and the address of the last instruction.
    known: HashMap<(u32, u64, u64), Option<Decoded>>,
}

/// The instructions of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Decoded {
    instructions: u32,
    branches: u32,
    kinds: Kinds,
    /// Whether an instruction before the last one always goes elsewhere.
    leaves: bool,
}

impl StreamCosts {
    /// What `trigger` counts from the target of one branch to the end of the next one; `None` if it is unknown.
    pub(super) fn cost(
        &mut self,
        trigger: Trigger,
        sample: &Sample<'_>,
        older: &BranchEntry,
        newer: &BranchEntry,
        text: &mut FindText<'_>,
    ) -> Option<f64> {
        match trigger {
            Trigger::Time => Some(newer.cycles() as f64),
            Trigger::Instructions => self
                .decoded(sample, older.to, newer.from, text)
                .map(|it| it.instructions.into()),
            Trigger::Branches => self
                .decoded(sample, older.to, newer.from, text)
                .map(|it| it.branches.into()),
            Trigger::Other => None,
        }
    }

    /// The instructions of a stream, by kind; `None` if its text is not known.
    pub(super) fn kinds(
        &mut self,
        sample: &Sample<'_>,
        older: &BranchEntry,
        newer: &BranchEntry,
        text: &mut FindText<'_>,
    ) -> Option<Kinds> {
        let found = self.decoded(sample, older.to, newer.from, text)?;
        Some(found.kinds)
    }

    /// Whether straight code leads from the target of the newest branch to the address of the sample, so that it is the
    /// last branch before the sample.
    pub(super) fn leads_to_ip(
        &mut self,
        sample: &Sample<'_>,
        newest: &BranchEntry,
        text: &mut FindText<'_>,
    ) -> bool {
        let Some(ip) = sample.ip else { return false };
        let found = self.decoded(sample, newest.to, ip.0, text);
        found.is_some_and(|found| !found.leaves)
    }

    fn decoded(
        &mut self,
        sample: &Sample<'_>,
        start: u64,
        last: u64,
        text: &mut FindText<'_>,
    ) -> Option<Decoded> {
        let process = if is_kernel(start) { 0 } else { sample.tgid };
        let key = (process, start, last);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let len = last.checked_sub(start).filter(|len| *len < LONGEST)?;
        let len = usize::try_from(len + LONGEST_INSTRUCTION).ok()?;
        let ran = text(sample.tgid, sample.time, Va(start), len);
        let found = ran.and_then(|ran| decode(&ran, start, last));
        if self.known.len() < CAPACITY {
            self.known.insert(key, found);
        }
        found
    }
}

/// The instructions from `start` to the one at `last`, the last one included; `None` if none begins there.
fn decode(text: &RanText, start: u64, last: u64) -> Option<Decoded> {
    let mut decoded = Decoded::default();
    decoded.kinds[kind::TAKEN] = 1.0;
    let mut info = InstructionInfoFactory::new();
    let mut decoder = Decoder::try_with_ip(text.bits, &text.bytes, start).ok()?;
    while let Some(instruction) = decoder.next() {
        if last < instruction.ip() || instruction.is_invalid() {
            return None;
        }
        decoded.instructions += 1;
        // Events of branches count those within a ring and, on most processors, those out of it.
        let flow = instruction.flow_control();
        decoded.branches += u32::from(flow != FlowControl::Next);
        decoded.kinds[kind_of(&instruction, decoder.modern(), &mut info)] += 1.0;
        if instruction.ip() == last {
            return Some(decoded);
        }
        decoded.leaves |= !matches!(flow, FlowControl::Next | FlowControl::ConditionalBranch);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nop; je +0; jne +0; add eax, eax; jmp rax`
    const CODE: [u8; 9] = [0x90, 0x74, 0, 0x75, 0, 0x01, 0xc0, 0xff, 0xe0];

    fn code(bits: u32) -> RanText {
        let bytes = CODE.to_vec();
        RanText { bits, bytes }
    }

    /// `inc eax; dec eax; jmp` of 32 bits are one instruction and the half of another one in 64.
    #[test]
    fn text_of_32_bits_is_decoded_as_that() {
        let bytes = vec![0x40, 0x48, 0xeb, 0x00];
        let ends = |bits| {
            let text = RanText {
                bits,
                bytes: bytes.clone(),
            };
            decode(&text, 0x1000, 0x1002).map(|found| found.instructions)
        };
        assert_eq!((ends(32), ends(64)), (Some(3), None));
    }

    #[test]
    fn instructions_and_branches_of_a_stream_are_counted() {
        let found = |last| {
            let found = decode(&code(64), 0x1000, last)?;
            let plain = found.kinds.get(kind::PLAIN).copied()?;
            Some((found.instructions, found.branches, plain))
        };
        assert_eq!(found(0x1007), Some((5, 3, 5.0)));
        assert_eq!(found(0x1001), Some((2, 1, 2.0)));
        assert_eq!((found(0x1002), found(0x1020)), (None, None));
    }

    #[test]
    fn a_stream_is_decoded_once_for_each_process() {
        let mut costs = StreamCosts::default();
        let entry = |from, to| BranchEntry {
            from,
            to,
            flags: 7 << 4,
        };
        let (older, newer) = (entry(1, 0x1000), entry(0x1007, 2));
        let mut n_asked = 0;
        let mut text = |_: u32, _: u64, _: Va, _: usize| {
            n_asked += 1;
            Some(code(64))
        };
        let sample = |tgid| Sample {
            tgid,
            tid: tgid,
            time: 0,
            ip: None,
            period: None,
            stack: &[],
            times: 1,
        };
        let mut cost = |tgid, trigger| costs.cost(trigger, &sample(tgid), &older, &newer, &mut text);
        assert_eq!(cost(1, Trigger::Branches), Some(3.0));
        assert_eq!(cost(1, Trigger::Instructions), Some(5.0));
        assert_eq!(cost(2, Trigger::Instructions), Some(5.0));
        assert_eq!(
            (cost(1, Trigger::Time), cost(1, Trigger::Other)),
            (Some(7.0), None)
        );
        assert_eq!(n_asked, 2);
    }

    #[test]
    fn events_of_all_branches_are_known_by_name() {
        let names = [
            "branches:u",
            "cpu/branches/ppu",
            "branch-instructions",
            "BR_INST_RETIRED.ALL_BRANCHES:pp",
        ];
        assert!(names.into_iter().all(is_branches));
        assert!(
            !["branch-misses", "br_inst_retired.near_taken", ""]
                .into_iter()
                .any(is_branches)
        );
    }
}
