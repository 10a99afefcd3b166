//! Where the functions of an ELF file start and end, and what they are called.
//!
//! Symbol tables say it best: .symtab, or that of a debug file (build id, `.gnu_debuglink`), or the packed one of
//! `.gnu_debugdata`; then .dynsym. Without a .symtab, programs of Go have their own table. Functions of stripped files have the
//! ranges of their unwind information and no name; the stubs of linkage tables have the names of the functions that they
//! lead to (`puts@plt`). A label in code that no function covers reaches to the next symbol, as for gdb.

mod read;
mod table;
mod wire;

pub use crate::layout::SymbolFile;
pub use read::read_functions;
pub use table::Functions;
pub(crate) use table::MAX_DEBUG_FILES;

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
        let functions = read_functions(own, &[]);
        assert!(1000 < functions.len());
        let named = functions
            .starts()
            .filter_map(|start| functions.read_function_at(start, &source, &[]));
        assert!(
            named
                .into_iter()
                .any(|s| s.name.contains("own_functions_have_names"))
        );
    }
}
