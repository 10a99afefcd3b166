//! What a perf.data file says of its machine and of its making: the features after its records.

use super::bytes::Bytes;
use super::error::Damaged;
use super::header::{FileBuildId, Header, RecordedEvent, parse_ids};

mod feature {
    //! `enum header_feature`.

    pub(super) const BUILD_ID: u64 = 2;
    pub(super) const HOSTNAME: u64 = 3;
    pub(super) const OSRELEASE: u64 = 4;
    pub(super) const ARCH: u64 = 6;
    pub(super) const NRCPUS: u64 = 7;
    pub(super) const CPUDESC: u64 = 8;
    pub(super) const CPUID: u64 = 9;
    pub(super) const EVENT_DESC: u64 = 12;
    pub(super) const PMU_MAPPINGS: u64 = 16;
    pub(super) const DIR_FORMAT: u64 = 24;
}

impl Header {
    /// Whether a feature is of use.
    pub(super) fn wants(&self, feature: u64) -> bool {
        matches!(feature, feature::BUILD_ID..=feature::OSRELEASE | feature::ARCH..=feature::CPUID)
            || matches!(
                feature,
                feature::EVENT_DESC | feature::PMU_MAPPINGS | feature::DIR_FORMAT
            )
    }

    /// Takes the content of a feature.
    pub(super) fn take_feature(&mut self, feature: u64, section: &[u8]) {
        // Names are a comfort: where one is damaged it stays empty.
        match feature {
            feature::HOSTNAME => self.host = parse_string(&mut Bytes(section)).unwrap_or_default(),
            feature::OSRELEASE => self.os_release = parse_string(&mut Bytes(section)).unwrap_or_default(),
            feature::ARCH => self.arch = parse_string(&mut Bytes(section)).unwrap_or_default(),
            feature::CPUDESC => self.cpu = parse_string(&mut Bytes(section)).unwrap_or_default(),
            feature::CPUID => {
                let vendor = parse_string(&mut Bytes(section)).unwrap_or_default();
                self.pmus.amd = vendor.starts_with("AuthenticAMD") || vendor.starts_with("HygonGenuine");
            }
            feature::NRCPUS => self.n_cpus = section.get(4..8).map_or(0, |n| Bytes(n).u32().unwrap_or(0)),
            feature::BUILD_ID => self.build_ids = parse_build_ids(section),
            feature::PMU_MAPPINGS => self.pmus.names = parse_pmus(section).unwrap_or_default(),
            feature::EVENT_DESC => self.name_events(section).unwrap_or_default(),
            // The version: 0 for a directory whose file `data` holds all records (`enum perf_dir_version`).
            feature::DIR_FORMAT => {
                self.is_in_parts = section
                    .get(..8)
                    .is_some_and(|version| Bytes(version).u64() != Ok(0));
            }
            _ => {}
        }
    }

    /// `u32 n, u32 attr_size`, then for each event: attribute, `u32 n_ids`, name, ids.
    fn name_events(&mut self, section: &[u8]) -> Result<(), Damaged> {
        let mut section = Bytes(section);
        let (n, attr_size) = (
            section.u32()?,
            usize::try_from(section.u32()?).map_err(|_| Damaged)?,
        );
        for nth in (0..n).map(|nth| usize::try_from(nth).unwrap_or(usize::MAX)) {
            let _attr = section.take(attr_size)?;
            let n_ids = usize::try_from(section.u32()?).map_err(|_| Damaged)?;
            let name = parse_string(&mut section)?;
            let ids = parse_ids(section.take(n_ids.checked_mul(8).ok_or(Damaged)?)?);
            let by_id = |event: &RecordedEvent| ids.first().is_some_and(|id| event.ids.contains(id));
            let idx = self.events.iter().position(by_id).unwrap_or(nth);
            if let Some(event) = self.events.get_mut(idx) {
                event.name = name;
            }
        }
        Ok(())
    }
}

/// `u32 len`, then text with zeros up to that length.
fn parse_string(bytes: &mut Bytes<'_>) -> Result<String, Damaged> {
    let len = usize::try_from(bytes.u32()?).map_err(|_| Damaged)?;
    Ok(Bytes(bytes.take(len)?).text())
}

/// `u32 n`, then for each PMU: number and name.
fn parse_pmus(section: &[u8]) -> Result<Vec<(u32, String)>, Damaged> {
    let mut section = Bytes(section);
    let n = section.u32()?;
    (0..n)
        .map(|_| Ok((section.u32()?, parse_string(&mut section)?)))
        .collect()
}

/// A list of `struct perf_record_header_build_id`: header, pid, build id, its size, path.
fn parse_build_ids(section: &[u8]) -> Vec<FileBuildId> {
    let mut section = Bytes(section);
    let mut next = || -> Result<FileBuildId, Damaged> {
        let (_kind, misc, size) = (section.u32()?, section.u16()?, section.u16()?);
        let record = section.take(usize::from(size).checked_sub(8).ok_or(Damaged)?)?;
        parse_build_id_record(misc, record)
    };
    std::iter::from_fn(|| next().ok()).collect()
}

/// Interprets the body of PERF_RECORD_HEADER_BUILD_ID.
pub(super) fn parse_build_id_record(misc: u16, body: &[u8]) -> Result<FileBuildId, Damaged> {
    /// `PERF_RECORD_MISC_BUILD_ID_SIZE`: older versions wrote all 20 bytes without their number.
    const HAS_SIZE: u16 = 1 << 15;
    let mut body = Bytes(body);
    let _pid = body.u32()?;
    let id = body.take(24)?;
    let stated = if misc & HAS_SIZE == 0 {
        20
    } else {
        id.get(20).copied().unwrap_or(0)
    };
    let build_id = id.get(..usize::from(stated.min(20))).unwrap_or(&[]).to_vec();
    Ok(FileBuildId {
        path: body.text(),
        build_id,
    })
}
