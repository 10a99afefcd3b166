//! Prints the functions of the running kernel: `tables` as the recorder finds them at the start, `printed` as /proc/kallsyms
//! has them. Tests compare the two (kernel-tests/tests/vm/functions.rs). It is a package of its own, so that the library is built
//! for it as for hbbp-sys, once.

use std::io::{BufWriter, Write as _};

use anyhow::{Context as _, bail};
use hbbp_collect::btf::Btf;
use hbbp_collect::module_layout::{read_compiled_layout, read_module_layout};
use hbbp_resolve::kernel::kallsyms::{Kallsyms, read_kallsyms};
use hbbp_resolve::kernel::live_symbols::{KernelFacts, Printed, read_live_symbols};
use hbbp_resolve::kernel::modules::read_modules;

fn main() -> anyhow::Result<()> {
    let source = std::env::args().nth(1);
    let functions = match source.as_deref() {
        Some("tables") => by_tables()?,
        Some("printed") => read_kallsyms()?,
        _ => bail!("usage: kernel-functions tables|printed"),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    for function in functions.iter() {
        let tag = function.tag.unwrap_or("-");
        writeln!(
            out,
            "{} {:#x} {} {tag}",
            function.start, function.len, function.name
        )?;
    }
    writeln!(out, "{:?}", functions.image)?;
    out.flush()?;
    Ok(())
}

fn by_tables() -> anyhow::Result<Kallsyms> {
    let release =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").context("failed to read the release")?;
    let btf = Btf::open().ok();
    let facts = KernelFacts {
        release: release.trim(),
        modules: btf.as_ref().and_then(|btf| read_module_layout(btf).ok()),
        compiled: btf.as_ref().and_then(read_compiled_layout),
        programs: &[],
    };
    let (functions, printed) = read_live_symbols(&facts, &read_modules())?;
    match printed {
        Printed::Read => bail!("the kernel's tables could not be read"),
        Printed::NotYet | Printed::Hidden => Ok(functions),
    }
}
