//! A profile of the Firefox Profiler (profiler.firefox.com): one thread for each process image, with the module and the function
//! as the stack and the category of the instruction as its category.
//!
//! Weights are whole numbers of 32 bits, so that large counts are divided, all by the same number.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile, ReferenceTimestamp,
    SamplingInterval, Timestamp, WeightType,
};

use super::counted::{Counted, Only};
use super::image::{FOR_ALL, Written};
use super::names::Names;
use hbbp_model::snapshot::ProcessIdx;

/// Module, function and category.
type Key = (String, String, String);

/// Writes the executions of a profile, or of one of its modules.
pub fn write_firefox(counted: &Counted<'_>, only: Only<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written::default();
    let mut names = Names::new(counted);
    let mut amounts: BTreeMap<(ProcessIdx, Key), f64> = BTreeMap::new();
    for executed in counted.executed_in(only) {
        let module = names.module(executed.site).to_owned();
        let key = (
            module,
            names.function(executed.site),
            names.class(&executed).category.clone(),
        );
        *amounts.entry((executed.process, key)).or_default() += executed.executions;
    }
    let executions: Vec<f64> = amounts.values().copied().collect();
    let counts = counted.whole(&executions);
    let divisor = divisor(&counts);
    let mut builder = Builder::new(counted);
    for (((process, key), _), count) in amounts.iter().zip(counts) {
        written.add(FOR_ALL, count);
        let weight = i32::try_from(count / divisor).unwrap_or(i32::MAX);
        let said = u64::try_from(weight).unwrap_or(0).saturating_mul(divisor);
        written.leave_out("lost by division to 32 bits", count.saturating_sub(said));
        if 0 < weight {
            builder.add(&names, *process, key, weight);
        }
    }
    serde_json::to_writer(out, &builder.profile)?;
    Ok(written)
}

/// A power of ten that makes the greatest count fit.
fn divisor(counts: &[u64]) -> u64 {
    let greatest = counts.iter().copied().max().unwrap_or(0);
    let mut divisor = 1;
    while u64::from(i32::MAX.unsigned_abs()) <= greatest / divisor {
        divisor *= 10;
    }
    divisor
}

struct Builder {
    profile: Profile,
    threads: HashMap<ProcessIdx, fxprof_processed_profile::ThreadHandle>,
    categories: HashMap<String, CategoryHandle>,
}

impl Builder {
    fn new(counted: &Counted<'_>) -> Self {
        let run = &counted.snapshot.run;
        let started = ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(run.started));
        let product = format!(
            "hbbp-sys {} ({})",
            run.host.name,
            counted.counts.assignment.unit.noun()
        );
        let interval = SamplingInterval::from_millis(1);
        Self {
            profile: Profile::new(&product, started, interval),
            threads: HashMap::new(),
            categories: HashMap::new(),
        }
    }

    fn add(&mut self, names: &Names<'_>, process: ProcessIdx, key: &Key, weight: i32) {
        let zero = Timestamp::from_nanos_since_reference(0);
        let profile = &mut self.profile;
        let thread = *self.threads.entry(process).or_insert_with(|| {
            let (comm, tgid) = names.process(process);
            let owner = profile.add_process(&comm, tgid, zero);
            let thread = profile.add_thread(owner, tgid, zero, true);
            profile.set_thread_name(thread, &comm);
            profile.set_thread_samples_weight_type(thread, WeightType::Samples);
            thread
        });
        let (module, function, class) = key;
        let category = self
            .categories
            .entry(class.clone())
            .or_insert_with(|| profile.add_category(class, CategoryColor::Blue));
        let labels = [module, function].map(|name| profile.intern_string(name));
        let frame = |label| FrameInfo {
            frame: Frame::Label(label),
            category_pair: (*category).into(),
            flags: FrameFlags::empty(),
        };
        let stack = profile.intern_stack_frames(thread, labels.into_iter().map(frame));
        profile.add_sample(thread, zero, stack, CpuDelta::ZERO, weight);
    }
}
