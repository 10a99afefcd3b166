//! The values of axes that are known before anything was measured: few, and the same for every run.

use hbbp_decode::{Extension, mnemonics};
use iced_x86::{Code, Mnemonic};

use super::axis::{Axis, NO_GROUP};
use super::category::Category;
use super::class::{Lock, Memory, flow_name, name};
use super::dimension::Dimension;
use super::extension::extension;
use super::level::LEVELS;
use super::operands::{ELEMENTS, Packing};
use super::{mitigation, patch};
use hbbp_code::blocks::Flow;

impl Axis {
    /// All values that it can have; `None` if they depend on the run, or are numbers or too many.
    pub fn known_values(&self) -> Option<Vec<String>> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let dimension = match self {
            Axis::Dimension(dimension) => *dimension,
            Axis::Taxonomy(taxonomy) => {
                let groups = taxonomy.groups.iter().map(|group| group.name.clone());
                return Some(groups.chain([NO_GROUP.to_owned()]).collect());
            }
        };
        Some(match dimension {
            Dimension::Mnemonic => {
                let others = mnemonics().map(str::to_owned);
                Mnemonic::values().map(name).chain(others).collect()
            }
            Dimension::Extension => {
                let mut extensions: Vec<String> = Code::values().map(extension).collect();
                extensions.extend(Extension::ALL.iter().map(Extension::to_string));
                extensions.sort_unstable();
                extensions.dedup();
                extensions
            }
            Dimension::Category => owned(&Category::ALL.map(Category::name)),
            Dimension::Packing => owned(&Packing::ALL.map(Packing::name)),
            Dimension::Memory => owned(&Memory::ALL.map(Memory::name)),
            Dimension::Lock => owned(&Lock::ALL.map(Lock::name)),
            Dimension::ControlFlow => owned(&Flow::ALL.map(flow_name)),
            Dimension::Level => owned(&LEVELS),
            Dimension::Element => owned(&ELEMENTS),
            Dimension::Mitigation => owned(&mitigation::NAMES),
            Dimension::Patch => owned(&patch::NAMES),
            Dimension::Ring => owned(&["kernel", "user"]),
            Dimension::Source => owned(&["EBS", "LBR"]),
            _ => return None,
        })
    }
}
