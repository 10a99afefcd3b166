//! Kernel text that is read again during a run: what changed without a record is found by comparing.

use super::map::KernelModuleIdx;
use super::space::{KernelSpace, TextHistory};
use crate::clock::now;
use crate::text::{Change, Live, ModuleText};
use hbbp_model::addr::Va;
use hbbp_model::snapshot::{Loss, Losses};

/// A reading of the text that was hit.
#[derive(Debug)]
pub struct LiveText {
    /// When it began, in ns.
    time: u64,
    modules: Vec<(KernelModuleIdx, Live)>,
}

impl KernelSpace {
    /// Reads what was hit once more, after a drain.
    pub fn read_live(&mut self) -> LiveText {
        let mut live = LiveText {
            time: now(),
            modules: Vec::new(),
        };
        if self.reader.is_live() && self.history == TextHistory::Followed {
            let fresh = Some(self.changes.next_reading());
            let Self {
                map, reader, texts, ..
            } = self;
            let there = map.modules_there();
            let there = texts
                .iter()
                .filter(|(module, _)| there.get(**module) == Some(&true));
            let read = |(module, text): (&KernelModuleIdx, &ModuleText)| {
                (
                    *module,
                    text.read_live(fresh, &mut |at, bytes| reader.read(Va(at.0), bytes)),
                )
            };
            live.modules = there.map(read).collect();
        }
        live
    }

    /// Compares a reading with what is known. All records up to the reading should have been applied: text removed
    /// before it was reported had been read already, or its replacement had.
    pub fn compare(&mut self, live: LiveText, losses: &mut Losses) {
        let pending = self.changes.pending();
        let there = self.map.modules_there();
        let known = self.changes.known(live.time, &pending);
        for (module, live) in live.modules {
            let is_there = there.get(module) == Some(&true);
            if let Some(text) = self.texts.get_mut(&module).filter(|_| is_there) {
                losses.add(Loss::TextUncertain, text.change(Change::Observed(live, known)));
            }
        }
    }

    /// Closes the histories: differences without a record are accepted as they are, and text that is read only once is read now.
    pub(crate) fn settle(&mut self, losses: &mut Losses) {
        let Self { reader, texts, .. } = self;
        match self.history {
            TextHistory::Followed => {
                losses.add(
                    Loss::TextUncertain,
                    texts.values_mut().map(ModuleText::settle).sum(),
                );
            }
            TextHistory::Once => {
                for text in texts.values_mut() {
                    text.replace(&mut |at, bytes| reader.read(Va(at.0), bytes));
                }
            }
        }
    }
}
