//! Basic block vectors: for each slice of a run the instructions that each basic block executed in it, as the experimental
//! tool exp-bbv of Valgrind has them, for SimPoint.
//!
//! ```text
//! snapshot -> estimate -> executions of each block by process ----+
//! slices -> code of each slice with its hits -> blocks (places) --+-> vectors -> bb.out, pc.out (lines)
//!                                                                        +-> simpoint (projection, k-means, BIC) -> plot
//! ```
//!
//! The executions of a block in the whole run are estimated as ever, and shared out among the slices in proportion to the hits
//! of its method there. So the vectors of all slices and threads sum to the estimate of the run, and what is known of its
//! errors, such as those of the oldest slot, holds for them.

pub mod clusters;
pub mod lines;
mod places;
pub mod plot;
pub mod simpoint;

use std::collections::HashMap;

use crate::addr::Ring;
use crate::blocks::BlockId;
use crate::estimate::{Rule, Unit};
use crate::locate::TextIdx;
use crate::mix::{Estimated, function};
use crate::slices::{Owner, Rings, Slices};
use crate::snapshot::{Process, ProcessIdx, Snapshot};
use places::Places;

/// A basic block that ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Module that it belongs to.
    pub module: String,
    /// Address of its first instruction in that module.
    pub address: u64,
    /// Function that covers it; empty where none is known.
    pub function: String,
    /// Its ring.
    pub ring: Ring,
    /// Its instructions.
    pub instructions: u32,
}

/// Whose vectors they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Command name of the process, with process and thread id; empty for all that was measured.
    pub name: String,
    /// Slices, the last and incomplete one included.
    pub slices: u32,
}

/// The vectors of a run; they are made one by one ([`Vectors::each`]).
pub struct Vectors<'a> {
    slices: &'a Slices,
    places: Places,
    /// By the block's index in the vectors, what stands in `pc.out`.
    blocks: Vec<Block>,
    /// By number, in the order of their first count.
    threads: Vec<Thread>,
    /// What the values are.
    pub unit: Unit,
    /// Instructions of the estimate that are in no vector: of code that was patched or replaced while it was measured.
    pub unshared: f64,
    /// The same of those that are.
    pub shared: f64,
}

/// The vector of one slice: for each block, by its index, instructions executed; the indexes ascend.
pub type Vector = [(u32, f64)];

/// Makes the vectors of a snapshot and the slices of the same run, of code of these rings.
pub fn vectors<'a>(snapshot: &Snapshot, slices: &'a Slices, rule: &Rule, rings: Rings) -> Vectors<'a> {
    let estimated = Estimated::new(snapshot, rule);
    let places = Places::new(&estimated, slices, rings);
    let (shared, unshared) = places.sums();
    let mut names = HashMap::new();
    let blocks = places
        .blocks()
        .iter()
        .map(|id| describe(&estimated, *id, &mut names));
    let mut threads: Vec<Thread> = slices
        .owners()
        .iter()
        .map(|owner| Thread {
            name: name(snapshot, *owner),
            slices: 0,
        })
        .collect();
    slices.each(|owner, slice, _| {
        if let Some(thread) = threads.get_mut(owner as usize) {
            thread.slices = thread.slices.max(slice.saturating_add(1));
        }
    });
    Vectors {
        slices,
        blocks: blocks.collect(),
        places,
        threads,
        unit: estimated.counts.assignment.unit,
        unshared,
        shared,
    }
}

impl Vectors<'_> {
    /// All blocks, by rising module and address.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// All threads, in the order of their first count.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Shows the vector of each slice: number of the thread, the slice, the vector. Threads come one after the other and their
    /// slices in the order of time.
    pub fn each(&self, mut show: impl FnMut(u32, u32, &Vector)) {
        let mut values = vec![0.0; self.blocks.len()];
        let mut touched: Vec<u32> = Vec::new();
        let mut vector = Vec::new();
        self.slices.each(|thread, slice, rows| {
            for (code, hits) in rows {
                for (block, value) in self.places.values(*code, *hits) {
                    if let Some(sum) = values.get_mut(block as usize) {
                        if *sum == 0.0 {
                            touched.push(block);
                        }
                        *sum += value;
                    }
                }
            }
            touched.sort_unstable();
            vector.clear();
            for block in touched.drain(..) {
                if let Some(sum) = values.get_mut(block as usize) {
                    vector.push((block, std::mem::take(sum)));
                }
            }
            show(thread, slice, &vector);
        });
    }
}

