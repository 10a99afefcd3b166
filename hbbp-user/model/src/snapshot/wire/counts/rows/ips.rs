//! The rows of eventing IPs.

use super::super::super::malformed::{Capacity, Malformed};
use super::super::super::number::Reader;
use super::super::word::Word;
use super::group::{IN_UNITS, PLAIN, Usual, excess, for_rows, push_or_add, read_group, read_hits_in_units};
use crate::addr::Va;
use crate::snapshot::IpCount;

/// Samples of instruction pointers as bytes.
pub(in super::super) fn of_ips(ips: &[IpCount]) -> Vec<u8> {
    let (mut out, mut word) = (for_rows(ips.len()), Word::default());
    let in_units = ips.iter().all(|c| c.hits <= u64::MAX >> 1);
    let mut usual = Usual::default();
    ips.iter().for_each(|c| usual.vote(c.hits, c.weight));
    let unit = usual.unit;
    word = word.number(&mut out, if in_units { IN_UNITS } else { PLAIN });
    word = word.number(&mut out, unit);
    word = word.end_row(&mut out);
    let mut last = 0;
    let key = |c: &IpCount| (c.event, c.process, c.exact);
    for group in ips.chunk_by(|a, b| key(a) == key(b)) {
        let Some((event, process, exact)) = group.first().map(key) else {
            continue;
        };
        word = word.group(&mut out, group.len(), event, process, exact);
        for count in group {
            word = word.difference(&mut out, count.ip.0.wrapping_sub(last));
            last = count.ip.0;
            if in_units {
                word = word.hits_in_units(&mut out, count.hits, excess(count.hits, count.weight, unit));
            } else {
                word = word.number(&mut out, count.hits);
                word = word.number(&mut out, count.weight);
            }
            word = word.end_row(&mut out);
        }
    }
    out
}

/// Reads what [`of_ips`] wrote.
pub(in super::super) fn to_ips(bytes: &[u8], capacity: &mut Capacity) -> Result<Vec<IpCount>, Malformed> {
    let mut rows = Reader::new("IP counts", bytes);
    let mut ips = Vec::new();
    if bytes.is_empty() {
        return Ok(ips);
    }
    let in_units = rows.choice(PLAIN)? == IN_UNITS;
    let unit = rows.number()?;
    let mut ip = 0_u64;
    while !rows.is_at_end() {
        let group = read_group(&mut rows)?;
        for _ in 0..group.n {
            let ip = Va(rows.next(&mut ip)?);
            let (hits, weight) = if in_units {
                read_hits_in_units(&mut rows, unit)?
            } else {
                (rows.number()?, rows.number()?)
            };
            let count = IpCount {
                event: group.event,
                process: group.process,
                ip,
                exact: group.kind,
                hits,
                weight,
            };
            push_or_add(&mut ips, count, &rows, capacity)?;
        }
    }
    Ok(ips)
}
