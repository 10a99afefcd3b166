//! Work for the machine while it is measured; it ends when it is dropped.

use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A child that is killed when the test ends, whatever its end.
pub(crate) struct Load(pub(crate) Child);

impl Load {
    pub(crate) fn shell(script: &str) -> Self {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(shell.spawn().unwrap())
    }

    pub(crate) fn spin() -> Self {
        Self::shell("while :; do :; done")
    }

    pub(crate) fn syscalls() -> Self {
        Self::shell(&format!("exec {SYSCALLS}"))
    }

    /// A process whose threads live for a moment.
    pub(crate) fn threads(folder: &Path) -> Self {
        let text = "#include <pthread.h>\n\
                    static void *work(void *n) { volatile long x = 0; for (long i = 0; i < 100000; i++) x += i; return n; }\n\
                    int main(void) { pthread_t t[8]; for (;;) { \
                    for (int i = 0; i < 8; i++) pthread_create(&t[i], 0, work, 0); \
                    for (int i = 0; i < 8; i++) pthread_join(t[i], 0); } }\n";
        Self(Command::new(built(folder, "threads", text, &[])).spawn().unwrap())
    }

    pub(crate) fn compiler(folder: &Path) -> Self {
        Self::shell(&compiling(folder))
    }
}

/// A command of the shell that makes system calls.
pub(crate) const SYSCALLS: &str = "dd if=/dev/urandom of=/dev/null bs=4k";

/// A command of the shell with a compiler at work on a file of some hundred functions, over and over.
pub(crate) fn compiling(folder: &Path) -> String {
    let source = folder.join("load.c");
    let lines: String = (0..400)
        .map(|i| format!("int f{i}(int a, int b) {{ int s = {i}; for (int i = 0; i < b; i++) s += a * i % (b + 1); return s; }}\n"))
        .collect();
    std::fs::write(&source, lines).unwrap();
    let source = source.display();
    format!("while :; do cc -O2 -c {source} -o {source}.o; done")
}

/// A program that the compiler makes of this text, with more options than those of threads.
pub(crate) fn built(folder: &Path, name: &str, text: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc")
        .args(["-O1", "-pthread"])
        .args(options)
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    program
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thread that sends datagrams to itself through the loopback device. Each one passes a socket filter, a BPF
/// program, so the kernel runs code that the static key of [`super::BpfStats`] patches.
pub(crate) struct Datagrams {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[repr(C)]
struct ClassicProgram {
    len: u16,
    instructions: *const u64,
}

/// `BPF_RET | BPF_K, 0xffff`: keep the datagram (`include/uapi/linux/filter.h`).
static KEEP: u64 = 0x0000_ffff_0000_0006;

impl Datagrams {
    pub(crate) fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let program = ClassicProgram {
            len: 1,
            instructions: &raw const KEEP,
        };
        // SAFETY: the option takes a program of the stated length, which lives through the call.
        let attached = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                size_of::<ClassicProgram>() as u32,
            )
        };
        assert_eq!(attached, 0, "{}", std::io::Error::last_os_error());
        let ended = Arc::new(AtomicBool::new(false));
        let thread = {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || {
                let mut datagram = [0; 64];
                while !ended.load(Ordering::Relaxed) {
                    socket.send(&datagram).unwrap();
                    let _ = socket.recv(&mut datagram);
                }
            })
        };
        Self {
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A disk of a single page: the profile of an idle machine may fit into a second one. It is unmounted when the test ends.
pub(crate) struct SmallDisk(String);

impl SmallDisk {
    /// Over this folder; `None` if nothing can be mounted.
    pub(crate) fn mount(path: &str) -> Option<Self> {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4k", "tmpfs", path])
            .status();
        if mount.is_ok_and(|status| status.success()) {
            return Some(Self(path.to_owned()));
        }
        super::skip_outside_ci("a tmpfs cannot be mounted here");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}
