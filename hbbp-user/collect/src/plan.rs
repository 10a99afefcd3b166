//! What to collect, and what follows from that for the programs in the kernel and for what reads their counts.

use hbbp_ebpf::CountKey;

use super::btf::Btf;
use super::choice::Choice;
use super::classes::ClassCounting;
use super::counters::{SHORTEST, scaled};
use super::kernel_layout;
use super::modules::ModuleWatch;
use super::object::{Constants, Messages};
use super::pid_namespace;
use super::scope::Scope;
use super::source::Source;
use super::stream_counts::StackOwner;
use hbbp_model::slices::Slices;
use hbbp_model::snapshot::run::Period;
use hbbp_model::streams::{Counted, KernelCounts, Quirks, ThreadCounts};

/// What to collect.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose samples to take.
    pub scope: Scope,
    /// Which events, how often.
    pub choice: Choice,
    /// Whether the threads of a process are kept separate.
    pub threads: ThreadCounts,
    /// Capacity of a count map in counts; `None` for a size by the number of CPUs.
    pub map_entries: Option<u32>,
    /// Whether to report modules that come and go.
    pub modules: ModuleWatch,
    /// Whether the programs say what they refuse.
    pub messages: Messages,
    /// Whether classes of instructions are counted along with the samples.
    pub classes: ClassCounting,
}

/// Where slices are distinguished, what takes their counts; and the key of a stream.
pub(super) fn in_slices(choice: &Choice) -> (Option<Slices>, fn(StackOwner, Counted) -> CountKey) {
    match choice.slices {
        None => (None, StackOwner::key),
        Some(cut) => (Some(Slices::new(cut.threads)), StackOwner::key_in_slice),
    }
}

/// What the programs must know of this machine; what is unknown becomes a note.
pub(super) fn constants(plan: &Plan, btf: &Result<Btf, String>, notes: &mut Vec<String>) -> Constants {
    let exec_id_offset = match btf
        .as_ref()
        .map_err(String::clone)
        .and_then(kernel_layout::read_exec_id_offset)
    {
        Ok(offset) => Some(offset),
        Err(reason) => {
            notes.push(format!("successive programs of a process share counts: {reason}"));
            None
        }
    };
    let pid_namespace = pid_namespace::read_pid_namespace();
    if pid_namespace.is_some() {
        notes.push(
            "user code of processes outside this container cannot be resolved: start the container in the \
             host PID namespace (docker run --pid=host)"
                .to_owned(),
        );
    }
    Constants {
        exec_id_offset,
        pid_namespace,
        threads: plan.threads,
        wrong_paths: false,
        module_size: None,
        slices: None,
        event_count_offset: None,
        fs_base_offset: None,
        messages: plan.messages,
    }
}

/// Which kernel streams share a count: by process, a stack of 32 branches costs an eighth more (kernel-tests/results/noted.txt).
/// Estimates divide them by the samples of addresses, which are of processes; a slice is of one thread, and divides nothing.
const fn kernel_streams(choice: &Choice) -> KernelCounts {
    match choice.slices {
        None => KernelCounts::Together,
        Some(_) => KernelCounts::ByProcess,
    }
}

/// Where the programs find what an event has counted, if slices are distinguished.
pub(super) fn event_count_offset(
    plan: &Plan,
    btf: &Result<Btf, String>,
    notes: &mut Vec<String>,
) -> Option<u32> {
    plan.choice.slices?;
    let offset = btf.as_ref().map_err(String::clone);
    let unknown = |reason| {
        notes.push(format!(
            "the samples alone make intervals, which are longer where samples were lost: {reason}"
        ));
    };
    offset
        .and_then(kernel_layout::read_event_count_offset)
        .map_err(unknown)
        .ok()
}

/// The least events between two branch stacks; `None` where no event has any.
pub(super) fn shortest_stack_period(sources: &[Source]) -> Option<u64> {
    let with_stacks = sources.iter().filter(|source| source.request.stack.is_some());
    let shortest = |source: &Source| match source.request.ring {
        Some(_) => scaled(shortest_period(source), SHORTEST),
        None => shortest_period(source),
    };
    with_stacks.map(shortest).min()
}

/// The least events between two samples, as far as that is known before they run.
const fn shortest_period(source: &Source) -> u64 {
    match source.request.period {
        Period::Fixed(period) | Period::Between(period, _) => period,
        // The kernel finds one, and no processor takes many more than a thousand million branches a second.
        Period::Frequency(frequency) => {
            let frequency = if frequency == 0 { 1 } else { frequency };
            1_000_000_000 / frequency
        }
    }
}

/// What the stacks of these events are judged by.
pub(super) fn quirks(plan: &Plan, sources: &[Source]) -> Quirks {
    Quirks {
        near_only: near_only(sources),
        kernel: kernel_streams(&plan.choice),
        ..Quirks::default()
    }
}

/// Bit n: stacks of event number n are taken at near branches alone. That follows from what the event counts only where it is precise:
/// the stack is in its record, or is read in the interrupt that comes with the record ([`super::uarch`]). The stack of an
/// imprecise event is what the interrupt found some cycles later, and its newest entry is any branch.
fn near_only(sources: &[Source]) -> u32 {
    let ends_near = |source: &Source| source.near_only && 0 < source.request.precise;
    let numbered = sources.iter().enumerate();
    let near_only = numbered.filter(|(_, source)| ends_near(source));
    near_only.fold(0, |all, (number, _)| all | 1 << number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Request;
    use hbbp_model::snapshot::EventUnit;

    #[test]
    fn only_stacks_of_precise_events_end_at_near_branches() {
        let source = |near_only, precise| Source {
            name: String::new(),
            unit: EventUnit::TakenBranches,
            near_only,
            request: Request {
                kind: 0,
                config: 0,
                period: Period::default(),
                precise,
                exclude_guest: false,
                pinned: false,
                stack: None,
                chain: false,
                ring: None,
            },
            cpus: Vec::new(),
        };
        let sources = [
            source(true, 0),
            source(true, 2),
            source(false, 2),
            source(true, 1),
        ];
        assert_eq!(near_only(&sources), 0b1010);
    }
}
