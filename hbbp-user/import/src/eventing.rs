//! Addresses that are one instruction late, corrected through the newest branch record of the same sample.
//!
//! A record of PEBS holds the address of the instruction after the eventing one (Intel SDM volume 3, "Processor Event Based
//! Sampling"). At precise level 1 the kernel passes it on unchanged ("no fixup attempted",
//! arch/x86/events/intel/ds.c, `setup_pebs_fixed_sample_data`). This is the correction "IP+1 (LBR)" of "Establishing a
//! Base of Trust" (ATC 2015), as the kernel does it at level 2 on processors before Haswell (`intel_pmu_pebs_fixup_ip`):
//! where the newest branch leads to the address, its source is the instruction; else the code from its target on is decoded.

use std::collections::HashMap;

use hbbp_decode::Decoder;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::is_kernel;

use super::Sample;
use super::stream_cost::{FindText, LONGEST, RanText};
use hbbp_model::addr::Va;

/// Distinct paths from a target to an address that are decoded once; others are decoded each time.
const CAPACITY: usize = 1 << 20;

/// The eventing addresses so far.
#[derive(Debug, Default)]
pub(super) struct EventingIps {
    /// By process of user code, target of the newest branch, and recorded address.
    known: HashMap<(u32, u64, u64), Option<u64>>,
    /// Samples that were corrected.
    pub(super) n_corrected: u64,
    /// Samples that keep their address, as no text or no branch identifies the instruction before it.
    pub(super) n_kept: u64,
}

impl EventingIps {
    /// The address of the instruction before that of the sample, whose newest branch that was executed is `newest`.
    pub(super) fn find(
        &mut self,
        sample: &Sample<'_>,
        newest: Option<&BranchEntry>,
        text: &mut FindText<'_>,
    ) -> Option<Va> {
        let ip = sample.ip?.0;
        let found = match newest {
            Some(newest) if newest.to == ip => Some(newest.from),
            Some(newest) => self.decoded(sample, newest.to, ip, text),
            None => None,
        };
        let n = if found.is_some() {
            &mut self.n_corrected
        } else {
            &mut self.n_kept
        };
        *n = n.saturating_add(sample.times);
        found.map(Va)
    }

    /// What the user must know of samples of an event.
    pub(super) fn sentence(&self) -> Option<String> {
        let Self {
            n_corrected, n_kept, ..
        } = self;
        (0 < n_corrected + n_kept).then(|| {
            format!(
                "addresses at precise level 1 are one instruction late: {n_corrected} samples were corrected through \
                 their newest branch, {n_kept} keep their address"
            )
        })
    }

    fn decoded(&mut self, sample: &Sample<'_>, start: u64, ip: u64, text: &mut FindText<'_>) -> Option<u64> {
        let process = if is_kernel(start) { 0 } else { sample.tgid };
        let key = (process, start, ip);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let len = ip.checked_sub(start).filter(|len| *len < LONGEST)?;
        let ran = text(sample.tgid, sample.time, Va(start), usize::try_from(len).ok()?);
        let found = ran.and_then(|ran| before(&ran, start, ip));
        if self.known.len() < CAPACITY {
            self.known.insert(key, found);
        }
        found
    }
}

/// The instruction that ends where the one at `ip` begins; `None` if none does.
fn before(text: &RanText, start: u64, ip: u64) -> Option<u64> {
    Decoder::try_with_ip(text.bits, &text.bytes, start)
        .ok()?
        .take_while(|instruction| !instruction.is_invalid() && instruction.next_ip() <= ip)
        .find(|instruction| instruction.next_ip() == ip)
        .map(|instruction| instruction.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nop; je +0; add eax, eax; nop`
    const CODE: [u8; 6] = [0x90, 0x74, 0, 0x01, 0xc0, 0x90];

    fn find(ips: &mut EventingIps, ip: u64, newest: Option<(u64, u64)>) -> Option<u64> {
        let sample = Sample {
            tgid: 7,
            tid: 7,
            time: 0,
            ip: Some(Va(ip)),
            period: None,
            stack: &[],
            times: 1,
        };
        let newest = newest.map(|(from, to)| BranchEntry { from, to, flags: 0 });
        let mut text = |_: u32, _: u64, at: Va, len: usize| {
            let start = usize::try_from(at.0.checked_sub(0x1000)?).ok()?;
            let bytes = CODE.get(start..)?.iter().take(len).copied().collect();
            Some(RanText { bits: 64, bytes })
        };
        ips.find(&sample, newest.as_ref(), &mut text).map(|found| found.0)
    }

    #[test]
    fn address_goes_back_to_the_previous_instruction() {
        let mut ips = EventingIps::default();
        let newest = Some((0x9000, 0x1000));
        assert_eq!(find(&mut ips, 0x1000, newest), Some(0x9000), "the branch itself");
        for (ip, before) in [(0x1001, 0x1000), (0x1003, 0x1001), (0x1005, 0x1003)] {
            assert_eq!(find(&mut ips, ip, newest), Some(before));
            assert_eq!(find(&mut ips, ip, newest), Some(before), "from memory");
        }
        assert_eq!((ips.n_corrected, ips.n_kept), (7, 0));
    }

    /// `inc eax` in 32 bits, a prefix in 64.
    #[test]
    fn text_of_32_bits_is_decoded_as_that() {
        let bytes = vec![0x40, 0x90];
        let ends = |bits| {
            let text = RanText {
                bits,
                bytes: bytes.clone(),
            };
            before(&text, 0x1000, 0x1001)
        };
        assert_eq!((ends(32), ends(64)), (Some(0x1000), None));
    }

    /// An address that the branch does not lead to is kept and counted.
    #[test]
    fn address_without_a_branch_to_it_is_counted() {
        let mut ips = EventingIps::default();
        let newest = Some((0x9000, 0x1000));
        // No branch, within an instruction, before the target, too far, no text.
        let cases = [
            (0x1001, None),
            (0x1002, newest),
            (0xfff, newest),
            (0x1000 + LONGEST, newest),
            (0x5001, Some((1, 0x5000))),
        ];
        for (ip, newest) in cases {
            assert_eq!(find(&mut ips, ip, newest), None, "{ip:#x}");
        }
        assert_eq!((ips.n_corrected, ips.n_kept), (0, 5));
        assert!(ips.sentence().unwrap().contains("5 keep their address"));
    }
}
