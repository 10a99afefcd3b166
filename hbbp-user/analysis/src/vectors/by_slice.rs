//! The vectors of a run, which are made slice by slice, and what is known of its blocks and threads.

use std::collections::HashMap;

use iced_x86::Mnemonic;

use super::places::Places;
use crate::mix::{Estimated, function};
use hbbp_code::blocks::{BlockId, Form};
use hbbp_code::locate::TextIdx;
use hbbp_estimate::{Rule, Unit};
use hbbp_model::addr::Ring;
use hbbp_model::slices::{LeftOut, Owner, Rings, Slices};
use hbbp_model::snapshot::{Event, EventUnit, Process, Snapshot};

/// An executed basic block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    /// Module that it belongs to.
    pub(crate) module: String,
    /// Address of its first instruction in that module.
    pub(crate) address: u64,
    /// Function that covers it; empty if none is known.
    pub(crate) function: String,
    /// Its ring.
    pub(crate) ring: Ring,
    /// Its instructions.
    pub(crate) instructions: u32,
    /// String instructions with a repeat prefix among them.
    pub(crate) repeated: u32,
    /// FLDCW among them.
    pub(crate) fldcw: u32,
}

/// Whose vectors they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Command name of the process, with process and thread id; empty for all that was measured.
    pub name: String,
    /// Process id; 0 for all that was measured.
    pub tgid: u32,
    /// Slices, the last and incomplete one included.
    pub slices: u32,
}

/// The vectors of a run; they are made one by one ([`Vectors::each`]).
pub struct Vectors<'a> {
    slices: &'a Slices,
    places: Places,
    /// By the block's index in the vectors, what is in `pc.out`.
    blocks: Vec<Block>,
    /// By number, in the order of their first count.
    threads: Vec<Thread>,
    /// What the values are.
    pub unit: Unit,
    /// Instructions of the estimate that are in no vector: of code that was patched or replaced while it was measured.
    pub(crate) unshared: f64,
    /// The same of those whose hits are in no slice ([`Slices::left_out`]).
    pub outside: f64,
    /// The same of those that are in vectors.
    pub shared: f64,
    /// Complete slices without code, of all threads: none of their samples arrived. Files have no line for them.
    pub empty: u64,
    /// Events whose samples did not all arrive. Clocks are left out: idle CPUs miss theirs.
    pub(crate) missing: Vec<Missing>,
}

/// Samples of an event that did not arrive: what they represent is in no vector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Missing {
    /// Name of the event.
    pub(crate) event: String,
    /// Samples that its counters say were due.
    pub(crate) due: u64,
    /// Of them, those that did not arrive.
    pub(crate) samples: u64,
}

/// The vector of one slice: for each block, by its index, instructions executed; the indexes ascend.
pub(crate) type Vector = [(u32, f64)];

/// Makes the vectors of a snapshot and the slices of the same run, of code of these rings.
pub fn vectors<'a>(snapshot: &Snapshot, slices: &'a Slices, rule: &Rule, rings: Rings) -> Vectors<'a> {
    let estimated = Estimated::new(snapshot, rule);
    let places = Places::new(&estimated, slices, rings);
    let [shared, outside, unshared] = places.sums();
    let mut names = HashMap::new();
    let counted = counted_forms(&estimated.map.forms);
    let blocks = places
        .blocks()
        .iter()
        .map(|id| describe(&estimated, *id, &counted, &mut names));
    let mut threads: Vec<Thread> = slices
        .owners()
        .iter()
        .map(|owner| Thread {
            name: name(snapshot, *owner),
            tgid: owner.tgid,
            slices: 0,
        })
        .collect();
    slices.each(|owner, slice, _| {
        if let Some(thread) = threads.get_mut(owner as usize) {
            thread.slices = thread.slices.max(slice.saturating_add(1));
        }
    });
    let mut vectors = Vectors {
        slices,
        blocks: blocks.collect(),
        places,
        threads,
        unit: estimated.counts.assignment.unit,
        unshared,
        outside,
        shared,
        empty: 0,
        missing: snapshot.run.events.iter().filter_map(missing).collect(),
    };
    vectors.empty = vectors.count_empty();
    vectors
}

/// What is missing of an event.
fn missing(event: &Event) -> Option<Missing> {
    let due = event.due().filter(|_| event.unit != EventUnit::Nanoseconds)?;
    Some(Missing {
        event: event.name.clone(),
        due,
        samples: due.saturating_sub(event.runs),
    })
}

