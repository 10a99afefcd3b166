//! Counts of classes of instructions in the section `run`.

use super::malformed::Malformed;
use crate::addr::Ring;
use crate::snapshot::{ClassCount, InstructionClass, Turns};

/// What one event counted of a class in one ring.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ClassMessage {
    /// The stable name of the class.
    #[prost(string, tag = "1")]
    class: String,
    #[prost(bool, tag = "2")]
    kernel: bool,
    #[prost(string, tag = "3")]
    event: String,
    #[prost(uint64, tag = "4")]
    count: u64,
    #[prost(uint64, tag = "5")]
    enabled: u64,
    #[prost(uint64, tag = "6")]
    running: u64,
    #[prost(uint64, tag = "7")]
    instructions: u64,
    #[prost(uint64, tag = "8")]
    turns: u64,
    #[prost(double, tag = "9")]
    squares: f64,
    #[prost(double, tag = "10")]
    products: f64,
    #[prost(double, tag = "11")]
    measures: f64,
}

impl From<&ClassCount> for ClassMessage {
    fn from(count: &ClassCount) -> Self {
        Self {
            class: count.class.id().to_owned(),
            kernel: count.ring == Ring::Kernel,
            event: count.event.clone(),
            count: count.count,
            enabled: count.enabled,
            running: count.running,
            instructions: count.instructions,
            turns: count.turns.n,
            squares: count.turns.count,
            products: count.turns.product,
            measures: count.turns.measure,
        }
    }
}

impl ClassMessage {
    /// The count; `None` if the class is one of a newer version.
    pub(super) fn known(self) -> Result<Option<ClassCount>, Malformed> {
        let turns = Turns {
            n: self.turns,
            count: self.squares,
            product: self.products,
            measure: self.measures,
        };
        let sums = [turns.count, turns.product, turns.measure];
        if !sums.iter().all(|sum| sum.is_finite()) {
            return Err(Malformed::Weight);
        }
        let Some(class) = InstructionClass::of(&self.class) else {
            return Ok(None);
        };
        Ok(Some(ClassCount {
            class,
            ring: if self.kernel { Ring::Kernel } else { Ring::User },
            event: self.event,
            count: self.count,
            enabled: self.enabled,
            running: self.running,
            instructions: self.instructions,
            turns,
        }))
    }
}
