//! Call chains become rows of the snapshot, and the text of the callers is read.

use std::mem;

use super::raw::RawChain;
use super::resolver::Resolver;
use hbbp_model::addr::{Ring, Va};
use hbbp_model::snapshot::row::merge_rows;
use hbbp_model::snapshot::{ChainCount, ProcessIdx};

impl Resolver {
    /// Adds call chains. Call it before [`Self::drained`] for the same drain: they belong to its last part.
    pub fn chained(&mut self, chains: impl IntoIterator<Item = RawChain>) {
        self.chains.extend(chains);
    }

    /// The call chains that wait, as rows.
    pub(super) fn chains(&mut self) -> Vec<ChainCount> {
        let chains = mem::take(&mut self.chains);
        let mut rows = Vec::with_capacity(chains.len());
        rows.extend(chains.into_iter().map(|chain| self.chain(chain)));
        // A chain may have two slots of the table, and what was user code beyond its end may have differed.
        merge_rows(&mut rows, Vec::new());
        rows
    }

    fn chain(&mut self, chain: RawChain) -> ChainCount {
        let RawChain {
            task,
            tid,
            first_time,
            event,
            ip,
            mut frames,
            top,
            hits,
            weight,
        } = chain;
        let has_user = frames.iter().chain([&ip]).any(|at| at.ring() == Ring::User);
        let process = if has_user {
            let process = self.user.process_at(task, first_time, &mut self.losses);
            self.user.thread(process, tid)
        } else {
            ProcessIdx::KERNEL
        };
        // A return address is that of the next instruction, which may belong to the next function.
        let before = |nth: usize, at: Va| Va(at.0.saturating_sub(u64::from(nth != 0)));
        let is_text = |this: &mut Self, at: Va| match at.ring() {
            Ring::Kernel => this.kernel_hit(first_time, at).is_some(),
            Ring::User => this.hit(task, first_time, at).1.is_some(),
        };
        // If code keeps no frame pointer, the chain holds unrelated values from there on. Only canonical addresses can be text,
        // in either ring.
        let n_text = (0_usize..).zip(&frames).take_while(|(nth, at)| {
            at.is_canonical() && (is_text(self, before(*nth, **at)) || at.ring() == Ring::Kernel)
        });
        let n_text = n_text.count();
        frames.truncate(n_text);
        let has_top = top.ring() == Ring::User && top != Va(0) && has_user;
        let is_top = has_top && is_text(self, before(1, top));
        ChainCount {
            event,
            process,
            ip,
            frames: frames.into(),
            top: if is_top { top } else { Va(0) },
            hits,
            weight,
        }
    }
}
