//! Hardware profiles: the faults of the emulated PMU and its CPU, as small text files.
//!
//! One `key = value` per line, `#` starts a comment. Files are in `hardware-profiles/`. Every key has a
//! default, and all defaults together are a faultless processor (`ideal`). The figures of a hardware profile
//! are a model: results on it are not measurements of a processor.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::layout::MAX_DEPTH;

/// Classes of instructions that differ in duration, in the order of [`HardwareProfile::latency`].
pub const CLASSES: [&str; 9] = [
    "simple", "load", "store", "multiply", "divide", "float", "root", "slow", "miss",
];

/// A processor's faults and figures.
#[derive(Clone, Debug, PartialEq)]
pub struct HardwareProfile {
    /// What to add to QEMU's `-cpu max`, for example vendor and model (`cpu`).
    pub cpu: String,
    /// Entries of the branch stack (`depth`), 1 to 32.
    pub depth: usize,
    /// Highest precise level (`max_precise`), 0 to 3.
    pub max_precise: u32,
    /// Cycles from an overflow to its sample, for each precise level: least and most
    /// (`skid.0 = 20 60`). The model of "Can We Trust Profiling Results?", ICS 2019, equation 1; 0 0 means no skid.
    pub skid: [(u32, u32); 4],
    /// Cycles that an instruction of each class takes (`latency.divide = 25`), at least one, see [`CLASSES`]. With
    /// `taken_cycles` this is the cost model: of the cycles event, of skids, and of the cycle counts of branch records.
    pub latency: [u32; CLASSES.len()],
    /// Cycles that a near taken branch takes in addition (`taken_cycles`).
    pub taken_cycles: u32,
    /// Branch records hold the cycles since the branch before (`branch_cycles`), as Intel's do since Skylake.
    pub branch_cycles: bool,
    /// One in this many branch addresses is sticky, 0 = none (`sticky.one_in`).
    pub sticky_one_in: u32,
    /// Percent of the stacks that are aligned so that a sticky branch is their oldest entry
    /// (`sticky.percent`): the bias of the HBBP paper's section III.C.
    pub sticky_percent: u32,
    /// Percent of the stacks whose oldest entry was not written anew: it is that of the stack before (`oldest.stuck_percent`).
    pub stuck_percent: u32,
    /// Percent of the stacks whose oldest entry was half overwritten: it has the source of the branch before it
    /// (`oldest.garbled_percent`), so that it never was a branch.
    pub garbled_percent: u32,
    /// Percent of the stacks without their oldest entry (`oldest.missing_percent`): one entry short.
    pub missing_percent: u32,
    /// Records a ring holds (`ring_slots`); a small number makes the ring run full.
    pub ring_slots: u64,
    /// Percent of the overflows whose record is dropped (`fault.drop_percent`).
    pub drop_percent: u32,
    /// Percent of the stacks whose newest entry comes twice, as on the Skylake family
    /// (`fault.duplicate_percent`).
    pub duplicate_percent: u32,
    /// The stack is wiped at a context switch, and comes filled up with zeros (`fault.zero_on_switch`).
    pub zero_on_switch: bool,
    /// Percent of the stacks with an entry of a path not taken in them, marked speculative
    /// (`fault.wrong_path_percent`), as AMD's LBRv2 has them.
    pub wrong_path_percent: u32,
    /// Interrupt entries are dropped and the gap closed over (`fault.filter_interrupts`), as the kernel's
    /// software filter does on Arch LBR and AMD.
    pub filter_interrupts: bool,
    /// Stacks come without entries (`fault.empty_stacks`), as on virtual machines whose host keeps its branch records
    /// to itself.
    pub empty_stacks: bool,
    /// Samples a second that the guest's kernel lets through before it throttles an event, 0 = no limit
    /// (`fault.sample_rate`, the sysctl perf_event_max_sample_rate).
    pub sample_rate: u32,
    /// Seed of everything that is random (`seed`).
    pub seed: u64,
}

impl Default for HardwareProfile {
    fn default() -> Self {
        Self {
            cpu: String::new(),
            depth: MAX_DEPTH,
            max_precise: 3,
            skid: [(0, 0); 4],
            // Order of CLASSES; latencies of Ivy Bridge in round numbers (Intel 64 and IA-32 Architectures
            // Optimization Reference Manual, appendix on latency and throughput): the order matters, not the last digit.
            // A load that misses takes some 60 ns of memory at 3.5 GHz.
            latency: [1, 4, 1, 3, 25, 4, 20, 40, 200],
            // A taken branch ends the block of bytes that are decoded together (the same manual, on the front end).
            taken_cycles: 1,
            branch_cycles: true,
            sticky_one_in: 0,
            sticky_percent: 0,
            stuck_percent: 0,
            garbled_percent: 0,
            missing_percent: 0,
            ring_slots: crate::layout::RING_SLOTS as u64,
            drop_percent: 0,
            duplicate_percent: 0,
            zero_on_switch: false,
            wrong_path_percent: 0,
            filter_interrupts: false,
            empty_stacks: false,
            sample_rate: 0,
            seed: 1,
        }
    }
}

