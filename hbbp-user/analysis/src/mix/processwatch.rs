//! The categories of Intel's processwatch, which are those of the decoder Zydis 4, as a taxonomy: each instruction has one.

use super::taxonomy::{Taxonomy, TaxonomyError};

/// The categories in the order of Zydis; instructions that it does not know are in none.
pub fn processwatch_categories() -> Result<Taxonomy, TaxonomyError> {
    Taxonomy::parse(include_str!("taxonomy/processwatch.toml"))
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::processwatch_categories;
    use crate::mix::class::Class;
    use hbbp_code::blocks::Flow;

    /// One instruction after the other, with what Zydis 4.1 says of it.
    #[test]
    fn categories_are_those_of_zydis() {
        let cases: [(&[u8], &str); 20] = [
            (&[0x48, 0x89, 0xe5], "DATAXFER"),
            (&[0x48, 0x01, 0xc8], "BINARY"),
            (&[0x31, 0xc9], "LOGICAL"),
            (&[0x75, 0xf6], "COND_BR"),
            (&[0xeb, 0xf6], "UNCOND_BR"),
            (&[0xe8, 0, 0, 0, 0], "CALL"),
            (&[0xc3], "RET"),
            (&[0x55], "PUSH"),
            (&[0x5d], "POP"),
            (&[0x0f, 0x1f, 0x44, 0, 0], "WIDENOP"),
            (&[0xf3, 0xa5], "STRINGOP"),
            (&[0xf0, 0x0f, 0xc1, 0x07], "SEMAPHORE"),
            (&[0x0f, 0x05], "SYSCALL"),
            (&[0x0f, 0x58, 0xc1], "SSE"),
            (&[0xf2, 0x0f, 0x10, 0x07], "DATAXFER"),
            (&[0xc5, 0xfc, 0x58, 0xc1], "AVX"),
            (&[0xc4, 0xe2, 0xf5, 0xb8, 0xc2], "VFMA"),
            (&[0x62, 0xf1, 0x7c, 0x48, 0x58, 0xc1], "AVX512"),
            (&[0xd8, 0xc1], "X87_ALU"),
            (&[0xf3, 0x0f, 0x1e, 0xfa], "CET"),
        ];
        let taxonomy = processwatch_categories().unwrap();
        for (bytes, category) in cases {
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            let class = Class::new(&instruction, Flow::Next);
            assert_eq!(taxonomy.groups_of(&class), [category], "{}", class.form);
        }
    }
}
