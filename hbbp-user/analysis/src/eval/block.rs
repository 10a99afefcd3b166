//! The basic blocks of the reference, over which a profile is compared with it.
//!
//! "Establishing a Base of Trust" (ATC 2015, section 3.3) sums the deviations over the blocks that the instrumentation
//! found. Blocks of a profile would be a different measure for each profile: branch stacks show where blocks begin that
//! a recording of addresses alone leaves whole. So a block is what the exact counts say: instructions that follow each
//! other, without a branch between them, with equal counts.

use super::amounts::Amounts;
use hbbp_code::blocks::{Flow, Instruction};
use hbbp_code::locate::Site;
use hbbp_model::addr::Ring;

/// What was executed at an address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Address {
    /// Number of its location.
    pub(super) location: usize,
    /// What is there, in the version of the text that was added last; `None` if no code is known.
    instruction: Option<Instruction>,
    pub(super) amounts: Amounts,
}

impl Address {
    /// Nothing yet, at a location.
    pub(super) fn new(location: usize) -> Self {
        Self {
            location,
            ..Self::default()
        }
    }

    /// Adds executions of an instruction.
    pub(super) fn add(&mut self, instruction: Option<Instruction>, amounts: &Amounts) {
        self.instruction = instruction.or(self.instruction);
        self.amounts.add(amounts);
    }
}

/// Counts of one block may differ by this part. An instruction that faults runs again, without those before it, and a span of
/// measurement may begin within a block: some executions of millions. A branch into a block that is as rare counts as little.
const EQUAL: f64 = 1e-3;

/// The blocks of the reference, each with the location of its first instruction; of addresses in their order. Addresses that the
/// reference has not are blocks as well.
pub(super) fn blocks_of_reference(addresses: &[((Ring, Site), Address)]) -> Vec<(usize, Amounts)> {
    let mut blocks: Vec<(usize, Amounts)> = Vec::new();
    let mut open = None;
    for ((ring, site), address) in addresses {
        let executions = address.amounts.reference;
        let goes_on = open.is_some_and(|(next, first): (_, f64)| {
            next == (*ring, *site) && (executions - first).abs() <= EQUAL * first.max(executions)
        });
        match blocks.last_mut() {
            Some((_, sum)) if goes_on => sum.add(&address.amounts),
            _ => blocks.push((address.location, address.amounts)),
        }
        let first = open.filter(|_| goes_on).map_or(executions, |(_, first)| first);
        let straight = address
            .instruction
            .filter(|it| matches!(it.flow, Flow::Next | Flow::Idle));
        let next = straight.and_then(|it| site.addr.checked_add(it.len.into()));
        open = next.map(|addr| ((*ring, Site { addr, ..*site }), first));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::FormIdx;
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::ModuleIdx;

    fn address(at: u64, flow: Flow, reference: f64, ebs: f64) -> ((Ring, Site), Address) {
        let site = Site {
            module: ModuleIdx(0),
            addr: ImageAddr(at),
        };
        let instruction = Instruction {
            offset: 0,
            form: FormIdx(0),
            len: 2,
            flow,
        };
        let mut address = Address::new(usize::try_from(at).unwrap());
        let amounts = Amounts {
            reference,
            ebs,
            ..Amounts::default()
        };
        address.add(Some(instruction), &amounts);
        ((Ring::User, site), address)
    }

    #[test]
    fn blocks_end_at_branches_gaps_and_other_counts() {
        let addresses = [
            address(0, Flow::Next, 1000.0, 900.0),
            address(2, Flow::Next, 1001.0, 1100.0),
            address(4, Flow::Conditional, 1000.0, 1000.0),
            // As often: but a branch is between.
            address(6, Flow::Next, 1000.0, 1.0),
            // Somebody jumps here.
            address(8, Flow::Next, 1500.0, 2.0),
            // After a gap.
            address(12, Flow::Next, 1500.0, 3.0),
            // What the reference has not.
            address(14, Flow::Next, 0.0, 4.0),
            address(16, Flow::Return, 0.0, 5.0),
        ];
        let found: Vec<_> = blocks_of_reference(&addresses)
            .into_iter()
            .map(|(location, amounts)| (location, amounts.reference, amounts.ebs))
            .collect();
        let expected = [
            (0, 3001.0, 3000.0),
            (6, 1000.0, 1.0),
            (8, 1500.0, 2.0),
            (12, 1500.0, 3.0),
            (14, 0.0, 9.0),
        ];
        assert_eq!(found, expected);
        let all = |of: fn(&Amounts) -> f64| addresses.iter().map(|(_, it)| of(&it.amounts)).sum::<f64>();
        let [reference, ebs] = [
            found.iter().map(|it| it.1).sum(),
            found.iter().map(|it| it.2).sum(),
        ];
        assert_eq!(
            (all(|it| it.reference), all(|it| it.ebs)),
            (reference, ebs),
            "nothing is lost"
        );
    }

    #[test]
    fn creeping_counts_are_compared_with_the_first() {
        let addresses = [0u8, 1, 2].map(|n| {
            let count = 1000.0 + 0.8 * f64::from(n);
            address(2 * u64::from(n), Flow::Next, count, 0.0)
        });
        assert_eq!(blocks_of_reference(&addresses).len(), 2);
    }
}
