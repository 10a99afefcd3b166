//! Kernel modules that come and go during the run, as reported by programs on their tracepoints.
//!
//! The sideband has no record of them. A module is reported before its own code runs for the first time, so that its text
//! and its symbols can be copied while it lives.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use anyhow::Context as _;
use aya::maps::{Array, MapData, RingBuf};
use hbbp_ebpf::module::{ModuleEvent, WENT};
use hbbp_ebpf::name;

use super::btf::Btf;
use super::module_layout::read_module_layout;
use super::object::Object;
use hbbp_model::record::{ModuleLayout, Record, Timed};

/// Whether modules that come and go are reported.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ModuleWatch {
    /// As soon as they come.
    #[default]
    Told,
    /// Not at all.
    Untold,
}

/// How the kernel describes modules; `None` where that is not known, with a note if somebody asks, or where there are none.
pub(super) fn module_layout(
    watch: ModuleWatch,
    btf: &Result<Btf, String>,
    notes: &mut Vec<String>,
) -> Option<ModuleLayout> {
    if !Path::new("/proc/modules").exists() {
        return None;
    }
    let layout = btf.as_ref().map_err(String::clone).and_then(read_module_layout);
    let note = |why: String| {
        if watch == ModuleWatch::Told {
            notes.push(no_modules(&why));
        }
    };
    layout.map_err(note).ok()
}

/// The note where modules cannot be followed.
pub(super) fn no_modules(why: &str) -> String {
    format!("code of modules loaded and unloaded between two drains cannot be resolved: {why}")
}

/// What is reported of modules.
pub(crate) struct Modules {
    events: RingBuf<MapData>,
    lost: Array<MapData, u64>,
    layout: ModuleLayout,
    n_lost: u64,
}

/// What one reading of the ring gave.
#[derive(Debug, Default)]
pub(crate) struct ModuleReading {
    /// Modules that came and went, in the order of time.
    pub records: Vec<Timed>,
    /// Events that could not be understood.
    pub unread: u64,
    /// Events that found the ring full.
    pub lost: u64,
}

impl Modules {
    /// Attaches the programs. The object must have been loaded with the size of this layout.
    pub(crate) fn open(object: &mut Object, layout: ModuleLayout) -> anyhow::Result<Self> {
        let events = RingBuf::try_from(object.take_map(name::MODULES)?)?;
        let lost = Array::try_from(object.take_map(name::MODULES_LOST)?)?;
        object.attach_modules()?;
        Ok(Self {
            events,
            lost,
            layout,
            n_lost: 0,
        })
    }

    /// Reads all reports since the last call.
    pub(crate) fn read(&mut self) -> anyhow::Result<ModuleReading> {
        let mut reading = ModuleReading::default();
        while let Some(item) = self.events.next() {
            match understand(&self.layout, &item) {
                Some(timed) => reading.records.push(timed),
                None => reading.unread += 1,
            }
        }
        // A full ring is not an empty one, and without events the kernel need not be asked.
        if reading.records.is_empty() && reading.unread == 0 {
            return Ok(reading);
        }
        reading.records.sort_by_key(|timed| timed.time);
        let lost = self
            .lost
            .get(&0, 0)
            .context("failed to read the count of lost module events")?;
        reading.lost = lost.saturating_sub(self.n_lost);
        self.n_lost = lost;
        Ok(reading)
    }
}

impl AsFd for Modules {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn understand(layout: &ModuleLayout, bytes: &[u8]) -> Option<Timed> {
    const HEAD: usize = size_of::<u64>();
    let (time, rest) = bytes
        .get(..size_of::<ModuleEvent>())?
        .split_first_chunk::<HEAD>()?;
    let (what, module) = rest.split_first_chunk::<HEAD>()?;
    let gone = u64::from_le_bytes(*what) == WENT;
    let module = layout.parse(module.get(..usize::try_from(layout.size).ok()?)?, gone)?;
    Some(Timed {
        time: u64::from_le_bytes(*time),
        record: Record::Module(module),
    })
}
