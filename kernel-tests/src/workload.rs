//! The workloads of the suite: purpose, files in the guest, and command of each.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::{artifacts, host};

/// Where a workload's program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file of `workloads`, built static, started by its own name.
    Own(&'static str),
    /// A program of a Debian package of the host, with its libraries.
    Host(&'static str),
}

/// A workload: a few hundred million instructions at most.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name in tables.
    pub name: &'static str,
    /// Its program.
    pub source: Source,
    /// What `sh -c` runs in the guest.
    pub command: &'static str,
}

const fn own(name: &'static str, file: &'static str, command: &'static str) -> Workload {
    Workload {
        name,
        source: Source::Own(file),
        command,
    }
}

const fn host(name: &'static str, program: &'static str, command: &'static str) -> Workload {
    Workload {
        name,
        source: Source::Host(program),
        command,
    }
}

/// All of them. Paths are absolute where busybox has a program of the same name. The first nine are small kernels of user code, then storms of kernel work, then programs.
pub const ALL: [Workload; 26] = [
    own("latency", "kernels.c", "kernels latency 10000000"),
    own("callchain", "kernels.c", "kernels callchain 2000000"),
    own("g4box", "kernels.c", "kernels g4box 800000"),
    own("divide", "kernels.c", "kernels divide 20000000"),
    own("cache", "kernels.c", "kernels cache 10000000"),
    own("long-blocks", "kernels.c", "kernels long-blocks 2000000"),
    own("short-blocks", "kernels.c", "kernels short-blocks 300000"),
    own("avx2", "kernels.c", "kernels avx2 40000"),
    own("virtual", "virtual.cc", "virtual 40000"),
    own("hello-user", "hello_u.c", "hello_u 20000 20"),
    own("hello-kernel", "hello_u.c", "hello_u 20000 20 kernel"),
    own("syscalls", "storms.c", "storms syscalls 50000"),
    own("pipes", "storms.c", "storms pipes 10000"),
    own("loopback", "storms.c", "storms loopback 5000"),
    own("files", "storms.c", "storms files 5000"),
    own("modules", "storms.c", "storms modules 40 /opt/hello.ko"),
    own("forks", "storms.c", "storms forks 300"),
    own("page-faults", "storms.c", "storms page-faults 200"),
    own("heapsort", "heapsort.c", "heapsort 200000"),
    host(
        "gzip",
        "/usr/bin/gzip",
        "busybox seq 150000 | /usr/bin/gzip -9 > /tmp/out",
    ),
    host(
        "xz",
        "/usr/bin/xz",
        "busybox seq 30000 | /usr/bin/xz -2 > /tmp/out",
    ),
    host(
        "bzip2",
        "/usr/bin/bzip2",
        "busybox seq 60000 | /usr/bin/bzip2 > /tmp/out",
    ),
    host("sqlite3", "/usr/bin/sqlite3", "sqlite3 :memory: \"$SQL\""),
    host(
        "perl",
        "/usr/bin/perl",
        "perl -e 'for (1..200000) { $n{$_ % 997} .= chr(65 + $_ % 26) } print length $n{3}'",
    ),
    host(
        "openssl",
        "/usr/bin/openssl",
        "busybox seq 300000 | openssl enc -aes-128-cbc -k k -pbkdf2 | openssl dgst",
    ),
    host(
        "gcc",
        "/usr/bin/gcc",
        "gcc -O2 -ffreestanding -S -o /tmp/out.s /opt/compiled.c",
    ),
];

