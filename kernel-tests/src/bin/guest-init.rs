//! PID 1 of the emulated machine: mounts, stops at the checkpoint, reads the files of the run, loads the driver, runs the
//! command, and sends its files back.
//!
//! Its last line is the verdict that the harness waits for; without it the run has failed.

use std::arch::asm;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;

use anyhow::{Context, Result, bail};
use kernel_tests::{guest, layout, mark};

fn main() {
    let code = match run() {
        Ok(code) => code,
        Err(error) => {
            say(&format!("hbbp-vm: {error:#}"));
            127
        }
    };
    say(&format!("{}{code}", guest::VERDICT));
    // SAFETY: sync has no arguments to get wrong.
    unsafe { libc::sync() };
    // SAFETY: powers the machine off; PID 1 has nothing left to do.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
}

/// The console is the only channel to the harness before the files are sent.
fn say(line: &str) {
    if let Ok(mut console) = OpenOptions::new().write(true).open("/dev/console") {
        // In one piece: the kernel writes there too.
        let _ = console.write_all(format!("{line}\n").as_bytes());
    }
}

fn run() -> Result<i32> {
    mount("devtmpfs", "/dev")?;
    // The emulated CPU has no RDRAND, and programs block at their start until the kernel has random numbers.
    add_entropy(&[0; 32], 256)?;
    mount("proc", "/proc")?;
    mount("sysfs", "/sys")?;
    mount("tmpfs", "/tmp")?;
    mount("tmpfs", "/run")?;
    mount("bpf", "/sys/fs/bpf")?;
    mount("debugfs", "/sys/kernel/debug")?;
    mount("tracefs", "/sys/kernel/tracing")?;
    mount("cgroup2", "/sys/fs/cgroup")?;
    raise_loopback()?;
    let shared = map_shared()?;
    stop_at_checkpoint()?;
    unpack_files(shared)?;
    add_entropy(&fs::read(guest::SEED)?, 0)?;
    limit_samples()?;
    if let Ok(parameters) = fs::read_to_string(guest::DRIVER_PARAMETERS) {
        load(Path::new(guest::DRIVER), &parameters)?;
    }
    let mut modules: Vec<PathBuf> = fs::read_dir(guest::MODULES)?
        .map(|e| Ok(e?.path()))
        .collect::<Result<_>>()?;
    modules.sort();
    for module in modules {
        load(&module, "")?;
    }
    let code = command()?;
    if Path::new(guest::DRIVER).exists() {
        mark::write();
        copy_counters()?;
    }
    send_files(shared)?;
    Ok(code)
}

/// Adds bytes to the kernel's pool of entropy, credits these bits, and has the kernel draw from the pool at once.
fn add_entropy(bytes: &[u8], bits: libc::c_int) -> Result<()> {
    /// `struct rand_pool_info` with room for the bytes that are added here (linux/random.h).
    #[repr(C)]
    struct Pool {
        bits: libc::c_int,
        n_bytes: libc::c_int,
        bytes: [u8; 32],
    }
    const RNDADDENTROPY: libc::c_ulong = 0x4008_5203;
    const RNDRESEEDCRNG: libc::c_ulong = 0x5207;
    let mut pool = Pool {
        bits,
        n_bytes: bytes.len().min(32) as libc::c_int,
        bytes: [0; 32],
    };
    for (to, from) in pool.bytes.iter_mut().zip(bytes) {
        *to = *from;
    }
    let random = File::open("/dev/urandom").context("failed to open /dev/urandom")?;
    // SAFETY: the request reads the structure, which lives through the call.
    let added = unsafe { libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &raw const pool) };
    // SAFETY: the request has no argument.
    let reseeded = unsafe { libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG) };
    if added != 0 || reseeded != 0 {
        return Err(std::io::Error::last_os_error()).context("failed to seed the kernel's random numbers");
    }
    Ok(())
}

/// Stops the machine where the harness made it for that. It saves the guest then, and lets copies of it go on from here.
fn stop_at_checkpoint() -> Result<()> {
    // SAFETY: the call has no pointers; it lets this process use one port.
    if unsafe { libc::ioperm(guest::CHECKPOINT_PORT.into(), 1, 1) } != 0 {
        return Err(std::io::Error::last_os_error()).context("failed to get the port of the checkpoint");
    }
    // SAFETY: the port is that of a device that only notifies the emulator.
    unsafe { asm!("out dx, al", in("dx") guest::CHECKPOINT_PORT, in("al") guest::CHECKPOINT) };
    Ok(())
}

/// Puts the files of the run where they belong.
fn unpack_files(shared: *mut u8) -> Result<()> {
    // SAFETY: the offset lies within the mapping, whose size is the layout's.
    let files = unsafe { shared.add(layout::FILES) };
    // SAFETY: the rest of the mapping, which lives until the end; it is not written before PID 1 does.
    let memory = unsafe { std::slice::from_raw_parts(files, layout::BYTES - layout::FILES) };
    for (name, bytes) in guest::unpack(memory)? {
        let path = Path::new("/").join(&name);
        if name.ends_with('/') {
            fs::create_dir_all(&path)
        } else {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o755);
            options.open(&path).and_then(|mut file| file.write_all(bytes))
        }
        .with_context(|| format!("failed to make {}", path.display()))?;
    }
    Ok(())
}

