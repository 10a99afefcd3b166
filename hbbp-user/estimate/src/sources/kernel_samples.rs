//! Which process images ran the kernel's blocks, by samples of addresses.
//!
//! Live stacks count kernel streams once for the system: by process, a stack would cost an eighth more. Samples of addresses
//! have their process. A process image's share of a kernel function is its share of the samples in that function. A function
//! without samples is divided as its module, and a module without samples as all kernel code.

use std::collections::BTreeMap;

use super::counted::{Counted, ring};
use super::seen_blocks::SeenBlocks;
use crate::sums::over;
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_model::addr::{ImageAddr, Ring};
use hbbp_model::snapshot::{ModuleIdx, ProcessIdx, Snapshot};

/// Most process images that a function is divided between: each of its blocks has a count for each of them. Where more have
/// samples, this many are drawn by their shares.
const MOST: u32 = 64;

/// Multiples of the golden ratio are spread evenly (Knuth, The Art of Computer Programming, vol. 3, 6.4).
const PHI: u32 = 0x9e37_79b9;

/// How the kernel's blocks are divided between process images.
#[derive(Debug, Default)]
pub(crate) struct KernelSamples {
    /// The shares of each function that ran, sorted by process; they sum to 1.
    functions: Vec<Vec<Share>>,
    /// The function of each block that was seen; `None` for user code, and where no kernel code has samples.
    of_blocks: Vec<Option<usize>>,
    /// Samples of kernel code; 0 where no process image but the kernel has any.
    pub(super) n: f64,
}

/// A process image's share of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    process: ProcessIdx,
    part: f64,
}

/// Code whose samples tell how it is divided.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Code {
    Function(ModuleIdx, ImageAddr),
    Module(ModuleIdx),
    Kernel,
}

/// The samples of some code: each process image with the weight of its samples and of those before it.
type Cumulated = Vec<(ProcessIdx, f64)>;

impl KernelSamples {
    /// The shares that samples of addresses show.
    pub(crate) fn new(snapshot: &Snapshot, map: &BlockMap, seen: &SeenBlocks, samples: &[Counted]) -> Self {
        let is_kernel = |block: BlockId| ring(snapshot, map, block.text) == Ring::Kernel;
        let of_kernel = || samples.iter().filter(|sample| is_kernel(sample.block));
        if of_kernel().all(|sample| sample.process == ProcessIdx::KERNEL) {
            return Self::default();
        }
        let mut weights: BTreeMap<Code, BTreeMap<ProcessIdx, f64>> = BTreeMap::new();
        for sample in of_kernel() {
            for code in codes(snapshot, map, sample.block) {
                *weights
                    .entry(code)
                    .or_default()
                    .entry(sample.process)
                    .or_default() += sample.weight;
            }
        }
        let known: BTreeMap<Code, Cumulated> = weights
            .into_iter()
            .map(|(code, weights)| (code, cumulated(weights)))
            .collect();
        let mut functions = Vec::new();
        let mut numbers: BTreeMap<Code, usize> = BTreeMap::new();
        let mut number = |block: BlockId| {
            let codes = codes(snapshot, map, block);
            let number = numbers.entry(codes[0]).or_insert_with(|| {
                let found = codes.iter().find_map(|code| known.get(code));
                functions.push(shares(found.map_or(&[], Vec::as_slice), functions.len()));
                functions.len() - 1
            });
            *number
        };
        let blocks = seen.ids.iter().copied();
        let of_blocks = blocks
            .map(|block| is_kernel(block).then(|| number(block)))
            .collect();
        Self {
            functions,
            of_blocks,
            n: of_kernel().map(|sample| sample.hits).sum(),
        }
    }

    /// The shares of a block, by its number; none where it is user code, or nothing tells how it is divided.
    fn of(&self, block: usize) -> &[Share] {
        let function = self.of_blocks.get(block).copied().flatten();
        function
            .and_then(|n| self.functions.get(n))
            .map_or(&[], Vec::as_slice)
    }

    /// Executed blocks with those of the kernel divided between process images, sorted by (block, process) as they were.
    pub(super) fn divided(&self, seen: &SeenBlocks, counts: Vec<Counted>) -> Vec<Counted> {
        let mut all = Vec::with_capacity(counts.len());
        for counted in counts {
            let shares = seen.number(counted.block).map_or(&[][..], |block| self.of(block));
            if shares.is_empty() {
                all.push(counted);
            }
            all.extend(shares.iter().map(|share| Counted {
                process: share.process,
                hits: counted.hits * share.part,
                weight: counted.weight * share.part,
                ..counted
            }));
        }
        all
    }

