//! A writer of made-up perf.data files.

use hbbp_model::addr::Va;

/// IP, TID, TIME, PERIOD and the branch stack, in front of them the id.
pub(crate) const STACKS: u64 = 1 | 2 | 4 | 1 << 8 | 1 << 11 | 1 << 16;
/// The same without a branch stack.
pub(crate) const ADDRESSES: u64 = 1 | 2 | 4 | 1 << 8 | 1 << 16;

/// An event of a made-up file.
#[derive(Clone)]
pub(crate) struct Attr {
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) sample_type: u64,
    pub(crate) branch_sample_type: u64,
    /// `precise_ip`.
    pub(crate) precise: u64,
    pub(crate) size: u32,
    pub(crate) id: u64,
}

/// BR_INST_RETIRED.NEAR_TAKEN with branch stacks.
pub(crate) fn taken() -> Attr {
    Attr {
        kind: 4,
        config: 0x20c4,
        sample_type: STACKS,
        branch_sample_type: 8,
        precise: 0,
        size: 112,
        id: 77,
    }
}

/// A made-up file: its events, its records, and what it says of the machine.
pub(crate) struct File {
    pub(crate) attrs: Vec<Attr>,
    pub(crate) records: Vec<Vec<u8>>,
    /// Number and content of features, by rising number.
    pub(crate) features: Vec<(u64, Vec<u8>)>,
}

pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(misc.to_le_bytes());
    bytes.extend(u16::try_from(8 + body.len()).unwrap().to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A string feature: length, text, zeros.
pub(crate) fn string(text: &str) -> Vec<u8> {
    let mut bytes = 64_u32.to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.resize(68, 0);
    bytes
}

/// What is at the end of records that are no samples: tid, time, id.
fn trailer(pid: u32, time: u64) -> Vec<u8> {
    words(&[u64::from(pid) << 32 | u64::from(pid), time, 77])
}

pub(crate) fn mmap2(pid: u32, time: u64, range: (u64, u64), offset: u64, path: &str) -> Vec<u8> {
    let mut body = words(&[
        u64::from(pid) << 32 | u64::from(pid),
        range.0,
        range.1,
        offset,
        0,
        0,
        0,
    ]);
    body.extend(5_u32.to_le_bytes());
    body.extend(2_u32.to_le_bytes());
    body.extend(path.as_bytes());
    body.resize(body.len() / 8 * 8 + 8, 0);
    body.extend(trailer(pid, time));
    record(10, 2, &body)
}

pub(crate) fn comm(pid: u32, time: u64, name: &str, misc: u16) -> Vec<u8> {
    let mut body = words(&[u64::from(pid) << 32 | u64::from(pid)]);
    body.extend(name.as_bytes());
    body.resize(24, 0);
    body.extend(trailer(pid, time));
    record(3, misc, &body)
}

/// A sample with a branch stack of (from, to, flags), at the target of the newest.
pub(crate) fn stack(pid: u32, time: u64, entries: &[(u64, u64, u64)]) -> Vec<u8> {
    stack_at(pid, time, entries.first().map_or(0, |entry| entry.1), entries)
}

/// The same at an address.
pub(crate) fn stack_at(pid: u32, time: u64, ip: u64, entries: &[(u64, u64, u64)]) -> Vec<u8> {
    let mut body = words(&[77, ip, u64::from(pid) << 32 | u64::from(pid), time, 1000]);
    body.extend(words(&[u64::try_from(entries.len()).unwrap()]));
    body.extend(
        entries
            .iter()
            .flat_map(|(from, to, flags)| words(&[*from, *to, *flags])),
    );
    record(9, 2, &body)
}

impl File {
    pub(crate) fn new(records: Vec<Vec<u8>>) -> Self {
        Self {
            attrs: vec![taken()],
            records,
            features: vec![(6, string("x86_64"))],
        }
    }

    fn attr(attr: &Attr) -> Vec<u8> {
        let mut bytes = attr.kind.to_le_bytes().to_vec();
        bytes.extend(attr.size.to_le_bytes());
        // SAMPLE_ID_ALL
        bytes.extend(words(&[
            attr.config,
            1000,
            attr.sample_type,
            0,
            1 << 18 | attr.precise << 15,
            0,
            0,
            0,
            attr.branch_sample_type,
        ]));
        bytes.resize(usize::try_from(attr.size).unwrap().max(bytes.len()), 0);
        bytes.truncate(usize::try_from(attr.size).unwrap());
        bytes
    }

    /// As `perf record -o FILE` writes it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let data = self.records.concat();
        let n_attrs = u64::try_from(self.attrs.len()).unwrap();
        let attr_size = u64::from(self.attrs[0].size) + 16;
        let ids = 104;
        let attrs = ids + 8 * n_attrs;
        let start = attrs + attr_size * n_attrs;
        let len = u64::try_from(data.len()).unwrap();
        let features = self.features.iter().fold(0, |set, (bit, _)| set | 1 << bit);
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(words(&[
            104,
            attr_size,
            attrs,
            attr_size * n_attrs,
            start,
            len,
            0,
            0,
            features,
            0,
            0,
            0,
        ]));
        bytes.extend(self.attrs.iter().flat_map(|attr| words(&[attr.id])));
        for (attr, nth) in self.attrs.iter().zip(0..) {
            bytes.extend(Self::attr(attr));
            bytes.extend(words(&[ids + 8 * nth, 8]));
        }
        bytes.extend(data);
        let mut at = start + len + 16 * u64::try_from(self.features.len()).unwrap();
        for (_, content) in &self.features {
            let len = u64::try_from(content.len()).unwrap();
            bytes.extend(words(&[at, len]));
            at += len;
        }
        bytes.extend(self.features.iter().flat_map(|(_, content)| content.clone()));
        bytes
    }

    /// As `perf record -o -` writes it.
    pub(crate) fn pipe(&self) -> Vec<u8> {
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(words(&[16]));
        for attr in &self.attrs {
            bytes.extend(record(64, 0, &[Self::attr(attr), words(&[attr.id])].concat()));
        }
        for (number, content) in &self.features {
            bytes.extend(record(80, 0, &[words(&[*number]), content.clone()].concat()));
        }
        bytes.extend(self.records.concat());
        bytes
    }

    /// The same records, compressed as `perf record -z` does it.
    pub(crate) fn compressed(self) -> Self {
        let packed = zstd::stream::encode_all(&self.records.concat()[..], 1).unwrap();
        let records = packed.chunks(50).map(|part| record(81, 0, part)).collect();
        Self { records, ..self }
    }
}

/// Three turns of the loop, the call and the jump back, in a program that is loaded at `base`.
pub(crate) fn turns(base: Va) -> Vec<(u64, u64, u64)> {
    let jump = |from: u64, to: u64| (base.0 + from, base.0 + to, 2);
    vec![
        jump(7, 5),
        jump(7, 5),
        jump(14, 0),
        jump(16, 14),
        jump(9, 16),
        jump(7, 5),
    ]
}
