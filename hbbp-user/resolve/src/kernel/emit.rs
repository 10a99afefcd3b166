//! What is handed over of ring 0 at the end of a run: the modules that were hit, their text and the kernel's mappings.

use std::mem;

use super::map::{KernelModuleIdx, Region};
use super::space::{KernelSpace, Machine};
use crate::text::ModuleText;
use hbbp_elf::build_id::{read_kernel_build_id, read_module_build_id};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Mapping, Module, ModuleIdx, ModuleKind, StaticBranch, Text};

impl KernelSpace {
    /// The intervals in which text versions begin.
    pub(crate) fn version_starts(&self) -> impl Iterator<Item = u32> {
        let texts = self.texts.values();
        texts.flat_map(ModuleText::version_starts)
    }

    /// The static branches in text of the kernel image that was handed over.
    pub(crate) fn static_branches(&self, modules: &[Module], text: &[Text]) -> Vec<StaticBranch> {
        let kernel = (0..)
            .zip(modules)
            .find(|(_, module)| module.kind == ModuleKind::Kernel);
        let found = kernel.map(|(idx, _)| self.static_branches.in_text(ModuleIdx(idx), text));
        found.unwrap_or_default()
    }

    /// Hands over the modules and the text that were hit since the last call, and returns the mappings of the kernel.
    pub(crate) fn emit(&mut self, modules: &mut Vec<Module>, text: &mut Vec<Text>) -> Vec<Mapping> {
        let mut regions: Vec<Region> = mem::take(&mut self.hit).into_values().collect();
        let mut used: Vec<KernelModuleIdx> = regions.iter().map(|r| r.module).collect();
        used.sort_unstable();
        used.dedup();
        for idx in &used {
            let Some(module) = self.map.module(*idx) else {
                continue;
            };
            let module_idx = ModuleIdx(u32::try_from(modules.len()).unwrap_or(u32::MAX));
            let symbols = self.texts.remove(idx).unwrap_or_default().emit(module_idx, text);
            let build_id = match (&self.machine, module.kind) {
                (Machine::This, ModuleKind::Kernel) => read_kernel_build_id(),
                (Machine::This, ModuleKind::KernelModule) => read_module_build_id(&module.name),
                (Machine::Recorded(kernel), ModuleKind::Kernel) => kernel.clone(),
                _ => Vec::new(),
            };
            modules.push(Module {
                name: module.name.clone(),
                kind: module.kind,
                build_id,
                symbols,
            });
        }
        self.alone = None;
        // What was copied early and not hit may be later, as it is now.
        self.texts.values_mut().for_each(ModuleText::forget_versions);
        // Since Linux 6.4 the size of a module says too much: it ends where the next region starts.
        for idx in 1..regions.len() {
            if let [region, next] = &mut regions[idx - 1..=idx]
                && region.start < next.start
                && region.from == next.from
            {
                region.end = region.end.min(next.start);
            }
        }
        let first = modules.len() - used.len();
        let mapping = |r: &Region| {
            let rank = used.binary_search(&r.module).ok()?;
            let module = ModuleIdx(u32::try_from(first + rank).ok()?);
            Some(Mapping {
                start: r.start,
                end: r.end,
                module,
                image_start: ImageAddr(r.start.0),
                from: r.from,
            })
        };
        regions.iter().filter_map(mapping).collect()
    }
}
