#!/usr/bin/env bash
# What a build costs from nothing and after a line, at each of the commits: wall time and CPU time in seconds, as a table.
#
#   kernel-tests/experiments/build-times.sh [--from-nothing] COMMIT..
#
# Each commit is built in a clone of its own below $TMPDIR, with --timings, so that its target directory says what took the time. Nothing
# else should run. Dependencies are fetched before. With --from-nothing the first row alone.
set -euo pipefail
repository=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
only_first=
if [ "${1:-}" = --from-nothing ]; then
    only_first=1
    shift
fi
TIMEFORMAT='%R %U %S'
export CARGO_TERM_COLOR=never

# The wall and CPU time of a command, in a row with its name.
row() {
    local name=$1 log=$2
    shift 2
    local times
    times=$({ time "$@" >"$log" 2>&1; } 2>&1) || { tail -20 "$log" >&2; return 1; }
    awk -v name="$commit $name" '{ printf "%s\t%.1f\t%.1f\n", name, $1, $2 + $3 }' <<<"$times"
}

# A line more in the first of these files that the commit has.
add_line() {
    for file; do
        if [ -e "$file" ]; then
            echo "// a line" >>"$file"
            return
        fi
    done
    echo "none of $*" >&2
    return 1
}

printf 'step\twall\tcpu\n'
for commit; do
    clone=$(mktemp -d)
    git clone --quiet --no-checkout "$repository" "$clone"
    cd "$clone"
    git checkout --quiet "$commit"
    cargo fetch --quiet
    row 'first command' "$clone.log" cargo xtask build
    if [ -z "$only_first" ]; then
        rooms='estimate output:report model:snapshot'
        # Where the library is one crate, it has all unit tests, and a line in any room has them built.
        [ -d hbbp-user/estimate ] || rooms=estimate
        for room in $rooms; do
            package=hbbp-${room%:*} folder=${room#*:}
            [ -d "hbbp-user/${room%:*}" ] || package=hbbp-user
            test=(cargo test --release -p "$package" --lib)
            "${test[@]}" --no-run >"$clone.log" 2>&1
            add_line "hbbp-user/${room%:*}/src/lib.rs" "hbbp-user/src/$folder/mod.rs"
            row "unit tests after a line in $folder" "$clone.log" "${test[@]}"
        done
        add_line hbbp-user/src/cli/mod.rs hbbp-user/src/cli.rs
        row 'build after a line in cli' "$clone.log" cargo build --release
    fi
    cd "$repository"
    rm -rf "$clone" "$clone.log"
done