/// Samples come in bursts when a ring is drained; the kernel must not take that for an overload, unless the
/// hardware profile wants it to.
fn limit_samples() -> Result<()> {
    const RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
    const SHARE: &str = "/proc/sys/kernel/perf_cpu_time_max_percent";
    match fs::read_to_string(guest::SAMPLE_RATE) {
        Ok(rate) => fs::write(RATE, rate)?,
        Err(_) => {
            // In this order: once the second limit is off, the first cannot be written.
            fs::write(RATE, "10000000")?;
            fs::write(SHARE, "0")?;
        }
    }
    Ok(())
}

fn command() -> Result<i32> {
    let words = fs::read_to_string(guest::COMMAND)?;
    let mut words = words.split('\0');
    let program = words.next().context("a command is missing")?;
    let marks = fs::read_to_string(guest::MARKS)?;
    let mut command = Command::new(program);
    command.args(words).current_dir("/root");
    command
        .env("PATH", "/bin:/usr/bin:/sbin:/usr/sbin:/usr/local/bin")
        .env("HOME", "/root");
    command.stdout(File::create(Path::new(guest::OUT).join(guest::STDOUT))?);
    command.stderr(File::create(Path::new(guest::OUT).join(guest::STDERR))?);
    let during_command = marks == "command";
    if during_command {
        mark::start();
    }
    let status = command.status();
    if during_command {
        mark::stop();
    }
    let status = status.with_context(|| format!("failed to start {program} in the guest"))?;
    // As a shell reports it: 128 and the signal.
    Ok(status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

fn mount(kind: &str, at: &str) -> Result<()> {
    // The kernel may lack debugfs or tracefs at this path; what needs them says so itself.
    if !Path::new(at).exists() && fs::create_dir_all(at).is_err() {
        return Ok(());
    }
    let (kind_c, at_c) = (CString::new(kind)?, CString::new(at)?);
    // SAFETY: the strings live through the call; no data is passed.
    let failed = unsafe { libc::mount(kind_c.as_ptr(), at_c.as_ptr(), kind_c.as_ptr(), 0, null_mut()) } != 0;
    let error = std::io::Error::last_os_error();
    // EBUSY: the kernel mounted it itself.
    if failed && error.raw_os_error() != Some(libc::EBUSY) {
        return Err(error).with_context(|| format!("failed to mount {kind}"));
    }
    Ok(())
}

fn load(module: &Path, parameters: &str) -> Result<()> {
    let file = File::open(module).with_context(|| format!("failed to open {}", module.display()))?;
    let parameters = CString::new(parameters)?;
    // SAFETY: a file and a string that live through the call; no flags.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(error).with_context(|| format!("failed to load {}", module.display()));
    }
    Ok(())
}

fn raise_loopback() -> Result<()> {
    // SAFETY: makes a socket; no pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) };
    // SAFETY: all zeros is a valid request without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request lives through the call.
    let failed = unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request) } != 0;
    // SAFETY: a descriptor of our own; closed once.
    unsafe { libc::close(socket) };
    if failed {
        bail!(
            "failed to raise the loopback interface: {}",
            std::io::Error::last_os_error()
        );
    }
    Ok(())
}

/// What became of the records goes back with every run.
fn copy_counters() -> Result<()> {
    for entry in fs::read_dir("/sys/bus/event_source/devices")? {
        let counters = entry?.path().join("hbbp_emu");
        if !counters.is_dir() {
            continue;
        }
        let mut lines = String::new();
        for counter in fs::read_dir(counters)? {
            let counter = counter?;
            lines += &format!(
                "{} {}",
                counter.file_name().display(),
                fs::read_to_string(counter.path())?
            );
        }
        fs::write(Path::new(guest::OUT).join("counters"), lines)?;
    }
    Ok(())
}

fn send_files(shared: *mut u8) -> Result<()> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(guest::OUT)? {
        let entry = entry?;
        files.insert(
            entry.file_name().to_string_lossy().into_owned(),
            fs::read(entry.path())?,
        );
    }
    let packed = guest::pack(&files);
    let room = layout::BYTES - layout::FILES;
    if room < packed.len() {
        bail!("/out holds {} bytes, the shared memory {room}", packed.len());
    }
    // SAFETY: the offset lies within the mapping.
    let out = unsafe { shared.add(layout::FILES) };
    // SAFETY: `packed` fits after the offset (checked above) and does not overlap the mapping.
    unsafe { std::ptr::copy_nonoverlapping(packed.as_ptr(), out, packed.len()) };
    Ok(())
}

/// Maps the memory that the guest shares with the host, for as long as the guest runs.
fn map_shared() -> Result<*mut u8> {
    let memory = OpenOptions::new().read(true).write(true).open("/dev/mem")?;
    let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, memory.as_raw_fd());
    let place = layout::ADDRESS as libc::off_t;
    // SAFETY: a new shared mapping of memory that the kernel does not use.
    let memory = unsafe { libc::mmap(null_mut(), layout::BYTES, protection, libc::MAP_SHARED, fd, place) };
    if memory == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error()).context("failed to map the shared memory");
    }
    Ok(memory.cast())
}
