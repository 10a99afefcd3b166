//! What is fuzzed: each reader of bytes that strangers made, from the first byte to the end of its work. Of a profile that
//! is the last line of its report.
//!
//! The fuzz targets and a test include this file.

use std::io::{self, Cursor};

use hbbp_analysis::mix::{Dimension, Query};
use hbbp_collect::sideband::Reading;
use hbbp_estimate::rule::{PAPER, Rule};
use hbbp_import::brstack::{read_script_records, read_script_samples};
use hbbp_import::count::{Counter, Owner, Use};
use hbbp_import::events::{choose, describe_by_name};
use hbbp_import::perf_data::PerfData;
use hbbp_import::preaggregated::read_preaggregated;
use hbbp_import::{EntryText, ImportError, entries, format_of};
use hbbp_model::addr::Va;
use hbbp_model::record::{Mmap, Record};
use hbbp_model::snapshot::{Event, EventIdx, ProcessIdx, Run, Snapshot, file};
use hbbp_output::export::StreamFilter;
use hbbp_output::export::branches::write_branches;
use hbbp_output::export::counts::{CountSource, write_counts};
use hbbp_output::export::streams::write_streams;
use hbbp_output::report::Format;
use hbbp_resolve::Resolver;
use hbbp_resolve::kernel::map::KernelMap;
use hbbp_resolve::kernel::reader::KernelText;
use hbbp_resolve::kernel::space::KernelSpace;
use hbbp_resolve::raw::{Raw, RawInterval, Sort, TaskKey};
use hbbp_user::cmd::report::{ReportOptions, print};

const OWNER: Owner = Owner {
    event: EventIdx(0),
    process: ProcessIdx(1),
    kernel: ProcessIdx::KERNEL,
    interval: 0,
};
const ALL: Use = Use {
    ips: true,
    stacks: true,
};

/// Reads the bytes as a perf.data file.
pub(crate) fn read_perf_data(bytes: &[u8]) {
    let _ = format_of(bytes);
    let _ = try_perf_data(bytes);
}

fn try_perf_data(bytes: &[u8]) -> Result<(), ImportError> {
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let mut data = PerfData::open(Cursor::new(bytes), len, Vec::new())?;
    let sideband = data.read_sideband(&mut |_| {})?;
    let events = data.header.describe(&sideband.n_samples)?;
    let _ = choose(&events);
    let mut counter = Counter::new(1);
    data.read_samples(&mut |_| {}, &mut |_, sample, exact| {
        counter.add(OWNER, &sample, sample.period.unwrap_or(1), None, exact, ALL);
        for entry in entries(sample.stack) {
            let _ = EntryText(entry).to_string();
        }
    })?;
    let _ = counter.into_intervals(&[(0, 1)]);
    Ok(())
}

/// Reads the bytes as the text of perf script.
pub(crate) fn read_script(bytes: &[u8]) {
    let _ = format_of(bytes);
    let Ok(mut text) = read_script_records(bytes, &mut |_| {}) else {
        return;
    };
    let events: Vec<_> = text.events.iter().map(|name| describe_by_name(name, 1)).collect();
    let _ = choose(&events);
    let mut counter = Counter::new(1);
    let _ = read_script_samples(bytes, &mut text, &mut |_| {}, &mut |_, sample| {
        counter.add(OWNER, &sample, sample.period.unwrap_or(1), None, false, ALL);
    });
    let _ = counter.into_intervals(&[(0, 1)]);
}

/// Reads the bytes as BOLT's pre-aggregated text.
pub(crate) fn read_preaggregated_text(bytes: &[u8]) {
    let mut counter = Counter::new(1);
    let _ = read_preaggregated(bytes, &mut counter, OWNER, &mut |_| {});
    let _ = counter.into_intervals(&[(0, 1)]);
}

/// Reads the bytes as a snapshot; what is accepted holds together, can be written again, and has its reports.
pub(crate) fn read_snapshot(bytes: &[u8]) {
    if let Ok(snapshot) = file::parse(bytes) {
        assert!(snapshot.check().is_ok());
        assert!(file::encode(&snapshot).is_ok());
        use_snapshot(&snapshot).unwrap();
    }
}

/// Reads the bytes as a ring of sideband records, and resolves samples in whatever these map.
pub(crate) fn read_sideband(bytes: &[u8]) {
    /// Beyond all process ids, so that no process of this machine is looked at.
    const NOBODY: u32 = 1 << 23;
    let mut records = Reading::of(bytes).records;
    let mut counts = Vec::new();
    for timed in &mut records {
        match &mut timed.record {
            Record::Mmap(mmap) => {
                mmap.pid |= NOBODY;
                mmap.path = format!("/nowhere{}", mmap.path).into();
                counts.extend([0, mmap.len / 2, mmap.len].map(|at| sample(mmap, at, timed.time)));
            }
            Record::Comm { pid, .. } | Record::Exit { pid, .. } => *pid |= NOBODY,
            Record::Fork { pid, parent_pid, .. } => {
                *pid |= NOBODY;
                *parent_pid |= NOBODY;
            }
            _ => {}
        }
    }
    let mut resolver = Resolver::new(KernelSpace::new(KernelText::None, KernelMap::default()), &[]);
    let end = records.last().map_or(1, |timed| timed.time.saturating_add(1));
    resolver.apply(records);
    let drain = RawInterval {
        start: 0,
        end,
        counts,
    };
    resolver.drained(vec![drain]);
    let events = vec![Event::default()];
    let run = Run {
        events,
        ..Run::default()
    };
    let mut snapshot = resolver.take(run, |_| "");
    snapshot.fit();
    assert!(snapshot.check().is_ok());
    assert!(file::encode(&snapshot).is_ok());
}

fn sample(mmap: &Mmap, at: u64, time: u64) -> Raw {
    let at = Va(mmap.start.0.saturating_add(at));
    Raw {
        task: TaskKey {
            tgid: mmap.pid,
            exec_id: 1,
        },
        tid: mmap.pid,
        first_time: time,
        sort: Sort::Ip { exact: false },
        event: EventIdx(0),
        start: at,
        end: at,
        source: Va(0),
        hits: 1,
        weight: 1,
    }
}

/// Writes all reports and exports of a snapshot, which fail for no content.
fn use_snapshot(snapshot: &Snapshot) -> anyhow::Result<()> {
    for (format, by) in [
        (Format::Text, [Dimension::Mnemonic, Dimension::Process]),
        (Format::Json, [Dimension::Function, Dimension::Block]),
    ] {
        let options = ReportOptions {
            query: Query::by(by),
            format,
            ..ReportOptions::default()
        };
        print(snapshot, &options, &mut io::sink())?;
    }
    write_streams(snapshot, StreamFilter::Checked, &mut io::sink())?;
    write_streams(snapshot, StreamFilter::Raw, &mut io::sink())?;
    write_branches(snapshot, &mut io::sink())?;
    let rule: Rule = PAPER.parse()?;
    write_counts(snapshot, CountSource::Hybrid, &rule, &mut io::sink())?;
    write_counts(snapshot, CountSource::Lbr, &rule, &mut io::sink())?;
    Ok(())
}
