//! The kind of each instruction form of a block map, for what depends on the time that instructions take.

use iced_x86::InstructionInfoFactory;

use hbbp_code::blocks::Form;
use hbbp_model::kinds::{kind, kind_of};

/// By the number of the form.
pub(super) fn kinds_of_forms(forms: &[Form]) -> Vec<u8> {
    let mut info = InstructionInfoFactory::new();
    let kind_of_form = |form: &Form| {
        let decoded = form.decoded();
        let kind = decoded.map_or(kind::PLAIN, |decoded| kind_of(&decoded, form.modern(), &mut info));
        u8::try_from(kind).unwrap_or_default()
    };
    forms.iter().map(kind_of_form).collect()
}
