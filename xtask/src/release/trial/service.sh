#!/bin/sh
# Runs as root on a system with systemd that booted for it, with the package in /trial: uses the service, purges the package, and
# looks for what is left. The last line says whether all went well.
exec > /dev/ttyS0 2>&1
trap 'echo "service: failed"' EXIT
set -eu

# All files but what systemd, dpkg and the kernel keep of what happened. Those of other file systems go with the boot.
list() {
	find / -xdev \( -path /trial -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg \
		-o -path /var/lib/systemd/random-seed -o -path /var/lib/systemd/timers -o -path /var/lib/private \) -prune -o -print |
		sort > "/trial/$1"
}

# The segment that the service wrote first, when it has.
segment() {
	find /var/lib/private/hbbp-sys -name '*.hbbp' 2> /dev/null | sort | head -n 1
}

# `set -e` does not see that a command fails that should, nor the other way round after `!`.
fails() {
	if "$@"; then
		echo "service: succeeded, but should fail: $*"
		exit 1
	fi
}

uname --kernel-release
list before
dpkg --install /trial/hbbp-sys.deb
# Installed, the service waits for the administrator.
fails systemctl is-enabled hbbp-sys
fails systemctl is-active hbbp-sys
# What the unit says that Debian's kernel needs.
echo 2 > /proc/sys/kernel/perf_event_paranoid

systemctl enable --now hbbp-sys
waited=0
while [ -z "$(segment)" ]; do
	systemctl is-active hbbp-sys || { journalctl --no-pager --unit hbbp-sys; exit 1; }
	[ $waited -lt 300 ] || { journalctl --no-pager --unit hbbp-sys; exit 1; }
	sleep 5
	waited=$((waited + 5))
done
echo "service: a segment after $waited s"
ls -l /run/hbbp-sys /var/lib/private/hbbp-sys
grep -E '^(Uid|CapEff)' "/proc/$(systemctl show --property=MainPID --value hbbp-sys)/status"
systemctl stop hbbp-sys
test "$(systemctl show --property=Result --value hbbp-sys)" = success
hbbp-sys report --details "$(segment)" | tee /trial/report
# Its five capabilities are enough for the instructions of the kernel.
grep -E 'kernel text +live, read by a BPF program' /trial/report

# It runs again when the package is removed: that stops it, and keeps its profiles.
systemctl start hbbp-sys
main=$(systemctl show --property=MainPID --value hbbp-sys)
test -e "/proc/$main"
dpkg --remove hbbp-sys
fails test -e "/proc/$main"
test -n "$(segment)"
dpkg --purge hbbp-sys
fails test -e /var/lib/private/hbbp-sys
fails test -e /run/hbbp-sys
fails systemctl cat hbbp-sys
fails getent passwd hbbp-sys
list after
diff /trial/before /trial/after
trap - EXIT
echo "service: passed"
