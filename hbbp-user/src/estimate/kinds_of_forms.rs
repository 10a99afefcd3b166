//! The kind of each instruction form of a block map, for what depends on the time that instructions take.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

use crate::blocks::Form;
use crate::kinds::{kind, kind_of};

/// By the number of the form.
pub(super) fn kinds_of_forms(forms: &[Form]) -> Vec<u8> {
    let mut info = InstructionInfoFactory::new();
    let kind_of_form = |form: &Form| {
        let decoder = Decoder::try_with_ip(form.bits(), form.example(), 0, DecoderOptions::NONE);
        let kind = decoder.map_or(kind::PLAIN, |mut decoder| kind_of(&decoder.decode(), &mut info));
        u8::try_from(kind).unwrap_or_default()
    };
    forms.iter().map(kind_of_form).collect()
}