/// What is known of a block; names of functions are looked up once for each text and address.
fn describe(estimated: &Estimated<'_>, id: BlockId, modules: &mut HashMap<TextIdx, String>) -> Block {
    let text = estimated.map.text(id.text);
    let module = text.and_then(|text| estimated.snapshot.modules.get(text.module.0 as usize));
    let range = text.map_or(0..0, |text| text.block(id.block));
    let address = text.and_then(|text| Some(text.addr(*text.instructions(range.clone()).first()?)));
    let name = || module.map_or_else(String::new, |module| module.name.clone());
    Block {
        module: modules.entry(id.text).or_insert_with(name).clone(),
        address: address.map_or(0, |address| address.0),
        function: module
            .zip(address)
            .and_then(|(module, address)| function(module, address))
            .unwrap_or_default(),
        ring: if module.is_some_and(|module| module.kind.is_kernel()) {
            Ring::Kernel
        } else {
            Ring::User
        },
        instructions: range.end.saturating_sub(range.start),
    }
}

fn name(snapshot: &Snapshot, owner: Owner) -> String {
    if owner == Owner::default() {
        return String::new();
    }
    let tid = |process: &Process| process.thread.as_ref().map_or(0, |thread| thread.tid);
    let known = |process: &&Process| process.tgid == owner.tgid && tid(process) == owner.tid;
    let comm = snapshot
        .processes
        .iter()
        .rev()
        .find(known)
        .map(|process| process.comm.as_str());
    format!("{} ({}), thread {}", comm.unwrap_or("?"), owner.tgid, owner.tid)
}

