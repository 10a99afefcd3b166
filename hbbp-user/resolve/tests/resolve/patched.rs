//! Text of processes that differs from its file, and files that cannot be read: what the resolver makes of real ones.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hbbp_code::locate::locate;
use hbbp_model::addr::{FileOff, Va};
use hbbp_model::record::{FileIdentity, Mmap, Record, Timed};
use hbbp_model::snapshot::{Loss, Snapshot};
use hbbp_resolve::Resolver;
use hbbp_resolve::raw::{Raw, RawInterval};
use hbbp_resolve::user::proc_scan::read_process;

use super::program::{Running, compile};
use super::{ip, no_kernel, skip, snapshot};

/// Prints the address of its function `spin`, which rotates, and turns the rotation round at each line that it reads.
const PATCHED: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
extern unsigned char spin[];
__asm__(".text\n.balign 4096\n.globl spin\n.type spin, @function\nspin:\nror $1, %eax\nret\n.size spin, .-spin\n.balign 4096\n");
int main(void) {
  setvbuf(stdout, 0, _IONBF, 0);
  printf("%lx\n", (unsigned long)spin);
  while (getchar() != EOF) {
    mprotect(spin, 4096, PROT_READ | PROT_WRITE);
    spin[1] ^= 0x08;
    mprotect(spin, 4096, PROT_READ | PROT_EXEC);
    puts("done");
  }
  return 0;
}
"#;

fn drain(resolver: &mut Resolver, time: &std::ops::Range<u64>, counts: Vec<Raw>) {
    let (start, end) = (time.start, time.end);
    resolver.drained(vec![RawInterval { start, end, counts }]);
}

/// Second byte of the text at `at` in process 1, in each interval, as the report finds it.
fn second_bytes(snapshot: &Snapshot) -> Vec<Option<u8>> {
    let of = |nth: usize| {
        let mut one = snapshot.clone();
        for (interval, n) in one.intervals.iter_mut().zip(0..) {
            if n != nth {
                interval.ips.clear();
            }
        }
        let location = locate(&one).ips.first()?.location;
        let text = &snapshot.text[location.text.0 as usize];
        let at = usize::try_from(location.addr.0 - text.start.0).expect("short");
        text.bytes.get(at + 1).copied()
    };
    (0..snapshot.intervals.len()).map(of).collect()
}

#[test]
fn patches_without_a_record_are_found_by_comparing() {
    let Some(program) = compile("patched", PATCHED, &[]) else {
        return;
    };
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (mut input, output) = (
        child.stdin.take().expect("piped"),
        child.stdout.take().expect("piped"),
    );
    let mut lines = BufReader::new(output).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let (tgid, spin) = (child.id(), u64::from_str_radix(&line(), 16).expect("an address"));
    let mut patch = || {
        input.write_all(b"\n").expect("it reads");
        assert_eq!(line(), "done");
    };
    let mut resolver = Resolver::new(no_kernel(), &[read_process(tgid).expect("it waits")]);
    let run = |time| vec![ip(tgid, time, spin)];
    drain(&mut resolver, &(1..10), run(5));
    patch();
    drain(&mut resolver, &(10..20), run(15));
    drain(&mut resolver, &(20..30), run(25));
    patch();
    drain(&mut resolver, &(30..40), run(35));
    drop(input);
    child.wait().expect("it ends");
    let found = snapshot(resolver);
    let expected = [0xc8, 0xc0, 0xc0, 0xc8].map(Some);
    assert_eq!(
        second_bytes(&found),
        expected,
        "{:?}",
        found.processes[1].mappings
    );
    assert_eq!(
        found.losses.get(Loss::TextDiffers),
        1,
        "and then it is as its file again"
    );
    assert_eq!(found.losses.get(Loss::TextUncertain), 2);
    let names: Vec<_> = found.modules.iter().map(|module| module.name.as_str()).collect();
    let name = program.to_str().expect("UTF-8");
    assert_eq!(names, [name, &format!("{name} (patched)")]);
    let functions = found.modules.iter().map(|module| module.symbols[0].name.as_str());
    assert!(functions.eq(["spin", "spin"]));
    std::fs::remove_dir_all(program.parent().expect("a folder of its own")).expect("clean up");
}