impl Vectors<'_> {
    /// All blocks, by rising module and address.
    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Hits of the run that are in no vector.
    pub(crate) const fn left_out(&self) -> LeftOut {
        self.slices.left_out()
    }

    /// All threads, in the order of their first count.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Shows the vector of each slice: number of the thread, the slice, the vector. Threads come one after the other and their
    /// slices in the order of time.
    pub(crate) fn each(&self, mut show: impl FnMut(u32, u32, &Vector)) {
        for thread in 0..u32::try_from(self.threads.len()).unwrap_or(u32::MAX) {
            self.each_of(thread, |slice, vector| show(thread, slice, vector));
        }
    }

    /// The same of one thread: number of the slice, and the vector.
    pub(crate) fn each_of(&self, thread: u32, mut show: impl FnMut(u32, &Vector)) {
        let mut values = vec![0.0; self.blocks.len()];
        let mut touched: Vec<u32> = Vec::new();
        let mut vector = Vec::new();
        self.slices.each_of(thread, |_, slice, rows| {
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
            show(slice, &vector);
        });
    }
}

impl Vectors<'_> {
    /// Variance that chance alone leaves in the vectors of a thread, each divided by its sum: that of all blocks together, in
    /// the mean of the slices. A hit is one by chance, so that the variance of `n` hits is `n` (Poisson).
    pub(crate) fn chance(&self, thread: u32) -> f64 {
        let whole = self.whole_slices(thread);
        let (mut sum, mut n) = (0.0, 0.0);
        self.slices.each_of(thread, |_, slice, rows| {
            let (mut all, mut variance) = (0.0, 0.0);
            for (code, hits) in rows.iter().filter(|_| slice < whole) {
                for (_, value) in self.places.values(*code, *hits) {
                    all += value;
                    variance += value * value / *hits as f64;
                }
            }
            if 0.0 < all {
                sum += variance / (all * all);
                n += 1.0;
            }
        });
        sum / f64::max(n, 1.0)
    }

    /// Complete slices without code, of all threads.
    fn count_empty(&self) -> u64 {
        let whole = |thread: &Thread| u64::from(thread.slices.saturating_sub(1));
        let all: u64 = self.threads.iter().map(whole).sum();
        let mut with_code = 0_u64;
        self.each(|thread, slice, vector| {
            with_code += u64::from(slice < self.whole_slices(thread) && !vector.is_empty());
        });
        all.saturating_sub(with_code)
    }

    /// Slices of a thread that are complete: all but the last.
    pub(crate) fn whole_slices(&self, thread: u32) -> u32 {
        let about = self.threads.get(thread as usize);
        about.map_or(0, |about| about.slices.saturating_sub(1))
    }
}

/// Instructions that exp-bbv has totals of, as tracers and the Pentium 4 count them differently.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CountedForm {
    /// A string instruction with a repeat prefix, which hardware counts once for all iterations.
    Repeated,
    /// FLDCW, which the Pentium 4 counts twice.
    Fldcw,
}

/// By the index of the form, which instruction of those it is.
fn counted_forms(forms: &[Form]) -> Vec<Option<CountedForm>> {
    let counted = |form: &Form| {
        let decoded = form.decoded()?;
        let repeats = decoded.has_rep_prefix() || decoded.has_repne_prefix();
        match decoded.mnemonic() {
            Mnemonic::Fldcw => Some(CountedForm::Fldcw),
            _ if repeats && decoded.is_string_instruction() => Some(CountedForm::Repeated),
            _ => None,
        }
    };
    forms.iter().map(counted).collect()
}

/// What is known of a block; names of functions are looked up once for each text and address.
fn describe(
    estimated: &Estimated<'_>,
    id: BlockId,
    counted: &[Option<CountedForm>],
    modules: &mut HashMap<TextIdx, String>,
) -> Block {
    let text = estimated.map.text(id.text);
    let module = text.and_then(|text| estimated.snapshot.modules.get(text.module.0 as usize));
    let range = text.map_or(0..0, |text| text.block(id.block));
    let address = text.and_then(|text| Some(text.addr(*text.instructions(range.clone()).first()?)));
    let name = || module.map_or_else(String::new, |module| module.name.clone());
    let n_of = |wanted: CountedForm| {
        let instructions = estimated.map.instructions(id).iter();
        let counted = instructions.filter_map(|it| *counted.get(usize::from(it.form.0))?);
        u32::try_from(counted.filter(|form| *form == wanted).count()).unwrap_or(u32::MAX)
    };
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
        repeated: n_of(CountedForm::Repeated),
        fldcw: n_of(CountedForm::Fldcw),
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
