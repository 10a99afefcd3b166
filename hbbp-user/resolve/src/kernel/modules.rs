//! The loaded kernel modules, from the text of /proc/modules.
//!
//! A kernel without module support lacks the file, which is not an error: it has no modules. The text is interpreted
//! here and not by procfs, because that crate leaves the addresses out. Since Linux 6.4 the parts of a module have
//! separate ranges: the address is that of its text, the size that of all parts.

use super::kernel_file::KernelFile;
use hbbp_model::addr::Va;

/// A loaded module.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadedModule {
    /// Its name.
    pub name: String,
    /// Where its text starts; `None` if the kernel hides addresses.
    pub start: Option<Va>,
    /// Length in bytes of all its parts.
    pub len: u64,
}

/// Reads /proc/modules; empty if the kernel has no modules.
pub fn read_modules() -> Vec<LoadedModule> {
    KernelFile::Modules
        .read()
        .map(|text| parse_modules(&text))
        .unwrap_or_default()
}

/// Interprets the text of /proc/modules: `name size users by state address [taints]`.
pub fn parse_modules(text: &[u8]) -> Vec<LoadedModule> {
    String::from_utf8_lossy(text)
        .lines()
        .filter_map(parse_line)
        .collect()
}

fn parse_line(line: &str) -> Option<LoadedModule> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next()?.to_owned();
    let len = words.next()?.parse().ok()?;
    let address = words.nth(3)?.strip_prefix("0x")?;
    let start = u64::from_str_radix(address, 16).ok()?;
    Some(LoadedModule {
        name,
        start: (0 < start).then_some(Va(start)),
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_debian() {
        let text = b"nf_tables 372736 125 nft_ct,nft_chain_nat, Live 0xffffffffc0a31000\n\
                     zram 45056 2 - Live 0x0000000000000000 (OE)\nbroken\nx y z\n";
        let modules = parse_modules(text);
        let start = Some(Va(0xffff_ffff_c0a3_1000));
        assert_eq!(modules.len(), 2);
        assert_eq!(
            modules[0],
            LoadedModule {
                name: "nf_tables".to_owned(),
                start,
                len: 372_736
            }
        );
        assert_eq!(
            (modules[1].start, modules[1].len),
            (None, 45056),
            "hidden by kptr_restrict"
        );
    }
}