    /// The process image in which a resampled stack ran a kernel block. It is `own`, which ran its user code, if that has a
    /// share. Otherwise it is drawn by shares, at a `fraction` of all.
    pub(super) fn drawn(&self, block: usize, own: Option<ProcessIdx>, fraction: f64) -> ProcessIdx {
        let shares = self.of(block);
        if let Some(own) = own.filter(|own| shares.iter().any(|share| share.process == *own)) {
            return own;
        }
        let mut passed = 0.0;
        let drawn = shares.iter().find(|share| {
            passed += share.part;
            fraction < passed
        });
        let drawn = drawn.or_else(|| shares.last());
        drawn.map_or(ProcessIdx::KERNEL, |share| share.process)
    }
}

/// What a block is part of, the smallest first.
fn codes(snapshot: &Snapshot, map: &BlockMap, block: BlockId) -> [Code; 3] {
    let text = map.text(block.text);
    let module = text.map_or(ModuleIdx(0), |text| text.module);
    let function = text.and_then(|text| {
        let first = text.instruction(text.block(block.block).start)?;
        let module = snapshot.modules.get(text.module.0 as usize)?;
        module.symbol_at(text.addr(first))
    });
    let whole = Code::Module(module);
    let function = function.map_or(whole, |symbol| Code::Function(module, symbol.start));
    [function, whole, Code::Kernel]
}

fn cumulated(weights: BTreeMap<ProcessIdx, f64>) -> Cumulated {
    let mut sum = 0.0;
    let cumulated = weights.into_iter().map(|(process, weight)| {
        sum += weight;
        (process, sum)
    });
    cumulated.collect()
}

