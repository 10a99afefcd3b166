//! The resolver on real processes of this machine: programs that are compiled here, run, and are looked at from
//! outside, as the collector does.
//!
//! Each program prints the address of its function `spin` and then waits, so that a sample there can be made up.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of a test may end it, and say why they skip something"
)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hbbp_user::addr::{FileOff, Va};
use hbbp_user::record::{FileIdentity, Mmap, Record, Timed};
use hbbp_user::resolve::Resolver;
use hbbp_user::resolve::build_id::read_kernel_build_id;
use hbbp_user::resolve::kernel::KernelMap;
use hbbp_user::resolve::kernel_space::KernelSpace;
use hbbp_user::resolve::kernel_text::KernelText;
use hbbp_user::resolve::proc_scan::{Scanned, read_process};
use hbbp_user::resolve::raw::{Raw, RawInterval, TaskKey};
use hbbp_user::snapshot::{Event, EventIdx, IpCount, Loss, ModuleKind, ProcessIdx, Run, Snapshot, Text};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int spin(int n) { int s = 0; for (int i = 0; i < n; i++) s += i * n; return s; }
int main(int argc, char **argv) { printf("%lx\n", (unsigned long)spin); fflush(stdout); pause(); return spin(argc); }
"#;

/// The same for 32-bit code on machines without a 32-bit C library: system calls by hand.
const NARROW: &str = r#"
static int call(int n, int a, const void *b, int c) {
  int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory"); return r;
}
__attribute__((noinline)) int spin(int n) { int s = 0; for (int i = 0; i < n; i++) s += i * n; return s; }
void _start(void) {
  char out[9]; unsigned at = (unsigned)spin;
  for (int i = 7; 0 <= i; i--, at >>= 4) out[i] = "0123456789abcdef"[at & 15];
  out[8] = '\n';
  call(4, 1, out, 9); call(29, 0, 0, 0); call(1, spin(at), 0, 0);
}
"#;

/// Maps its own code twice: as a file in memory and as memory without a file. Prints both addresses.
const COMPILER: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
int main(void) {
  unsigned char code[64]; memset(code, 0x90, 64); code[63] = 0xc3;
  int fd = memfd_create("jit", 0);
  if (write(fd, code, 64) != 64) return 1;
  void *shared = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  void *plain = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(plain, code, 64);
  printf("%lx\n%lx\n", (unsigned long)shared, (unsigned long)plain); fflush(stdout);
  pause(); return 0;
}
"#;

struct Running {
    child: Child,
    folder: PathBuf,
    addresses: Vec<u64>,
}

impl Running {
    fn start(program: &Path, n_addresses: usize) -> Self {
        let mut child = Command::new(program)
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let lines = BufReader::new(child.stdout.take().expect("piped"))
            .lines()
            .take(n_addresses);
        let parse =
            |line: std::io::Result<String>| u64::from_str_radix(&line.expect("a line"), 16).expect("hex");
        let addresses = lines.map(parse).collect();
        let folder = program.parent().expect("a folder of its own").to_owned();
        Self {
            child,
            folder,
            addresses,
        }
    }

    fn scanned(&self) -> Scanned {
        read_process(self.child.id()).expect("it waits")
    }

