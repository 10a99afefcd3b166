//! Counts become rows of the snapshot: those of a drain, and those of a recording.

use std::ops::Range;

use super::raw::{Raw, RawInterval, Sort, TaskKey};
use super::resolver::Resolver;
use super::user::space::{Origin, UserSpace};
use hbbp_model::addr::{Ring, Va};
use hbbp_model::advice::Advised;
use hbbp_model::snapshot::fold::Boundaries;
use hbbp_model::snapshot::{Interval, Loss, ProcessIdx};

impl Resolver {
    /// Adds the counts of one drain, part by part in the order of time. All records up to its end should have been
    /// applied.
    ///
    /// Where kernel text was patched within a part, it becomes several intervals, and each count belongs to the one of
    /// its first sample.
    pub fn drained<I: IntoIterator<Item = Raw>>(&mut self, parts: Vec<RawInterval<I>>) {
        let (Some(start), Some(end)) = (parts.first().map(|p| p.start), parts.last().map(|p| p.end)) else {
            return;
        };
        for time in self.user.begin_drain(start..end, &mut self.losses) {
            self.kernel.split_at(time);
        }
        let is_watched = self.user.is_watched();
        if !is_watched {
            self.user.reread(self.intervals.next(), &mut self.losses);
        }
        // Counts of user code that belong to a later part.
        let mut later = Vec::new();
        for part in parts {
            later = self.interval(part, later, end);
        }
        if is_watched {
            // What changed since the last look did so at the end of the drain.
            self.user.reread(self.intervals.next(), &mut self.losses);
        }
        // Counting continues during a drain, so an image that ends within it may still have samples in the next.
        self.user.end_drain(start, &mut self.losses);
        self.kernel.forget_before(start);
        self.fold_intervals();
    }

    /// Merges intervals where their counts take too much memory.
    fn fold_intervals(&mut self) {
        if self.intervals.is_full() {
            let versions = self.kernel.version_starts();
            let boundaries = Boundaries {
                versions: versions.chain(self.user.version_starts()).collect(),
                mappings: self.user.replaced_mappings().collect(),
            };
            self.intervals.fold(&boundaries, &mut self.losses);
        }
    }

    /// Adds the counts of a part, and those `from_before` of user code: it is all in the first part, whose kernel
    /// code alone is counted separately. Returns those that came after the part, but before the `end` of the drain.
    fn interval<I: IntoIterator<Item = Raw>>(
        &mut self,
        raw: RawInterval<I>,
        from_before: Vec<Raw>,
        end: u64,
    ) -> Vec<Raw> {
        let idx = self.intervals.next();
        let parts = self.kernel.begin(idx, raw.start..raw.end, &mut self.losses);
        let new = |time: Range<u64>| Interval {
            start: time.start,
            end: time.end,
            ..Interval::default()
        };
        let mut intervals: Vec<Interval> = parts.bounds().map(new).collect();
        intervals
            .iter_mut()
            .skip(1)
            .for_each(|interval| interval.continues = true);
        self.begin_lookups();
        let mut ambiguous = 0;
        let counts = raw.counts.into_iter().chain(from_before);
        let (least, most) = counts.size_hint();
        let capacity = most.unwrap_or(least) / intervals.len().max(1);
        let mut later = Vec::new();
        let is_last = raw.end == end;
        for count in counts {
            let time = count.first_time;
            if !is_last && raw.end <= time && count.start.ring() == Ring::User {
                later.push(count);
            } else if let Some(interval) = intervals.get_mut(parts.part(time)) {
                ambiguous += self.count(&count, interval, capacity);
            }
        }
        if is_last && let Some(last) = intervals.last_mut() {
            last.chains = self.chains();
        }
        for interval in &mut intervals {
            interval.ips.shrink_to_fit();
            interval.streams.shrink_to_fit();
            interval.branches.shrink_to_fit();
            interval.refused.shrink_to_fit();
        }
        self.losses.add(Loss::TextSwitched, ambiguous);
        self.kernel.close();
        for interval in intervals {
            self.intervals.push(interval);
        }
        later
    }