#[test]
fn a_patch_with_a_record_splits_the_drain() {
    let Some(program) = compile("split", PATCHED, &[]) else {
        return;
    };
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (mut input, output) = (
        child.stdin.take().expect("piped"),
        child.stdout.take().expect("piped"),
    );
    let mut lines = BufReader::new(output).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let (tgid, spin) = (child.id(), u64::from_str_radix(&line(), 16).expect("an address"));
    let scanned = read_process(tgid).expect("it waits");
    let mapped = scanned
        .mappings
        .iter()
        .find(|m| m.start.0 <= spin && spin < m.start.0 + m.len);
    let mapped = mapped.expect("its text").clone();
    let mut resolver = Resolver::new(no_kernel(), &[scanned]);
    input.write_all(b"\n").expect("it reads");
    assert_eq!(line(), "done");
    const MS: u64 = 1_000_000;
    let again = Mmap {
        start: Va(spin),
        len: 4096,
        offset: FileOff(mapped.offset.0 + (spin - mapped.start.0)),
        ..mapped
    };
    let record = Record::Mmap(again);
    let time = 15 * MS;
    resolver.apply([Timed { time, record }]);
    assert!(resolver.take_patched() && !resolver.take_patched());
    let counts = vec![ip(tgid, 12 * MS, spin), ip(tgid, 17 * MS, spin)];
    drain(&mut resolver, &(10 * MS..20 * MS), counts);
    drain(&mut resolver, &(20 * MS..30 * MS), vec![ip(tgid, 25 * MS, spin)]);
    child.kill().expect("it waits");
    child.wait().expect("it ends");
    let found = snapshot(resolver);
    let bounds: Vec<_> = found
        .intervals
        .iter()
        .map(|i| (i.start / MS, i.end / MS))
        .collect();
    assert_eq!(bounds, [(10, 15), (15, 20), (20, 30)]);
    assert_eq!(second_bytes(&found), [0xc8, 0xc0, 0xc0].map(Some));
    assert_eq!(found.losses.get(Loss::TextUncertain), 0);
    assert_eq!(found.losses.get(Loss::TextDiffers), 1);
    std::fs::remove_dir_all(program.parent().expect("a folder of its own")).expect("clean up");
}

fn mapped(path: &Path, start: u64, identity: FileIdentity) -> Mmap {
    Mmap {
        pid: 1 << 23,
        start: Va(start),
        len: 0x1000,
        offset: FileOff(0),
        identity,
        shared: false,
        path: path.to_str().expect("UTF-8").into(),
    }
}

/// What distinguishes a file of this machine.
fn identity(path: &Path) -> FileIdentity {
    let stat = rustix::fs::stat(path).expect("it is there");
    FileIdentity::Inode {
        major: rustix::fs::major(stat.st_dev),
        minor: rustix::fs::minor(stat.st_dev),
        inode: stat.st_ino,
        generation: 0,
    }
}

/// What is opened is another file than the one that runs, as after overlayfs has copied it: all agrees but the bytes.
#[test]
fn memory_that_shows_another_file_is_believed() {
    let Some(program) = compile("shown", PATCHED, &[]) else {
        return;
    };
    let mut command = Command::new(&program);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let folder = program.parent().expect("a folder of its own");
    let running = Running::of_command(command, folder, 1).expect("it starts");
    let (tgid, spin) = (running.child.id(), running.addresses[0]);
    let other = program.with_extension("other");
    let mut bytes = std::fs::read(&program).expect("it is there");
    // The rotation and the return, and the other direction.
    let at = bytes.windows(3).position(|code| code == [0xd1, 0xc8, 0xc3]);
    bytes[at.expect("its code") + 1] = 0xc0;
    std::fs::write(&other, bytes).expect("write");
    let mut scanned = running.scanned();
    let path = program.to_str().expect("UTF-8");
    for mmap in scanned.mappings.iter_mut().filter(|mmap| *mmap.path == *path) {
        mmap.path = other.to_str().expect("UTF-8").into();
        mmap.identity = identity(&other);
    }
    let mut resolver = Resolver::new(no_kernel(), &[scanned]);
    drain(&mut resolver, &(1..10), vec![ip(tgid, 5, spin)]);
    let found = snapshot(resolver);
    assert_eq!(second_bytes(&found), [Some(0xc8)], "{:?}", found.losses);
    assert_eq!(found.losses.get(Loss::FileDiffers), 1);
}