    fn end(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Compiles a program into a folder of its own; `None`, with the reason printed, where this machine cannot.
fn compile(name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let dir = std::env::temp_dir().join(format!("hbbp-resolve-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("scratch folder");
    let (input, output) = (dir.join("program.c"), dir.join(name));
    std::fs::write(&input, source).expect("write");
    let made = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(&output)
        .arg(&input)
        .args(flags)
        .output();
    match made {
        Ok(made) if made.status.success() => Some(output),
        Ok(made) => {
            std::fs::remove_dir_all(dir).expect("clean up");
            println!("skipped {name}: {}", String::from_utf8_lossy(&made.stderr));
            None
        }
        Err(error) => {
            std::fs::remove_dir_all(dir).expect("clean up");
            println!("skipped {name}: no C compiler: {error}");
            None
        }
    }
}

fn no_kernel() -> KernelSpace {
    KernelSpace::new(KernelText::None, KernelMap::default())
}

fn ip(tgid: u32, first_time: u64, at: u64) -> Raw<IpCount> {
    let count = IpCount {
        event: EventIdx(0),
        process: ProcessIdx::KERNEL,
        ip: Va(at),
        exact: false,
        hits: 1,
        weight: 1,
    };
    Raw {
        task: TaskKey { tgid, exec_id: 2 },
        first_time,
        count,
    }
}

fn run() -> Run {
    Run {
        events: vec![Event::default()],
        ..Run::default()
    }
}

fn snapshot(resolver: Resolver) -> Snapshot {
    let snapshot = resolver.finish(run());
    snapshot.check().expect("a consistent snapshot");
    snapshot
}

/// The text that the snapshot holds at an address of its process `idx`, from that address on.
fn text_at(snapshot: &Snapshot, idx: u32, at: u64) -> Option<(&Text, Vec<u8>)> {
    let process = &snapshot.processes[idx as usize];
    let mapping = process
        .mappings
        .iter()
        .find(|m| m.start.0 <= at && at < m.end.0)?;
    let image_at = at - mapping.start.0 + mapping.image_start.0;
    let holds = |t: &&Text| {
        t.module == mapping.module && t.start.0 <= image_at && image_at < t.start.0 + t.bytes.len() as u64
    };
    let text = snapshot.text.iter().find(holds)?;
    let skip = usize::try_from(image_at - text.start.0).expect("short");
    Some((text, text.bytes[skip..].to_vec()))
}

fn memory(tgid: u32, at: u64, len: usize) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; len];
    let file = std::fs::File::open(format!("/proc/{tgid}/mem")).expect("own child");
    file.read_exact_at(&mut bytes, at).expect("mapped");
    bytes
}

#[test]
fn every_sort_of_program() {
    let sorts: [(&str, &[&str], ModuleKind); 5] = [
        ("pie", &["-fPIE", "-pie"], ModuleKind::Elf64),
        ("fixed", &["-no-pie"], ModuleKind::Elf64),
        ("static", &["-static"], ModuleKind::Elf64),
        ("stripped", &["-s"], ModuleKind::Elf64),
        (
            "bare",
            &["-m32", "-nostdlib", "-static", "-ffreestanding"],
            ModuleKind::Elf32,
        ),
    ];
    for (name, flags, kind) in sorts {
        let source = if name == "bare" { NARROW } else { PROGRAM };
        let Some(program) = compile(name, source, flags) else {
            continue;
        };
        let running = Running::start(&program, 1);
        let (tgid, spin) = (running.child.id(), running.addresses[0]);
        let mut resolver = Resolver::new(no_kernel(), &[running.scanned()]);
        resolver.interval(RawInterval {
            start: 1,
            end: 9,
            ips: vec![ip(tgid, 5, spin + 1)],
            ..RawInterval::default()
        });
        let snapshot = snapshot(resolver);
        let (text, bytes) = text_at(&snapshot, 1, spin).expect("its text");
        assert_eq!(bytes, memory(tgid, spin, bytes.len()), "{name}");
        let module = &snapshot.modules[text.module.0 as usize];
        assert_eq!(
            (module.kind, module.name.as_str()),
            (kind, program.to_str().expect("UTF-8"))
        );
        let symbol = module.symbols.first().expect("a function");
        assert_eq!(
            symbol.start, text.start,
            "{name}: the stretch starts with the function"
        );
        assert!(
            symbol.name == "spin" || name == "stripped",
            "{name}: {}",
            symbol.name
        );
        assert_eq!(snapshot.processes[1].comm, name);
        assert_eq!(snapshot.losses.iter().count(), 0, "{name}");
    }
}

#[test]
fn a_deleted_program_that_has_ended_was_opened_in_time() {
    let Some(program) = compile("deleted", PROGRAM, &[]) else {
        return;
    };
    let mut running = Running::start(&program, 1);
    let (tgid, spin) = (running.child.id(), running.addresses[0]);
    std::fs::remove_file(&program).expect("delete");
    let mut resolver = Resolver::new(no_kernel(), &[]);
    let mut records = vec![
        Timed {
            time: 10,
            record: Record::Fork {
                pid: tgid,
                tid: tgid,
                parent_pid: 1,
            },
        },
        Timed {
            time: 20,
            record: Record::Comm {
                pid: tgid,
                tid: tgid,
                comm: "deleted".to_owned(),
                exec: true,
            },
        },
    ];
    let scanned = running.scanned();
    records.extend(scanned.mappings.into_iter().map(|m| Timed {
        time: 30,
        record: Record::Mmap(m),
    }));
    // Rings of other CPUs are read later: the order must not matter.
    records.reverse();
    resolver.apply(records);
    running.end();
    resolver.apply([Timed {
        time: 50,
        record: Record::Exit { pid: tgid, tid: tgid },
    }]);
    resolver.interval(RawInterval {
        start: 1,
        end: 90,
        ips: vec![ip(tgid, 40, spin + 4)],
        ..RawInterval::default()
    });
    let snapshot = snapshot(resolver);
    let (text, _) = text_at(&snapshot, 1, spin).expect("its text");
    let module = &snapshot.modules[text.module.0 as usize];
    assert_eq!(module.symbols[0].name, "spin");
    assert!(!module.name.contains("(deleted)"));
}

#[test]
fn code_without_a_file_is_copied_while_its_process_lives() {
    let Some(program) = compile("compiler", COMPILER, &[]) else {
        return;
    };
    let mut running = Running::start(&program, 2);
    let (tgid, shared, plain) = (running.child.id(), running.addresses[0], running.addresses[1]);
    let scanned = running.scanned();
    let ips = || vec![ip(tgid, 5, shared + 3), ip(tgid, 5, plain + 3)];
    let mut resolver = Resolver::new(no_kernel(), std::slice::from_ref(&scanned));
    resolver.interval(RawInterval {
        start: 1,
        end: 9,
        ips: ips(),
        ..RawInterval::default()
    });
    let alive = snapshot(resolver);
    for (at, name) in [(shared, "/memfd:jit"), (plain, "[anon]")] {
        let (text, bytes) = text_at(&alive, 1, at).expect("its text");
        assert_eq!(bytes[..4], [0x90; 4]);
        assert_eq!(alive.modules[text.module.0 as usize].name, name);
    }
    running.end();
    let mut resolver = Resolver::new(no_kernel(), &[scanned]);
    resolver.interval(RawInterval {
        start: 1,
        end: 9,
        ips: ips(),
        ..RawInterval::default()
    });
    let late = snapshot(resolver);
    assert!(text_at(&late, 1, plain).is_none());
    assert_eq!(late.losses.get(Loss::ProcessGone), 1);
    assert_eq!(late.losses.get(Loss::FileMissing), 1);
    assert_eq!(
        late.intervals[0].ips.len(),
        2,
        "counts are kept, whatever is lost"
    );
}

#[test]
fn a_replaced_program_is_not_read() {
    let Some(program) = compile("replaced", PROGRAM, &[]) else {
        return;
    };
    let mut running = Running::start(&program, 1);
    let (tgid, spin) = (running.child.id(), running.addresses[0]);
    let scanned = running.scanned();
    running.end();
    std::fs::copy("/bin/true", program.with_extension("new")).expect("copy");
    std::fs::rename(program.with_extension("new"), &program).expect("replace");
    let mut resolver = Resolver::new(no_kernel(), &[scanned]);
    resolver.interval(RawInterval {
        start: 1,
        end: 9,
        ips: vec![ip(tgid, 5, spin)],
        ..RawInterval::default()
    });
    let snapshot = snapshot(resolver);
    assert!(text_at(&snapshot, 1, spin).is_none());
    assert_eq!(snapshot.losses.get(Loss::FileChanged), 1);
}

#[test]
fn unknown_processes_and_addresses_keep_their_counts() {
    let mut resolver = Resolver::new(no_kernel(), &[]);
    let ips = vec![
        ip(4_000_000, 5, 0x1234),
        ip(0, 5, 0xffff_ffff_8100_0000),
        ip(4_000_001, 5, u64::MAX),
    ];
    resolver.interval(RawInterval {
        start: 1,
        end: 9,
        ips,
        ..RawInterval::default()
    });
    resolver.apply([Timed {
        time: 11,
        record: Record::Lost(3),
    }]);
    let hostile = Mmap {
        pid: 77,
        start: Va(u64::MAX),
        len: u64::MAX,
        offset: FileOff(u64::MAX),
        identity: FileIdentity::BuildId(Vec::new()),
        path: "/dev/zero".to_owned(),
    };
    resolver.apply([Timed {
        time: 12,
        record: Record::Mmap(hostile),
    }]);
    resolver.interval(RawInterval {
        start: 10,
        end: 19,
        ..RawInterval::default()
    });
    let snapshot = snapshot(resolver);
    assert_eq!(snapshot.intervals[0].ips.iter().map(|c| c.hits).sum::<u64>(), 3);
    assert_eq!(snapshot.processes.len(), 3, "the kernel and two unknown tasks");
    assert_eq!(snapshot.losses.get(Loss::SidebandLost), 3);
    assert_eq!(snapshot.losses.get(Loss::TextUnreadable), 2);
}

#[test]
fn this_kernel() {
    let symbols = hbbp_user::resolve::kallsyms::read_kallsyms().expect("/proc/kallsyms");
    if symbols.hidden {
        println!("skipped: kernel symbols are hidden");
        return;
    }
    let idle = symbols.named("do_idle").expect("every kernel idles").start;
    let mut map = KernelMap::default();
    map.update(symbols, &[], None, 0);
    // A kernel that patches itself between two drains.
    let mut n_reads = 0_u8;
    let patched = move |_: Va, bytes: &mut [u8]| {
        n_reads += 1;
        bytes.fill(0x90);
        bytes[0] = n_reads;
        true
    };
    let mut resolver = Resolver::new(KernelSpace::new(KernelText::Probe(Box::new(patched)), map), &[]);
    let ips = || {
        vec![Raw {
            task: TaskKey::KERNEL,
            ..ip(0, 5, idle.0 + 4)
        }]
    };
    resolver.interval(RawInterval {
        start: 1,
        end: 9,
        ips: ips(),
        ..RawInterval::default()
    });
    resolver.interval(RawInterval {
        start: 9,
        end: 19,
        ips: ips(),
        ..RawInterval::default()
    });
    let poke = Record::TextPoke {
        start: idle,
        old: vec![0x90],
        new: vec![3],
    };
    resolver.apply([Timed {
        time: 28,
        record: poke,
    }]);
    resolver.interval(RawInterval {
        start: 19,
        end: 29,
        ips: ips(),
        ..RawInterval::default()
    });
    let snapshot = snapshot(resolver);
    let module = &snapshot.modules[0];
    assert_eq!(
        (module.name.as_str(), module.kind),
        ("[kernel]", ModuleKind::Kernel)
    );
    assert_eq!(module.build_id, read_kernel_build_id());
    assert_eq!(module.symbols[0].name, "do_idle");
    let generations: Vec<_> = snapshot
        .text
        .iter()
        .map(|t| (t.start.0, t.since, t.bytes[0]))
        .collect();
    assert_eq!(
        generations,
        [(idle.0, 0, 1), (idle.0, 1, 2), (idle.0, 3, 3)],
        "a late patch counts for the next"
    );
    assert_eq!(snapshot.losses.get(Loss::TextUncertain), 2);
}
