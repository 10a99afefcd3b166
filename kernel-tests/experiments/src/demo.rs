//! `cargo xtask demo`: the estimated and the exact mix of kernel and user code, without any special hardware.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use kernel_tests::accuracy::{Amounts, Group, Setup, measure_command};
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::{Machine, Marks};
use kernel_tests::workload::Workload;

use crate::profile_file::hardware_profile;

/// The same prime search in user code and in a kernel module, and some other work for the kernel.
const LOAD: &str =
    "hello_u 10000 8; hello_u 10000 8 kernel; busybox seq 3000 | busybox sort -r | busybox md5sum";
/// The newer of the two kernels that the tests use.
const SERIES: &str = "6.12";
/// Lines of the table.
const TOP: usize = 20;

/// Boots, measures, prints.
pub(crate) fn demo() -> Result<()> {
    println!("booting Linux {SERIES} on the emulated machine and measuring: {LOAD}");
    let kernel = Kernel::get(SERIES)?;
    let setup = Setup::new(hardware_profile("ivb")?);
    let mut machine = Machine::new(&kernel)
        .clock(setup.clock)
        .marks(Marks::Events)
        .hardware_profile(&setup.hardware_profile);
    let workload = Workload::named("hello-kernel").context("the workload hello-kernel is gone")?;
    workload.install(&mut machine, &kernel)?;
    machine.files().copy("bin/busybox", Path::new("/bin/busybox"))?;
    let measured = measure_command(machine, &["/bin/busybox", "sh", "-c", LOAD], &setup)?;
    let (kernel, user) = (measured.rings.named("kernel")?, measured.rings.named("user")?);
    println!(
        "{:.0} samples of instructions and {:.0} branch stacks; executions in thousands:\n",
        measured.rings.samples, measured.rings.stacks
    );
    table(kernel, user);
    let error = |group: &Group| 100.0 * group.average_weighted_error.hybrid.unwrap_or(0.0);
    println!(
        "\naverage weighted error: {:.2} % of all, {:.2} % in the kernel, {:.2} % in user code",
        error(&measured.rings.whole),
        error(kernel),
        error(user)
    );
    println!("This is a result on a model of a processor (hardware profile ivb), not a measurement of one.");
    Ok(())
}

fn table(kernel: &Group, user: &Group) {
    let mut rows: BTreeMap<&str, [Option<Amounts>; 2]> = BTreeMap::new();
    for (n, group) in [kernel, user].into_iter().enumerate() {
        for of in &group.mnemonics {
            if let Some(slot) = rows.entry(&of.mnemonic).or_default().get_mut(n) {
                *slot = Some(of.executions);
            }
        }
    }
    let exact = |row: &[Option<Amounts>; 2]| -> f64 { row.iter().flatten().map(|of| of.reference).sum() };
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|a, b| exact(&b.1).total_cmp(&exact(&a.1)));
    println!("{:<12} {:^27} {:^27}", "", "kernel", "user code");
    println!(
        "{:<12} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7}",
        "mnemonic", "exact", "hbbp-sys", "error", "exact", "hbbp-sys", "error"
    );
    for (mnemonic, row) in rows.into_iter().take(TOP) {
        println!("{mnemonic:<12} {}", row.map(cells).join(" "));
    }
}

/// Exact and estimated executions in thousands, and the error in percent.
fn cells(amounts: Option<Amounts>) -> String {
    let Some(Amounts {
        reference, hybrid, ..
    }) = amounts.filter(|of| 0.0 < of.reference)
    else {
        return format!("{:>9} {:>9} {:>7}", "-", "-", "-");
    };
    let error = 100.0 * (hybrid - reference).abs() / reference;
    format!("{:>9.1} {:>9.1} {error:>6.2}%", reference / 1e3, hybrid / 1e3)
}
