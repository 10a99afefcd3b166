//! The process image of a task at a time, which counts of user code belong to, with its name and its cgroup.

use std::sync::Arc;

use super::hit_process::{HitProcess, hit_process};
use super::process_image::ProcessImage;
use super::space::{Origin, UserSpace};
use crate::raw::TaskKey;
use hbbp_model::snapshot::{Loss, Losses, ProcessIdx};

impl UserSpace {
    /// The process image of `task` at `time`, for counts whose address is outside its own text.
    pub(crate) fn process_at(&mut self, task: TaskKey, time: u64, losses: &mut Losses) -> ProcessIdx {
        let image = self.index.image_at(task.tgid, time);
        // Most counts of the kernel are of a process image that is known, under its name: that one is not copied.
        if let Some(idx) = self.process_idx.get(&(image.map(|it| it.generation), task))
            && let Some(process) = hit_process(&mut self.processes, *idx)
            && image.is_none_or(|image| image.comm == process.comm)
        {
            return *idx;
        }
        let image = image.cloned();
        self.process(task, image.as_ref(), losses)
    }

    pub(super) fn process(
        &mut self,
        task: TaskKey,
        image: Option<&ProcessImage>,
        losses: &mut Losses,
    ) -> ProcessIdx {
        let key = (image.map(|i| i.generation), task);
        let idx = match self.process_idx.get(&key) {
            Some(idx) => *idx,
            None => {
                let cgroup = self.cgroup(task.tgid, image, losses);
                self.processes.push(HitProcess {
                    cgroup,
                    ..HitProcess::new(task, key.0)
                });
                // The kernel precedes all of them.
                let idx = ProcessIdx(u32::try_from(self.processes.len()).unwrap_or(u32::MAX));
                self.process_idx.insert(key, idx);
                idx
            }
        };
        if let (Some(image), Some(process)) = (image, hit_process(&mut self.processes, idx)) {
            process.comm = image.comm.clone();
        }
        idx
    }

    /// The cgroup of a process image that is hit for the first time.
    fn cgroup(&mut self, tgid: u32, image: Option<&ProcessImage>, losses: &mut Losses) -> Option<Arc<str>> {
        if matches!(self.origin, Origin::Recorded(..)) {
            return None;
        }
        let known = image.map(|image| &image.cgroup);
        if let Some(known) = known.filter(|known| known.is_read) {
            return known.path.clone();
        }
        let is_live = image.is_none_or(|image| self.index.is_live(tgid, Some(image.generation)));
        let Some(read) = is_live.then(|| self.cgroups.read(tgid)).flatten() else {
            losses.add(Loss::CgroupUnread, 1);
            return known?.path.clone();
        };
        self.index.set_cgroup(tgid, u64::MAX, read.clone());
        read.path
    }

    /// The process image that a sample of a recording belongs to, and its interval.
    pub(crate) fn owner(&mut self, tgid: u32, time: u64, losses: &mut Losses) -> (ProcessIdx, usize) {
        let interval = match &self.origin {
            Origin::Recorded(recorded, _) => recorded.interval_at(time),
            Origin::Live(_) => 0,
        };
        let task = self.recorded_task(tgid, time);
        (self.process_at(task, time, losses), interval)
    }

    pub(super) fn recorded_task(&self, tgid: u32, time: u64) -> TaskKey {
        let tgid = match &self.origin {
            Origin::Recorded(recorded, _) => recorded.tgid(tgid),
            Origin::Live(_) => tgid,
        };
        let image = self.index.image_at(tgid, time);
        // Two programs of one process must not pass for one.
        let exec_id = image.map_or(0, |image| u32::try_from(image.generation.0).unwrap_or(u32::MAX));
        TaskKey { tgid, exec_id }
    }

    /// The tasks of all process images, each with the last time up to `time` at which it was running: counts of a
    /// recording carry no times.
    pub(crate) fn tasks(&self, time: u64) -> Vec<(TaskKey, u64)> {
        let last_time = |process: &HitProcess| {
            let of = process
                .generation
                .map(|of| self.index.end_of(process.task.tgid, of));
            (
                process.task,
                of.map_or(time, |end| time.min(end.saturating_sub(1))),
            )
        };
        self.processes.iter().map(last_time).collect()
    }

    /// The processes that were hit since the last call of [`Self::emit`], by their numbers there, and have ended or run another
    /// program by now.
    pub(crate) fn ended(&self) -> Vec<ProcessIdx> {
        let hit = self.processes.iter().zip((1..).map(ProcessIdx));
        let has_ended = |process: &HitProcess| !self.index.is_live(process.task.tgid, process.generation);
        hit.filter_map(|(process, idx)| has_ended(process).then_some(idx))
            .collect()
    }
}
