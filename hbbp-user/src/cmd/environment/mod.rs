//! Where this machine runs: on bare metal, in a cloud, below a hypervisor or in a container, and who gives it counters.

mod ec2;
mod facts;
mod offers;
mod platform;
#[cfg(test)]
mod tests;

use std::error::Error as _;
use std::path::Path;

use facts::{Facts, cpuid_of_this_machine};
use hbbp_collect::event::{self, Rung};
use hbbp_collect::pmu::{DEVICES, Pmu, read_pmus};
use hbbp_model::printable::harmless;
pub(super) use offers::OfferHere;
use platform::Platform;

/// What is known of where this machine runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Environment {
    facts: Facts,
    platform: Platform,
}

impl Environment {
    /// Of this machine.
    pub(super) fn read() -> Self {
        Self::of(Facts::read(Path::new("/"), cpuid_of_this_machine))
    }

    fn of(facts: Facts) -> Self {
        Self {
            platform: Platform::of(&facts),
            facts,
        }
    }

    /// What it is, in a line.
    pub(super) fn described(&self) -> String {
        let machine = self.platform.described(&self.facts);
        let container = self.facts.container;
        let container = container.map_or_else(String::new, |kind| format!(", in a container ({kind})"));
        harmless(&format!("{machine}{container}"))
    }

    /// Whether processes outside of its container are numbered otherwise than here.
    pub(super) const fn is_apart(&self) -> bool {
        self.facts.container.is_some() && self.facts.has_own_pids
    }

    /// Whether it can run virtual machines.
    pub(super) const fn runs_guests(&self) -> bool {
        self.facts.runs_guests
    }

    /// Whether it is a virtual machine.
    pub(super) const fn is_guest(&self) -> bool {
        self.facts.is_guest
    }

    /// Why there is no PMU.
    pub(super) fn without_pmu(&self) -> String {
        let subject = harmless(&self.platform.subject(&self.facts));
        if self.facts.is_guest || !self.facts.has_counters() {
            return format!("{subject} has no PMU");
        }
        format!("the kernel drives no PMU of {subject}, although its CPU has one")
    }

    /// How to have one.
    pub(super) const fn remedy(&self) -> &'static str {
        self.platform.remedy()
    }

    /// Which machines of its kind have more, and the one of them that this is.
    pub(super) fn offers(&self) -> Vec<OfferHere> {
        offers::of(self.platform, &self.facts.dmi.product_name)
    }

    /// Why no executions can be sampled, and what could: a clause. `refused` is the reason for the events of a PMU.
    pub(super) fn without_executions(
        &self,
        pmus: &[Pmu],
        refused: impl FnOnce() -> Option<String>,
    ) -> String {
        if pmus.is_empty() {
            return format!("{} ({})", self.without_pmu(), self.remedy());
        }
        let subject = harmless(&self.platform.subject(&self.facts));
        let why = refused().map_or_else(String::new, |why| format!(": {why}"));
        format!("{subject} refuses its events of retired instructions{why}")
    }
}

/// Why no executions can be sampled on this machine, and what could.
pub(super) fn why_no_executions() -> String {
    Environment::read().without_executions(&read_pmus(Path::new(DEVICES)), || first_refusal(&event::ladder()))
}

/// Why the best events of a ladder cannot be had.
pub(super) fn first_refusal(ladder: &[Rung]) -> Option<String> {
    let refused = ladder.iter().find_map(|rung| rung.sources.as_ref().err())?;
    let cause = refused
        .source()
        .map_or_else(String::new, |cause| format!(": {cause}"));
    Some(format!("{refused}{cause}"))
}