impl HardwareProfile {
    /// Reads a hardware profile file.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is not a known key with a value in its range.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("failed to read hardware profile {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not a hardware profile", path.display()))
    }

    /// Interprets the text of a hardware profile file.
    ///
    /// # Errors
    /// When a line is not a known key with a value in its range.
    pub fn parse(text: &str) -> Result<Self> {
        let mut hardware_profile = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (key, value) = line
                .split_once('=')
                .with_context(|| format!("line {} is not 'key = value'", index + 1))?;
            hardware_profile
                .set(key.trim(), value.trim())
                .with_context(|| format!("cannot parse line {}: '{line}'", index + 1))?;
        }
        Ok(hardware_profile)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if let Some(level) = key.strip_prefix("skid.") {
            let slot = self
                .skid
                .get_mut(level.parse::<usize>()?)
                .context("precise levels are 0 to 3")?;
            let (least, most) = value.split_once(' ').unwrap_or((value, value));
            *slot = (least.trim().parse()?, most.trim().parse()?);
            if slot.1 < slot.0 {
                bail!("the least skid is above the most");
            }
            return Ok(());
        }
        if let Some(class) = key.strip_prefix("latency.") {
            let index = CLASSES.iter().position(|name| *name == class);
            let slot = index.and_then(|index| self.latency.get_mut(index));
            let slot = slot.with_context(|| format!("the classes are {}", CLASSES.join(", ")))?;
            *slot = within(value, 1, 10_000)? as u32;
            return Ok(());
        }
        match key {
            "cpu" => value.clone_into(&mut self.cpu),
            "depth" => self.depth = within(value, 1, MAX_DEPTH as u64)? as usize,
            "taken_cycles" => self.taken_cycles = within(value, 0, 10_000)? as u32,
            "branch_cycles" => self.branch_cycles = value.parse()?,
            "max_precise" => self.max_precise = within(value, 0, 3)? as u32,
            "sticky.one_in" => self.sticky_one_in = value.parse()?,
            "sticky.percent" => self.sticky_percent = within(value, 0, 100)? as u32,
            "oldest.stuck_percent" => self.stuck_percent = within(value, 0, 100)? as u32,
            "oldest.garbled_percent" => self.garbled_percent = within(value, 0, 100)? as u32,
            "oldest.missing_percent" => self.missing_percent = within(value, 0, 100)? as u32,
            "ring_slots" => self.ring_slots = within(value, 1, crate::layout::RING_SLOTS as u64)?,
            "fault.drop_percent" => self.drop_percent = within(value, 0, 100)? as u32,
            "fault.duplicate_percent" => self.duplicate_percent = within(value, 0, 100)? as u32,
            "fault.zero_on_switch" => self.zero_on_switch = value.parse()?,
            "fault.wrong_path_percent" => self.wrong_path_percent = within(value, 0, 100)? as u32,
            "fault.filter_interrupts" => self.filter_interrupts = value.parse()?,
            "fault.empty_stacks" => self.empty_stacks = value.parse()?,
            "fault.sample_rate" => self.sample_rate = value.parse()?,
            "seed" => self.seed = value.parse()?,
            _ => bail!("unknown key '{key}'"),
        }
        Ok(())
    }
}

fn within(value: &str, least: u64, most: u64) -> Result<u64> {
    let number: u64 = value.parse()?;
    if number < least || most < number {
        bail!("{number} is not within {least} to {most}");
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_profile_has_no_faults() {
        assert_eq!(
            HardwareProfile::parse("# nothing\n").unwrap(),
            HardwareProfile::default()
        );
    }

    #[test]
    fn profile_keys_are_parsed() {
        let text =
            "depth = 16 # as Ivy Bridge\nskid.0 = 20 60\nlatency.divide = 30\nfault.zero_on_switch = true";
        let hardware_profile = HardwareProfile::parse(text).unwrap();
        assert_eq!(hardware_profile.depth, 16);
        assert_eq!(hardware_profile.skid[0], (20, 60));
        assert_eq!(hardware_profile.latency[4], 30);
        assert!(hardware_profile.zero_on_switch);
    }

    #[test]
    fn profile_errors_are_named() {
        for text in [
            "depth = 33",
            "depth",
            "skid.4 = 1",
            "latency.magic = 3",
            "skid.1 = 9 3",
            "latency.simple = 0",
            "colour = blue",
        ] {
            assert!(HardwareProfile::parse(text).is_err(), "{text}");
        }
    }
}
