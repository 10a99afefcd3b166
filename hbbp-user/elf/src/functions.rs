//! Where the functions of an ELF file start and end, and what they are called.
//!
//! Symbol tables say it best (.symtab, or that of a debug file with the same build id, then .dynsym). Functions of stripped
//! files have the ranges of their unwind information and no name; the stubs of linkage tables have the names of the
//! functions that they lead to (`puts@plt`).

mod read;
mod table;
mod wire;

pub use crate::layout::SymbolFile;
pub use read::read_functions;
pub use table::Functions;

#[cfg(test)]
mod tests {
    use super::{SymbolFile, read_functions};
    use crate::byte_source::ByteSource;
    use crate::layout::read_layout;

    // A test has one call site, so the compiler may inline it.
    #[test]
    #[inline(never)]
    fn own_functions_have_names() {
        let file = std::fs::File::open("/proc/self/exe").expect("own program");
        let len = file.metadata().expect("its length").len();
        let source = ByteSource::File(file, len);
        let layout = read_layout(&source).expect("an ELF file");
        let own = SymbolFile {
            source: &source,
            layout: &layout,
        };
        let functions = read_functions(own, None);
        assert!(1000 < functions.len());
        let named = functions
            .starts()
            .filter_map(|start| functions.read_function_at(start, &source, None));
        assert!(
            named
                .into_iter()
                .any(|s| s.name.contains("own_functions_have_names"))
        );
    }
}
