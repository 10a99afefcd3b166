//! Module addresses of executed addresses that were not sampled, such as those of a reference: they have no interval.

use hbbp_model::addr::{ImageAddr, Ring, Va};
use hbbp_model::snapshot::layout::Layout;
use hbbp_model::snapshot::{ModuleIdx, ProcessIdx, Snapshot};

/// An address in a module.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Site {
    /// The module.
    pub module: ModuleIdx,
    /// The address in it.
    pub addr: ImageAddr,
}

/// The sites of executed addresses of a process image, in the order of `addresses`; `None` if nothing was mapped.
///
/// If several mappings covered an address over time, the latest one applies.
pub fn sites(snapshot: &Snapshot, process: ProcessIdx, addresses: &[Va]) -> Vec<Option<Site>> {
    let mappings = |process: ProcessIdx| {
        let process = snapshot.processes.get(process.0 as usize);
        process.map_or(&[][..], |process| &process.mappings)
    };
    let end = snapshot.intervals.iter().map(|interval| interval.end).max();
    let [own, kernel] = [process, ProcessIdx::KERNEL].map(|process| {
        let mut layout = Layout::new(mappings(process));
        layout.advance(end.unwrap_or(0));
        layout
    });
    let site = |va: &Va| {
        let layout = match va.ring() {
            Ring::Kernel => &kernel,
            Ring::User => &own,
        };
        let (module, addr) = layout.find(*va)?;
        Some(Site { module, addr })
    };
    addresses.iter().map(site).collect()
}

/// Whether the snapshot has these bytes at a site, in any version of its text.
pub fn agrees(snapshot: &Snapshot, site: Site, bytes: &[u8]) -> bool {
    let after = snapshot
        .text
        .partition_point(|text| (text.module, text.start) <= (site.module, site.addr));
    let before = snapshot.text.get(..after).unwrap_or(&[]).iter().rev();
    let same_start = before.clone().next().map(|text| (text.module, text.start));
    before
        .take_while(|text| Some((text.module, text.start)) == same_start)
        .any(|text| {
            let offset = site.addr.since(text.start).filter(|_| text.module == site.module);
            let offset = offset.and_then(|offset| usize::try_from(offset).ok());
            let remainder = offset.and_then(|offset| text.bytes.get(offset..));
            remainder.is_some_and(|remainder| remainder.starts_with(bytes))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::{Interval, Mapping, Process, Text};

    #[test]
    fn sites_use_the_latest_mapping_and_agree_with_any_version() {
        let mapping = |module, from| Mapping {
            start: Va(0x40_0000),
            end: Va(0x40_1000),
            module: ModuleIdx(module),
            image_start: ImageAddr(0x1000),
            from,
        };
        let text = |bytes: &[u8], since| Text {
            module: ModuleIdx(2),
            start: ImageAddr(0x1000),
            bytes: bytes.to_vec(),
            since,
        };
        let program = Process {
            mappings: vec![mapping(1, 0), mapping(2, 50)],
            ..Process::default()
        };
        let interval = |end| Interval {
            end,
            ..Interval::default()
        };
        let snapshot = Snapshot {
            processes: vec![Process::default(), program],
            intervals: vec![interval(40), interval(90)],
            text: vec![text(&[1, 2, 3, 4], 0), text(&[1, 2, 9, 9], 1)],
            ..Snapshot::default()
        };
        let site = Site {
            module: ModuleIdx(2),
            addr: ImageAddr(0x1002),
        };
        let found = sites(&snapshot, ProcessIdx(1), &[Va(0x40_0002), Va(0x50_0000)]);
        assert_eq!(found, [Some(site), None]);
        let has = |bytes: &[u8]| agrees(&snapshot, site, bytes);
        assert!(has(&[3, 4]) && has(&[9]) && !has(&[3, 9]) && !has(&[9, 9, 9]));
    }
}