    /// Adds a count to its interval. Returns how many of its hits are ambiguous.
    #[inline]
    fn count(&mut self, count: &Raw, interval: &mut Interval, capacity: usize) -> u64 {
        let (task, time) = (count.task, count.first_time);
        let thread = |user: &mut UserSpace, process| user.thread(process, count.tid);
        match count.sort {
            Sort::Ip { exact } => {
                let process = self.one(task, time, count.start);
                let process = thread(&mut self.user, process);
                push(&mut interval.ips, count.ip(process, exact), capacity);
                self.kernel.ambiguous(count.start, count.start, time, count.hits)
            }
            Sort::Stream => {
                let process = self.stream(task, time, count.start, count.end);
                if count.source != Va(0) {
                    self.source(task, time, count.source);
                }
                let process = thread(&mut self.user, process);
                push(&mut interval.streams, count.stream(process), capacity);
                self.kernel.ambiguous(count.start, count.end, time, count.hits)
            }
            Sort::Oldest => {
                let process = self.one(task, time, count.start);
                let process = thread(&mut self.user, process);
                push(&mut interval.branches, count.oldest(process), capacity);
                0
            }
            Sort::Refused => {
                let process = self.one(task, time, count.start);
                let process = thread(&mut self.user, process);
                interval.refused.push(count.ip(process, false));
                0
            }
        }
    }

    /// The process image or thread that a sample of a recording belongs to, and its interval.
    pub fn owner(&mut self, tgid: u32, tid: u32, time: u64) -> (ProcessIdx, usize) {
        let (process, interval) = self.user.owner(tgid, time, &mut self.losses);
        (self.user.thread(process, tid), interval)
    }

    /// The text of a process of a recording at `time`, from `at` to the end of what was read around it. The size in
    /// bits is for its decoder.
    pub fn recorded_text(&mut self, tgid: u32, time: u64, at: Va) -> Option<(u32, &[u8])> {
        match at.ring() {
            Ring::Kernel => Some((64, self.kernel.text_from(at, time, &mut self.losses)?)),
            Ring::User => self.user.recorded_text(tgid, time, at, &mut self.losses),
        }
    }

    /// Start and end of the intervals of a recording that lasts from `start` to `end`.
    pub fn recorded_bounds(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        match &self.user.origin {
            Origin::Recorded(time, _) => time.bounds(start, end),
            Origin::Live(_) => vec![(start, end)],
        }
    }

    /// Adds the counts of an interval of a recording, whose process images are known.
    pub fn recorded_interval(&mut self, interval: Interval) {
        self.begin_lookups();
        let end = interval.end.saturating_sub(1);
        let tasks = self.user.tasks(end);
        let task = |process: ProcessIdx| match usize::try_from(process.0).ok()?.checked_sub(1) {
            Some(nth) => tasks.get(nth).copied(),
            None => Some((TaskKey::KERNEL, end)),
        };
        // The task of a process image that can have executed an address: the kernel has no user code. Texts without
        // process ids have one process image of number 0 in addition to the kernel, so that its number does not
        // identify it.
        let runs = |process: ProcessIdx, at: Va| {
            let is_possible = process != ProcessIdx::KERNEL || at.ring() == Ring::Kernel;
            task(process).filter(|_| is_possible)
        };
        for count in &interval.ips {
            self.recorded_hit(runs(count.process, count.ip), count.ip);
        }
        for count in &interval.streams {
            if let Some((task, time)) = runs(count.process, count.start) {
                self.stream(task, time, count.start, count.end);
            }
            self.recorded_hit(runs(count.process, count.end), count.end);
        }
        for count in &interval.branches {
            self.recorded_hit(runs(count.process, count.from), count.from);
            self.recorded_hit(runs(count.process, count.to), count.to);
        }
        self.intervals.push(interval);
    }

    fn recorded_hit(&mut self, task: Option<(TaskKey, u64)>, at: Va) {
        if let Some((task, time)) = task {
            self.hit(task, time, at);
        }
    }

    /// Why a recording cannot be used, as a sentence for the user, if it cannot.
    pub fn refused(&self) -> Option<Advised> {
        match &self.user.origin {
            Origin::Recorded(_, files) => files.refused(),
            Origin::Live(_) => None,
        }
    }
}

/// Adds a row; the first one reserves the capacity.
fn push<T>(rows: &mut Vec<T>, row: T, capacity: usize) {
    if rows.is_empty() {
        rows.reserve(capacity);
    }
    rows.push(row);
}