/// The shares of the process images with these samples, for the function of this number. Where they are too many, they are
/// drawn systematically, each function from another start, so that sums over functions have all process images in them.
fn shares(of: &[(ProcessIdx, f64)], number: usize) -> Vec<Share> {
    let whole = of.last().map_or(0.0, |(_, sum)| *sum);
    if whole <= 0.0 {
        return Vec::new();
    }
    if of.len() <= MOST as usize {
        let before = std::iter::once(0.0).chain(of.iter().map(|(_, sum)| *sum));
        let shares = of.iter().zip(before).map(|((process, sum), before)| Share {
            process: *process,
            part: over(sum - before, whole),
        });
        return shares.filter(|share| 0.0 < share.part).collect();
    }
    let start = f64::from((number as u32).wrapping_mul(PHI)) / 2f64.powi(32);
    let mut shares: Vec<Share> = Vec::new();
    for nth in 0..MOST {
        let wanted = (f64::from(nth) + start) / f64::from(MOST) * whole;
        let at = of.partition_point(|(_, sum)| *sum <= wanted);
        let Some(&(process, _)) = of.get(at).or_else(|| of.last()) else {
            continue;
        };
        let part = 1.0 / f64::from(MOST);
        match shares.last_mut().filter(|last| last.process == process) {
            Some(last) => last.part += part,
            None => shares.push(Share { process, part }),
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::{Located, LocatedIp, Location, TextIdx};
    use hbbp_model::snapshot::{EventIdx, Module, ModuleKind, Symbol, Text};
    use proptest::prelude::*;

    /// Two functions of the kernel, one of a kernel module and one of user code, each of one block.
    fn snapshot() -> Snapshot {
        let module = |name: &str, kind, starts: &[u64]| Module {
            name: name.to_owned(),
            kind,
            build_id: Vec::new(),
            symbols: starts
                .iter()
                .map(|start| Symbol {
                    start: ImageAddr(*start),
                    len: 4,
                    name: format!("at_{start:x}"),
                })
                .collect(),
        };
        let text = |module, start| Text {
            module: ModuleIdx(module),
            start: ImageAddr(start),
            // nop; nop; nop; ret
            bytes: vec![0x90, 0x90, 0x90, 0xc3],
            since: 0,
        };
        Snapshot {
            modules: vec![
                module("[kernel]", ModuleKind::Kernel, &[0x1000, 0x2000]),
                module("ext4", ModuleKind::KernelModule, &[0x1000]),
                module("/bin/dd", ModuleKind::Elf64, &[0x1000]),
            ],
            text: vec![text(0, 0x1000), text(0, 0x2000), text(1, 0x1000), text(2, 0x1000)],
            ..Snapshot::default()
        }
    }

    fn counted(text: u32, process: u32, weight: f64) -> Counted {
        Counted {
            block: BlockId {
                text: TextIdx(text),
                block: 0,
            },
            process: ProcessIdx(process),
            hits: weight,
            weight,
        }
    }

    /// What streams count in each block, divided by these samples; the kernel's is counted once.
    fn divided(samples: &[Counted]) -> Vec<Counted> {
        let snapshot = snapshot();
        let ip = |text: &Text, n| LocatedIp {
            location: Location {
                text: TextIdx(n),
                addr: text.start,
            },
            event: EventIdx(0),
            process: ProcessIdx::KERNEL,
            hits: 1,
            weight: 1,
        };
        let located = Located {
            ips: snapshot
                .text
                .iter()
                .zip(0..)
                .map(|(text, n)| ip(text, n))
                .collect(),
            ..Located::default()
        };
        let map = blocks(&snapshot, &located);
        let streams = [0, 1, 2].map(|text| counted(text, 0, 80.0));
        let streams = Vec::from_iter(streams.into_iter().chain([counted(3, 1, 80.0)]));
        let seen = SeenBlocks::new(&map, samples, &streams, &[]);
        KernelSamples::new(&snapshot, &map, &seen, samples).divided(&seen, streams)
    }

    /// A function without samples is divided as its module, a module without any as the kernel.
    #[test]
    fn functions_are_divided_by_their_samples() {
        let samples = [counted(0, 0, 2.0), counted(0, 1, 6.0), counted(3, 1, 9.0)];
        let expected = [
            counted(0, 0, 20.0),
            counted(0, 1, 60.0),
            // No sample is in the second function, and none in the module.
            counted(1, 0, 20.0),
            counted(1, 1, 60.0),
            counted(2, 0, 20.0),
            counted(2, 1, 60.0),
            counted(3, 1, 80.0),
        ];
        assert_eq!(divided(&samples), expected);
        let more = [&samples[..2], &[counted(1, 2, 8.0), counted(2, 3, 1.0)]].concat();
        let found = divided(&more);
        assert_eq!(found[2..4], [counted(1, 2, 80.0), counted(2, 3, 80.0)]);
    }

    #[test]
    fn without_samples_of_processes_the_kernel_stays_whole() {
        let whole = [0, 1, 2].map(|text| counted(text, 0, 80.0));
        for samples in [&[][..], &[counted(0, 0, 5.0)], &[counted(3, 1, 5.0)]] {
            assert_eq!(divided(samples)[..3], whole);
        }
    }

    #[test]
    fn a_stack_runs_kernel_code_in_its_own_process() {
        let share = |process, part| Share {
            process: ProcessIdx(process),
            part,
        };
        let samples = KernelSamples {
            functions: vec![vec![share(1, 0.75), share(2, 0.25)]],
            of_blocks: vec![Some(0), None],
            n: 4.0,
        };
        let drawn = |own: Option<u32>, fraction| samples.drawn(0, own.map(ProcessIdx), fraction).0;
        assert_eq!([drawn(Some(2), 0.1), drawn(Some(1), 0.9)], [2, 1]);
        assert_eq!(
            [drawn(None, 0.7), drawn(Some(3), 0.8), drawn(None, 1.0)],
            [1, 2, 2]
        );
    }

    /// Of more process images than are told apart in a function, some have parts in each, and all have them in the sum.
    #[test]
    fn many_process_images_are_drawn_by_their_shares() {
        let n = 10 * MOST;
        let weights = (0..n).map(|n| (ProcessIdx(n), if n == 7 { f64::from(10 * MOST) } else { 1.0 }));
        let cumulated = cumulated(weights.collect());
        let mut sums: BTreeMap<ProcessIdx, f64> = BTreeMap::new();
        for number in 0..1000 {
            let shares = shares(&cumulated, number);
            assert!(shares.len() <= MOST as usize && shares.is_sorted_by_key(|share| share.process));
            for share in shares {
                *sums.entry(share.process).or_default() += share.part / 1000.0;
            }
        }
        assert_eq!(sums.len(), n as usize);
        assert!((sums[&ProcessIdx(7)] - 0.5).abs() < 0.02, "{sums:?}");
    }

    proptest! {
        /// However many process images have samples, and where: blocks run as often as before.
        #[test]
        fn shares_sum_to_the_whole(
            seen in prop::collection::vec((0u32..4, 0u32..300, 0.0f64..9.0), 0..400),
        ) {
            let samples: Vec<Counted> = seen.into_iter().map(|(text, process, weight)| counted(text, process, weight)).collect();
            let samples = super::super::counted::summed(samples);
            let divided = divided(&samples);
            for text in 0..4 {
                let of_text = divided.iter().filter(|it| it.block.text == TextIdx(text));
                let sum: f64 = of_text.map(|it| it.weight).sum();
                prop_assert!((sum - 80.0).abs() < 1e-10, "{}: {}", text, sum);
            }
            prop_assert!(divided.is_sorted_by_key(|it| (it.block, it.process)));
        }
    }
}