/// The entry of a process image, or of one of its threads, that a count names.
fn process_of(
    processes: &HashMap<(u32, u32, u32), ProcessIdx>,
    (tgid, exec_id, tid): (u32, u32, u32),
) -> ProcessIdx {
    use crate::snapshot::Thread;

    let known = |tid| processes.get(&(tgid, exec_id, tid)).copied();
    known(tid)
        .or_else(|| known(Thread::OTHERS))
        .or_else(|| known(0))
        .unwrap_or(ProcessIdx::KERNEL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{ImageAddr, Va};
    use crate::snapshot::{
        Event, EventIdx, EventUnit, Interval, IpCount, Mapping, Module, ModuleIdx, ModuleKind, Period, Text,
        Thread,
    };
    use crate::streams::ThreadCounts;
    use hbbp_ebpf::{CountKey, EventTag, Tally};

    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    const USER: u64 = 0x40_1000;
    /// Two instructions each: `inc %eax; jmp .` and, in the kernel, `inc %eax; ret`.
    const CODE: [(u64, [u8; 4]); 2] = [
        (KERNEL, [0xff, 0xc0, 0x90, 0xc3]),
        (USER, [0xff, 0xc0, 0xeb, 0xfc]),
    ];
    const PERIOD: u64 = 1_000;

    fn module(name: &str, kind: ModuleKind) -> Module {
        Module {
            name: name.to_owned(),
            kind,
            build_id: Vec::new(),
            symbols: Vec::new(),
        }
    }

    fn mapping(n: u32) -> Mapping {
        let (start, code) = CODE[n as usize];
        Mapping {
            start: Va(start),
            end: Va(start + code.len() as u64),
            module: ModuleIdx(n),
            image_start: ImageAddr(start),
            from: 0,
        }
    }

    /// The kernel, and threads 7 and 8 of process 7.
    fn processes() -> Vec<Process> {
        let thread = |tid| Process {
            tgid: 7,
            comm: "two".to_owned(),
            mappings: vec![mapping(1)],
            thread: Some(Thread {
                tid,
                name: String::new(),
            }),
            ..Process::default()
        };
        let kernel = Process {
            mappings: vec![mapping(0)],
            ..Process::default()
        };
        vec![kernel, thread(7), thread(8)]
    }

    /// What was counted: address, thread, slice, hits.
    type Count = (u64, u32, u32, u64);

    fn row(&(ip, tid, _, hits): &Count) -> IpCount {
        IpCount {
            event: EventIdx(0),
            process: ProcessIdx(tid - 6),
            ip: Va(ip),
            exact: true,
            hits,
            weight: hits * PERIOD,
        }
    }

    fn entry(&(address, tid, slice, hits): &Count) -> (CountKey, Tally) {
        let key = CountKey {
            address,
            tgid: 7,
            tid,
            event: EventTag::new(0, 0).in_interval(slice),
            ..CountKey::default()
        };
        let tally = Tally {
            hits,
            ..Tally::default()
        };
        (key, tally)
    }

    fn text(n: u32) -> Text {
        let (start, bytes) = CODE[n as usize];
        Text {
            module: ModuleIdx(n),
            start: ImageAddr(start),
            bytes: bytes.to_vec(),
            since: 0,
        }
    }

    /// Sampled by instructions.
    fn run(counts: &[Count]) -> (Snapshot, Slices) {
        let mut slices = Slices::new(ThreadCounts::Apart);
        slices.add(&counts.iter().map(entry).collect::<Vec<_>>());
        let interval = Interval {
            end: 1,
            ips: counts.iter().map(row).collect(),
            ..Interval::default()
        };
        let mut snapshot = Snapshot {
            modules: vec![
                module("[kernel]", ModuleKind::Kernel),
                module("/bin/two", ModuleKind::Elf64),
            ],
            processes: processes(),
            text: (0..2).map(text).collect(),
            intervals: vec![interval],
            ..Snapshot::default()
        };
        snapshot.run.events = vec![Event {
            unit: EventUnit::Instructions,
            period: Period::Fixed(PERIOD),
            ..Event::default()
        }];
        (snapshot, slices)
    }

    const BOTH: Rings = Rings {
        user: true,
        kernel: true,
    };

    fn rule() -> Rule {
        crate::estimate::rule::NAMED[0].1.parse().unwrap()
    }

    fn sums(vectors: &Vectors<'_>) -> HashMap<(u32, Ring), f64> {
        let mut sums = HashMap::new();
        vectors.each(|thread, _, vector| {
            for (block, value) in vector {
                *sums
                    .entry((thread, vectors.blocks()[*block as usize].ring))
                    .or_insert(0.0) += value;
            }
        });
        sums
    }

    #[test]
    fn vectors_of_threads_sum_to_the_process_and_hold_their_kernel_work() {
        let counts = [
            (USER, 7, 0, 30),
            (USER + 2, 7, 1, 10),
            (KERNEL, 8, 0, 50),
            (USER, 8, 1, 4),
        ];
        let (snapshot, slices) = run(&counts);
        let vectors = vectors(&snapshot, &slices, &rule(), BOTH);
        let sums = sums(&vectors);
        let near = |of: (u32, Ring), hits: f64| (sums[&of] - hits * PERIOD as f64).abs() < 1e-6;
        assert!(
            near((0, Ring::User), 40.0) && near((1, Ring::Kernel), 50.0) && near((1, Ring::User), 4.0),
            "{sums:?}"
        );
        assert!((vectors.shared - 94_000.0).abs() < 1e-6 && vectors.unshared == 0.0);
        assert!(vectors.threads()[1].name.ends_with("two (7), thread 8"));

        let mut text = Vec::new();
        let ids = lines::Ids::new(&vectors);
        lines::write_vectors(&vectors, &ids, (0, 30_000), false, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("T:1:30000   \n#T:1:10000   \n"), "{text}");
    }

    #[test]
    fn one_ring_alone_is_in_the_vectors() {
        let (snapshot, slices) = run(&[(USER, 7, 0, 30), (KERNEL, 7, 0, 50)]);
        let user = Rings {
            user: true,
            kernel: false,
        };
        let vectors = vectors(&snapshot, &slices, &rule(), user);
        assert_eq!(sums(&vectors).len(), 1);
        assert!((vectors.shared - 30_000.0).abs() < 1e-6);
    }
}
