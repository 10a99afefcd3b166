//! The rows of call chains.

use std::sync::Arc;

use super::super::super::malformed::{Capacity, Malformed};
use super::super::super::number::{Reader, Rows};
use super::group::push_or_add;
use crate::addr::Va;
use crate::snapshot::{ChainCount, EventIdx, ProcessIdx};

/// Call chains as bytes.
pub(in super::super) fn of_chains(chains: &[ChainCount]) -> Vec<u8> {
    let mut rows = Rows::default();
    let mut last = 0;
    for chain in chains {
        rows.number(chain.event.0.into());
        rows.number(chain.process.0.into());
        rows.next(&mut last, chain.ip.0);
        let mut before = chain.ip.0;
        rows.next(&mut before, chain.top.0);
        rows.number(chain.frames.len() as u64);
        before = chain.ip.0;
        for frame in &*chain.frames {
            rows.next(&mut before, frame.0);
        }
        rows.number(chain.hits);
        rows.number(chain.weight);
    }
    rows.0
}

/// Reads what [`of_chains`] wrote.
pub(in super::super) fn to_chains(
    bytes: &[u8],
    capacity: &mut Capacity,
) -> Result<Vec<ChainCount>, Malformed> {
    let mut rows = Reader::new("call chains", bytes);
    let mut chains = Vec::new();
    let mut last = 0;
    while !rows.is_at_end() {
        let event = EventIdx(rows.number32()?);
        let process = ProcessIdx(rows.number32()?);
        let ip = Va(rows.next(&mut last)?);
        let mut before = ip.0;
        let top = Va(rows.next(&mut before)?);
        let n = rows.number()?;
        before = ip.0;
        let mut frames = Vec::new();
        for _ in 0..n {
            capacity.take(rows.table, size_of::<Va>())?;
            frames.push(Va(rows.next(&mut before)?));
        }
        let count = ChainCount {
            event,
            process,
            ip,
            frames: Arc::from(frames),
            top,
            hits: rows.number()?,
            weight: rows.number()?,
        };
        push_or_add(&mut chains, count, &rows, capacity)?;
    }
    Ok(chains)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(ip: u64, frames: &[u64], hits: u64) -> ChainCount {
        ChainCount {
            event: EventIdx(2),
            process: ProcessIdx(1),
            ip: Va(ip),
            frames: frames.iter().copied().map(Va).collect(),
            top: Va(ip ^ 3),
            hits,
            weight: 10 * hits,
        }
    }

    #[test]
    fn chains_come_back_and_equal_ones_are_summed() {
        let kernel = 0xffff_ffff_8100_0000;
        let chains = [
            chain(kernel, &[kernel, kernel + 9, 0x40_1000], 3),
            chain(5, &[], 1),
        ];
        let all = || Capacity(usize::MAX);
        let bytes = of_chains(&chains);
        assert_eq!(to_chains(&bytes, &mut all()).unwrap(), chains);
        let twice = of_chains(&[chain(5, &[6], 1), chain(5, &[6], 4)]);
        assert_eq!(to_chains(&twice, &mut all()).unwrap(), [chain(5, &[6], 5)]);
        for len in 1..bytes.len() {
            let read = to_chains(bytes.get(..len).unwrap(), &mut all());
            assert!(read.is_err() || read.unwrap().len() == 1, "{len}");
        }
        assert!(matches!(
            to_chains(&bytes, &mut Capacity(3 * size_of::<Va>())),
            Err(Malformed::Capacity(_))
        ));
    }
}