/// Workloads of other programs, which no constant and no rule was chosen on: they are for checking alone. Eight of user code, then
/// four of kernel code.
pub const HELD_OUT: [Workload; 12] = [
    host(
        "mawk",
        "/usr/bin/mawk",
        "/usr/bin/mawk 'BEGIN { for (i = 0; i < 100000; i++) { s = (s * 31 + i) % 65521; n[i % 1009] += s; t = substr(t i, 1, 40) } print s, n[3], t }'",
    ),
    host(
        "sort",
        "/usr/bin/sort",
        "busybox seq 40000 | /usr/bin/sort -k1.3,1.4 -k1.1,1.2r > /tmp/out",
    ),
    host(
        "grep",
        "/usr/bin/grep",
        "busybox seq 20000 | /usr/bin/grep -cE '([0-9])[0-9]?\\1|(12|34)+5'",
    ),
    host(
        "sed",
        "/usr/bin/sed",
        "busybox seq 20000 | /usr/bin/sed -E 's/([0-9])([0-9])/\\2-\\1/g; /7-/d' > /tmp/out",
    ),
    host(
        "zstd",
        "/usr/bin/zstd",
        "busybox seq 100000 | /usr/bin/zstd -q -12 > /tmp/out",
    ),
    host(
        "objdump",
        "/usr/bin/objdump",
        "/usr/bin/objdump -d --stop-address=0x410000 /bin/busybox > /tmp/out",
    ),
    host(
        "factor",
        "/usr/bin/factor",
        "busybox seq 1000000000000000003 2 1000000000000002003 | /usr/bin/factor > /tmp/out",
    ),
    host(
        "sha512sum",
        "/usr/bin/sha512sum",
        "busybox seq 100000 | /usr/bin/sha512sum",
    ),
    host(
        "tar",
        "/usr/bin/tar",
        "for i in 1 2 3; do /usr/bin/tar cf - /bin /lib /usr/lib | busybox cat > /dev/null; done",
    ),
    host(
        "execs",
        "/usr/bin/true",
        "for i in $(busybox seq 150); do /usr/bin/true; done",
    ),
    host(
        "random",
        "/usr/bin/dd",
        "/usr/bin/dd if=/dev/urandom of=/tmp/out bs=16k count=400 status=none",
    ),
    host(
        "find",
        "/usr/bin/find",
        "/usr/bin/find /proc /sys -name 'c*' > /tmp/out || true",
    ),
];

/// The query of the workload `sqlite3`.
const SQL: &str = "create table t(a, b); create index i on t(b);
with recursive n(x) as (select 1 union all select x + 1 from n where x < 20000)
insert into t select x, (x * 7919) % 10007 from n;
select count(*), sum(u.a) from t join t u on t.b = u.b where t.a < 5000;";

impl Workload {
    /// The workload of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().chain(&HELD_OUT).find(|workload| workload.name == name)
    }

    /// Puts everything it needs into the machine.
    ///
    /// # Errors
    /// When a program is not installed or does not build.
    pub fn install(&self, machine: &mut Machine, kernel: &Kernel) -> Result<()> {
        machine.files().copy("bin/busybox", Path::new("/bin/busybox"))?;
        match self.source {
            Source::Own(file) => {
                let program = artifacts::workload(file)?;
                let name = program
                    .file_name()
                    .context("a workload has a name")?
                    .to_string_lossy();
                machine.files().copy(&format!("bin/{name}"), &program)?;
            }
            Source::Host(program) => machine.files().program(Path::new(program))?,
        }
        match self.name {
            "hello-kernel" => machine.module(&artifacts::module("workloads/hello", "hello", kernel)?)?,
            "modules" => {
                machine.files().copy(
                    "opt/hello.ko",
                    &artifacts::module("workloads/hello", "hello", kernel)?,
                )?;
            }
            "gcc" => {
                let food = artifacts::package().join("workloads/compiled.c");
                machine.files().copy("opt/compiled.c", &food)?;
                machine.files().program(&compiler_proper()?)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The words that run it in the guest.
    pub fn words(&self) -> [String; 4] {
        let script = self.command.replace("$SQL", SQL);
        [
            "/bin/busybox".to_owned(),
            "sh".to_owned(),
            "-c".to_owned(),
            script,
        ]
    }
}

/// The program that gcc runs to compile C.
fn compiler_proper() -> Result<PathBuf> {
    let path = host::output(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    Ok(PathBuf::from(path.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_names_are_unique() {
        let all = || ALL.iter().chain(&HELD_OUT);
        let names: std::collections::BTreeSet<_> = all().map(|workload| workload.name).collect();
        assert_eq!(names.len(), all().count());
    }
}
