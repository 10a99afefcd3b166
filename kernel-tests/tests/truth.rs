//! The records are true: every stack that an eBPF program read in the guest is in the silicon's own trace.

use std::collections::BTreeMap;

use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::layout::EVENT_TAKEN;
use kernel_tests::machine::{Machine, Marks, Outcome};
use kernel_tests::trace;
use kernel_tests::witness::Seen;

/// What became of the records, by name of the counter in the driver's sysfs directory.
fn counters(outcome: &Outcome) -> BTreeMap<String, u64> {
    let text = outcome.text("counters").unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(name, number)| (name.to_owned(), number.parse().unwrap())).collect()
}

fn truth(series: &str, cpus: u32, rings: &str) {
    let kernel = Kernel::get(series).unwrap();
    let mut machine = Machine::new(&kernel).cpus(cpus).marks(Marks::Events).traced();
    for program in ["guest-witness"] {
        let path = artifacts::guest_program("kernel-tests", program).unwrap();
        machine.files().copy(&format!("bin/{program}"), &path).unwrap();
    }
    machine.files().copy("bin/busybox", "/bin/busybox".as_ref()).unwrap();
    let script = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); busybox cat /proc/self/stat > /dev/null; done";
    let command = ["/bin/guest-witness", rings, "2", "20011", "2003", "/bin/busybox", "sh", "-c", script];
    let outcome = machine.run(&command).unwrap();
    let out = outcome.stdout().unwrap();
    println!("{out} {} {:?}", outcome.took.as_secs_f32(), counters(&outcome));
    let seen = Seen::parse(&outcome.files["samples"]).unwrap();
    println!("runs {} seen {}", outcome.text("witness").unwrap().trim(), seen.len());
    for cpu in 0..cpus {
        let branches = trace::read_branches(&outcome.directory().join(trace::branch_file(cpu as usize))).unwrap();
        let samples = trace::read_samples(&outcome.directory().join(trace::sample_file(cpu as usize))).unwrap();
        let mine: Vec<&Seen> = seen.iter().filter(|s| s.cpu == cpu).collect();
        println!("cpu {cpu}: {} branches {} samples {} seen", branches.len(), samples.len(), mine.len());
        let by_number: BTreeMap<u64, usize> = branches.iter().enumerate().map(|(i, e)| (e.number, i)).collect();
        let (mut bad_ip, mut bad_stack, mut bad_task, mut stacks, mut entries) = (0, 0, 0, 0, 0);
        for (s, m) in samples.iter().zip(&mine) {
            if s.ip != m.ip { bad_ip += 1; if bad_ip < 5 { println!("{s:x?} {m:x?}"); } }
            if s.tgid != m.tgid { bad_task += 1; if bad_task < 5 { println!("{s:x?} {m:x?}"); } }
            if m.event == EVENT_TAKEN {
                stacks += 1;
                for (age, e) in m.stack.iter().enumerate() {
                    entries += 1;
                    let t = by_number.get(&(s.branches - age as u64)).map(|i| branches[*i].branch);
                    if t != Some(*e) { bad_stack += 1; if bad_stack < 5 { println!("{age} {t:x?} {e:x?}"); } }
                }
            }
        }
        println!("bad ip {bad_ip} task {bad_task} stack {bad_stack} of {stacks} stacks {entries} entries");
    }
}

#[test]
fn first() {
    truth("6.1", 1, "both");
    truth("6.12", 2, "both");
}
