#!/usr/bin/env python3
"""Starts and ends daemons under a checking allocator, some at once, and says how each ended.

Run as root, best beside soak.py: starts.py --program target/release/hbbp-sys --times 200

A daemon ends well with exit code 0, without a word of the allocator, and with a segment for its last interval. A program that
was built with -Zsanitizer=address checks itself. Standard library only."""

import argparse
import concurrent.futures
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Checks of glibc: each free is checked in full, and freed memory is overwritten (mallopt(3), M_CHECK_ACTION, M_PERTURB).
CHECKS = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
# AddressSanitizer looks for leaks with ptrace(2), which the daemon may not use.
SANITIZER = {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:exitcode=99"}
PRELOAD = ["/lib/x86_64-linux-gnu/libc_malloc_debug.so.0", "/lib64/libc_malloc_debug.so.0"]


def checks(program):
    with open(program, "rb") as file:
        if b"__asan_init" in file.read():
            return SANITIZER
    return dict(CHECKS, LD_PRELOAD=next((path for path in PRELOAD if os.path.exists(path)), ""))


def once(program, number, seconds, prefix):
    folder = tempfile.mkdtemp(prefix="starts-")
    env = dict(os.environ, **checks(program))
    args = [*prefix, program, "daemon", "--dir", folder, "--interval", "5"]
    if number % 2:
        args += ["--listen", f"unix:{folder}.socket"]
    with open(folder + ".log", "w+") as log:
        child = subprocess.Popen(args, env=env, stdout=subprocess.DEVNULL, stderr=log)
        # Ends at another point of an interval each time.
        time.sleep(seconds * (0.5 + (number * 0.618) % 1))
        before = len(glob.glob(folder + "/*.hbbp"))
        child.send_signal(signal.SIGTERM)
        try:
            code = child.wait(timeout=180)
        except subprocess.TimeoutExpired:
            child.kill()
            code = "did not end"
        log.seek(0)
        said = log.read()
    n = len(glob.glob(folder + "/*.hbbp"))
    is_well = code == 0 and before < n and "free()" not in said and "malloc" not in said and "panicked" not in said and "Sanitizer" not in said
    shutil.rmtree(folder)
    os.unlink(folder + ".log")
    return is_well, f"{number}: exit code {code}, {n} segments, {before} before the signal: {said.strip()[-400:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="hbbp-sys")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8, help="of a daemon, half to one and a half times")
    parser.add_argument("--under", default="", help="a program that runs it, such as valgrind")
    args = parser.parse_args()
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
        each = [pool.submit(once, args.program, n, args.seconds, args.under.split()) for n in range(args.times)]
        for done in concurrent.futures.as_completed(each):
            is_well, what = done.result()
            failed += not is_well
            print(f"ok     {what.split(':', 1)[0]}" if is_well else f"FAILED {what}", flush=True)
    print(f"{args.times - failed} of {args.times} daemons ended well")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
