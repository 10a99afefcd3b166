//! Pages where modules are loaded that were hit and that nothing is known of: the printed symbols are read for them, once for
//! each.
//!
//! Some stay without a name, such as the kernel's thunks and the compiled filters of sockets.

use std::collections::HashSet;

use super::kallsyms::read_kallsyms;
use super::live_symbols::Printed;
use super::map::KernelMap;
use super::modules::read_modules;
use hbbp_model::addr::Va;

/// Pages of x86-64, as a power of two.
const PAGE_BITS: u32 = 12;

/// Such pages.
#[derive(Debug, Default)]
pub(super) struct UnknownPages {
    /// Those that symbols were read for.
    pages: HashSet<u64>,
    printed: Printed,
    /// Functions of BPF programs that were there before the run, with their lengths, which the text does not have.
    programs: Vec<(Va, u64)>,
}

impl UnknownPages {
    /// Starts where symbols were read from `printed`, with the programs that were there, first byte and length of each function.
    pub(super) fn new(printed: Printed, programs: &[(Va, u64)]) -> Self {
        Self {
            pages: HashSet::new(),
            printed,
            programs: programs.to_vec(),
        }
    }

    /// Whether symbols may add to the page of `at`, and were not read for it yet.
    pub(super) fn is_first(&mut self, at: Va) -> bool {
        self.printed != Printed::Hidden && self.pages.insert(at.0 >> PAGE_BITS)
    }

    /// Reads the printed symbols, and modules again. What is new came at `start`, the start of the current part, at the latest;
    /// where only the tables were read before, it was there before the run: what comes later has a record.
    pub(super) fn read(&mut self, map: &mut KernelMap, start: u64) {
        let time = match self.printed {
            Printed::NotYet => 0,
            Printed::Read | Printed::Hidden => start,
        };
        let Ok(mut symbols) = read_kallsyms() else { return };
        if symbols.hidden {
            self.printed = Printed::Hidden;
            return;
        }
        self.printed = Printed::Read;
        symbols.tell_lengths(&self.programs);
        map.update(symbols, &read_modules(), None, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_looked_for_once_and_never_in_a_text_that_hides() {
        let mut pages = UnknownPages::new(Printed::NotYet, &[]);
        let looked = [0x1000, 0x1ffe, 0x2000, 0x1000].map(|at| pages.is_first(Va(at)));
        assert_eq!(looked, [true, false, true, false]);
        assert!(!UnknownPages::new(Printed::Hidden, &[]).is_first(Va(0)));
    }

    #[test]
    fn what_only_the_text_has_was_there_before_the_run() {
        let mut map = KernelMap::default();
        let mut pages = UnknownPages::new(Printed::NotYet, &[]);
        pages.read(&mut map, 50);
        match map.named("do_idle") {
            Some((at, _)) => assert_eq!(map.region_at(Va(at), 50).from, 0),
            None => assert_eq!(pages.printed, Printed::Hidden),
        }
        assert_ne!(pages.printed, Printed::NotYet);
    }
}
