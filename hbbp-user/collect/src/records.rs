//! What the kernel reports while programs count: records of processes, mappings and kernel text.

use std::os::fd::AsFd;

use anyhow::Context as _;

use super::modules::Modules;
use super::sideband::{Reading, Sideband};
use super::wake::Wake;
use hbbp_model::record::{Record, Timed};

/// Where records come from, and what waits for them.
pub(super) struct Records {
    pub(super) sideband: Sideband,
    pub(super) modules: Option<Modules>,
    pub(super) wake: Wake,
}

impl Records {
    /// Waits for these.
    pub(super) fn awaited(sideband: Sideband, modules: Option<Modules>) -> anyhow::Result<Self> {
        let wake = Wake::on(sideband.descriptors().chain(modules.iter().map(AsFd::as_fd)))
            .context("failed to wait for records of the kernel")?;
        Ok(Self {
            sideband,
            modules,
            wake,
        })
    }

    /// All that came since the last call, in the order of time.
    pub(super) fn read(&mut self) -> anyhow::Result<Reading> {
        let mut reading = self.sideband.read();
        if let Some(modules) = &mut self.modules {
            let told = modules.read()?;
            reading.unread += told.unread;
            reading.records.extend(told.records);
            if 0 < told.lost {
                reading.records.push(Timed {
                    time: 0,
                    record: Record::LostText(told.lost),
                });
            }
            reading.records.sort_by_key(|timed| timed.time);
        }
        Ok(reading)
    }

    /// Has the kernel write records of processes and mappings again.
    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        let mut rings = self
            .sideband
            .resume()
            .context("failed to open the sideband events again")?;
        rings
            .try_for_each(|ring| self.wake.add(ring))
            .context("failed to wait for records of the kernel")
    }
}
