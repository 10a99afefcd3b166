//! The accounting of samples and streams in the JSON report: each sum can be checked by its reader.

use serde::Serialize;

use crate::report::accounting::Accounting;
use crate::report::measured::Streams;
use crate::report::refused::RefusedIn;
use hbbp_code::locate::PerRing;

/// Where the samples went, over all events.
#[derive(Serialize)]
pub(super) struct AccountingJson {
    /// Expected samples; null if the kernel chose a period. `due + beyond = idle + skipped + reached`.
    due: Option<u64>,
    /// Missing on idle CPUs: their idle time shows in fewer samples than periods.
    idle: u64,
    /// Missing for other causes: the sum of `stolen` and those without a known cause.
    skipped: u64,
    /// Missing on CPUs that the hypervisor took for as many periods (steal time).
    stolen: u64,
    beyond: u64,
    /// The sum of `refused`, `stacks_only`, `unexplained` and `counted`.
    reached: u64,
    refused: Vec<RefusedJson>,
    /// Functions of the stacks that were refused: the sum of `samples` is the count of `sample.stacks_full` in `refused`.
    refused_in: Vec<RefusedInJson>,
    stacks_only: u64,
    /// Zero, unless hbbp-sys has a bug.
    unexplained: i64,
    /// The sum of `unresolved`, `other_events` and `in_mix`, in each ring.
    counted: RingsJson,
    unresolved: Vec<ReasonJson>,
    /// Modules of the samples of `ip.not_on_instruction` in `unresolved`, whose count is the sum of `samples`.
    inside_instruction: Vec<InModuleJson>,
    /// Samples on an instruction, of events that the mix does not use.
    other_events: RingsJson,
    in_mix: RingsJson,
    /// Samples of the kernel in `in_mix` that are time of user code, less those of user code that are time of the kernel. On a
    /// clock these are the ends of system calls. Figures of the kernel have as many less than `in_mix`, those of user code as
    /// many more.
    of_user_code: i64,
}

#[derive(Serialize)]
struct RefusedJson {
    id: &'static str,
    count: u64,
}

/// Module, function and ring are empty where they are not known.
#[derive(Serialize)]
struct RefusedInJson {
    module: String,
    function: String,
    ring: String,
    samples: u64,
}

#[derive(Serialize)]
struct InModuleJson {
    module: String,
    samples: u64,
}

/// A count by ring, with a reason.
#[derive(Serialize)]
struct ReasonJson {
    id: &'static str,
    kernel: u64,
    user: u64,
    text: &'static str,
}

#[derive(Serialize)]
struct RingsJson {
    kernel: u64,
    user: u64,
}

/// Where the streams went: `counted` is the sum of `discarded` and `accepted`.
#[derive(Serialize)]
pub(super) struct StreamsJson {
    counted: u64,
    discarded: Vec<ReasonJson>,
    accepted: u64,
    /// Accepted streams that an interrupt or exception ended.
    interrupted: u64,
    /// The discarded ones whose weight was redistributed to the accepted.
    made_up: u64,
}

impl AccountingJson {
    pub(super) fn new(all: &Accounting, refused_in: &[RefusedIn]) -> Self {
        let (unresolved, missing) = (all.unresolved.iter(), all.missing());
        Self {
            due: all.due,
            idle: missing.idle,
            skipped: missing.stolen.saturating_add(missing.unknown),
            stolen: missing.stolen,
            beyond: all.beyond,
            reached: all.reached,
            refused: all
                .refused
                .iter()
                .map(|(loss, n)| RefusedJson {
                    id: loss.id(),
                    count: *n,
                })
                .collect(),
            refused_in: refused_in
                .iter()
                .map(|row| RefusedInJson {
                    module: row.module.clone(),
                    function: row.function.clone(),
                    ring: row.ring.map_or_else(String::new, |ring| ring.to_string()),
                    samples: row.samples,
                })
                .collect(),
            stacks_only: all.stacks,
            unexplained: i64::try_from(all.unexplained()).unwrap_or(i64::MAX),
            counted: RingsJson::from(all.counted),
            unresolved: unresolved
                .map(|(why, n)| reason(why.id(), why.sentence(), *n))
                .collect(),
            inside_instruction: all
                .inside
                .iter()
                .map(|row| InModuleJson {
                    module: row.module.clone(),
                    samples: row.samples,
                })
                .collect(),
            other_events: RingsJson::from(all.other_events),
            in_mix: RingsJson::from(all.in_mix),
            of_user_code: all.of_user_code,
        }
    }
}

impl StreamsJson {
    pub(super) fn new(streams: &Streams) -> Self {
        let discarded = streams.discarded.iter();
        Self {
            counted: streams.counted,
            discarded: discarded
                .map(|(why, n)| reason(why.id(), why.sentence(), *n))
                .collect(),
            accepted: streams.accepted,
            interrupted: streams.interrupted,
            made_up: streams.made_up,
        }
    }
}

impl From<PerRing> for RingsJson {
    fn from(n: PerRing) -> Self {
        Self {
            kernel: n.kernel,
            user: n.user,
        }
    }
}

fn reason(id: &'static str, text: &'static str, n: PerRing) -> ReasonJson {
    ReasonJson {
        id,
        kernel: n.kernel,
        user: n.user,
        text,
    }
}