/// Kernel code is counted separately where it is patched, and user code is not: it all comes with the first part.
#[test]
fn a_process_that_starts_after_the_kernel_was_patched_is_found() {
    let mut resolver = Resolver::new(no_kernel(), &[]);
    let program = mapped(
        Path::new("/bin/true"),
        0x40_0000,
        identity(Path::new("/bin/true")),
    );
    let tgid = program.pid;
    let record = Record::Mmap(program);
    resolver.apply([Timed { time: 15, record }]);
    let part = |start, end, counts| RawInterval { start, end, counts };
    let late = ip(tgid, 17, 0x40_0800);
    resolver.drained(vec![part(1, 10, vec![late]), part(10, 20, Vec::new())]);
    let found = snapshot(resolver);
    let n_counts: Vec<_> = found
        .intervals
        .iter()
        .map(|interval| interval.ips.len())
        .collect();
    assert_eq!(n_counts, [0, 1]);
    assert_eq!(locate(&found).ips.len(), 1, "{:?}", found.processes);
}

/// A file system in user space whose server never answers; unmounted when dropped.
struct Unanswered {
    folder: PathBuf,
    _server: File,
}

impl Unanswered {
    fn mount() -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("hbbp-unanswered-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let server = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let text = |text: &str| CString::new(text).expect("no zero");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let (source, target) = (text("hbbp"), text(folder.to_str().expect("UTF-8")));
        let (kind, options) = (text("fuse"), text(&options));
        // SAFETY: all four are strings that end with a zero and live through the call.
        let mounted = unsafe {
            libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                kind.as_ptr(),
                libc::MS_NOSUID,
                options.as_ptr().cast(),
            )
        };
        (mounted == 0).then_some(Self {
            folder,
            _server: server,
        })
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let target = CString::new(self.folder.to_str().expect("UTF-8")).expect("no zero");
        // SAFETY: a string that ends with a zero and lives through the call.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_mount_that_does_not_answer_stops_nothing() {
    let Some(mount) = Unanswered::mount() else {
        return skip::skip("file systems in user space cannot be mounted here");
    };
    let hung = ["a.so", "b.so"].map(|name| mount.folder.join(name));
    let mut resolver = Resolver::new(no_kernel(), &[]);
    let starts = [0x40_0000, 0x50_0000, 0x60_0000];
    // It cannot be asked for.
    let unknown = |inode| FileIdentity::Inode {
        major: 0,
        minor: u32::MAX,
        inode,
        generation: 0,
    };
    let program = Path::new("/bin/true");
    let paths = [
        (hung[0].as_path(), unknown(7)),
        (&hung[1], unknown(8)),
        (program, identity(program)),
    ];
    let mappings = paths
        .into_iter()
        .zip(starts)
        .map(|((path, identity), start)| mapped(path, start, identity));
    let records = mappings.map(Record::Mmap);
    resolver.apply(records.map(|record| Timed { time: 5, record }));
    let counts = starts.map(|start| ip(1 << 23, 7, start + 0x10)).to_vec();
    drain(&mut resolver, &(1..10), counts);
    let found = snapshot(resolver);
    assert_eq!(found.losses.get(Loss::FileTimedOut), 2);
    assert_eq!(found.modules.len(), 3);
    assert!(!found.text.is_empty(), "others are read");
}
