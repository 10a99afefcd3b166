//! The errors as JSON of the format `hbbp-sys.eval/1`.
//!
//! A field may be added within version 1; nothing is renamed, removed or given another meaning.

use serde::Serialize;

use super::evaluated::Errors;
use super::sampling::SamplingJson;
use hbbp_analysis::eval::{Amounts, Calibration, Group, HottestFunctions, Method};

/// The whole document.
#[derive(Serialize)]
pub(super) struct Document {
    /// Name and version of this format.
    format: &'static str,
    /// Near taken branches of the reference; null if it does not count them.
    taken: Option<f64>,
    /// Samples of instruction pointers that EBS had.
    samples: f64,
    /// Branch stacks that LBR had.
    stacks: f64,
    /// Instructions of the profile that the reference does not count, by the hybrid.
    left_out: f64,
    /// Half the sum of the absolute differences of the shares of all addresses, as a fraction; null if the reference has no
    /// addresses.
    distance: ByMethod<Option<f64>>,
    /// Mnemonics of a thousandth of the reference or more, functions of a hundred samples or more, and those within two standard
    /// errors. Null if the reference leaves code out, or counts otherwise.
    calibration: Option<Calibration>,
    /// The hottest functions of the reference, and whether each method has them in the right order; null if the reference has no
    /// addresses.
    order: Option<OrderJson>,
    /// The sampling methods that were requested; absent where none was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    methods: Vec<SamplingJson>,
    /// Everything.
    whole: GroupJson,
    /// The groups of the requested level, by falling reference.
    groups: Vec<GroupJson>,
}

#[derive(Serialize)]
struct OrderJson {
    /// At most ten, by falling reference.
    functions: Vec<HottestJson>,
    /// Spearman's rank correlation of these functions; null if a side has one amount for all.
    rank_correlation: ByMethod<Option<f64>>,
    /// Whether the ten hottest by the method are these, in this order; null if the method has nothing in functions.
    is_right: ByMethod<Option<bool>>,
}

#[derive(Serialize)]
struct HottestJson {
    ring: String,
    module: String,
    function: String,
    /// Executed instructions.
    instructions: AmountsJson,
    /// Its rank among all functions, from 1; null if the method has not seen it.
    place: ByMethod<Option<usize>>,
}

#[derive(Serialize)]
struct GroupJson {
    /// Ring, module, function, as far as the level goes.
    key: Vec<String>,
    /// Executed instructions.
    instructions: AmountsJson,
    /// Average weighted error over mnemonics, as a fraction; null if the reference has nothing.
    average_weighted_error: ByMethod<Option<f64>>,
    /// The same of shares of all instructions of the group.
    share_error: ByMethod<Option<f64>>,
    /// Accuracy error over blocks, likewise.
    block_error: ByMethod<Option<f64>>,
    mnemonics: Vec<MnemonicJson>,
}

/// A figure of each method.
#[derive(Serialize)]
struct ByMethod<T> {
    hybrid: T,
    lbr: T,
    ebs: T,
}

#[derive(Serialize)]
struct AmountsJson {
    reference: f64,
    hybrid: f64,
    lbr: f64,
    ebs: f64,
}

#[derive(Serialize)]
struct MnemonicJson {
    mnemonic: String,
    #[serde(flatten)]
    executions: AmountsJson,
}

impl Document {
    pub(super) fn new(errors: &Errors<'_>) -> Self {
        Self {
            format: "hbbp-sys.eval/1",
            taken: errors.evaluation.taken,
            samples: errors.evaluation.samples,
            stacks: errors.evaluation.stacks,
            left_out: errors.evaluation.left_out,
            distance: ByMethod::new(|method| errors.evaluation.distance(method)),
            calibration: errors.evaluation.calibration,
            order: OrderJson::new(&errors.evaluation.hottest),
            methods: errors
                .sampling
                .iter()
                .map(|method| SamplingJson::new(method, &errors.whole))
                .collect(),
            whole: GroupJson::new(&errors.whole),
            groups: errors.groups.iter().map(GroupJson::new).collect(),
        }
    }
}

impl OrderJson {
    /// `None` if there are no functions.
    fn new(hottest: &HottestFunctions) -> Option<Self> {
        let orders = ByMethod::new(|method| hottest.order(method));
        let functions = hottest.functions.iter().enumerate();
        let functions = functions.map(|(nth, (function, amounts))| HottestJson {
            ring: function.ring.to_string(),
            module: function.module.clone(),
            function: function.function.clone(),
            instructions: AmountsJson::new(amounts),
            place: orders.map(|order| *order.as_ref()?.places.get(nth)?),
        });
        (!hottest.functions.is_empty()).then(|| Self {
            functions: functions.collect(),
            rank_correlation: orders.map(|order| order.as_ref()?.rank_correlation),
            is_right: orders.map(|order| Some(order.as_ref()?.is_right)),
        })
    }
}

impl<T> ByMethod<T> {
    fn new(of: impl Fn(Method) -> T) -> Self {
        Self {
            hybrid: of(Method::Hybrid),
            lbr: of(Method::Lbr),
            ebs: of(Method::Ebs),
        }
    }

    fn map<U>(&self, of: impl Fn(&T) -> U) -> ByMethod<U> {
        ByMethod {
            hybrid: of(&self.hybrid),
            lbr: of(&self.lbr),
            ebs: of(&self.ebs),
        }
    }
}

impl GroupJson {
    fn new(group: &Group) -> Self {
        let mnemonics = group.mnemonics.iter().map(|(mnemonic, amounts)| MnemonicJson {
            mnemonic: mnemonic.clone(),
            executions: AmountsJson::new(amounts),
        });
        Self {
            key: group.key.clone(),
            instructions: AmountsJson::new(&group.total()),
            average_weighted_error: ByMethod::new(|method| group.average_weighted(method)),
            share_error: ByMethod::new(|method| group.share_error(method)),
            block_error: ByMethod::new(|method| group.block_error(method)),
            mnemonics: mnemonics.collect(),
        }
    }
}

impl AmountsJson {
    const fn new(amounts: &Amounts) -> Self {
        let Amounts {
            reference,
            ebs,
            lbr,
            hybrid,
        } = *amounts;
        Self {
            reference,
            hybrid,
            lbr,
            ebs,
        }
    }
}
