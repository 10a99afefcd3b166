//! The time that an instruction takes, by its form.

use super::code::{Code, Place};
use crate::kinds_of_forms::kinds_of_forms;
use hbbp_code::blocks::BlockMap;
use hbbp_model::kinds::{KNOWN_TIMES, kind};

/// The time of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Time {
    pub(super) cycles: f64,
    /// Of its logarithm, from one place to another.
    pub(super) variance: f64,
}

/// The times of all forms.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) of_forms: Vec<Time>,
    /// Which of them are cheap, so that their time is known well.
    plain: Vec<bool>,
}

impl Times {
    /// As they are known of the kind of each form.
    pub(super) fn known(map: &BlockMap) -> Self {
        let kinds = kinds_of_forms(&map.forms);
        let time = |kind: &u8| {
            let (cycles, off) = KNOWN_TIMES.get(usize::from(*kind)).copied().unwrap_or_default();
            Time {
                cycles,
                variance: off.ln().powi(2),
            }
        };
        Self {
            of_forms: kinds.iter().map(time).collect(),
            plain: kinds.iter().map(|it| usize::from(*it) == kind::PLAIN).collect(),
        }
    }

    pub(super) fn of(&self, code: &Code<'_>, at: Place) -> Time {
        code.of_form(&self.of_forms, at)
    }

    /// Whether an instruction is cheap.
    pub(super) fn is_plain(&self, code: &Code<'_>, at: Place) -> bool {
        code.of_form(&self.plain, at)
    }
}
